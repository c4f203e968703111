"""The order of a step's invariant measure, which may exceed its weak order, on Gaussians.

There a step is a linear map, whose invariant variance is linear algebra at any complex step size; its Taylor series
in h has the order. Over a period of minibatches the maps are composed, with deviations δ of the batches' gradients.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.data.orders import BatchOrder, order_class
from strang.dynamics.fields import example
from strang.integrators.words import Step, spell
from strang.theory.cubature import circle, taylor
from strang.theory.linear import Linear, NotLinear, linearise, solve_lyapunov


def invariant_order(step: Any, dynamics: Any, batch_order: str = "full") -> int | str | None:
    """Compute the order in h of the position's invariant variance on a Gaussian, which may exceed the weak order.

    Minibatches deviate by δ with mean 0 and variance V: that which the dynamics corrects for, if any, else 1. Beyond
    'iid' there are four batches, whose deviations add up to 0, and the second moment is averaged over a period.

    Args:
        step: a word, or a step from `strang.spell`.
        dynamics: an instance, or a class, of which one with ordinary numbers is made.
        batch_order: how minibatches are ordered: full, iid, reshuffled, symmetric or cyclic.

    Returns:
        A number, 'exact', or None if the step is not linear.

    Raises:
        InputError: if the step or `batch_order` is unknown.

    Example:
        >>> import strang
        >>> [invariant_order(word, strang.SGHMC) for word in ("euler-old", "chen:ABOBA", "leimkuhler:BAOAB")]
        [1, 2, 'exact']
    """
    kind = order_class(batch_order)
    step, dynamics = spell(dynamics, step), example(dynamics, constant=True)
    size = 0.3 / max(1.0, float(getattr(dynamics, "friction", 1.0)))
    h = circle(size, 32)
    try:
        maps = linearise(step, dynamics, 1.0, h)
    except NotLinear:
        return None
    if not is_linear(step, dynamics, maps, h):
        return None
    variance = float(getattr(dynamics, "gradient_noise", 0.0)) or 1.0
    true = float(getattr(dynamics, "temperature", 1.0))
    error = second_moment(maps, deviations(kind, variance), not (kind.full or kind.permuted)) / true - 1
    if np.abs(error).max() < 1e-10:
        return "exact"
    parts = np.abs(taylor(error, h, 12)) * size ** np.arange(13)
    return int(np.argmax(parts > 1e-10))


def is_linear(step: Step, dynamics: Any, maps: Linear, h: np.ndarray) -> bool:
    """Whether a step on a Gaussian is the linear map that its derivative at 0 is."""
    with jax.enable_x64(True):
        start = dynamics.init(jnp.asarray(0j), jnp.asarray(0j))
        x, normals = np.linspace(0.6, -0.5, len(start)) + 0j, np.linspace(0.7, -0.4, step.noises) + 0j
        state = type(start)(*map(jnp.asarray, x))
        moved = np.stack(step(dynamics, state, h[0], lambda q: q, tuple(map(jnp.asarray, normals))))
    return bool(np.allclose(moved, maps.transition[0] @ x + maps.noise[0] @ normals, rtol=0, atol=1e-10))


def deviations(kind: type[BatchOrder], variance: float) -> np.ndarray:
    """Row l: the deviation of the batch of step l of a period, in uncorrelated numbers of variance 1."""
    if kind.full:
        return np.zeros((1, 1))
    if kind.independent:
        return np.full((1, 1), np.sqrt(variance))
    count = 4
    rows = np.sqrt(variance * count / (count - 1)) * (np.eye(count) - 1 / count)  # zero-sum, exchangeable
    return rows[kind(count, 1).path()]


def second_moment(linear: Linear, deviations: np.ndarray, forever: bool) -> np.ndarray:
    """The invariant E θ², averaged over a period; its deviations are drawn anew each period or once `forever`."""
    transition, push, noise = linear
    diffusion = noise @ np.swapaxes(noise, -1, -2)

    def moments(covariance: np.ndarray, cross: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """After every step of a period: the covariance of the state, and that with the deviations."""
        path = []
        for row in deviations:
            force = push[..., None] * row
            mixed = transition @ cross @ np.swapaxes(force, -1, -2)
            covariance = transition @ covariance @ np.swapaxes(transition, -1, -2) + diffusion
            covariance = covariance + mixed + np.swapaxes(mixed, -1, -2) + force @ np.swapaxes(force, -1, -2)
            cross = transition @ cross + force
            path.append((covariance, cross))
        return path

    power = np.linalg.matrix_power(transition, len(deviations))
    still, cross = np.zeros_like(transition), np.zeros((*push.shape, deviations.shape[1]))
    if forever:  # the deviations act as a periodic force: its response repeats
        cross = np.linalg.solve(np.eye(power.shape[-1]) - power, moments(still, cross)[-1][1])
    start = solve_lyapunov(power, moments(still, cross)[-1][0])
    return np.mean([covariance[..., 0, 0] for covariance, _ in moments(start, cross)], axis=0)
