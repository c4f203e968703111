"""How a run is shared: groups of chains among devices or processes, and slices of each minibatch among processes.

A minibatch is cut in `parts` slices by place. The likelihood gradient of each slice is computed by itself, and the
slices' gradients are added in their order. The chains are cut in `groups`, each advanced by itself. XLA rounds
differently where shapes or what is known of a loop differ, so nobody gets code of his own: all run the same compiled
program, are told at run time which group and slices are theirs, and leave it to the host to exchange gradients. So
every bit of a run depends on the number of parts and groups, and none on who shares them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree

from . import distributed
from .tree import Tree


@dataclass(frozen=True)
class Cuts:
    """`parts` of every minibatch, and `groups` of chains."""

    parts: int = 1
    groups: int = 1

    def of_group(self, group, tree: Tree) -> Tree:
        """Of arrays that lead with all chains, those of one group."""

        def own(x):
            return lax.dynamic_slice_in_dim(x, group * (x.shape[0] // self.groups), x.shape[0] // self.groups)

        return tree if self.groups == 1 else jax.tree.map(own, tree)


WHOLE = Cuts()


class Portion(NamedTuple):
    """A group of chains, and slices first..last - 1 of every minibatch, the others being those of some more workers:
    numbers that a compiled program is given."""

    group: jax.Array
    first: jax.Array
    last: jax.Array
    workers: jax.Array


@dataclass(frozen=True)
class Share:
    """Who computes: the parts are shared by `workers`, which are processes; the groups by `teams` of such workers, or
    by so many devices of a single process."""

    workers: int = 1
    teams: int = 1

    def portion(self, cuts: Cuts, group: int) -> Portion:
        """A group of chains, with the slices of this process."""
        first = min(distributed.rank() % self.workers * each(cuts.parts, self.workers), cuts.parts)
        last = min(first + each(cuts.parts, self.workers), cuts.parts)
        return Portion(*map(jnp.int32, (group, first, last, self.workers)))

    def groups(self, cuts: Cuts) -> list[tuple[int, Any]]:
        """The groups that this process advances, each with its device."""
        devices, count = jax.local_devices(), cuts.groups // self.teams
        if jax.process_count() == 1:
            return [(group, devices[group // count]) for group in range(cuts.groups)]
        first = distributed.rank() // self.workers * count
        return [(group, devices[0]) for group in range(first, first + count)]


ALONE = Share()


def each(parts: int, workers: int) -> int:
    """Slices a worker, at most: the last ones may have fewer, or none."""
    return -(-parts // workers)


def cut(numbers, parts: int, size: int):
    """Row numbers of batches (along axis 1) in slices: parts, then rows. Where a slice is short of rows, surplus ones
    are `size`."""
    rows = -(-numbers.shape[1] // parts)
    surplus = ((0, 0), (0, parts * rows - numbers.shape[1]), *((0, 0),) * (numbers.ndim - 2))
    padded = jnp.pad(numbers, surplus, constant_values=np.uint32(size))
    return padded.reshape(len(numbers), parts, rows, *numbers.shape[2:])


def total(cuts: Cuts, portion: Portion, gradient: Callable, like: Tree) -> Tree:
    """Σ_k gradient(k) over all slices k, in their order; those of other processes come from them."""
    flat, unflatten = ravel_pytree(like)

    def fill(k, found):
        return found.at[k].set(ravel_pytree(gradient(k))[0])

    found = lax.fori_loop(portion.first, portion.last, fill, jnp.zeros((cuts.parts, flat.size), flat.dtype))
    result = jax.ShapeDtypeStruct(flat.shape, flat.dtype)
    return unflatten(jax.pure_callback(add_up, result, found, portion.workers, vmap_method="broadcast_all"))


def add_up(found, workers) -> np.ndarray:
    """The sum over slices (the last axis but one), of which this process has filled its own."""
    found, workers = np.asarray(found), int(np.ravel(workers)[0])
    parts = found.shape[-2]
    if workers > 1:
        count = each(parts, workers)
        first = distributed.rank() % workers * count
        mine = np.moveaxis(found[..., first : first + count, :], -2, 0)
        own = np.zeros((count, *mine.shape[1:]), found.dtype)
        own[: len(mine)] = mine
        found = np.moveaxis(distributed.exchange(own, workers).reshape(-1, *own.shape[1:]), 0, -2)
    summed = found[..., 0, :].copy()
    for k in range(1, parts):
        summed += found[..., k, :]
    return summed
