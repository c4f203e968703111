"""Step sizes as functions of the step number l = 1, 2, ...

A schedule is a number, one per chain, or a callable: one of those below, any Optax schedule, any function of l.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.util.errors import InputError, first_line


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Fixed:
    """h_l = size."""

    size: Any

    def __call__(self, l):
        return self.size


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Decreasing:
    """h_l = scale l^-alpha."""

    scale: Any
    alpha: Any

    def __call__(self, l):
        return self.scale * l ** (-self.alpha)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Slowing:
    """h_l = scale (1 + l / delay)^-alpha, nearly fixed for the first `delay` steps."""

    scale: Any
    alpha: Any
    delay: Any

    def __call__(self, l):
        return self.scale * (1 + l / self.delay) ** (-self.alpha)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Function:
    """h_l = function(l)."""

    function: Callable = field(metadata={"static": True})

    def __call__(self, l):
        return jnp.asarray(self.function(l), float)  # of a Python number too


def fixed(scale, alpha=0.0, steps: int | None = None) -> Fixed:
    """h = C L^-alpha for a run of L steps.

    Paper: h ~ L^alpha with alpha = -1/3 in the appendix, L^-alpha in the text. We: the text (erratum A22).

    >>> round(float(fixed(0.033, alpha=1 / 3, steps=1000).size), 12)
    0.0033
    """
    if steps is None:
        if np.any(np.asarray(alpha) != 0):
            raise InputError("fixed(C, alpha) needs the number of steps L, since h = C L^-alpha; write steps=...")
        steps = 1
    return Fixed(np.asarray(scale) * float(steps) ** -np.asarray(alpha))


def decreasing(scale, alpha) -> Decreasing:
    """h_l = C l^-alpha; averages over such a run are weighted by h_l.

    >>> round(float(decreasing(0.045, alpha=1 / 3)(8.0)), 12)
    0.0225
    """
    return Decreasing(scale, alpha)


def slowing(scale, alpha, delay=1000.0) -> Slowing:
    """h_l = C (1 + l / delay)^-alpha, the steps of Patterson & Teh.

    >>> round(float(slowing(0.01, alpha=0.5)(3000.0)), 12)
    0.005
    """
    return Slowing(scale, alpha, delay)


def as_schedule(step_size, steps: int, chains: int):
    """The schedule that the caller meant, checked over the whole run: positive, finite, one size or one per chain."""
    schedule = step_size
    if not isinstance(step_size, Fixed | Decreasing | Slowing | Function):
        schedule = Function(step_size) if callable(step_size) else Fixed(np.asarray(step_size))
    if not all(np.asarray(leaf).dtype.kind in "fiu" for leaf in jax.tree.leaves(schedule)):
        raise InputError(f"step_size is {step_size!r}; write a number, one per chain, or a function of the step.")
    schedule = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), schedule)
    try:
        sizes = probe(schedule, steps)
    except Exception as error:  # a function of the user's
        raise InputError(
            f"step_size fails as a function of the step number ({type(error).__name__}: {first_line(error)})."
        ) from error
    if sizes.shape[1:] not in ((), (chains,)):
        raise InputError(
            f"step_size has shape {sizes.shape[1:]}; write one number, or one for each of {chains} chains."
        )
    if not (np.isfinite(sizes) & (sizes > 0)).all():
        raise InputError(f"step_size is {sizes.min()} somewhere on the run; it must be a positive number throughout.")
    return schedule


def probe(schedule, steps: int) -> np.ndarray:
    """The step sizes at up to 1000 step numbers from first to last, dense at the beginning."""
    numbers = np.unique(np.geomspace(1, steps, 1000).astype(int))
    return np.asarray(jax.vmap(schedule)(jnp.asarray(numbers, float)))
