"""Rows of one array, read from `.npy` files when they are asked for.

Files are read by `pread` and not mapped: memory does not grow, and a file that is cut short or damaged during a run
raises an error instead of killing the process. Rows that lie close together are read together, and small arrays once.
"""

import importlib.util
import math
import os
import warnings
import weakref
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from strang.data.source import row_of
from strang.util.errors import InputError, first_line

MAX_GAP_BYTES = 1 << 12  # between rows that are read together: reading them costs less than one more call
CHUNK_BYTES = 1 << 23  # read together
MAX_OPEN_FILES = 64  # of one array
MIN_COMPILED_READS = 16  # from which on a compiled loop is faster than Python's
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class Shard(NamedTuple):
    """A `.npy` file whose rows begin at byte `offset`; `mark` is its name, size and times of change."""

    path: Path
    mark: list[Any]
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype


def open_shard(path: Path) -> Shard:
    """Opens a file and checks its header and size."""
    if not path.is_file():
        raise InputError(f"{path} is {'not a file' if path.exists() else 'not there'}; give a .npy file.")
    try:
        with path.open("rb") as file, warnings.catch_warnings(action="ignore"):
            shape, fortran, dtype = HEADERS[np.lib.format.read_magic(file)](file)
            offset, mark = file.tell(), mark_of(path, file.fileno())
        expected = offset + math.prod(shape) * dtype.itemsize
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
            f"{path} is in Fortran order, so a row is scattered over it; write np.save(path, np.ascontiguousarray(x))."
        )
    if mark[1] != expected:
        raise InputError(f"{path} is cut short or damaged: it has {mark[1]:,} bytes, its header asks for {expected:,}.")
    return Shard(path, mark, offset, shape, dtype)


