"""One array in .npy files, its rows read where they lie.

Rows are read by `pread`, not mapped: memory stays flat, and a file that is cut short or damaged under a running process
is an error and not the end of the process. Rows that lie close together are read together, and little data only once.
"""

import importlib.util
import math
import os
import warnings
import weakref
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from strang.util.errors import InputError, first_line

GAP = 1 << 12  # bytes that are rather read than skipped: what one more call costs
PIECE = 1 << 23  # bytes read together
OPEN_FILES = 64  # of one array
MANY = 16  # reads from which on the interpreter is what takes time
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class Shard(NamedTuple):
    """A .npy file: its rows begin at `offset`. While `mark` stays (name, bytes, times of change), so do they."""

    path: Path
    mark: list[Any]
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype


def open_shard(path: Path) -> Shard:
    """A file whose header and size are in order."""
    if not path.is_file():
        raise InputError(f"{path} is {'not a file' if path.exists() else 'not there'}; give a .npy file.")
    try:
        with path.open("rb") as file, warnings.catch_warnings(action="ignore"):
            shape, fortran, dtype = HEADERS[np.lib.format.read_magic(file)](file)
            offset, mark = file.tell(), mark_of(path, file.fileno())
        bytes_of_row = math.prod(shape[1:]) * dtype.itemsize
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from None
    except Exception as error:  # a damaged header raises almost anything
        raise InputError(f"{path} is not a .npy file of numbers, or is damaged ({first_line(error)}).") from None
    if dtype.kind not in "fiub" or dtype.itemsize > 8:
        raise InputError(f"{path} has dtype {dtype}; save it as numbers, such as np.save(path, x.astype('float32')).")
    if not shape or min(shape) < 1:
        raise InputError(f"{path} has shape {shape}; its leading axis must count at least one row of numbers.")
    if fortran and math.prod(shape[1:]) > 1:
        raise InputError(
            f"{path} is in Fortran order, so that a row lies all over it; write np.save(path, np.ascontiguousarray(x))."
        )
    if mark[1] != offset + shape[0] * bytes_of_row:
        raise InputError(
            f"{path} is cut short or damaged: it has {mark[1]:,} bytes, its header asks for "
            f"{offset + shape[0] * bytes_of_row:,}."
        )
    return Shard(path, mark, offset, shape, dtype)


def mark_of(path: Path, handle: int) -> list[Any]:
    """What tells whether a file has changed, wherever its folder is moved."""
    about = os.fstat(handle)
    return [path.name, about.st_size, about.st_mtime_ns, about.st_ctime_ns]


