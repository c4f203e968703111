"""Minibatch orders, one class each: which rows batch number l holds, as a pure function of (key, l).

A run can therefore stop and go on anywhere. `full` is all data, without noise; `iid` draws independent batches;
`reshuffled` sweeps through a fresh permutation each epoch; `symmetric` sweeps through a permutation forwards, then
backwards, then takes a fresh one; `cyclic` sweeps in the order of the data, forever. In a sweep each of the R batches
of an epoch counts with scale R, so that their sum is R times the full gradient exactly, also when the last batch has
fewer rows than the others.

An order knows all that is particular to it, and nobody else compares names. A new one is a subclass of `BatchOrder`;
it can be named once its module is imported.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from strang.util import random
from strang.util.errors import InputError, choose, whole

MAX_ROWS = 4_000_000_000  # row numbers, and those of the surplus of a ragged batch, are 32-bit integers

ORDERS: dict[str, type["BatchOrder"]] = {}  # by their names


@dataclass(frozen=True)
class BatchOrder:
    """Sweeps through permuted data; the base of all orders.

    Attributes:
        size: the number of rows N.
        batch_size: rows per batch.
        name: how users spell the order.
        full: whether a batch is all the data, so that gradients have no noise.
        independent: whether batches are independent, so that gradient noise does not cancel over an epoch.
        permuted: whether each period begins with a fresh permutation of the rows: then all its batches have the same
            `salt`.
        shared: whether all chains are given the same batches.
        divisible: whether a batch can be cut in parts.
        epochs: epochs per period.
    """

    size: int
    batch_size: int

    name: ClassVar[str] = ""
    full: ClassVar[bool] = False
    independent: ClassVar[bool] = False
    permuted: ClassVar[bool] = True
    shared: ClassVar[bool] = False
    divisible: ClassVar[bool] = True
    epochs: ClassVar[int] = 1

    def __init_subclass__(cls, register: bool = True):
        """A subclass is an order that users may name."""
        if register:
            ORDERS[cls.name] = cls

    @property
    def epoch(self) -> int:
        """Batches per epoch."""
        return -(-self.size // self.batch_size)

    @property
    def period(self) -> int:
        """Batches after which the order begins afresh."""
        return 1 if self.independent or self.full else self.epochs * self.epoch

    @property
    def ragged(self) -> bool:
        """Whether the last batch of an epoch has fewer rows."""
        return self.size % self.batch_size > 0

    @property
    def scale(self) -> float:
        """The factor N/n that makes a batch's sum an estimate of the full sum. The one place where N/n enters."""
        return float(self.epoch)

    @property
    def variance_factor(self) -> float:
        """The variance of a batch's gradient, as a fraction of that of as many rows drawn with replacement."""
        return (self.size - self.batch_size) / max(self.size - 1, 1)

    def visit(self, place):
        """Which batch of the permuted data a step visits, for steps `place` = 0, 1, ... of a period."""
        return place

    def path(self) -> np.ndarray:
        """The batches of the permuted data that the steps of one period visit, for exact theory."""
        return np.asarray(self.visit(jnp.arange(self.period)))

    def salt(self, keys, l):
        """The random bits of batch l, for each of many keys; `l` may have axes before theirs. They are kept in memory
        before row numbers are made of them."""
        return random.salts(random.fold(keys, l // jnp.uint32(self.period)), self.size) if self.permuted else keys

    def indices(self, salt, l):
        """Row numbers of batch l = 0, 1, ... from its salt: row, then key. In a ragged batch, surplus ones are >= N."""
        place = jnp.arange(self.batch_size, dtype=jnp.uint32)[:, None]
        place = self.visit(l % jnp.uint32(self.period)) * jnp.uint32(self.batch_size) + place
        if not self.permuted:
            return jnp.broadcast_to(place, jnp.broadcast_shapes(place.shape, salt.shape[:-1]))
        inside = random.permute(salt, jnp.minimum(place, jnp.uint32(self.size - 1)), self.size)
        return jnp.where(place < jnp.uint32(self.size), inside, place) if self.ragged else inside


@dataclass(frozen=True)
class Full(BatchOrder):
    """All data at every step: no gradient noise."""

    name: ClassVar[str] = "full"
    full: ClassVar[bool] = True
    permuted: ClassVar[bool] = False
    shared: ClassVar[bool] = True
    divisible: ClassVar[bool] = False

    @property
    def scale(self) -> float:
        return 1.0


@dataclass(frozen=True)
class Independent(BatchOrder):
    """Independent batches; `replacement` says whether one may hold a row twice."""

    replacement: bool = True

    name: ClassVar[str] = "iid"
    independent: ClassVar[bool] = True

    @property
    def ragged(self) -> bool:
        return False

    @property
    def scale(self) -> float:
        return self.size / self.batch_size

    @property
    def variance_factor(self) -> float:
        return 1.0 if self.replacement else super().variance_factor

    def salt(self, keys, l):
        return random.index_bits(keys, l, self.batch_size, self.size) if self.replacement else super().salt(keys, l)

    def indices(self, salt, l):
        if self.replacement:
            return random.as_indices(salt, self.batch_size, self.size)
        return random.permute(salt, jnp.arange(self.batch_size, dtype=jnp.uint32)[:, None], self.size)


@dataclass(frozen=True)
class Reshuffled(BatchOrder):
    """A fresh permutation each epoch."""

    name: ClassVar[str] = "reshuffled"


@dataclass(frozen=True)
class Symmetric(BatchOrder):
    """A permutation forwards, then backwards, then a fresh one."""

    name: ClassVar[str] = "symmetric"
    epochs: ClassVar[int] = 2

    def visit(self, place):
        return jnp.minimum(place, jnp.asarray(self.period - 1, place.dtype) - place)


@dataclass(frozen=True)
class Cyclic(BatchOrder):
    """The order of the data, forever."""

    name: ClassVar[str] = "cyclic"
    permuted: ClassVar[bool] = False


@dataclass(frozen=True)
class Stream(BatchOrder, register=False):
    """The order of a loader, whose batches go to all chains; taken to be independent. `uneven` says whether each epoch
    ends with the rows that are left over."""

    uneven: bool = False

    name: ClassVar[str] = "stream"
    independent: ClassVar[bool] = True
    permuted: ClassVar[bool] = False
    shared: ClassVar[bool] = True
    divisible: ClassVar[bool] = False

    @property
    def period(self) -> int:
        return self.epoch

    @property
    def ragged(self) -> bool:
        return self.uneven

    @property
    def scale(self) -> float:
        return float(self.epoch) if self.uneven else self.size / self.batch_size


@dataclass(frozen=True)
class Undecided(Full, register=False):
    """All data at once, until `strang.tune` chooses an order and a batch size."""

    name: ClassVar[str] = "undecided"


def order_class(batch_order: str | type[BatchOrder]) -> type[BatchOrder]:
    """The class of an order by its name."""
    if isinstance(batch_order, type) and issubclass(batch_order, BatchOrder):
        return batch_order
    if batch_order not in ORDERS:
        raise choose("batch_order", batch_order, ORDERS)
    return ORDERS[batch_order]


def make_order(
    size: int, batch_size: int | None, batch_order: str | type[BatchOrder] | None, *, replacement: bool = True
) -> BatchOrder:
    """The order that the caller meant, if there are such batches; `iid` where only a batch size is given."""
    if batch_order is None and batch_size is None:
        return Undecided(size, size)
    kind = order_class("iid" if batch_order is None else batch_order)
    if kind.full:
        batch_size = size
    if batch_size is None:
        raise InputError(
            f"batch_order {kind.name!r} needs a batch size; write batch_size=10, or batch_order='full' for all data."
        )
    batch_size = whole("batch_size", batch_size)
    if batch_size > size:
        raise InputError(f"batch_size is {batch_size}, but there are {size} rows; write a number from 1 to {size}.")
    if size > MAX_ROWS or 2 * -(-size // batch_size) >= 2**32:
        raise InputError(f"there are {size:,} rows; at most {MAX_ROWS:,} can be numbered, in fewer than 2^31 batches.")
    if issubclass(kind, Independent):
        return kind(size, batch_size, bool(replacement))
    return kind(size, batch_size)
