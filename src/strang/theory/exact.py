"""Exact finite-time bias and mean square error of the weighted average of θ² on the Gaussian model.

The prior is N(0, prior_var), the data are x_i ~ N(θ, noise_var). A step is then a linear map with Gaussian noise, and
the moments that make up bias and error move by a linear map from one period of the minibatch order to the next
(`periods`): any number of steps for full and independent batches, R for a sweep, 2R forwards and backwards. Nothing is
sampled.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.linalg import matrix_power

from strang.data.orders import Independent, make_order
from strang.dynamics.fields import is_linear
from strang.integrators.words import Step
from strang.theory.linear import Linear, linearise
from strang.theory.periods import layout_of, period_maps
from strang.theory.population import Period, Posterior, independent_period, posterior, sweep_period
from strang.util.errors import InputError

Schedule = Callable[[np.ndarray], np.ndarray]
BLOCK = 16  # steps per period with independent batches; the result does not depend on it, the speed does


class Exact(NamedTuple):
    """`mean` = `truth` + `bias` is the expectation of the average, `mse` its mean square distance from the truth.

    Paper: the variance is O(h^2K) as L → ∞. We: `mse` − `bias`² is the variance and falls to 0 like 1/(Lh), because
    h^2K is the squared bias (erratum A15).
    """

    bias: float | np.ndarray
    mse: float | np.ndarray
    mean: float | np.ndarray
    truth: float


class Chain(NamedTuple):
    """The maps and sizes of a run's steps, period by period; with a fixed step size one period stands for all."""

    steps: Linear
    sizes: np.ndarray
    burn_in: int
    period: Period
    posterior: Posterior

    def maps(self, numbers: np.ndarray, stops: np.ndarray | float = np.inf) -> np.ndarray:
        """The moment maps of the periods with these numbers, in which the average ends with step `stops`."""
        rows = numbers if len(self.sizes) > 1 else np.zeros_like(numbers)
        length = self.sizes.shape[1]
        l = numbers[:, None] * length + np.arange(1, length + 1)
        averaged = (l > self.burn_in) & (l <= np.reshape(stops, (-1, 1)))
        weights = np.where(averaged, self.sizes[rows], 0.0)
        return chain_maps(Linear(*(part[rows] for part in self.steps)), weights, self.period, self.posterior)

    def chunks(self, count: int) -> Iterator[slice]:
        """0 ... count in chunks whose maps take some ten megabytes at a time."""
        length, random = self.period.draw.shape
        size = max(1, 2_000_000 // (2000 + length * (length + random) + 10 * random**2))
        return (slice(i, min(i + size, count)) for i in range(0, count, size))

    def weight(self, stops: np.ndarray) -> np.ndarray:
        """Σ h_l up to the steps `stops`, without the burn-in."""
        if np.ptp(self.sizes) == 0:
            return self.sizes[0, 0] * (stops - self.burn_in)
        return np.cumsum(np.where(np.arange(self.sizes.size) < self.burn_in, 0.0, self.sizes.ravel()))[stops - 1]


def chain_maps(steps: Linear, weights: np.ndarray, period: Period, posterior: Posterior) -> np.ndarray:
    """`period_maps` with the gradient errors and the target of a posterior."""
    unmoved = np.zeros((len(period.offset), steps.push.shape[-1]))
    drive = np.hstack([period.offset[:, None], unmoved, period.draw])
    return period_maps(steps, weights, drive, period.moments, shift=posterior.mean, variance=1 / posterior.precision)


def initial_moments(dynamics: Any, mean: float, variance: float) -> np.ndarray:
    """The moments of the centred start: those after a step that forgets where it came from."""
    with jax.enable_x64(True):
        center, spread, kick = (
            np.array(dynamics.init(*map(jnp.asarray, given)), float)
            for given in ((float(mean), 0.0), (float(np.sqrt(variance)), 0.0), (0.0, 1.0))
        )
    noise = np.array([spread, kick]).T
    forget = Linear(np.zeros((1, 1, len(center), len(center))), center[None, None], noise[None, None])
    once = Period(np.zeros(1), np.ones(1), np.zeros((1, 0)))
    nowhere = np.eye(layout_of(len(center) + 1).size)[0]
    return chain_maps(forget, np.zeros((1, 1)), once, Posterior(0.0, 1.0))[0] @ nowhere


def walk(chain: Chain, moments: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The moments at the starts of the `wanted` periods, one period after the other."""
    starts = dict.fromkeys(wanted.tolist(), moments)
    for chunk in chain.chunks(wanted[-1]):
        for number, matrix in enumerate(chain.maps(np.arange(chunk.start, chunk.stop)), chunk.start + 1):
            moments = matrix @ moments
            if number in starts:
                starts[number] = moments
    return np.stack([starts[number] for number in wanted.tolist()])


def leap(chain: Chain, moments: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The same for a fixed step size, where the periods before and after the one in which the burn-in ends are alike,
    by powers of their maps."""
    turn = chain.burn_in // chain.sizes.shape[1]
    before, across, after = (chain.maps(np.array([number]))[0] for number in (turn - 1, turn, turn + 1))
    starts, at = [], 0
    for number in wanted.tolist():
        moments = matrix_power(before, min(number, turn) - min(at, turn)) @ moments
        if at <= turn < number:
            moments = across @ moments
        moments = matrix_power(after, max(number, turn + 1) - max(at, turn + 1)) @ moments
        starts.append(moments)
        at = number
    return np.stack(starts)


def step_maps(step: Step, dynamics: Any, period: Period, sizes: np.ndarray) -> Linear:
    """The maps of every step of every period."""
    slopes, which = np.unique(period.slope, return_inverse=True)
    distinct, place = np.unique(sizes, return_inverse=True)
    by_slope = zip(*(linearise(step, dynamics, slope, distinct) for slope in slopes), strict=True)
    maps = Linear(*(np.stack(part)[which, place.reshape(sizes.shape)] for part in by_slope))
    if any(np.isnan(part).any() for part in maps):
        raise InputError(
            f"{step.name!r} has no real map at step sizes up to {sizes.max():g}: the known gradient noise exceeds the "
            "noise of a step; write a smaller step_size or gradient_noise."
        )
    return maps


def finite_time(
    step: Step,
    dynamics: Any,
    *,
    data: Any,
    batch_size: int | None = None,
    batch_order: str = "iid",
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
    """Compute the exact bias and MSE of Σ h_l θ_l² / Σ h_l over the steps l = burn_in + 1 ... steps, without sampling.

    The chain starts at θ ~ N(init_mean, init_var), p ~ N(0, 1).

    Paper: sums over X_0 ... X_{L−1} and X_1 ... X_L are mixed. We: average X_1 ... X_L, because the start is no sample
    (erratum A19).

    Args:
        step, dynamics: a step from `strang.spell`, and SGLD or SGHMC with its numbers.
        data: the rows x_i ~ N(θ, noise_var).
        batch_size, batch_order: as for `strang.data.arrays`.
        replacement: whether an iid batch may hold a row twice.
        step_size: a number, or a function of the (whole, float) step numbers l = 1 ... `steps`.
        steps, burn_in: the number of steps L, and how many of them are left out of the average.
        init_mean, init_var: of the starting position.
        prior_var, noise_var: of the model.
        at: increasing step numbers; the results are then arrays: those of the run up to each of them.

    Returns:
        The bias, the MSE, the mean and the true value; an unstable step gives infinity once the moments overflow.

    Raises:
        InputError: if the dynamics is not linear on a Gaussian or an argument is out of range.

    Example:
        >>> import strang
        >>> sgld, data = strang.SGLD(), np.array([0.5, 1.5])
        >>> settings = {"batch_order": "full", "step_size": 0.1, "steps": 1001, "burn_in": 1000}
        >>> run = finite_time(strang.spell(sgld, "euler"), sgld, data=data, **settings)
        >>> round(run.bias, 9), round(1 / 3 / (1 - 0.1 * 3 / 2) - 1 / 3, 9)  # by then that of the invariant measure
        (0.058823529, 0.058823529)
    """
    data = check(dynamics, data, steps, burn_in, init_mean, (init_var, prior_var, noise_var))
    order = make_order(len(data), batch_size, batch_order, replacement=replacement)
    stops = check_stops([steps] if at is None else at, burn_in, steps)
    target = posterior(data, prior_var, noise_var)
    target = target._replace(precision=target.precision / float(getattr(dynamics, "temperature", 1.0)))
    if order.full or order.independent:
        repeats = isinstance(order, Independent) and order.replacement
        period = independent_period(data, order.batch_size, repeats, prior_var, noise_var, BLOCK)
    else:
        period = sweep_period(data, order, prior_var, noise_var)
    sizes = check_sizes(step_size, steps, len(period.slope))
    with np.errstate(over="ignore", invalid="ignore"):
        chain = Chain(step_maps(step, dynamics, period, sizes), sizes, burn_in, period, target)
        bias, mse = errors(chain, initial_moments(dynamics, init_mean - target.mean, init_var), stops)
    truth = target.mean**2 + 1 / target.precision
    if at is None:
        return Exact(float(bias[0]), float(mse[0]), float(truth + bias[0]), truth)
    return Exact(bias, mse, truth + bias, truth)


def errors(chain: Chain, moments: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E[S] and E[S²] over the weights, at the steps `stops`; infinite where the moments overflow."""
    numbers = (stops - 1) // chain.sizes.shape[1]
    starts = (walk if len(chain.sizes) > 1 else leap)(chain, moments, numbers)
    ends = [chain.maps(numbers[part], stops[part]) @ starts[part, :, None] for part in chain.chunks(len(stops))]
    sums, weight = np.concatenate(ends)[..., 0], chain.weight(stops)
    quads = len(layout_of(chain.steps.push.shape[-1] + 1).first)
    bias, mse = sums[:, quads] / weight, sums[:, -1] / weight**2
    return np.where(np.isfinite(bias), bias, np.inf), np.where(np.isfinite(mse), mse, np.inf)


def check(
    dynamics: Any, data: Any, steps: int, burn_in: int, init_mean: float, variances: tuple[float, ...]
) -> np.ndarray:
    """Refuse what has no exact answer or no meaning; the data as floats."""
    if not is_linear(dynamics):
        raise InputError(
            f"{type(dynamics).__name__} is not linear on a Gaussian; only SGLD and SGHMC have exact moments."
        )
    data = np.asarray(data, float)
    if data.ndim != 1 or not len(data) or not np.isfinite(data).all():
        raise InputError(f"data has shape {data.shape}; write a one-dimensional array of finite numbers.")
    if not 0 <= burn_in < steps:
        raise InputError(f"burn_in is {burn_in} of {steps} steps; write a number from 0 to {steps - 1}.")
    if not math.isfinite(init_mean):
        raise InputError(f"init_mean is {init_mean}; write a finite number.")
    if not (0 <= variances[0] < math.inf and min(variances[1:]) > 0 and sum(1 / v for v in variances[1:]) > 0):
        raise InputError(f"init_var, prior_var and noise_var are {variances}; write init_var >= 0 and the others > 0.")
    return data


def check_stops(at: Sequence[int], burn_in: int, steps: int) -> np.ndarray:
    """The step numbers at which to report, as an increasing array."""
    stops = np.asarray(at)
    whole = stops.ndim == 1 and len(stops) > 0 and stops.dtype.kind in "iu"
    if whole and burn_in < stops[0] and stops[-1] <= steps and (np.diff(stops) > 0).all():
        return stops.astype(np.int64)
    raise InputError(f"at is {at!r}; write increasing step numbers from {burn_in + 1} to {steps}.")


def check_sizes(step_size: float | Schedule, steps: int, length: int) -> np.ndarray:
    """h_1 ... h_L in double precision, a row per period; one row if all are equal."""
    if callable(step_size):
        with jax.enable_x64(True):  # so that a schedule written in JAX is not rounded
            sizes = np.broadcast_to(np.asarray(step_size(np.arange(1.0, steps + 1)), float), steps)
    else:
        sizes = np.array([step_size], float)
    if not (np.isfinite(sizes) & (sizes > 0)).all():
        raise InputError(f"step sizes run from {sizes.min():g} to {sizes.max():g}; they must be positive and finite.")
    if np.ptp(sizes) == 0:
        return np.full((1, length), sizes[0])
    return np.pad(sizes, (0, -steps % length), "edge").reshape(-1, length)