class Shards:
    """The rows of some .npy files, one file after the other."""

    def __init__(self, paths: list[Path]):
        self.shards = [open_shard(path) for path in paths]
        first = self.shards[0]
        for shard in self.shards:
            if (shard.shape[1:], shard.dtype) != (first.shape[1:], first.dtype):
                raise InputError(
                    f"{shard.path} has rows of shape {shard.shape[1:]} and dtype {shard.dtype}, {first.path.name} has "
                    f"{first.shape[1:]} and {first.dtype}; the files of a folder must agree."
                )
        self.starts = np.cumsum([0, *(shard.shape[0] for shard in self.shards)])
        self.size, self.stored = int(self.starts[-1]), first.dtype
        self.datum = jax.ShapeDtypeStruct(first.shape[1:], jax.dtypes.canonicalize_dtype(first.dtype.newbyteorder("=")))
        self.width = math.prod(self.datum.shape) * self.stored.itemsize
        self.name, self.marks = str(first.path), [shard.mark for shard in self.shards]
        self.keep = False  # whether it is little enough to be read once
        self.kept: np.ndarray | None = None
        self.handles: dict[Path, int] = {}
        weakref.finalize(self, close, self.handles)

    def read(self, numbers: np.ndarray) -> np.ndarray:
        """The rows with these numbers; a run reads them by one thread at a time."""
        if self.keep and self.kept is None:
            whole, at = np.empty((self.size, *self.datum.shape), self.datum.dtype), 0
            for rows in self.pieces():
                whole[at : at + len(rows)] = rows
                at += len(rows)
            self.kept = whole
        if self.kept is not None:
            return self.kept[numbers]
        if len(self.shards) == 1:
            return self.read_shard(self.shards[0], numbers).astype(self.datum.dtype, copy=False)
        found = np.empty((len(numbers), *self.datum.shape), self.datum.dtype)
        order = np.argsort(numbers)
        edges = np.searchsorted(numbers[order], self.starts)
        for shard, start, (low, high) in zip(self.shards, self.starts, pairwise(edges), strict=False):
            if low < high:
                own = order[low:high]
                found[own] = self.read_shard(shard, numbers[own] - start)
        return found

    def read_shard(self, shard: Shard, numbers: np.ndarray) -> np.ndarray:
        """Rows of one file, as they are stored."""
        order = np.argsort(numbers)
        ranked, most = numbers[order], max(1, PIECE // self.width)
        apart = (np.diff(ranked) > max(1, GAP // self.width)) | (np.diff(ranked // most) > 0)
        firsts = np.append(0, np.flatnonzero(apart) + 1)  # of each run of rows that is read at once
        if 2 * len(firsts) > len(ranked):
            return self.content(shard, numbers, np.ones_like(numbers))
        begins = ranked[firsts]
        counts = ranked[np.append(firsts[1:], len(ranked)) - 1] - begins + 1
        ends = np.cumsum(counts)
        shifts = np.repeat(ends - counts - begins, np.diff(np.append(firsts, len(ranked))))
        found = np.empty((len(numbers), *self.datum.shape), self.stored)
        cuts = np.unique(np.append(np.searchsorted(ends, np.arange(0, ends[-1], most)), len(ends)))
        for low, high in pairwise(cuts):  # runs that make up about a piece
            rows = self.content(shard, begins[low:high], counts[low:high])
            inside = slice(firsts[low], firsts[high] if high < len(firsts) else len(ranked))
            found[order[inside]] = rows[ranked[inside] + shifts[inside] - (ends[low] - counts[low])]
        return found

    def content(self, shard: Shard, begins: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """So many rows from each of these numbers on, of a file that is still what it was."""
        lengths, offsets = counts * self.width, shard.offset + begins * self.width
        try:
            handle, content = self.handle(shard.path), np.empty(int(lengths.sum()), np.uint8)
            done = reader(len(lengths))(handle, content, lengths, offsets)
            mark = mark_of(shard.path, handle)
        except OSError as error:
            raise InputError(f"{shard.path} cannot be read ({error.strerror}).") from None
        if mark[:3] != shard.mark[:3] or done != len(content):
            raise InputError(f"{shard.path} was changed while it was in use; open it again when it is whole.")
        return content.view(self.stored).reshape(-1, *self.datum.shape)

    def handle(self, path: Path) -> int:
        """The file open for reading; the one opened longest ago is closed where there are many."""
        if path not in self.handles:
            if len(self.handles) >= OPEN_FILES:
                os.close(self.handles.pop(next(iter(self.handles))))
            self.handles[path] = os.open(path, os.O_RDONLY)
        return self.handles[path]

    def pieces(self) -> Iterator[np.ndarray]:
        """All rows in their order, as they are stored, some at a time."""
        most = max(1, PIECE // self.width)
        for shard in self.shards:
            for begin in range(0, shard.shape[0], most):
                yield self.content(shard, np.array([begin]), np.array([min(most, shard.shape[0] - begin)]))


def reader(count: int) -> Callable:
    """What reads so many runs of rows: a compiled loop where there is one and they are many."""
    if count >= MANY and importlib.util.find_spec("numba") is not None:
        from strang.data.pread import read_into

        return read_into
    return read_one_by_one


def read_one_by_one(handle: int, content: np.ndarray, lengths: np.ndarray, offsets: np.ndarray) -> int:
    done, memory = 0, content.data
    for length, offset in zip(lengths.tolist(), offsets.tolist(), strict=True):
        if os.preadv(handle, [memory[done : done + length]], offset) != length:
            break
        done += length
    return done


class Held:
    """An array that is at hand, or mapped into memory by its owner, in the same terms."""

    def __init__(self, array: np.ndarray):
        if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
            raise InputError(f"the data have dtype {array.dtype}; convert them to numbers first.")
        if array.ndim == 0 or min(array.shape) < 1:
            raise InputError(f"a data array has shape {array.shape}; its leading axis must count at least one datum.")
        self.array, self.stored, self.size = array, array.dtype, array.shape[0]
        self.datum = jax.ShapeDtypeStruct(array.shape[1:], jax.dtypes.canonicalize_dtype(array.dtype.newbyteorder("=")))
        self.width = math.prod(self.datum.shape) * self.stored.itemsize
        self.file = getattr(array, "filename", None)
        self.bytes = os.path.getsize(self.file) if self.file else 0
        self.name, self.marks = str(self.file or "a data array"), [None]

    def read(self, numbers: np.ndarray) -> np.ndarray:
        if self.file and not (os.path.exists(self.file) and os.path.getsize(self.file) >= self.bytes):
            raise InputError(f"{self.file} was cut short while it was mapped; open it again when it is whole.")
        return np.asarray(self.array)[numbers].astype(self.datum.dtype, copy=False)

    def pieces(self) -> Iterator[np.ndarray]:
        most = max(1, PIECE // self.width)
        for begin in range(0, self.size, most):
            yield np.ascontiguousarray(self.array[begin : begin + most])


def close(handles: dict[Path, int]) -> None:
    for handle in handles.values():
        os.close(handle)
