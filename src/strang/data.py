"""Minibatch number l as a pure function of (key, l), so that a run can stop and go on anywhere.

Orders: `full` (all data, no noise); `iid` (independent batches); `reshuffled` (a fresh permutation each epoch);
`symmetric` (a permutation forwards, then backwards, then a fresh one); `cyclic` (the order of the data, forever).
With the last three an epoch of R batches is counted with scale R each, so that its sum is R times the full gradient
exactly, also when the last batch has fewer rows than the others.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import random
from .errors import InputError, choose
from .tree import Tree

ORDERS = ("full", "iid", "reshuffled", "symmetric", "cyclic")


class Batch(NamedTuple):
    """Rows along the leading axis, their weights (None: all 1), and the scale with which they speak for all data."""

    rows: Tree
    weights: Any
    scale: float


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Data:
    rows: Tree
    size: int = field(metadata={"static": True})
    batch: int = field(metadata={"static": True})
    order: str = field(metadata={"static": True})
    replacement: bool = field(metadata={"static": True})

    @property
    def epoch(self) -> int:
        """Batches an epoch."""
        return -(-self.size // self.batch)

    @property
    def scale(self) -> float:
        """What a batch's sum is multiplied by to speak for all data. The one place where N/n enters."""
        if self.order == "full":
            return 1.0
        return self.size / self.batch if self.order == "iid" else float(self.epoch)

    @property
    def ragged(self) -> bool:
        """Whether the last batch of an epoch has fewer rows."""
        return self.order in ("reshuffled", "symmetric", "cyclic") and self.size % self.batch > 0

    @property
    def period(self) -> int:
        """Batches after which an order by sweeps takes a fresh permutation."""
        return 2 * self.epoch if self.order == "symmetric" else self.epoch

    def salt(self, keys, l):
        """What all rows of batch l share of its randomness, for each of many keys; `l` may have axes before theirs."""
        if self.order == "cyclic" or (self.order == "iid" and self.replacement):
            return keys
        turn = l if self.order == "iid" else l // jnp.uint32(self.period)
        return random.salts(random.fold(keys, turn), self.size)

    def indices(self, salt, l):
        """Row numbers of batch l = 0, 1, ... from its salt: row, then key. In a ragged batch, surplus ones are >= N."""
        if self.order == "iid" and self.replacement:
            return random.indices(salt, l, self.batch, self.size)
        place = jnp.arange(self.batch, dtype=jnp.uint32)[:, None]
        if self.order == "iid":
            return random.permute(salt, place, self.size)
        number = l % jnp.uint32(self.period)
        if self.order == "symmetric":
            number = jnp.minimum(number, self.period - 1 - number)
        place = number * jnp.uint32(self.batch) + place
        if self.order == "cyclic":
            return jnp.broadcast_to(place, jnp.broadcast_shapes(place.shape, salt.shape[:-1]))
        inside = random.permute(salt, jnp.minimum(place, jnp.uint32(self.size - 1)), self.size)
        return jnp.where(place < self.size, inside, place) if self.ragged else inside

    def take(self, indices) -> Tree:
        """The rows with these numbers."""
        inside = jnp.minimum(indices, jnp.uint32(self.size - 1)) if self.ragged else indices
        return jax.tree.map(
            lambda rows: rows.at[inside].get(mode="promise_in_bounds", wrap_negative_indices=False), self.rows
        )

    def weights(self, indices):
        """1 for a row of the data, 0 for the surplus of a ragged batch; None where all are 1."""
        return (indices < self.size).astype(jnp.float32) if self.ragged else None

    def get(self, key, l) -> Batch:
        """Batch number l."""
        if self.order == "full":
            return Batch(self.rows, None, 1.0)
        indices = self.indices(self.salt(key[None], l), l)[:, 0]
        return Batch(self.take(indices), self.weights(indices), self.scale)


def arrays(rows: Tree, *, batch: int | None = None, order: str = "iid", replacement: bool = True) -> Data:
    """Data in memory: a pytree of arrays whose leading axis counts the data.

    `replacement` says whether an iid batch may hold a row twice.

    >>> data = arrays(np.arange(6.0), batch=2, order="cyclic")
    >>> data.get(random.chain_keys(0, 1).batch[0], jnp.uint32(4)).rows
    Array([2., 3.], dtype=float32)
    """
    leaves = jax.tree.leaves(rows)
    if not leaves:
        raise InputError("the data hold no array; give an array, or a pytree of arrays with a common leading axis.")
    for leaf in leaves:
        check_array(leaf)
    sizes = {np.shape(leaf)[0] for leaf in leaves}
    if len(sizes) > 1:
        raise InputError(f"the data arrays have {sorted(sizes)} rows; their leading axes must agree.")
    size = sizes.pop()
    if order not in ORDERS:
        raise choose("minibatch order", order, ORDERS)
    if order == "full":
        batch = size
    if batch is None:
        raise InputError(f"order {order!r} needs a batch size; write batch=10, or order='full' for all data.")
    if not 1 <= batch <= size:
        raise InputError(f"batch is {batch}, but there are {size} data; write a batch size from 1 to {size}.")
    return Data(jax.tree.map(jnp.asarray, rows), size, int(batch), order, bool(replacement))


def check_array(leaf) -> None:
    """Numbers, at least one row, all finite."""
    array = np.asarray(leaf)
    if array.dtype.kind not in "fiub":
        raise InputError(f"the data have dtype {array.dtype}; convert them to numbers first.")
    if array.ndim == 0 or array.shape[0] == 0:
        raise InputError(f"a data array has shape {array.shape}; its leading axis must count at least one datum.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise InputError(f"the data are not finite: {array[where]} at {list(where)}; remove or mend such rows first.")
