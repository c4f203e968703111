"""Optimal rates and step sizes, and the closed forms.

The bias of a K-th order step is bounded by C1/(Lh) + C2 h^K and its mean square error by C1/(Lh) + C2² h^2K (theorems 2
and 3). Paper: with any minibatches. We: K = 1 with independent minibatches, whatever the step, because their variance V
adds a bias of order h V (science, facts 1 and 7); full gradients and sweeps through the data keep the step's order.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from strang.integrators.words import Step
from strang.theory.exact import Schedule, finite_time
from strang.theory.linear import stability_limit as numerical_limit
from strang.theory.population import posterior
from strang.util.errors import InputError, choose

GOALS = ("bias", "mse")


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
    """α = 1/(K+1) and rate K/(K+1) for the bias, α = 1/(2K+1) and rate 2K/(2K+1) for the MSE.

    `noise` says that the minibatches are independent, which makes the effective K 1.

    >>> rates(2)[:3], rates(2, noise=True)[:3]
    ((2, 0.3333333333333333, 0.6666666666666666), (1, 0.5, 0.5))
    """
    if order < 1:
        raise InputError(f"order is {order}; rates need a step of order 1 at least.")
    k = 1 if noise else order
    return Rates(k, 1 / (k + 1), k / (k + 1), 1 / (2 * k + 1), 2 * k / (2 * k + 1), True)


def exponents(order: int, alpha: float) -> tuple[float, float]:
    """The rates of bias and MSE at any α: min(1 − α, Kα) and min(1 − α, 2Kα).

    >>> exponents(2, 0.25)
    (0.5, 0.75)
    """
    return min(1 - alpha, order * alpha), min(1 - alpha, 2 * order * alpha)


class Best(NamedTuple):
    """A step size (or the factor of a schedule) and the error there."""

    step_size: float
    error: float


def best_step_size(
    order: int,
    steps: int,
    *,
    noise: bool = False,
    goal: str = "bias",
    transient: float = 1.0,
    discretisation: float = 1.0,
) -> Best:
    """The minimum of C1/(Lh) + C2 h^K (bias) or C1/(Lh) + C2² h^2K (MSE): h = (C1/(k C L))^(1/(k+1)).

    There C h^k is the second term. `transient` is C1 and `discretisation` C2; with independent minibatches (`noise`) K
    is 1, and C2 is then the factor of h, such as V/(2 D K0) for θ² under SGHMC.

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
    effective = rates(order, noise).order
    power, factor = (effective, discretisation) if goal == "bias" else (2 * effective, discretisation**2)
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
    """The h with the least exact |bias| or MSE of θ², or with `shape` the best factor of the schedule h·shape(l).

    Searched on a grid of 49 sizes from `smallest` to `largest`, by default the stability limit (that of the first step)
    and a millionth of it, and then between the neighbours of the best. Where the bias changes sign its least size is 0:
    transient and discretisation cancel there, for θ² alone.

    >>> import strang
    >>> sgld, data = strang.SGLD(), np.array([0.5, 1.5])
    >>> best = best_exact_step_size(strang.spell(sgld, "euler"), sgld, data=data, batch_order="full", steps=1000)
    >>> round(best.step_size, 3)
    0.085
    """
    if goal not in GOALS:
        raise choose("goal", goal, GOALS)

    def error(log_h: float) -> float:
        h = float(np.exp(log_h))
        result = finite_time(
            step,
            dynamics,
            data=data,
            batch_size=batch_size,
            batch_order=batch_order,
            replacement=replacement,
            step_size=h if shape is None else lambda l: h * shape(l),
            steps=steps,
            burn_in=burn_in,
            init_mean=init_mean,
            init_var=init_var,
            prior_var=prior_var,
            noise_var=noise_var,
        )
        return abs(getattr(result, goal))

    if largest is None:
        precision = posterior(np.asarray(data, float), prior_var, noise_var).precision
        limit = min(numerical_limit(step, dynamics, precision), 100 / precision**0.5)
        largest = limit / (1.0 if shape is None else float(shape(np.ones(1))[0]))
    grid = np.linspace(np.log(largest * 1e-6 if smallest is None else smallest), np.log(largest), 49)
    return search(error, grid)


def search(error: Callable[[float], float], grid: np.ndarray) -> Best:
    """The least error over log h: at the best grid point, then between its neighbours."""

    def tamed(log_h: float) -> float:
        """log error, a finite number also where the step explodes or its noise correction takes too much."""
        try:
            return float(np.log(np.clip(error(log_h), 1e-300, 1e300)))
        except InputError:
            return float(np.log(1e300))

    logs = [tamed(log_h) for log_h in grid]
    best = int(np.argmin(logs))
    ends = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    found = minimize_scalar(tamed, bounds=ends, method="bounded", options={"xatol": 1e-7})
    log_h = float(found.x) if found.fun < logs[best] else float(grid[best])
    return Best(float(np.exp(log_h)), error(log_h))  # where every size is refused, this says why


def richardson(coarse: Any, fine: Any, order: int) -> Any:
    """(2^K b(h/2) − b(h))/(2^K − 1) takes the leading h^K out of averages at step sizes h and h/2.

    With K the order of the bias in h: from 2 to 4 for symmetric steps, from 1 to 2 under independent minibatches.

    >>> richardson(1 + 0.2**2, 1 + 0.1**2, 2)
    1.0
    """
    return (2**order * fine - coarse) / (2**order - 1)


def power_sum_bounds(alpha: float, steps: int) -> tuple[float, float]:
    """∫ < Σ_{l=1}^L l^−α < 1 + ∫, both integrals from 1 to L.

    Paper: 1 + ∫ up to L − 1. We: up to L, because α = 1/2, L = 10 breaks the paper's bound (erratum A17).

    >>> low, high = power_sum_bounds(0.5, 4)
    >>> low < 1 + 2**-0.5 + 3**-0.5 + 0.5 < high
    True
    """
    integral = np.log(steps) if alpha == 1 else (steps ** (1 - alpha) - 1) / (1 - alpha)
    return float(integral), float(1 + integral)


def schedule_sums(step_size: Schedule, order: int, steps: int) -> dict[str, Any]:
    """Assumption 2 of the paper on a schedule: does S_L diverge, do Σh^(K+1)/S_L and Σh²/S_L² vanish?

    The sums are given at L = `steps`, steps/10, ... . The verdicts compare the last decades, which proves nothing but
    tells powers of l and floors apart: S_L diverges if its last increment is that of the decade before or more (to
    1 %), and a ratio then vanishes if it falls by at least half as many per cent as in the decade before.
    Paper: Σh²/S_L² = 0 with an infinite upper sum. We: its limit in L, because S_L is finite.

    >>> sums = schedule_sums(lambda l: 0.1 * l ** (-1 / 3), 2, 10**5)
    >>> sums["sum_diverges"], sums["bias_vanishes"], sums["noise_vanishes"]
    (True, True, True)
    >>> schedule_sums(lambda l: 0.1 + 0 * l, 2, 10**5)["bias_vanishes"]
    False
    """
    if steps < 1000:
        raise InputError(f"steps is {steps}; three decades are needed to judge a schedule: write 1000 or more.")
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
    found, start, sums = [], 0, np.zeros(3)
    for stop in stops:
        for first in range(start, stop, 1_000_000):
            l = np.arange(first + 1.0, min(first + 1_000_000, stop) + 1)
            h = np.broadcast_to(np.asarray(step_size(l), float), l.shape)
            sums = sums + np.array([h.sum(), (h ** (order + 1)).sum(), (h * h).sum()])
        found.append(sums)
        start = stop
    return np.stack(found)
