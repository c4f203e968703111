"""Minibatch number l as a pure function of (key, l), so that a run can stop and go on anywhere.

Orders: `full` (all data, no noise); `iid` (independent batches); `reshuffled` (a fresh permutation each epoch);
`symmetric` (a permutation forwards, then backwards, then a fresh one); `cyclic` (the order of the data, forever).
With the last three an epoch of R batches is counted with scale R each, so that its sum is R times the full gradient
exactly, also when the last batch has fewer rows than the others.

Rows are in memory (`arrays`), on disk (`files`), or come from a loader (`stream`), which has an order of its own.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import random
from .errors import InputError, choose, whole
from .share import Cuts, Portion
from .sources.base import Remote, Source, check_numbers, remote
from .sources.files import open_files
from .sources.loader import Loader
from .tree import Tree, spread

MOST = 4_000_000_000  # rows: their numbers, and those of a ragged batch's surplus, are words of 32 bits
ORDERS = ("full", "iid", "reshuffled", "symmetric", "cyclic")


class Batch(NamedTuple):
    """Rows along the leading axis, their weights (None: all 1), and the scale with which they speak for all data."""

    rows: Tree
    weights: Any
    scale: float


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Data:
    rows: Tree  # arrays with a common leading axis, or a Remote
    size: int = field(metadata={"static": True})
    batch: int = field(metadata={"static": True})
    order: str = field(metadata={"static": True})
    replacement: bool = field(metadata={"static": True})

    @property
    def source(self) -> Source | None:
        """Where rows come from that are not in memory."""
        return self.rows.source if isinstance(self.rows, Remote) else None

    def verify(self, known: tuple[list[Any], str] | None = None, progress: bool | None = None) -> None:
        """Look through rows that are not in memory, unless their files are `known`: their marks, and their hash."""
        if self.source is not None:
            self.source.verify(known, progress)

    def check(self) -> None:
        """Raise what kept rows from coming, since compiled code could not."""
        if self.source is not None:
            self.source.check()

    @property
    def datum(self) -> Tree:
        """Shapes and dtypes of one row."""
        if isinstance(self.rows, Remote):
            return self.rows.source.datum
        return jax.tree.map(lambda rows: jax.ShapeDtypeStruct(rows.shape[1:], rows.dtype), self.rows)

    @property
    def epoch(self) -> int:
        """Batches an epoch."""
        return -(-self.size // self.batch)

    @property
    def scale(self) -> float:
        """What a batch's sum is multiplied by to speak for all data. The one place where N/n enters."""
        if self.order == "full":
            return 1.0
        if self.order == "iid" or (self.order == "stream" and not self.ragged):
            return self.size / self.batch
        return float(self.epoch)

    @property
    def ragged(self) -> bool:
        """Whether the last batch of an epoch has fewer rows."""
        if self.order == "stream":
            return self.rows.source.ragged
        return self.order in ("reshuffled", "symmetric", "cyclic") and self.size % self.batch > 0

    @property
    def period(self) -> int:
        """Batches after which an order by sweeps takes a fresh permutation."""
        return 2 * self.epoch if self.order == "symmetric" else self.epoch

    def salt(self, keys, l):
        """What all rows of batch l share of its randomness, for each of many keys; `l` may have axes before theirs."""
        if self.order in ("cyclic", "stream") or (self.order == "iid" and self.replacement):
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
            number = jnp.minimum(number, jnp.uint32(self.period - 1) - number)
        place = number * jnp.uint32(self.batch) + place
        if self.order in ("cyclic", "stream"):
            return jnp.broadcast_to(place, jnp.broadcast_shapes(place.shape, salt.shape[:-1]))
        inside = random.permute(salt, jnp.minimum(place, jnp.uint32(self.size - 1)), self.size)
        return jnp.where(place < jnp.uint32(self.size), inside, place) if self.ragged else inside

    def take(self, indices: Tree, ahead: Tree = None) -> Tree:
        """The rows with these numbers, or with other numbers for each leaf of a row. `ahead` are those wanted next, for
        rows that are not in memory."""

        def inside(numbers):
            return jnp.minimum(numbers, jnp.uint32(self.size - 1)) if self.ragged else numbers

        where, ahead = (jax.tree.map(inside, spread(numbers, self.datum)) for numbers in (indices, ahead))
        if isinstance(self.rows, Remote):
            return self.rows.fetch(where, ahead)
        return jax.tree.map(
            lambda rows, i: rows.at[i].get(mode="promise_in_bounds", wrap_negative_indices=False), self.rows, where
        )

    def all_rows(self) -> Tree:
        """Everything at once."""
        return self.take(jnp.arange(self.size, dtype=jnp.uint32)) if isinstance(self.rows, Remote) else self.rows

    def deliver(self, l, ahead=None) -> Tree:
        """The rows of batches number l of a loader."""
        return self.rows.fetch(l, ahead)

    def weights(self, indices):
        """1 for a row of the data, 0 for the surplus of a ragged batch; None where all are 1."""
        return (indices < jnp.uint32(self.size)).astype(jnp.float32) if self.ragged else None

    def get(self, key, l) -> Batch:
        """Batch number l."""
        if self.order == "full":
            return Batch(self.all_rows(), None, 1.0)
        indices = self.indices(self.salt(key[None], l), l)[:, 0]
        rows = self.deliver(l) if self.order == "stream" else self.take(indices)
        return Batch(rows, self.weights(indices), self.scale)


