"""What a regression came to."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from strang.regression.encoding import Encoding, Rows
from strang.regression.model import RegressionModel
from strang.run import Run
from strang.run.predict import LogDensity
from strang.run.table import Table
from strang.util.numbers import finite

SHOWN_EFFECTS = 10


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
        """How well the rows that were held out are predicted; None where none were."""
        if self.held is None:
            return None
        return self.run.log_predictive_density(self.held, progress=False)

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
