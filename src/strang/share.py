"""How a run is shared among devices or processes: groups of chains, and slices of each minibatch.

A minibatch is cut in `parts` slices by place. The likelihood gradient of each slice is computed by itself, and the
slices' gradients are added in their order. The chains are cut in `groups`, each advanced by itself. XLA rounds
differently where shapes or what is known of a loop differ, so nobody gets code of his own: all run the same compiled
program, are told at run time which group and slices are theirs, and leave it to the host to exchange gradients. So
every bit of a run depends on the number of parts and groups, and none on who shares them.
"""

import itertools
import threading
import weakref
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
    """A group of chains, and slices first..last - 1 of every minibatch, the others being those of team-mates: numbers
    that a compiled program is given. `seat` is one's place in the team, its size, and the number of its `Meeting`; 0
    where the team-mates are other processes."""

    group: jax.Array
    first: jax.Array
    last: jax.Array
    seat: jax.Array


class Lane(NamedTuple):
    """What one device does: the groups of its team one after the other, and the slices of its place in the team."""

    device: Any
    team: int
    place: int
    groups: range


@dataclass(frozen=True)
class Share:
    """Who computes: the groups of chains are shared by `teams`, and the slices of a minibatch by the `workers` of each
    team. These are processes, or the devices of a single one."""

    workers: int = 1
    teams: int = 1

    def lanes(self, cuts: Cuts) -> list[Lane]:
        """The devices of this process that compute."""
        devices, count = jax.local_devices(), cuts.groups // self.teams
        many = jax.process_count() > 1
        members = [(distributed.rank(), devices[0])] if many else enumerate(devices[: self.teams * self.workers])
        found = []
        for number, device in members:
            team, place = divmod(number, self.workers)
            found.append(Lane(device, team, place, range(team * count, (team + 1) * count)))
        return found

    def portion(self, cuts: Cuts, group: int, place: int, meeting: int) -> Portion:
        """A group of chains, with the slices of this place."""
        count = each(cuts.parts, self.workers)
        first, last = (min(k * count, cuts.parts) for k in (place, place + 1))
        return Portion(jnp.int32(group), jnp.int32(first), jnp.int32(last), jnp.int32([place, self.workers, meeting]))


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
    if flat.dtype.itemsize < 8:
        return unflatten(ask(found, flat.shape, portion.seat))
    words = ask(lax.bitcast_convert_type(found, jnp.uint32), (flat.size, 2), portion.seat)
    return unflatten(lax.bitcast_convert_type(words, flat.dtype))


def ask(found, shape: tuple[int, ...], seat) -> jax.Array:
    """The host's sum. Double precision comes as words, since the host's thread might round it to single."""
    result = jax.ShapeDtypeStruct(shape, found.dtype)
    return jax.pure_callback(add_up, result, found, seat, vmap_method="broadcast_all")


def add_up(found, seat) -> np.ndarray:
    """The sum over slices (the last axis but one), of which those of this seat are filled."""
    place, workers, meeting = (int(number) for number in np.reshape(seat, (-1, 3))[0])
    found = np.asarray(found)
    if found.dtype == np.uint32:
        doubles = np.ascontiguousarray(found).view(np.float64)[..., 0]
        return add_up(doubles, seat).view(np.uint32).reshape(*doubles.shape[:-2], -1, 2)
    if meeting:
        return _meetings[meeting].add_up(place, found)
    parts = found.shape[-2]
    if workers > 1:
        count = each(parts, workers)
        mine = np.moveaxis(found[..., place * count : (place + 1) * count, :], -2, 0)
        own = np.zeros((count, *mine.shape[1:]), found.dtype)
        own[: len(mine)] = mine
        found = np.moveaxis(distributed.exchange(own, workers).reshape(-1, *own.shape[1:]), 0, -2)
    return add_slices([found[..., k, :] for k in range(parts)])


def add_slices(slices: list[np.ndarray], out: np.ndarray | None = None) -> np.ndarray:
    """Their sum, in this order."""
    out = np.empty_like(slices[0]) if out is None else out
    out[...] = slices[0]
    for part in slices[1:]:
        out += part
    return out


class Meeting:
    """Where the devices of a team in one process add up their slices: each does so for its share of the coordinates,
    and all get the whole."""

    def __init__(self, workers: int):
        self.number, self.workers, self.brought = next(_numbers), workers, [np.empty(0)] * workers
        self.sums = np.empty(0)
        self.barrier = threading.Barrier(workers)
        _meetings[self.number] = self

    def add_up(self, place: int, found: np.ndarray) -> np.ndarray:
        parts, size = found.shape[-2:]
        self.brought[place] = found
        if place == 0:
            self.sums = np.empty(found[..., 0, :].shape, found.dtype)
        self.barrier.wait()
        sums, count = self.sums, each(parts, self.workers)
        own = slice(place * size // self.workers, (place + 1) * size // self.workers)
        add_slices([self.brought[k // count][..., k, own] for k in range(parts)], sums[..., own])
        self.barrier.wait()  # before anybody's slices end with this call, or the next ones come
        return sums

    def leave(self) -> None:
        """Of someone who will not come again: the others must not wait."""
        self.barrier.abort()


_numbers = itertools.count(1)
_meetings: weakref.WeakValueDictionary[int, Meeting] = weakref.WeakValueDictionary()
