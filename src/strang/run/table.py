"""The table of a run: each number that was averaged, by name, with its spread, both of its errors, ESS and R-hat."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Any

import jax
import numpy as np

from strang.sampling.estimates import Estimates
from strang.util.errors import InputError
from strang.util.trees import Tree

QUANTILES = {"q05": 0.05, "q50": 0.5, "q95": 0.95}
MIN_DRAWS = 4  # of each chain, for ESS and R-hat by ArviZ
SHOWN = 20  # rows that are printed
CHUNK = 1 << 22  # numbers of draws that are looked at together
HEADINGS = {
    "mean": "mean", "sd": "sd", "q05": "5 %", "q50": "50 %", "q95": "95 %", "mc_error": "± Monte Carlo",
    "bias": "± bias", "ess": "ESS", "rhat": "R-hat",
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """What `run.summary()` gives: `print` it, or take its numbers with `to_dict()` or, for pandas, `to_frame()`.

    Attributes:
        names: of the rows, such as `b[0]`.
        columns: an array for each of `mean`, `sd`, `q05`, `q50`, `q95`, `mc_error` (the Monte Carlo standard error of
            the mean), `bias` (what the bias of the mean is below; NaN where it was not measured), `ess` and `rhat`.
    """

    names: list[str]
    columns: dict[str, np.ndarray]

    def to_dict(self) -> dict[str, dict[str, float]]:
        """The numbers by row and column."""
        return {
            name: {column: float(values[k]) for column, values in self.columns.items()}
            for k, name in enumerate(self.names)
        }

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame."""
        try:
            from pandas import DataFrame
        except ImportError:
            raise InputError("a DataFrame needs pandas, which is not installed; write pip install pandas.") from None
        return DataFrame(self.columns, index=self.names)

    def cells(self, most: int | None = None) -> list[list[str]]:
        """The table as text, heading first."""
        rows = [["", *HEADINGS.values()]]
        for k, name in enumerate(self.names[:most]):
            rows.append([name, *(written(column, self.columns, k) for column in HEADINGS)])
        return rows

    def lines(self, most: int | None = None) -> list[str]:
        """The table as lines of text."""
        cells = self.cells(most)
        widths = [max(len(row[k]) for row in cells) for k in range(len(HEADINGS) + 1)]
        text = [
            "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
            for row in cells
        ]
        left = len(self.names) - len(cells) + 1
        return text + ([f"... and {left:,} more rows: run.summary() has all of them"] if left > 0 else [])

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        rows = ("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in self.cells())
        return f"<table>{''.join(rows)}</table>"


def written(column: str, columns: dict[str, np.ndarray], k: int) -> str:
    """One number, to the digits that its errors leave."""
    value = columns[column][k]
    if np.isnan(value):
        return "–"
    if column == "ess":
        return f"{value:,.0f}"
    if column == "rhat":
        return f"{value:.3f}"
    if column in ("mc_error", "bias"):
        return f"{value:.2g}"
    error = columns["mc_error"][k]
    if np.isfinite(error) and error > 0 and np.isfinite(value) and value:
        digits = int(np.floor(np.log10(abs(value))) - np.floor(np.log10(error))) + 2  # as far as the error's second
        return f"{value:.{min(max(digits, 2), 12)}g}"
    return f"{value:.6g}"


def table(found: Estimates, draws: np.ndarray | None) -> Table:
    """The table of estimates; `draws` are those of the chains that are alive: chain, draw, number."""
    missing = np.full(len(found.names), np.nan)
    sd = missing if found.sd is None else found.sd.value
    with np.errstate(divide="ignore", invalid="ignore"):
        ess = (sd / found.mean.error) ** 2
    columns = {"mean": found.mean.value, "sd": sd, **dict.fromkeys(QUANTILES, missing)}
    columns |= {"mc_error": found.mean.error, "bias": found.mean.bias_bound, "ess": ess, "rhat": found.rhat}
    if draws is not None and draws.shape[1] >= MIN_DRAWS:
        for name, level in QUANTILES.items():
            columns[name] = np.quantile(draws, level, axis=(0, 1))
        measured = mixing(draws)
        columns |= {} if measured is None else measured
    return Table(found.names, columns)


def mixing(draws: np.ndarray) -> dict[str, np.ndarray] | None:
    """Bulk ESS and R-hat by ArviZ; None where it is not installed."""
    try:
        from arviz_stats.base import array_stats as stats
    except ImportError:
        return None
    columns = [np.asarray(draws[:, :, k], float) for k in range(draws.shape[2])]
    axes = {"chain_axis": 0, "draw_axis": 1}
    with np.errstate(invalid="ignore", divide="ignore"):
        found = {"ess": [stats.ess(x, method="bulk", **axes) for x in columns]}
        found["rhat"] = [stats.rhat(x, **axes) for x in columns]
    return {name: np.array([float(value) for value in values]) for name, values in found.items()}


@partial(jax.jit, static_argnums=0)
def averaged_each(average: Callable, part: Tree) -> list:
    """What is averaged, as vectors, at each draw of each chain."""
    outcome = jax.vmap(jax.vmap(average))(part)
    return [leaf.reshape(*leaf.shape[:2], -1) for leaf in jax.tree.leaves(outcome)]


def flat_draws(samples: Tree, average: Callable, alive: np.ndarray) -> np.ndarray:
    """What is averaged, at each draw of the chains that are alive: chain, draw, number. A few draws at a time."""
    kept = jax.tree.map(lambda x: x[alive], samples)
    first = jax.tree.leaves(kept)[0]
    each = max(1, CHUNK // max(1, sum(leaf[:, :1].size for leaf in jax.tree.leaves(kept))))
    parts = []
    for start in range(0, first.shape[1], each):
        part = jax.tree.map(partial(lambda start, x: np.asarray(x[:, start : start + each]), start), kept)
        parts.append(np.concatenate([np.asarray(leaf) for leaf in averaged_each(average, part)], axis=-1))
    return np.concatenate(parts, axis=1)
