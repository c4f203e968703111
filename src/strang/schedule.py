"""Step sizes and temperatures as functions of the step number l = 1, 2, ...

A schedule is a number, one per chain, or a callable: one of those below, any Optax schedule, any function of l. Where
it has a method `counts(l)`, averages and draws are those of the steps for which that is true.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.util.errors import InputError, first_line
from strang.util.trees import on_device

LOOKED_AT = 1000  # step numbers at which sizes are checked


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
    """The step sizes h_l = scale l^-alpha; averages over such a run are weighted by h_l.

    Args:
        scale: the first step size; one number, or one per chain.
        alpha: how fast steps decrease.

    Example:
        >>> round(float(decreasing(0.045, alpha=1 / 3)(8.0)), 12)
        0.0225
    """

    scale: Any
    alpha: Any

    def __call__(self, l):
        return self.scale * l ** (-self.alpha)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Slowing:
    """The step sizes h_l = scale (1 + l / delay)^-alpha of Patterson & Teh.

    Args:
        scale: the step size at the beginning; one number, or one per chain.
        alpha: how fast steps decrease.
        delay: the number of steps for which they are nearly fixed.

    Example:
        >>> round(float(slowing(0.01, alpha=0.5)(3000.0)), 12)
        0.005
    """

    scale: Any
    alpha: Any
    delay: Any = 1000.0

    def __call__(self, l):
        return self.scale * (1 + l / self.delay) ** (-self.alpha)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Function:
    """h_l = function(l)."""

    function: Callable = field(metadata={"static": True})

    def __call__(self, l):
        return jnp.asarray(self.function(l), float)  # also where it returns a Python number


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Cyclical:
    """A step size or temperature that falls from `largest` to `smallest` along half a cosine, stays there for the cold
    end of the cycle, and begins anew. Averages and draws are those of cold ends only, in which all steps weigh the
    same. After Zhang, Li, Zhang, Chen & Wilson 2020, whose last steps are smaller and smaller.

    Args:
        largest: at the beginning of a cycle.
        smallest: at its end; for a temperature 1, unless another one is wanted.
        length: steps per cycle.
        cold: the fraction of a cycle that is its cold end.
        settle: the fraction of a cold end at its beginning in which nothing is averaged yet.

    Example:
        >>> schedule = cyclical(0.5, 0.1, length=100, cold=0.4)
        >>> [round(float(schedule(l)), 3) for l in (1.0, 31.0, 61.0, 100.0, 101.0)]
        [0.5, 0.3, 0.1, 0.1, 0.5]
        >>> [bool(schedule.counts(l)) for l in (1.0, 60.0, 61.0, 100.0, 101.0)]
        [False, False, True, True, False]
    """

    largest: Any
    smallest: Any
    length: Any
    cold: Any = 0.5
    settle: Any = 0.0

    def place(self, l):
        """How far the cycle is, from 0 to 1."""
        return ((l - 1) % self.length) / self.length

    def __call__(self, l):
        falling = jnp.minimum(self.place(l) / (1 - self.cold), 1.0)
        return self.smallest + (self.largest - self.smallest) * (1 + jnp.cos(jnp.pi * falling)) / 2

    def counts(self, l):
        # Half a step before: the place of the first cold one is rounded.
        return self.place(l) + 0.5 / self.length >= 1 - self.cold * (1 - self.settle)


cyclical, decreasing, slowing = Cyclical, Decreasing, Slowing


def fixed(scale, alpha=0.0, steps: int | None = None) -> Fixed:
    """The step size h = scale L^-alpha for a run of L steps.

    Paper: h ~ L^alpha with alpha = -1/3 in the appendix, L^-alpha in the text. We: the text (erratum A22).

    Args:
        scale: the factor; one number, or one per chain.
        alpha: how much smaller steps are in longer runs.
        steps: L; needed unless alpha is 0.

    Returns:
        The schedule for `strang.sample(..., step_size=...)`.

    Raises:
        InputError: alpha is not 0 and the number of steps is missing.

    Example:
        >>> round(float(fixed(0.033, alpha=1 / 3, steps=1000).size), 12)
        0.0033
    """
    if steps is None:
        if np.any(np.asarray(alpha) != 0):
            raise InputError("fixed(C, alpha) needs the number of steps L, since h = C L^-alpha; write steps=...")
        steps = 1
    return Fixed(np.asarray(scale) * float(steps) ** -np.asarray(alpha))


def as_schedule(step_size, steps: int, chains: int, name: str = "step_size"):
    """Makes a schedule of what the user wrote, and checks that it is positive and finite over the whole run."""
    if isinstance(step_size, Fixed | Decreasing | Slowing | Cyclical | Function):
        schedule = step_size
    else:
        schedule = Function(step_size) if callable(step_size) else Fixed(np.asarray(step_size))
    if not all(np.asarray(leaf).dtype.kind in "fiu" for leaf in jax.tree.leaves(schedule)):
        raise InputError(f"{name} is {step_size!r}; write a number, one per chain, or a function of the step.")
    schedule = jax.tree.map(lambda leaf: on_device(np.asarray(leaf, jnp.result_type(float))), schedule)
    if isinstance(schedule, Cyclical):
        check_cycle(schedule, name)
    try:
        sizes = probe(schedule, steps)
    except Exception as error:  # from the user's function
        raise InputError(
            f"{name} fails as a function of the step number ({type(error).__name__}: {first_line(error)})."
        ) from error
    if sizes.shape[1:] not in ((), (chains,)):
        raise InputError(f"{name} has shape {sizes.shape[1:]}; write one number, or one for each of {chains} chains.")
    if not (np.isfinite(sizes) & (sizes > 0)).all():
        raise InputError(f"{name} is {sizes.min()} somewhere on the run; it must be a positive number throughout.")
    return schedule


def check_cycle(cycle: Cyclical, name: str) -> None:
    """Whether the numbers of a cycle make one."""
    length, cold, settle = (np.asarray(x) for x in (cycle.length, cycle.cold, cycle.settle))
    if not np.all((length >= 2) & (cold > 0) & (cold < 1) & (settle >= 0) & (settle < 1)):
        raise InputError(
            f"{name} has cycles of length {length} with a cold end of {cold}, of which {settle} settles; write a "
            "length of 2 or more, and fractions between 0 and 1."
        )


def counted(schedules, l):
    """Whether step l counts in averages and draws: where every schedule that has a say in it agrees; None: all do."""
    found = [schedule.counts(l) for schedule in schedules if hasattr(schedule, "counts")]
    return jnp.stack(found).all(0) if found else None


def probe(schedule, steps: int) -> np.ndarray:
    """The step sizes at up to 1000 step numbers from first to last, dense at the beginning."""
    return sizes_at(schedule, np.unique(np.geomspace(1, steps, LOOKED_AT).astype(int)))


def sizes_at(schedule, numbers: np.ndarray) -> np.ndarray:
    """The sizes of the steps with these numbers, of which there are up to 1000; step first."""
    if isinstance(schedule, Fixed):
        return np.broadcast_to(np.asarray(schedule.size), (len(numbers), *np.shape(schedule.size)))
    filled = np.pad(numbers, (0, LOOKED_AT - len(numbers)), mode="edge")  # one length: compiled once
    return np.asarray(_each(schedule, filled.astype(jnp.result_type(float))))[: len(numbers)]


@jax.jit
def _each(schedule, numbers):
    return jax.vmap(schedule)(numbers)