class Slices(NamedTuple):
    """A batch cut in parts: the row numbers of each slice, to be read by whoever has it in his portion, and those of
    the next batch for rows that are not in memory."""

    data: Data
    numbers: Any
    following: Any
    portion: Portion
    cuts: Cuts

    @property
    def scale(self) -> float:
        return self.data.scale

    def get(self, k) -> Batch:
        """Slice number k as a batch of its own, that speaks for itself only."""
        numbers, size = self.numbers[k], self.data.size
        short = self.data.ragged or self.data.batch % self.cuts.parts > 0
        wanted = (x if x is None else jnp.minimum(x[k], jnp.uint32(size - 1)) for x in (self.numbers, self.following))
        rows = self.data.take(*wanted)
        return Batch(rows, (numbers < size).astype(jnp.float32) if short else None, 1.0)


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
    if any(isinstance(leaf, np.memmap) for leaf in leaves):
        return files(rows, batch=batch, order=order, replacement=replacement)
    rows = jax.tree.map(as_used, rows)
    sizes = {np.shape(leaf)[0] for leaf in leaves}
    if len(sizes) > 1:
        raise InputError(f"the data arrays have {sorted(sizes)} rows; their leading axes must agree.")
    size = sizes.pop()
    number = check_order(size, batch, order)
    return Data(rows, size, number, order, bool(replacement))


def files(
    paths: Tree,
    *,
    batch: int | None = None,
    order: str = "iid",
    replacement: bool = True,
    columns: str | list[str] | None = None,
    cache: str | Path | None = None,
) -> Data:
    """Data that stay on disk: runs are those of `arrays` of the same numbers bit for bit, and memory does not grow.

    A path is a `.npy` file, or a folder of them, whose rows follow each other in the order of their names; a pytree of
    paths (or arrays) makes rows of that structure. A table (`.parquet`, `.arrow`, `.feather`, or a folder of such)
    makes rows that are dicts of its `columns`, by default all, or just the one that is named; it is copied once into
    `.npy` files in the folder `cache`, by default beside it.

    >>> import tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "x.npy")
    >>> np.save(path, np.arange(6.0, dtype=np.float32))
    >>> files(path, batch=2, order="cyclic").get(random.chain_keys(0, 1).batch[0], jnp.uint32(4)).rows
    Array([2., 3.], dtype=float32)
    """
    source = open_files(paths, None if cache is None else Path(cache), columns)
    return Data(remote(source), source.size, check_order(source.size, batch, order), order, bool(replacement))


def stream(loader: Callable | Iterable, *, size: int, ragged: bool = False) -> Data:
    """Data from a loader: step l is made with its batch number l, by all chains, in the order in which they come.

    `loader` is a function from a batch number to an iterator that goes on from there, or something to iterate over
    again and again, such as a PyTorch or Grain loader, which is then read from the start to where a run goes on. A
    batch is a pytree of arrays with a leading axis of rows, as many as in the first. Where batches end, the next epoch
    begins.

    The posterior is that of `size` rows: every batch speaks for them. With `ragged`, each epoch's last batch has the
    rows that are left over, and epochs count as a whole. A run goes on bit for bit if the loader gives the same batches
    again; only the first is compared.

    >>> batches = [np.zeros(2, np.float32), np.ones(2, np.float32)]
    >>> stream(batches, size=4).get(random.chain_keys(0, 1).batch[0], jnp.uint32(5)).rows
    Array([1., 1.], dtype=float32)
    """
    source = Loader(loader, size, ragged)
    check_order(source.size, source.batch, "cyclic")
    return Data(remote(source), source.size, source.batch, "stream", False)


def check_order(size: int, batch: int | None, order: str) -> int:
    """The batch size, if there are such batches."""
    if order not in ORDERS:
        raise choose("minibatch order", order, ORDERS)
    if order == "full":
        batch = size
    if batch is None:
        raise InputError(f"order {order!r} needs a batch size; write batch=10, or order='full' for all data.")
    batch = whole("batch", batch)
    if batch > size:
        raise InputError(f"batch is {batch}, but there are {size} data; write a batch size from 1 to {size}.")
    if size > MOST or 2 * -(-size // batch) >= 2**32:
        raise InputError(f"there are {size:,} rows; at most {MOST:,} can be numbered, in fewer than 2^31 batches.")
    return batch


def as_used(leaf) -> jax.Array:
    """An array in the precision in which it is used: numbers, at least one row, all finite in it."""
    array = np.asarray(leaf)
    if array.dtype.kind not in "fiub":
        raise InputError(f"the data have dtype {array.dtype}; convert them to numbers first.")
    if array.ndim == 0 or array.shape[0] == 0:
        raise InputError(f"a data array has shape {array.shape}; its leading axis must count at least one datum.")
    native = array.dtype.newbyteorder("=")
    dtype = jax.dtypes.canonicalize_dtype(min(native, np.dtype(float)) if native.kind == "f" else native)
    check_numbers(array, dtype, "a data array", 0)
    return jnp.asarray(leaf if isinstance(leaf, jax.Array) else array.astype(dtype, copy=False))
