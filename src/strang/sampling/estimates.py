"""What chains say of each number that they averaged: mean and standard deviation, each with both of its errors.

The Monte Carlo error is that of a finite run. The bias is that of a finite step: with companions at twice the step size
(`strang.sampling.companion`) a mean differs by δ = f(2h) − f(h), and its bias is δ/(2^p − 1), where p is the order.
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from strang.sampling import averages
from strang.sampling.job import Job, position_itself
from strang.sampling.record import Chain
from strang.schedule import sizes_at
from strang.util.trees import Tree, flat_vector, names_of

SHORT_SWEEP = 0.5  # periods of sweeps in units of the posterior's scale, up to which their bias is of order 2
SURE = 1.645  # standard errors by which a bias may be larger than it was measured: 90 % of a normal's are within


@dataclass(frozen=True)
class Estimate:
    """A number for each quantity: its value, Monte Carlo error, bias, and the bias's own error.

    The bias is NaN where it was not measured, and infinite where a companion diverged.
    """

    value: np.ndarray
    error: np.ndarray
    bias: np.ndarray
    bias_error: np.ndarray

    @property
    def bias_bound(self) -> np.ndarray:
        """What the bias is below, as far as was measured."""
        return np.abs(self.bias) + SURE * self.bias_error


@dataclass(frozen=True)
class Estimates:
    """All that was averaged, in the order of the names.

    Attributes:
        names: of the numbers, such as `b[0]`.
        mean: their means.
        sd: their standard deviations; None where no squares were kept.
        rhat: R-hat from the chains' means and variances; NaN for one chain, or without squares.
        order: p, the order that the bias was taken to have; None where it was not measured.
    """

    names: list[str]
    mean: Estimate
    sd: Estimate | None
    rhat: np.ndarray
    order: int | None
    fixed: np.ndarray | None = None  # which are constants, and have no errors

    @property
    def scale(self) -> np.ndarray:
        """Posterior standard deviations; 1 for constants, and NaN where something else does not vary."""
        assert self.sd is not None
        scale = np.where(self.sd.value > 0, self.sd.value, np.nan)
        return scale if self.fixed is None else np.where(self.fixed, 1.0, scale)

    def farthest(self) -> tuple[np.ndarray, np.ndarray]:
        """For each quantity the larger of the errors of mean and sd, Monte Carlo and then bias, in posterior standard
        deviations; NaN where it is not known, infinite where something does not vary at all."""
        if self.sd is None:
            unknown = np.full(len(self.names), np.nan)
            return unknown, unknown
        random = np.maximum(self.mean.error, self.sd.error) / self.scale
        bias = np.maximum(self.mean.bias_bound, self.sd.bias_bound) / self.scale
        if self.fixed is None:
            return random, bias
        return np.where(self.fixed, 0.0, random), np.where(self.fixed, 0.0, bias)


def bias_order(job: Job) -> int:
    """The order at which the bias falls with the step size: 1, unless it is known to be 2 for this integrator and these
    batches. To take it for 1 overestimates the bias.

    Sweeps are of order 2 only while they are short beside the time in which positions forget: the noise of a batch and
    of the same rows later in the sweep cancel where the chain is still near. In longer ones the bias of rows whose
    curvatures differ levels off, towards that of independent batches, and a third of the difference would be too small
    (exactly so in tests/sampling/test_sweeps.py). The time is known in coordinates of unit curvature.
    """
    order = job.inputs.data.batch_order
    if job.program.step.position_order < 2:
        return 1
    if order.full or order.epoch == 1:
        return 2
    known = not order.independent and job.inputs.coordinates is not None
    return 2 if known and companion_period(job) <= SHORT_SWEEP else 1


def companion_period(job: Job) -> float:
    """The time that the longest sweep of companions takes, once averages begin."""
    first = sizes_at(job.inputs.schedule, np.array([float(job.inputs.burn_in) + 1]))
    return 2 * job.inputs.data.batch_order.period * float(np.max(first))


def shares_noise(job: Job) -> bool:
    """Whether all chains are given the same batches, a loader's, so that their errors are not independent."""
    order = job.inputs.data.batch_order
    return order.shared and not order.full


