"""Optimal rates and step sizes, from the bounds of the paper and from exact errors.

The bias of a K-th order step is bounded by C1/(Lh) + C2 h^K and its mean square error by C1/(Lh) + C2² h^2K (theorems 2
and 3). Paper: with any minibatches. We: K = 1 with independent minibatches, whatever the step, because their variance V
adds a bias of order h V (science, facts 1 and 7); full gradients and sweeps through the data keep the step's order.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from strang.integrators.words import Step
from strang.theory.exact import Schedule, finite_time
from strang.theory.linear import stability_limit as numerical_limit
from strang.theory.population import posterior
from strang.util.errors import InputError, choose

GOALS = ("bias", "mse")
MAX_SUMMED = 1_000_000  # step sizes held at once


class Best(NamedTuple):
    """A step size (or the factor of a schedule) and the error there."""

    step_size: float
    error: float


class Rates(NamedTuple):
    """h = C L^-alpha gives an error of order L^-rate; `order` is the effective K.

    With decreasing steps h_l = C l^-alpha the rates are the same, but the bias at its best alpha has a factor log L.
    Paper: Σ h_l^(K+1)/S_L = O(L^−Kα). We: only if (K+1) α < 1, because at α = 1/(K+1) the sum is Σ 1/l (erratum A16).
    """

    order: int
    bias_alpha: float
    bias_rate: float
    mse_alpha: float
    mse_rate: float
    bias_log_when_decreasing: bool


def rates(order: int, noise: bool = False) -> Rates:
    """Compute the best exponents: α = 1/(K+1), rate K/(K+1) for the bias; α = 1/(2K+1), rate 2K/(2K+1) for the MSE.

    Args:
        order: the weak order K of the step.
        noise: whether minibatches are independent, which makes the effective K 1.

    Returns:
        The exponents α of the step size C L^−α and the rates of the error L^−rate.

    Raises:
        InputError: if `order` is below 1.

    Example:
        >>> rates(2)[:3], rates(2, noise=True)[:3]
        ((2, 0.3333333333333333, 0.6666666666666666), (1, 0.5, 0.5))
    """
    if order < 1:
        raise InputError(f"order is {order}; rates need a step of order 1 at least.")
    k = 1 if noise else order
    return Rates(k, 1 / (k + 1), k / (k + 1), 1 / (2 * k + 1), 2 * k / (2 * k + 1), True)


def exponents(order: int, alpha: float) -> tuple[float, float]:
    """Compute the rates at any exponent α of the step size.

    Args:
        order: the effective order K.
        alpha: the exponent of the step size C L^−α.

    Returns:
        The rate of the bias, min(1 − α, Kα), and that of the MSE, min(1 − α, 2Kα).

    Example:
        >>> exponents(2, 0.25)
        (0.5, 0.75)
    """
    return min(1 - alpha, order * alpha), min(1 - alpha, 2 * order * alpha)


def best_step_size(
    order: int,
    steps: int,
    *,
    noise: bool = False,
    goal: str = "bias",
    transient: float = 1.0,
    discretisation: float = 1.0,
) -> Best:
    """Minimise the bound C1/(Lh) + C2 h^K of the bias, or C1/(Lh) + C2² h^2K of the MSE.

    A bound C1/(Lh) + C h^k is least at h = (C1/(k C L))^(1/(k+1)).

    Args:
        order: the weak order K of the step.
        steps: the number of steps L.
        noise: whether minibatches are independent: then K is 1 and C2 the factor of h, such as V/(2 D K0) for θ²
            under SGHMC.
        goal: `bias` or `mse`.
        transient: C1.
        discretisation: C2.

    Returns:
        The best step size and the bound there.

    Raises:
        InputError: if a number is not positive or the goal is unknown.

    Example:
        >>> h, error = best_step_size(2, 1000, transient=2.0)
        >>> round(h, 9), round(error, 9)
        (0.1, 0.03)
    """
    if goal not in GOALS:
        raise choose("goal", goal, GOALS)
    if min(steps, transient, discretisation) <= 0:
        raise InputError(
            f"steps, transient and discretisation are {steps}, {transient}, {discretisation}; all must be > 0."
        )
    k = rates(order, noise).order
    power, factor = (k, discretisation) if goal == "bias" else (2 * k, discretisation**2)
    h = (transient / (power * factor * steps)) ** (1 / (power + 1))
    return Best(h, transient / (steps * h) + factor * h**power)


def best_exact_step_size(
    step: Step,
    dynamics: Any,
    *,
    data: Any,
    steps: int,
    batch_size: int | None = None,
    batch_order: str = "iid",
    replacement: bool = True,
    burn_in: int = 0,
    init_mean: float = 0.0,
    init_var: float = 1.0,
    prior_var: float = 1.0,
    noise_var: float = 1.0,
    goal: str = "mse",
    shape: Schedule | None = None,
    smallest: float | None = None,
    largest: float | None = None,
) -> Best:
    """Find the step size with the least exact bias or MSE of θ² on the Gaussian model.

    The search is over a grid of 49 sizes, then between the neighbours of the best. Where the bias changes sign its
    least size is 0: transient and discretisation cancel there, for θ² alone.

    Args:
        step, dynamics, data, steps, batch_size, batch_order, replacement, burn_in, init_mean, init_var, prior_var,
            noise_var: as for `finite_time`.
        goal: `bias`, which is minimised in size, or `mse`.
        shape: a function of the step numbers l; then the factor h of the schedule h·shape(l) is sought.
        smallest: where the grid begins; by default a millionth of `largest`.
        largest: where it ends; by default at the stability limit (of the first step).

    Returns:
        The best step size, or factor, and the error there.

    Raises:
        InputError: if the goal is unknown, or as by `finite_time`.

    Example:
        >>> import strang
        >>> sgld, data = strang.SGLD(), np.array([0.5, 1.5])
        >>> best = best_exact_step_size(strang.spell(sgld, "euler"), sgld, data=data, batch_order="full", steps=1000)
        >>> round(best.step_size, 3)
        0.085
    """
    if goal not in GOALS:
        raise choose("goal", goal, GOALS)
    settings: dict[str, Any] = {"batch_size": batch_size, "batch_order": batch_order, "replacement": replacement}
    settings |= {"init_mean": init_mean, "init_var": init_var, "prior_var": prior_var, "noise_var": noise_var}
    run = partial(finite_time, step, dynamics, data=data, steps=steps, burn_in=burn_in, **settings)

    def error(log_h: float) -> float:
        h = float(np.exp(log_h))
        return abs(getattr(run(step_size=h if shape is None else lambda l: h * shape(l)), goal))

    if largest is None:
        precision = posterior(np.asarray(data, float), prior_var, noise_var).precision
        limit = min(numerical_limit(step, dynamics, precision), 100 / precision**0.5)
        largest = limit / (1.0 if shape is None else float(shape(np.ones(1))[0]))
    return search(error, np.linspace(np.log(largest * 1e-6 if smallest is None else smallest), np.log(largest), 49))


def search(error: Callable[[float], float], grid: np.ndarray) -> Best:
    """The least error over log h: at the best grid point, then between its neighbours."""

    def log_error(log_h: float) -> float:
        """A finite number also where the step is unstable or its noise correction impossible."""
        try:
            return float(np.log(np.clip(error(log_h), 1e-300, 1e300)))
        except InputError:
            return float(np.log(1e300))

    logs = [log_error(log_h) for log_h in grid]
    best = int(np.argmin(logs))
    ends = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    refined = minimize_scalar(log_error, bounds=ends, method="bounded", options={"xatol": 1e-7})
    log_h = float(refined.x) if refined.fun < logs[best] else float(grid[best])
    return Best(float(np.exp(log_h)), error(log_h))  # where every size is refused, this says why


def richardson(coarse: Any, fine: Any, order: int) -> Any:
    """Remove the leading h^K from averages at step sizes h and h/2: (2^K b(h/2) − b(h))/(2^K − 1).

    Args:
        coarse: the average b(h).
        fine: the average b(h/2).
        order: the order K of the bias in h.

    Returns:
        An average with a bias of order 4 for symmetric steps (K = 2), of order 2 under independent minibatches (K = 1).

    Example:
        >>> richardson(1 + 0.2**2, 1 + 0.1**2, 2)
        1.0
    """
    return (2**order * fine - coarse) / (2**order - 1)


def power_sum_bounds(alpha: float, steps: int) -> tuple[float, float]:
    """Bound a power sum by an integral: ∫ < Σ_{l=1}^L l^−α < 1 + ∫, both integrals from 1 to L.

    Paper: 1 + ∫ up to L − 1. We: up to L, because α = 1/2, L = 10 breaks the paper's bound (erratum A17).

    Args:
        alpha: the exponent α.
        steps: the number of terms L.

    Returns:
        The lower and the upper bound.

    Example:
        >>> low, high = power_sum_bounds(0.5, 4)
        >>> low < 1 + 2**-0.5 + 3**-0.5 + 0.5 < high
        True
    """
    integral = np.log(steps) if alpha == 1 else (steps ** (1 - alpha) - 1) / (1 - alpha)
    return float(integral), float(1 + integral)


def schedule_sums(step_size: Schedule, order: int, steps: int) -> dict[str, Any]:
    """Check assumption 2 of the paper on a schedule: does S_L diverge, do Σh^(K+1)/S_L and Σh²/S_L² vanish?

    The verdicts compare the last decades of L, which proves nothing but tells powers of l and floors apart: S_L
    diverges if its last increment is that of the decade before or more (to 1 %), and a ratio then vanishes if it falls
    by at least half as many per cent as in the decade before.
    Paper: Σh²/S_L² = 0 with an infinite upper sum. We: its limit in L, because S_L is finite.

    Args:
        step_size: a function of the step numbers l = 1, 2, ...
        order: the order K.
        steps: the largest L, at least 1000.

    Returns:
        The numbers of `steps` L/10^k, ..., L/10, L, the `sum`, `bias_ratio` and `noise_ratio` at each, and the verdicts
        `sum_diverges`, `bias_vanishes`, `noise_vanishes` and `consistent`.

    Raises:
        InputError: if `steps` is below 1000.

    Example:
        >>> sums = schedule_sums(lambda l: 0.1 * l ** (-1 / 3), 2, 10**5)
        >>> sums["sum_diverges"], sums["bias_vanishes"], sums["noise_vanishes"]
        (True, True, True)
        >>> schedule_sums(lambda l: 0.1 + 0 * l, 2, 10**5)["bias_vanishes"]
        False
    """
    if steps < 1000:
        raise InputError(f"steps is {steps}; three decades are needed to assess a schedule: write 1000 or more.")
    stops = [steps // 10**k for k in range(len(str(steps)) - 2, -1, -1)]
    total, high, square = decade_sums(step_size, order, stops).T
    increments, bias, noise = np.diff(total), high / total, square / total**2
    diverges = bool(increments[-1] > 0.99 * increments[-2])

    def vanishes(ratio: np.ndarray) -> bool:
        falls = -np.diff(np.log(ratio[-3:]))
        return diverges and bool(falls[1] > max(1e-6, falls[0] / 2))

    return {
        "steps": stops,
        "sum": total,
        "bias_ratio": bias,
        "noise_ratio": noise,
        "sum_diverges": diverges,
        "bias_vanishes": vanishes(bias),
        "noise_vanishes": vanishes(noise),
        "consistent": vanishes(bias) and vanishes(noise),
    }


def decade_sums(step_size: Schedule, order: int, stops: Sequence[int]) -> np.ndarray:
    """Σh, Σh^(K+1) and Σh² up to each of the stops."""
    sums, totals = np.zeros(3), []
    for start, stop in pairwise([0, *stops]):
        for first in range(start, stop, MAX_SUMMED):
            l = np.arange(first + 1.0, min(first + MAX_SUMMED, stop) + 1)
            h = np.broadcast_to(np.asarray(step_size(l), float), l.shape)
            sums = sums + np.array([h.sum(), (h ** (order + 1)).sum(), (h * h).sum()])
        totals.append(sums)
    return np.stack(totals)
