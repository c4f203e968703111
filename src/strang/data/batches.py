"""Data in memory, on disk or from a loader, as minibatches that are functions of the step number l."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from strang.data.disk import open_files
from strang.data.loader import Loader
from strang.data.orders import BatchOrder, Stream, make_order
from strang.data.source import Remote, Source, check_numbers
from strang.util.errors import InputError
from strang.util.trees import Tree, on_device, spread


class Batch(NamedTuple):
    """One minibatch, as gradient estimators receive it.

    Attributes:
        rows: rows along the leading axis, in the structure of the data.
        weights: 1 per row, 0 for the surplus of a batch with fewer rows than the others; None where all are 1.
        scale: the factor N/n that makes a sum over the batch an estimate of the sum over all data.
        numbers: the rows' numbers in the data; None where the batch is all the data.
    """

    rows: Tree
    weights: Any
    scale: float
    numbers: Any = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Data:
    """Rows and the order in which minibatches take them; made by `arrays`, `files` or `stream`.

    Attributes:
        rows: arrays with a common leading axis, or a handle to rows that are not in memory.
        batch_order: the order's object, see `strang.data.orders`; `batch_order.name` is what was asked for.
        size: the number of rows N.
        batch_size: rows per batch.
        datum: shapes and dtypes of one row.
        scale: the factor N/n that makes a sum over a batch an estimate of the sum over all data.
        source: where rows come from that are not in memory, or None.
    """

    rows: Tree
    batch_order: BatchOrder = field(metadata={"static": True})

    @property
    def size(self) -> int:
        return self.batch_order.size

    @property
    def batch_size(self) -> int:
        return self.batch_order.batch_size

    @property
    def scale(self) -> float:
        return self.batch_order.scale

    @property
    def source(self) -> Source | None:
        return self.rows.source if isinstance(self.rows, Remote) else None

    @property
    def datum(self) -> Tree:
        if isinstance(self.rows, Remote):
            return self.rows.source.datum
        return jax.tree.map(lambda rows: jax.ShapeDtypeStruct(rows.shape[1:], rows.dtype), self.rows)

    def verify(self, known: tuple[list[Any], str] | None = None, progress: bool | None = None) -> None:
        """Checks rows that are not in memory, unless their files are `known` by their marks and the rows' hash."""
        if self.source is not None:
            self.source.verify(known, progress)

    def check(self) -> None:
        """Raises the error of a read that failed inside compiled code."""
        if self.source is not None:
            self.source.check()

    def take(self, indices: Tree, ahead: Tree = None) -> Tree:
        """The rows with these numbers, which may differ between the leaves of a row. `ahead` are the numbers wanted
        next, for rows that are not in memory."""

        if not isinstance(self.rows, Remote):
            return jax.tree.map(self.look_up, self.rows, spread(indices, self.datum))
        numbers, ahead = (jax.tree.map(self._clip, spread(each, self.datum)) for each in (indices, ahead))
        return self.rows.fetch(numbers, ahead)

    def look_up(self, table, numbers):
        """The rows with these numbers of one array in memory."""
        return table.at[self._clip(numbers)].get(mode="promise_in_bounds", wrap_negative_indices=False)

    def _clip(self, numbers):
        return jnp.minimum(numbers, jnp.uint32(self.size - 1)) if self.batch_order.ragged else numbers

    def all_rows(self) -> Tree:
        """All rows at once."""
        return self.take(jnp.arange(self.size, dtype=jnp.uint32)) if isinstance(self.rows, Remote) else self.rows

    def deliver(self, l, ahead=None) -> Tree:
        """The rows of a loader's batch number l."""
        return self.rows.fetch(l, ahead)

    def weights(self, indices):
        """1 per row of the data, 0 for the surplus of a ragged batch; None where all are 1."""
        return (indices < jnp.uint32(self.size)).astype(jnp.float32) if self.batch_order.ragged else None

    def get(self, key, l) -> Batch:
        """Batch number l of the chain with this key."""
        order = self.batch_order
        if order.full:
            return Batch(self.all_rows(), None, order.scale)
        indices = order.indices(order.salt(key[None], l), l)[:, 0]
        rows = self.deliver(l) if isinstance(order, Stream) else self.take(indices)
        return Batch(rows, self.weights(indices), order.scale, indices)


class CutBatch(NamedTuple):
    """A batch cut into parts for devices to share; its likelihood gradient is the parts' sum in their order."""

    data: Data
    numbers: Any  # the row numbers of each part; surplus ones are N
    following: Any  # those of the next batch, for rows that are not in memory
    reduce: Callable[[Callable, Tree], Tree]  # sums a function of the part's number, see `strang.sampling.exchange`

    @property
    def scale(self) -> float:
        return self.data.scale

    def part(self, k) -> Batch:
        """Part number k as a batch of its own, with scale 1."""
        numbers, size = self.numbers[k], self.data.size
        short = self.data.batch_order.ragged or self.data.batch_size % len(self.numbers) > 0
        wanted = (x if x is None else jnp.minimum(x[k], jnp.uint32(size - 1)) for x in (self.numbers, self.following))
        rows = self.data.take(*wanted)
        return Batch(rows, (numbers < size).astype(jnp.float32) if short else None, 1.0, numbers)