def estimates(job: Job, chain: Chain, which: np.ndarray | None = None) -> Estimates:
    """The estimates from what chains have summed, of `which` of them, by default of all, as far as they are alive."""
    alive = np.asarray(chain.alive) if which is None else np.asarray(chain.alive) & which
    whole = np.any(alive)
    alive = alive if whole else np.ones_like(alive)  # of which all is NaN
    pieces = averages.pieces_of(chain.average, alive, shared=shares_noise(job))
    alone = "position" if job.program.average is position_itself else "average"
    names = names_of(jax.tree.map(lambda total: np.asarray(total)[0], chain.average.total["average"]), alone)
    labels = getattr(job.program.model, "labels", {})
    names = [labels.get(name, name) for name in names]
    rows, weights = flat(pieces), pieces["weight"]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):  # of a run that averaged nothing yet
        mean = rows["average"].sum((0, 1)) / weights.sum()
        bias, order = Bias(job, chain, alive, len(names)), bias_order(job) if chain.companion else None
        found = Estimate(mean, one_error(rows["average"], weights), *bias.of({"average": 1.0}))
        if "square" not in rows:
            return Estimates(names, found, None, np.full(len(names), np.nan), order)
        centre = flat_vector(job.inputs.reference)
        variance = rows["square"].sum((0, 1)) / weights.sum() - (mean - centre) ** 2
        sd = np.sqrt(np.maximum(variance, 0)) if whole else np.full_like(mean, np.nan)
        # The variance is the mean of (x − r)² − 2 (m − r) x, up to a constant: its error is that of this mean.
        slope = -2 * (mean - centre)
        spread = one_error(rows["square"] + slope * rows["average"], weights) / (2 * sd)
        off = (x / (2 * sd) for x in bias.of({"square": 1.0, "average": slope}))
        return Estimates(names, found, Estimate(sd, spread, *off), rhat(rows, weights, centre), order, job.fixed)


class Bias:
    """The bias of linear combinations of what was averaged."""

    def __init__(self, job: Job, chain: Chain, alive: np.ndarray, count: int):
        self.count, self.state = count, "measured"
        if not chain.companion:
            self.state = "unknown"
            return
        companion: Any = chain.companion
        followed, following = alive[:: job.program.stride], np.asarray(companion.alive)
        if not followed.any():
            self.state = "unknown"
        elif (followed & ~following).any():
            self.state = "diverged"
        else:
            pieces = averages.pieces_of(companion.difference, followed, shared=shares_noise(job))
            self.rows, self.weights, self.factor = flat(pieces), pieces["weight"], 2.0 ** bias_order(job) - 1

    def of(self, combination: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """The bias of a combination, and its standard error."""
        if self.state != "measured":
            value, error = (np.inf, 0.0) if self.state == "diverged" else (np.nan, np.nan)
            return np.full(self.count, value), np.full(self.count, error)
        rows = sum(factor * self.rows[name] for name, factor in combination.items())
        return rows.sum((0, 1)) / self.weights.sum() / self.factor, one_error(rows, self.weights) / self.factor


def one_error(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The standard error of an average from its sums: chain, batch, number."""
    return averages.error_of({"rows": rows, "weight": weights})["rows"]


def rhat(rows: dict[str, np.ndarray], weights: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """√(1 + variance between the chains' means / variance within), of Gelman and Rubin (1992)."""
    if len(weights) < 2:
        return np.full(rows["average"].shape[-1], np.nan)
    total = weights.sum(1)[:, None]
    mean = rows["average"].sum(1) / total
    within = rows["square"].sum(1) / total - (mean - centre) ** 2
    return np.sqrt(1 + mean.var(0, ddof=1) / np.maximum(within.mean(0), np.finfo(float).tiny))


def flat(pieces: Tree) -> dict[str, np.ndarray]:
    """Sums with all numbers of an average side by side: chain, batch, number."""
    shape = pieces["weight"].shape
    return {
        name: np.concatenate([leaf.reshape(*shape, -1) for leaf in jax.tree.leaves(pieces[name])], axis=-1)
        for name in ("average", "square")
        if name in pieces
    }