def mark_of(path: Path, handle: int) -> list[Any]:
    """Changes when the file does, but not when its folder is moved."""
    status = os.fstat(handle)
    return [path.name, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


class Column:
    """Rows of one array. `datum` is a row as it is used, `stored` the dtype on disk, `width` the bytes of a stored row.

    A subclass has `read(numbers)`, the rows with these numbers as they are used; and `chunks()`, all rows in order as
    they are stored, `chunk_rows` at a time.
    """

    def __init__(self, name: str, marks: list[Any], size: int, rows: Any):
        self.name, self.marks, self.size, self.stored, self.datum = name, marks, size, rows.dtype, row_of(rows)
        self.width = math.prod(self.datum.shape) * self.stored.itemsize
        self.chunk_rows = max(1, CHUNK_BYTES // self.width)


class Shards(Column):
    """Rows of several `.npy` files, one file after the other."""

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
        super().__init__(str(first.path), [shard.mark for shard in self.shards], int(self.starts[-1]), first)
        self.keep_in_memory = False  # set where the array is small enough
        self.in_memory: np.ndarray | None = None
        self.handles: dict[Path, int] = {}
        weakref.finalize(self, close, self.handles)

    def read(self, numbers: np.ndarray) -> np.ndarray:
        if self.keep_in_memory and self.in_memory is None:
            everything, end = np.empty((self.size, *self.datum.shape), self.datum.dtype), 0
            for rows in self.chunks():
                everything[end : end + len(rows)] = rows
                end += len(rows)
            self.in_memory = everything
        if self.in_memory is not None:
            return self.in_memory[numbers]
        if len(self.shards) == 1:
            return self.read_shard(self.shards[0], numbers).astype(self.datum.dtype, copy=False)
        result = np.empty((len(numbers), *self.datum.shape), self.datum.dtype)
        order = np.argsort(numbers)
        edges = np.searchsorted(numbers[order], self.starts)
        for shard, start, (low, high) in zip(self.shards, self.starts, pairwise(edges), strict=False):
            if low < high:
                own = order[low:high]
                result[own] = self.read_shard(shard, numbers[own] - start)
        return result

    def read_shard(self, shard: Shard, numbers: np.ndarray) -> np.ndarray:
        """Reads rows of one file, as they are stored; rows close together are one run, which is read at once."""
        order = np.argsort(numbers)
        ranked = numbers[order]
        apart = np.diff(ranked) > max(1, MAX_GAP_BYTES // self.width)
        apart |= np.diff(ranked // self.chunk_rows) > 0
        firsts = np.append(0, np.flatnonzero(apart) + 1)  # where each run begins in `ranked`
        if 2 * len(firsts) > len(ranked):
            return self.read_runs(shard, numbers, np.ones_like(numbers))
        limits = np.append(firsts, len(ranked))
        begins = ranked[firsts]
        counts = ranked[limits[1:] - 1] - begins + 1
        ends = np.cumsum(counts)
        shifts = np.repeat(ends - counts - begins, np.diff(limits))
        result = np.empty((len(numbers), *self.datum.shape), self.stored)
        cuts = np.unique(np.append(np.searchsorted(ends, np.arange(0, ends[-1], self.chunk_rows)), len(ends)))
        for low, high in pairwise(cuts):  # runs that make up about a chunk
            rows = self.read_runs(shard, begins[low:high], counts[low:high])
            inside = slice(limits[low], limits[high])
            result[order[inside]] = rows[ranked[inside] + shifts[inside] - (ends[low] - counts[low])]
        return result

    def read_runs(self, shard: Shard, begins: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Reads runs of rows, each from a row number on, and checks that the file has not changed."""
        lengths, offsets = counts * self.width, shard.offset + begins * self.width
        try:
            handle, content = self.handle(shard.path), np.empty(int(lengths.sum()), np.uint8)
            done = read_bytes(handle, content, lengths, offsets)
            mark = mark_of(shard.path, handle)
        except OSError as error:
            raise InputError(f"{shard.path} cannot be read ({error.strerror}).") from None
        if mark[:3] != shard.mark[:3] or done != len(content):
            raise InputError(f"{shard.path} was changed while it was in use; open it again when it is whole.")
        return content.view(self.stored).reshape(-1, *self.datum.shape)

    def handle(self, path: Path) -> int:
        """Opens a file for reading, and closes the one opened longest ago where there are too many."""
        if path not in self.handles:
            if len(self.handles) >= MAX_OPEN_FILES:
                os.close(self.handles.pop(next(iter(self.handles))))
            self.handles[path] = os.open(path, os.O_RDONLY)
        return self.handles[path]

    def chunks(self) -> Iterator[np.ndarray]:
        for shard in self.shards:
            for begin in range(0, shard.shape[0], self.chunk_rows):
                count = min(self.chunk_rows, shard.shape[0] - begin)
                yield self.read_runs(shard, np.array([begin]), np.array([count]))


class Held(Column):
    """Rows of an array that is in memory, or mapped into memory by its owner."""

    def __init__(self, array: np.ndarray):
        if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
            raise InputError(f"the data have dtype {array.dtype}; convert them to numbers first.")
        if array.ndim == 0 or min(array.shape) < 1:
            raise InputError(f"a data array has shape {array.shape}; its leading axis must count at least one datum.")
        self.array, self.file = array, getattr(array, "filename", None)
        self.bytes = os.path.getsize(self.file) if self.file else 0
        super().__init__(str(self.file or "a data array"), [None], array.shape[0], array)

    def read(self, numbers: np.ndarray) -> np.ndarray:
        if self.file and not (os.path.exists(self.file) and os.path.getsize(self.file) >= self.bytes):
            raise InputError(f"{self.file} was cut short while it was mapped; open it again when it is whole.")
        return np.asarray(self.array)[numbers].astype(self.datum.dtype, copy=False)

    def chunks(self) -> Iterator[np.ndarray]:
        for begin in range(0, self.size, self.chunk_rows):
            yield np.ascontiguousarray(self.array[begin : begin + self.chunk_rows])


def read_bytes(handle: int, content: np.ndarray, lengths: np.ndarray, offsets: np.ndarray) -> int:
    """Reads bytes from each offset on, one after the other into `content`, and counts them up to the first short read.
    Many reads are done by a compiled loop, if Numba is there."""
    if len(lengths) >= MIN_COMPILED_READS and importlib.util.find_spec("numba") is not None:
        from strang.data.pread import read_into

        return read_into(handle, content, lengths, offsets)
    done, memory = 0, content.data
    for length, offset in zip(lengths.tolist(), offsets.tolist(), strict=True):
        if os.preadv(handle, [memory[done : done + length]], offset) != length:
            break
        done += length
    return done


def close(handles: dict[Path, int]) -> None:
    for handle in handles.values():
        os.close(handle)
