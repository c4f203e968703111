"""Posterior predictive checks: data that the model would have made, beside those that were seen."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from strang.calibration import RegressionScore, pit, score_regression
from strang.run.predict import Values, draws_of, of_position, track_blocks
from strang.util.errors import InputError, whole
from strang.util.trees import Tree

DRAWS = 200  # of replicated data
LEVELS = (0.5, 0.9)
STATISTICS: dict[str, Callable] = {
    "mean": lambda y: y.mean(-1),
    "sd": lambda y: y.std(-1),
    "5 %": lambda y: np.quantile(y, 0.05, axis=-1),
    "95 %": lambda y: np.quantile(y, 0.95, axis=-1),
    "least": lambda y: y.min(-1),
    "largest": lambda y: y.max(-1),
}


class Statistic(NamedTuple):
    """A number of the data that were seen, and of those that the model would have made."""

    name: str
    seen: float
    mean: float  # of replicated data
    low: float  # their 5 % and 95 % quantiles
    high: float
    p_value: float  # two-sided: how often replicated data are as far out


@dataclass(frozen=True)
class PredictiveCheck:
    """What `run.predictive_check` gives; `print` it, or put it on the page of the run.

    Attributes:
        name: of what was seen.
        seen: the data, one number per row.
        replicated: what the model would have made of each row, draws first.
        statistics: numbers of all rows together, of both.
        score: coverage, PIT and CRPS row by row. They look at the rows that were used to fit: with few rows for each
            parameter they are too good.
        pit: the PIT value of each row.
    """

    name: str
    seen: np.ndarray
    replicated: np.ndarray
    statistics: list[Statistic]
    score: RegressionScore
    pit: np.ndarray

    def __str__(self) -> str:
        lines = [f"{self.name}: {len(self.seen):,} rows, {len(self.replicated):,} replications"]
        width = max(len(each.name) for each in self.statistics)
        for each in self.statistics:
            lines.append(
                f"{each.name.ljust(width)}  seen {each.seen:.4g}, replicated {each.mean:.4g} "
                f"({each.low:.4g} to {each.high:.4g}), p-value {each.p_value:.2g}"
            )
        return "\n".join([*lines, str(self.score)])


def predictive_check(
    run,
    function: Callable | str,
    x: Tree,
    seen: Any,
    *,
    name: str = "y",
    draws: int = DRAWS,
    seed: int = 0,
    progress: bool | None = None,
) -> PredictiveCheck:
    """See `Run.predictive_check`."""
    seen = np.asarray(seen, float)
    if seen.ndim != 1 or not np.isfinite(seen).all():
        raise InputError("what was seen must be one finite number for each row.")
    values = Values(of_position(run, function), draws_of(run, whole("draws", draws, 20)), x, whole("seed", seed, 0))
    shapes = [leaf.shape for leaf in jax.tree.leaves(values.like)]
    if shapes != [seen.shape]:
        raise InputError(f"the function gives {shapes}; it must give one number for each of {len(seen)} rows.")
    replicated = np.concatenate(
        [jax.tree.leaves(block)[0] for _, block in track_blocks(values, "checking", progress)], axis=1
    ).astype(float)
    statistics = [statistic(each, function, seen, replicated) for each, function in STATISTICS.items()]
    score = score_regression(replicated, seen, levels=LEVELS)
    return PredictiveCheck(name, seen, replicated, statistics, score, pit(replicated, seen))


def statistic(name: str, function: Callable, seen: np.ndarray, replicated: np.ndarray) -> Statistic:
    """One number of both; ties count half, and the data that were seen are one of all that could have been."""
    value, others = float(function(seen)), function(replicated)
    above = (np.sum(others > value) + 0.5 * np.sum(others == value) + 0.5) / (len(others) + 1)
    low, high = np.quantile(others, [0.05, 0.95])
    return Statistic(name, value, float(others.mean()), float(low), float(high), float(2 * min(above, 1 - above)))
