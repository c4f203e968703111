"""What a regression came to."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.regression import predictions
from strang.regression.encoding import Encoding, Rows
from strang.regression.model import RegressionModel
from strang.run import Run
from strang.run.check import PredictiveCheck
from strang.run.predict import LogDensity
from strang.run.table import Table
from strang.util.numbers import finite

SHOWN_EFFECTS = 10
CHECKED = 5_000  # rows of a predictive check
SCORED = 20_000  # held-out rows that are scored


@dataclass(frozen=True, eq=False, repr=False)
class Regression:
    """What `strang.glm` returns: `print` it, or take the numbers with `to_dict()`.

    Attributes:
        run: the run of `strang.sample` below it: draws, errors, tuning, health.
        model: the posterior that was sampled.
        held: the rows that were held out, as the model sees them.
        matrix: the folder of the matrix, where it is not in memory.
        seconds: how long all of it took, and `prepared` how long the table did.
        trusted: whether everything that can go wrong was looked for and not found.
        reasons: why it is not trusted, worst first.
        priors: by name.
        notes: what is worth knowing of the table.
        rows: how many were fitted.
    """

    run: Run
    model: RegressionModel
    held: Rows | None
    matrix: Path | None
    seconds: float
    prepared: float

    @property
    def encoding(self) -> Encoding:
        return self.model.encoding

    @property
    def trusted(self) -> bool:
        return self.run.trusted

    @property
    def reasons(self) -> list[str]:
        return self.run.reasons

    @property
    def priors(self) -> dict[str, str]:
        return {name: str(prior) for name, prior in self.model.priors.items()}

    @property
    def notes(self) -> list[str]:
        return list(self.encoding.notes)

    @property
    def rows(self) -> int:
        return self.run.job.inputs.data.size

    def summary(self) -> Table:
        """Coefficients in the table's own units, the family's parameters, and the spread of group effects."""
        return chosen(self.run.summary(), lambda name: name not in self._effect_names)

    @cached_property
    def _effect_names(self) -> set[str]:
        return {label for name, label in self.model.labels.items() if name.startswith("effect_")}

    @cached_property
    def held_out(self) -> LogDensity | None:
        """How well the rows that were held out are predicted, 20,000 of them at most, from 1,000 draws; None where none
        were."""
        if self.held is None:
            return None
        some = {name: np.asarray(x[:SCORED]) for name, x in self.held.items()}
        return self.run.log_predictive_density(some, draws=1_000, progress=False)

    def effects(self) -> Any:
        """The effects of all levels of groups, as a pandas frame: by how much a level's coefficients differ from the
        average's, in the table's own units, with their shrinkage: `pooling` is an effect's posterior variance over that
        between levels, 1 where its rows say nothing and 0 where they say all."""
        return predictions.effects(self)

    def predict(
        self,
        data: Any,
        kind: str = "mean",
        interval: float = 0.9,
        *,
        draws: int = 2_000,
        seed: int = 0,
        progress: bool | None = None,
    ) -> predictions.Predicted:
        """What is expected at the rows of a new table, each with an interval. Levels of a group that were not fitted
        get effects drawn from the distribution of levels; of C(...) they are an error.

        Args:
            data: a table, as for `strang.glm`; the response need not be in it.
            kind: `mean` of the response (of classes, the probability of each), the `response` itself, with its own
                noise, or the `linear` predictor.
            interval: the probability of the interval.
            draws: at most so many of the posterior, spread over all that were kept.
            seed: of what is drawn at random.
            progress: whether to show a progress bar; None: on a terminal.
        """
        return predictions.predict(self, data, kind, interval, draws, seed, progress)

    def contrast(self, weights: dict[str, float]) -> Table:
        """A weighted sum of coefficients, such as `{"C(g)[T.b]": 1, "C(g)[T.c]": -1}`, with its interval."""
        return predictions.contrast(self, weights)

    def marginal_effects(self, variables: list[str] | None = None) -> Table:
        """By how much the mean of the response rises with a column, averaged over the table's rows (2,000 of them at
        most): the slope for a number, the difference to the first level for a class.

        Args:
            variables: columns of the table; by default all in the formula.
        """
        return predictions.marginal_effects(self, variables)

    def check(self, draws: int = 200, seed: int = 0) -> PredictiveCheck:
        """Data that the model would have made, beside those that were seen, at up to 5,000 rows."""
        data = self.run.job.inputs.data
        some = np.unique(np.linspace(0, data.size - 1, min(data.size, CHECKED)).round().astype(np.uint32))
        rows = jax.tree.map(np.asarray, jax.jit(data.take)(jnp.asarray(some)))
        data.check()
        y = rows.pop("y")
        function = predictions.response_function(self.model, "response", {})
        name = self.encoding.formula.response
        return self.run.predictive_check(function, rows, y, name=name, draws=draws, seed=seed, progress=False)

    def to_arviz(self, **settings: Any) -> Any:
        """The draws as an ArviZ DataTree, with the names of columns and levels; settings are those of
        `Run.to_arviz`."""
        e = self.encoding
        dims: dict[str, list[str]] = {"coefficient": ["column", *(["class"] if self.model.outputs else [])]}
        coords: dict[str, Any] = {"column": list(e.names)}
        coords |= {"class": list(map(str, e.levels[1:]))} if self.model.outputs else {}
        for k, group in enumerate(e.groups):
            dims |= {f"sd_{k}": [f"term_{k}"], f"effect_{k}": [f"level_{k}", f"term_{k}"]}
            coords |= {f"term_{k}": list(group.names), f"level_{k}": list(group.levels)}
        return self.run.to_arviz(**{"dims": dims, "coords": coords, **settings})

    def page(self) -> str:
        """The page of the regression, as HTML that needs nothing else."""
        from strang.regression.page import page

        return page(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON can hold it."""
        return finite(
            {
                "formula": self.encoding.formula.text,
                "family": self.model.family.name,
                "link": self.model.family.link,
                "summary": self.summary().to_dict(),
                "trusted": self.trusted,
                "reasons": self.reasons,
                "rows": self.rows,
                "seconds": self.seconds,
                "prepared_seconds": self.prepared,
                "ended": None if self.run.goal is None else self.run.goal.why,
                "priors": self.priors,
                "notes": self.notes,
                "held_out": None
                if self.held_out is None
                else {"rows": len(self.held_out.each), "log_density": self.held_out.mean, "error": self.held_out.error},
                "chains": self.run.job.program.chains,
                "steps": self.run.steps,
            }
        )

    def __str__(self) -> str:
        return "\n".join(lines(self))

    def __repr__(self) -> str:
        return (
            f"<Regression {self.encoding.formula.text!r}: {self.rows:,} rows, {'' if self.trusted else 'not '}trusted>"
        )


def chosen(table: Table, wanted: Any) -> Table:
    """Some rows of a table."""
    places = [k for k, name in enumerate(table.names) if wanted(name)]
    return Table([table.names[k] for k in places], {name: column[places] for name, column in table.columns.items()})


def lines(result: Regression) -> list[str]:
    """A regression for people."""
    from strang.run import summary

    family = result.model.family
    text = [
        f"{result.encoding.formula.text}   {family.name} ({family.link}), {result.rows:,} rows, {result.seconds:.1f} s",
        *result.summary().lines(100),
        *summary.judged(result.run),
    ]
    if result.held_out is not None:
        text.append(f"rows held out: {result.held_out}")
    text += result.notes
    priors = ", ".join(f"{name} {prior}" for name, prior in list(result.priors.items())[:SHOWN_EFFECTS])
    more = f", and {len(result.priors) - SHOWN_EFFECTS} more" if len(result.priors) > SHOWN_EFFECTS else ""
    return [*text, f"priors: {priors}{more}", *([result.run.goal.why] if result.run.goal is not None else [])]
