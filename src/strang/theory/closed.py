"""Closed forms on a Gaussian target: the variance ratio Var_h(θ)/Var(θ) of a step's invariant measure, and its limit.

The target has precision K, the gradients come from independent minibatches of variance V. `linear` has the same for any
step, by linear algebra; these are the formulas it is tested against.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from strang.dynamics import SGHMC, SGLD
from strang.integrators.words import Step
from strang.util.errors import InputError, choose


class Closed(NamedTuple):
    """Var_h(θ)/Var(θ) from (friction D, precision K, h, excess noise V), and the stability limit from (D, K)."""

    variance_ratio: Callable
    stability_limit: Callable
    corrected: bool = False  # whether the step subtracts known gradient noise from its own


def euler_old_limit(D: float, K: float) -> float:
    """D/K if D² < 4K; beyond, overdamped, 4/(D + √(D² − 4K))."""
    gap = D**2 - 4 * K
    return D / K if gap < 0 else 4 / (D + gap**0.5)


def chen_limit(D: float, K: float) -> float:
    """The first root of h²K = 4 cosh(Dh/2), or infinity: K/D² = cosh x/x² with x = Dh/2, least at x tanh x = 2."""
    turn = brentq(lambda x: x * np.tanh(x) - 2, 1.0, 3.0)
    stiffness = K / D**2
    if stiffness < np.cosh(turn) / turn**2:
        return float("inf")
    return float(brentq(lambda x: np.cosh(x) - stiffness * x * x, 1e-12, turn, xtol=1e-15) * 2 / D)


EULER_NEW = Closed(
    lambda D, K, h, V: (1 + h * V / (2 * D)) / (1 - h * h * K / (4 - 2 * D * h)),
    lambda D, K: 4 / (D + (D * D + 4 * K) ** 0.5),
    corrected=True,
)
LEAPFROG = Closed(lambda D, K, h, V: 1 + h * h * V / (4 * np.tanh(D * h / 2)), lambda D, K: 2 / K**0.5)
CLOSED: dict[tuple[type, str], Closed] = {
    (SGLD, "euler"): Closed(lambda D, K, h, V: (1 + h * V / 2) / (1 - h * K / 2), lambda D, K: 2 / K),
    (SGLD, "averaged-noise"): Closed(lambda D, K, h, V: 1 + h * V / (2 - h * K), lambda D, K: 2 / K),
    (SGHMC, "euler-old"): Closed(
        lambda D, K, h, V: (2 * D + h * V) * (2 - D * h + h * h * K) / ((D - h * K) * (4 - 2 * D * h + h * h * K)),
        euler_old_limit,
        corrected=True,
    ),
    (SGHMC, "euler-new"): EULER_NEW,
    (SGHMC, "euler-position-first"): EULER_NEW,
    (SGHMC, "chen:ABOBA"): Closed(
        lambda D, K, h, V: D * h / 2 / np.sinh(D * h / 2) * (1 + h * V / (2 * D)), chen_limit, corrected=True
    ),
    (SGHMC, "leimkuhler:ABOBA"): LEAPFROG,
    (SGHMC, "leimkuhler:BAOAB"): LEAPFROG,
    (SGHMC, "nogin"): LEAPFROG._replace(corrected=True),
}


def closed_form(step: Step, dynamics: Any) -> Closed:
    """The entry of a step in the table of closed forms."""
    try:
        return CLOSED[type(dynamics), step.name]
    except KeyError:
        known = [name for kind, name in CLOSED if kind is type(dynamics)]
        raise choose(f"closed form of {type(dynamics).__name__}", step.name, known) from None


def variance_ratio(step: Step, dynamics: Any, precision: Any, h: Any, gradient_noise: Any = 0.0) -> Any:
    """Compute Var_h(θ)/Var(θ) in closed form; `linear.variance_ratio` does it for any step.

    Args:
        step, dynamics: a step from `strang.spell`, and its dynamics with its numbers.
        precision: K of the target N(0, 1/K).
        h: the step size, or an array.
        gradient_noise: the variance V of independent minibatch gradients.

    Returns:
        The invariant variance of the position over the true one; it has a meaning below the stability limit.

    Raises:
        InputError: if the step has no closed form.

    Example:
        >>> import strang
        >>> ratio = variance_ratio(strang.spell(strang.SGLD, "euler"), strang.SGLD(), 1.0, 0.5)
        >>> round(float(ratio), 12)  # 1/(1 - hK/2)
        1.333333333333
    """
    form = closed_form(step, dynamics)
    known = dynamics.gradient_noise if form.corrected else 0.0
    excess = (gradient_noise - known) / getattr(dynamics, "temperature", 1.0)  # a step at T = 1 in units of √T
    return form.variance_ratio(getattr(dynamics, "friction", 1.0), precision, h, excess)


def stability_limit(step: Step, dynamics: Any, precision: float) -> float:
    """Compute the first unstable step size in closed form; `linear.stability_limit` does it for any step.

    Args:
        step, dynamics, precision: as for `variance_ratio`.

    Returns:
        The limit, which may be infinite.

    Raises:
        InputError: if the step has no closed form, or the precision or friction is out of range.

    Example:
        >>> import strang
        >>> stability_limit(strang.spell(strang.SGHMC, "leimkuhler:BAOAB"), strang.SGHMC(), 4.0)  # 2/√K
        1.0
    """
    form, friction = closed_form(step, dynamics), getattr(dynamics, "friction", 1.0)
    try:
        return float(form.stability_limit(friction, precision))
    except (ArithmeticError, ValueError) as error:
        raise InputError(
            f"precision {precision:g} and friction {friction:g} overflow; write numbers of more similar magnitude."
        ) from error
