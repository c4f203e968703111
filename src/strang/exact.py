"""Exact finite-time bias and mean square error of the weighted average of θ² on the Gaussian model.

The prior is N(0, prior_var), the data are x_i ~ N(θ, noise_var). A step is then a linear map with Gaussian noise, and
the moments that make up bias and error move by a linear map from one period of the minibatch order to the next
(`periods`): one step for full and independent batches, R for a sweep, 2R forwards and backwards. Nothing is sampled.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from .data import ORDERS
from .dynamics import SGNHT, SGRHMC
from .errors import InputError, choose
from .linear import Linear, linearise
from .periods import layout_of, period_maps
from .population import NOTHING, Exchangeable, batch_moments

Schedule = Callable[[np.ndarray], np.ndarray]


class Exact(NamedTuple):
    """`mean` = `truth` + `bias` is the expectation of the average, `mse` its mean square distance from the truth.

    Paper: the variance is O(h^2K) as L → ∞. We: `mse` − `bias`² is the variance and falls to 0 like 1/(Lh), because
    h^2K is the squared bias (erratum A15).
    """

    bias: float | np.ndarray
    mse: float | np.ndarray
    mean: float | np.ndarray
    truth: float


class Posterior(NamedTuple):
    """N(mean, 1/precision)."""

    mean: float
    precision: float


class Period(NamedTuple):
    """At its step l the minibatch gradient is slope_l (θ − m) + offset_l + draw_l · Δ."""

    slope: np.ndarray
    offset: np.ndarray
    draw: np.ndarray
    moments: Exchangeable = NOTHING


def posterior(data: np.ndarray, prior_var: float, noise_var: float) -> Posterior:
    """K = 1/prior_var + N/noise_var, m = (Σx/noise_var)/K.

    >>> posterior(np.array([1.0, 2.0]), 1.0, 1.0)
    Posterior(mean=1.0, precision=3.0)
    """
    precision = 1 / prior_var + len(data) / noise_var
    return Posterior(float(data.sum() / noise_var / precision), precision)


def period(data: np.ndarray, batch: int, order: str, replacement: bool, prior_var: float, noise_var: float) -> Period:
    """What the minibatch order does until it starts afresh.

    A sweep counts each of its R batches with scale R, so a last batch with fewer rows has another slope, always at the
    same place; independent batches have scale N/n.
    """
    size, center, precision = len(data), data.mean(), posterior(data, prior_var, noise_var).precision
    if order == "full":
        return Period(np.array([precision]), np.zeros(1), np.zeros((1, 0)))
    if order == "iid":
        moments = batch_moments((center - data) * size / (batch * noise_var), batch, 1, replacement)
        return Period(np.array([precision]), np.zeros(1), np.ones((1, 1)), moments)
    batches = -(-size // batch)
    starts = batch * np.arange(batches)
    counts = np.minimum(size - starts, batch)
    slope = 1 / prior_var + batches * counts / noise_var
    offset = center * (size - batches * counts) / (prior_var * noise_var * precision)
    deviations = (center - data) * batches / noise_var
    if order == "cyclic":
        return Period(slope, offset + np.add.reduceat(deviations, starts), np.zeros((batches, 0)))
    draw = np.vstack([np.eye(batches - 1), -np.ones(batches - 1)])  # an epoch's deviations add to zero
    moments = batch_moments(deviations, batch, batches - 1)
    if order == "reshuffled":
        return Period(slope, offset, draw, moments)
    return Period(*(np.concatenate([part, part[::-1]]) for part in (slope, offset, draw)), moments)


class Chain(NamedTuple):
    """The maps and sizes of a run's steps, period by period; with a fixed step size one period stands for all."""

    steps: Linear
    sizes: np.ndarray
    burn_in: int
    period: Period
    posterior: Posterior

    def maps(self, numbers: np.ndarray, stops: np.ndarray | float = np.inf) -> np.ndarray:
        """The moment maps of the periods with these numbers, in which the average ends with step `stops`."""
        places = numbers if len(self.sizes) > 1 else np.zeros_like(numbers)
        length = self.sizes.shape[1]
        l = numbers[:, None] * length + np.arange(1, length + 1)
        averaged = (l > self.burn_in) & (l <= np.reshape(stops, (-1, 1)))
        weights = np.where(averaged, self.sizes[places], 0.0)
        return chain_maps(Linear(*(part[places] for part in self.steps)), weights, self.period, self.posterior)

    def chunks(self, count: int) -> Iterator[slice]:
        """0 ... count in parts whose maps take some ten megabytes at a time."""
        length, random = self.period.draw.shape
        many = max(1, 2_000_000 // (2000 + length * (length + random) + 10 * random**2))
        return (slice(i, min(i + many, count)) for i in range(0, count, many))


def chain_maps(steps: Linear, weights: np.ndarray, period: Period, posterior: Posterior) -> np.ndarray:
    """`period_maps` with the gradient errors and the target of a posterior."""
    unmoved = np.zeros((len(period.offset), steps.push.shape[-1]))
    drive = np.hstack([period.offset[:, None], unmoved, period.draw])
    return period_maps(steps, weights, drive, period.moments, shift=posterior.mean, variance=1 / posterior.precision)


def initial_moments(dynamics, mean: float, variance: float) -> np.ndarray:
    """The moments of the centred start: those after a step that forgets where it came from."""
    center = np.array(dynamics.init(mean, 0.0), float)
    noise = np.array([dynamics.init(np.sqrt(variance), 0.0), dynamics.init(0.0, 1.0)], float).T
    forget = Linear(np.zeros((1, 1, len(center), len(center))), center[None, None], noise[None, None])
    once = Period(np.zeros(1), np.ones(1), np.zeros((1, 0)))
    nowhere = np.eye(layout_of(len(center) + 1).size)[0]
    return chain_maps(forget, np.zeros((1, 1)), once, Posterior(0.0, 1.0))[0] @ nowhere


def walk(chain: Chain, moments: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The moments at the starts of the `wanted` periods, one period after the other."""
    found = {0: moments}
    needed = set(wanted.tolist())
    for part in chain.chunks(wanted[-1]):
        for number, matrix in enumerate(chain.maps(np.arange(part.start, part.stop)), part.start + 1):
            moments = matrix @ moments
            if number in needed:
                found[number] = moments
    return np.stack([found[number] for number in wanted.tolist()])


def leap(chain: Chain, moments: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The same for a fixed step size, where the periods before and after the one in which the burn-in ends are alike,
    by powers of their maps."""
    turn = chain.burn_in // chain.sizes.shape[1]
    before, across, after = chain.maps(turn + np.arange(-1, 2))
    squares_before, squares_after = [before], [after]
    found, at = [], 0
    for number in wanted.tolist():
        moments = apply_power(squares_before, min(number, turn) - min(at, turn), moments)
        if at <= turn < number:
            moments = across @ moments
        moments = apply_power(squares_after, max(number, turn + 1) - max(at, turn + 1), moments)
        found.append(moments)
        at = number
    return np.stack(found)


def apply_power(squares: list[np.ndarray], exponent: int, vector: np.ndarray) -> np.ndarray:
    """M^exponent vector, where `squares` holds M, M², M⁴, ... and grows as needed."""
    for bit in range(exponent.bit_length()):
        if bit == len(squares):
            squares.append(squares[-1] @ squares[-1])
        if exponent >> bit & 1:
            vector = squares[bit] @ vector
    return vector


def step_maps(step, dynamics, period: Period, sizes: np.ndarray, fixed: bool) -> Linear:
    """The maps of every step of every period; each slope occurs at fixed places of the period."""
    slopes, which = np.unique(period.slope, return_inverse=True)
    columns = np.zeros_like(which) if fixed else np.arange(len(which))
    each = [linearise(step, dynamics, slope, sizes[:, :1] if fixed else sizes) for slope in slopes]
    maps = Linear(*(np.moveaxis(np.stack(part)[which, :, columns], 0, 1) for part in zip(*each, strict=True)))
    if any(np.isnan(part).any() for part in maps):
        raise InputError(
            f"{step.name!r} has no real map at step sizes up to {sizes.max():g}: a correction for known gradient noise "
            "needs its share of the noise to be smaller than the whole; write a smaller step_size or gradient_noise."
        )
    return maps


def finite_time(
    step,
    dynamics,
    *,
    data,
    batch: int | None = None,
    order: str = "iid",
    replacement: bool = True,
    step_size: float | Schedule,
    steps: int,
    burn_in: int = 0,
    init_mean: float = 0.0,
    init_var: float = 1.0,
    prior_var: float = 1.0,
    noise_var: float = 1.0,
    at: Sequence[int] | None = None,
) -> Exact:
    """Bias and MSE of Σ h_l θ_l² / Σ h_l over the steps l = burn_in + 1 ... steps, without sampling.

    `step_size` is a number or a function of the (whole, float) step numbers l = 1 ... `steps`; `replacement` says
    whether an iid batch may hold a row twice. The chain starts at θ ~ N(init_mean, init_var), p ~ N(0, 1). With `at`,
    an increasing list of step numbers, the results are arrays: what the run had come to by each of them. An unstable
    step gives infinity once the moments overflow.

    Paper: sums over X_0 ... X_{L−1} and X_1 ... X_L are mixed. We: average X_1 ... X_L, because the start is no sample
    (erratum A19).

    >>> import strang
    >>> sgld, data = strang.SGLD(), np.array([0.5, 1.5])
    >>> run = finite_time(strang.spell(sgld, "euler"), sgld, data=data, order="full", step_size=0.1, steps=10**6)
    >>> round(run.bias, 6), round(1 / 3 / (1 - 0.1 * 3 / 2) - 1 / 3, 6)  # the invariant measure's, up to 1/(Lh)
    (0.058821, 0.058824)
    """
    data, batch = check(dynamics, data, batch, order, steps, burn_in, (init_var, prior_var, noise_var))
    stops = np.array([steps] if at is None else at)
    if stops.ndim != 1 or not len(stops) or stops[0] <= burn_in or stops[-1] > steps or (np.diff(stops) <= 0).any():
        raise InputError(f"at is {at!r}; write increasing step numbers from {burn_in + 1} to {steps}.")
    target = posterior(data, prior_var, noise_var)
    plan = period(data, batch, order, replacement, prior_var, noise_var)
    length, fixed = len(plan.slope), not callable(step_size)
    sizes = check_sizes(step_size, 1 if fixed else steps)
    total = sizes[0] * (stops - burn_in) if fixed else np.cumsum(np.where(np.arange(steps) < burn_in, 0, sizes))[stops - 1]
    padded = np.full((1, length), sizes[0]) if fixed else np.pad(sizes, (0, -steps % length), "edge").reshape(-1, length)
    numbers = (stops - 1) // length
    with np.errstate(over="ignore", invalid="ignore"):
        chain = Chain(step_maps(step, dynamics, plan, padded, fixed), padded, burn_in, plan, target)
        starts = (leap if fixed else walk)(chain, initial_moments(dynamics, init_mean - target.mean, init_var), numbers)
        ends = [chain.maps(numbers[p], stops[p]) @ starts[p, :, None] for p in chain.chunks(len(stops))]
        sums = np.concatenate(ends)[..., 0]
    quads = len(layout_of(len(chain.steps.push[0, 0]) + 1).first)
    bias, mse = finite(sums[:, quads] / total), finite(sums[:, -1] / total**2)
    truth = target.mean**2 + 1 / target.precision
    if at is None:
        return Exact(float(bias[0]), float(mse[0]), float(truth + bias[0]), truth)
    return Exact(bias, mse, truth + bias, truth)


def finite(values: np.ndarray) -> np.ndarray:
    """Moments that overflowed, or became the difference of two that did, are infinite."""
    return np.where(np.isfinite(values), values, np.inf)


def check(dynamics, data, batch, order, steps, burn_in, variances) -> tuple[np.ndarray, int]:
    """Refuse what has no exact answer or no meaning; the data as floats and the batch size."""
    if isinstance(dynamics, SGNHT | SGRHMC):
        raise InputError(f"{type(dynamics).__name__} is not linear on a Gaussian; only SGLD and SGHMC have exact moments.")
    data = np.asarray(data, float)
    if data.ndim != 1 or not len(data) or not np.isfinite(data).all():
        raise InputError(f"data has shape {data.shape}; write a one-dimensional array of finite numbers.")
    if order not in ORDERS:
        raise choose("minibatch order", order, ORDERS)
    batch = len(data) if order == "full" else batch
    if batch is None or not 1 <= batch <= len(data):
        raise InputError(f"batch is {batch}, but there are {len(data)} data; write a batch size from 1 to {len(data)}.")
    if not 0 <= burn_in < steps:
        raise InputError(f"burn_in is {burn_in} of {steps} steps; write a number from 0 to {steps - 1}.")
    if not all(variance > 0 or (variance == 0 and i == 0) for i, variance in enumerate(variances)):
        raise InputError(f"init_var, prior_var and noise_var are {variances}; write init_var >= 0 and the others > 0.")
    return data, int(batch)


def check_sizes(step_size: float | Schedule, steps: int) -> np.ndarray:
    """h_1 ... h_L in double precision, all positive."""
    with jax.enable_x64(True):  # so that a schedule written in JAX is not rounded
        sizes = np.asarray(step_size(np.arange(1.0, steps + 1)) if callable(step_size) else step_size, float)
    sizes = np.broadcast_to(sizes, steps)
    if not (np.isfinite(sizes) & (sizes > 0)).all():
        raise InputError(f"step sizes run from {sizes.min():g} to {sizes.max():g}; they must be positive and finite.")
    return sizes