def cut(numbers, parts: int, size: int):
    """Cuts the row numbers of batches (along axis 1) into parts; surplus numbers of a short part are `size`."""
    rows = -(-numbers.shape[1] // parts)
    surplus = ((0, 0), (0, parts * rows - numbers.shape[1]), *((0, 0),) * (numbers.ndim - 2))
    padded = jnp.pad(numbers, surplus, constant_values=np.uint32(size))
    return padded.reshape(len(numbers), parts, rows, *numbers.shape[2:])


def arrays(
    rows: Tree,
    *,
    batch_size: int | None = None,
    batch_order: str | type[BatchOrder] | None = None,
    replacement: bool = True,
) -> Data:
    """Makes data of arrays in memory.

    Args:
        rows: a pytree of arrays whose leading axis counts the rows.
        batch_size: rows per minibatch; not needed for the order `full`.
        batch_order: `full`, `iid`, `reshuffled`, `symmetric` or `cyclic`, or a `strang.data.orders.BatchOrder` class;
            by default `iid`. Where neither this nor a batch size is given, `strang.tune` chooses both.
        replacement: whether an iid batch may hold a row twice.

    Returns:
        Data for `strang.sample`.

    Raises:
        InputError: the arrays hold no numbers, do not agree in length, or there are no such batches.

    Example:
        >>> data = arrays(np.arange(6.0), batch_size=2, batch_order="cyclic")
        >>> data.get(jnp.zeros(2, jnp.uint32), jnp.uint32(4)).rows
        Array([2., 3.], dtype=float32)
    """
    leaves = jax.tree.leaves(rows)
    if not leaves:
        raise InputError("the data hold no array; give an array, or a pytree of arrays with a common leading axis.")
    if any(isinstance(leaf, np.memmap) for leaf in leaves):
        return files(rows, batch_size=batch_size, batch_order=batch_order, replacement=replacement)
    rows = jax.tree.map(as_used, rows)
    sizes = {np.shape(leaf)[0] for leaf in leaves}
    if len(sizes) > 1:
        raise InputError(f"the data arrays have {sorted(sizes)} rows; their leading axes must agree.")
    return Data(rows, make_order(sizes.pop(), batch_size, batch_order, replacement=replacement))


def files(
    paths: Tree,
    *,
    batch_size: int | None = None,
    batch_order: str | type[BatchOrder] | None = None,
    replacement: bool = True,
    columns: str | list[str] | None = None,
    cache: str | Path | None = None,
) -> Data:
    """Makes data of files that stay on disk. Runs are bit for bit those of `arrays` with the same numbers.

    Args:
        paths: a `.npy` file, or a folder of them, whose rows follow each other in the order of their names; or a table
            (`.parquet`, `.arrow`, `.feather`, or a folder of such), whose rows are dicts of its columns. A pytree of
            paths to `.npy` files (or arrays) makes rows of that structure.
        batch_size: rows per minibatch; not needed for the order `full`.
        batch_order: as for `arrays`.
        replacement: whether an iid batch may hold a row twice.
        columns: the columns of a table to use (by default all), or the name of one whose values are the rows.
        cache: the folder for the copy of a table in `.npy` files, which is made once; by default beside the table.

    Returns:
        Data for `strang.sample`.

    Raises:
        InputError: a file is missing, damaged or holds no numbers, or there are no such batches.

    Example:
        >>> import tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "x.npy")
        >>> np.save(path, np.arange(6.0, dtype=np.float32))
        >>> data = files(path, batch_size=2, batch_order="cyclic")
        >>> data.get(jnp.zeros(2, jnp.uint32), jnp.uint32(4)).rows
        Array([2., 3.], dtype=float32)
    """
    source = open_files(paths, None if cache is None else Path(cache), columns)
    order = make_order(source.size, batch_size, batch_order, replacement=replacement)
    return Data(Remote(source.number, source), order)


def stream(loader: Callable | Iterable, *, size: int, ragged: bool = False) -> Data:
    """Makes data of a loader's batches: step l of all chains uses the l-th batch that comes.

    Args:
        loader: a function from a batch number to an iterator that goes on from there; or an object that can be iterated
            over repeatedly, such as a PyTorch or Grain loader, which is read from the start to where a run goes on. A
            batch is a pytree of arrays with a leading axis of rows, as many as in the first. Where batches end, the
            next epoch begins.
        size: the number of rows in the whole data.
        ragged: whether each epoch's last batch has only the rows that are left over.

    Returns:
        Data for `strang.sample`. A stored run goes on bit for bit if the loader gives the same batches again; only the
        first one is compared.

    Raises:
        InputError: the loader has no batches, or they are not arrays of numbers of one shape.

    Example:
        >>> batches = [np.zeros(2, np.float32), np.ones(2, np.float32)]
        >>> stream(batches, size=4).get(jnp.zeros(2, jnp.uint32), jnp.uint32(5)).rows
        Array([1., 1.], dtype=float32)
    """
    source = Loader(loader, size, ragged)
    checked = make_order(source.size, source.batch_size, "cyclic")
    return Data(Remote(source.number, source), Stream(checked.size, checked.batch_size, source.ragged))


def as_data(data: Any) -> Data:
    """Data as they are, or plain arrays in an order that is still to be chosen."""
    return data if isinstance(data, Data) else arrays(data)


def as_used(leaf) -> jax.Array:
    """Converts an array to the precision in which it is used, and checks it."""
    array = np.asarray(leaf)
    if array.dtype.kind not in "fiub":
        raise InputError(f"the data have dtype {array.dtype}; convert them to numbers first.")
    if array.ndim == 0 or array.shape[0] == 0:
        raise InputError(f"a data array has shape {array.shape}; its leading axis must count at least one datum.")
    native = array.dtype.newbyteorder("=")
    dtype = jax.dtypes.canonicalize_dtype(min(native, np.dtype(float)) if native.kind == "f" else native)
    check_numbers(array, dtype, "a data array", 0)
    return on_device(leaf if isinstance(leaf, jax.Array) else array.astype(dtype, copy=False))
