"""The order of a step's invariant measure, which may exceed its weak order, on Gaussians.

There a step is a linear map, whose invariant variance is linear algebra at any complex step size; its Taylor series
in h tells the order. Over a period of minibatches the maps are composed, with deviations δ of the batches' gradients.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.data.orders import BatchOrder, order_class
from strang.dynamics.fields import example
from strang.integrators.words import Step, spell
from strang.theory.cubature import circle, taylor
from strang.theory.linear import Linear, covariance, linearise


def invariant_order(step: Any, dynamics: Any, batch_order: str = "full") -> int | str | None:
    """The order in h of the position's invariant variance: a number, 'exact', or None if the step is not linear.

    Minibatches deviate by δ with mean 0 and variance V: that which the dynamics corrects for, if any, else 1. Beyond
    'iid' there are four batches, whose deviations add up to 0, and the second moment is averaged over a period.

    >>> import strang
    >>> [invariant_order(word, strang.SGHMC) for word in ("euler-old", "chen:ABOBA", "leimkuhler:BAOAB")]
    [1, 2, 'exact']
    """
    kind = order_class(batch_order)
    step, dynamics = spell(dynamics, step), example(dynamics, constant=True)
    if has_thermostat(dynamics) or hasattr(dynamics, "inverse_metric"):  # neither has a linear step
        return None
    size = 0.3 / max(1.0, float(getattr(dynamics, "friction", 1.0)))
    h = circle(size, 32)
    maps = linearise(step, dynamics, 1.0, h)
    if not is_linear(step, dynamics, maps, h):
        return None
    variance = float(getattr(dynamics, "gradient_noise", 0.0)) or 1.0
    error = second_moment(maps, deviations(kind, variance), not (kind.full or kind.permuted)) - 1
    if np.abs(error).max() < 1e-10:
        return "exact"
    parts = np.abs(taylor(error, h, 12)) * size ** np.arange(13)
    return int(np.argmax(parts > 1e-10))


def has_thermostat(dynamics: Any) -> bool:
    """Whether the friction is part of the state, so that a step is not linear in it."""
    return "thermostat" in jax.eval_shape(lambda: dynamics.init(jnp.zeros(()), jnp.zeros(())))._fields


def is_linear(step: Step, dynamics: Any, maps: Linear, h: np.ndarray) -> bool:
    """Whether a step on a Gaussian is the linear map that its derivative at 0 says."""
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
    """The invariant E θ², averaged over a period; its deviations are drawn anew each period or once `forever`.

    After some steps the state is power x0 + pushed (deviations) + shaken (normals), where x0 began the period.
    """
    transition, push, noise = linear
    width = noise.shape[-1]
    power = np.broadcast_to(np.eye(len(push[0])), transition.shape)
    pushed = np.zeros((*push.shape, deviations.shape[1]))
    shaken = np.zeros((*push.shape, width * len(deviations)))
    path = []
    for l, row in enumerate(deviations):
        power, pushed, shaken = transition @ power, transition @ pushed + push[..., None] * row, transition @ shaken
        shaken[..., l * width : (l + 1) * width] += noise
        path.append((power, pushed, shaken))
    settled = np.zeros_like(pushed)
    if forever:  # the deviations act as a periodic force: its response repeats
        settled = np.linalg.solve(np.eye(power.shape[-1]) - power, pushed)
    fresh = shaken if forever else np.concatenate([shaken, pushed], axis=-1)
    start = covariance(Linear(power, np.zeros_like(push), fresh))
    total: Any = 0
    for power, pushed, shaken in path:
        response = (power @ settled + pushed)[..., 0, :]
        kept = (power @ start @ np.swapaxes(power, -1, -2))[..., 0, 0]
        total = total + kept + (shaken[..., 0, :] ** 2).sum(-1) + (response**2).sum(-1)
    return total / len(path)
