"""Batches from a loader of one's own: an iterator that is read in order, ahead of the run by a thread."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np

from strang.data.source import Source, check_numbers
from strang.util.errors import InputError, first_line, whole
from strang.util.trees import Tree, alike

NOWHERE = -1  # where a loader is that was interrupted
REQUESTS = 3  # whose batches are kept: a measurement, its granule, and what is ahead


class Loader(Source):
    """Batch number l is the l-th that comes, epoch after epoch."""

    def __init__(self, loader: Callable[[int], Iterable] | Iterable, size: int, ragged: bool):
        if not callable(loader) and (isinstance(loader, Iterator) or not isinstance(loader, Iterable)):
            raise InputError(
                f"a {type(loader).__name__} cannot be read from the start again; "
                "give a function from a batch number to an iterator that goes on from there."
            )
        self.loader, self.size, self.ragged = loader, whole("size", size), bool(ragged)
        self.kept: dict[int, list[np.ndarray]] = {}
        self.firsts: deque[int] = deque(maxlen=REQUESTS)  # the lowest number of each of the last requests
        self.batches: Iterator | None = None
        self.place = 0  # the number of the batch that comes next
        first = self.next_batch()
        leaves = [as_array(leaf, 0) for leaf in jax.tree.leaves(first)]
        lengths = {leaf.shape[0] if leaf.ndim else 0 for leaf in leaves}
        if len(lengths) != 1 or 0 in lengths:
            raise InputError(f"the loader's batches have leading axes of {sorted(lengths)}; give as many rows in each.")
        self.batch_size = min(lengths.pop(), self.size)
        types = [jax.dtypes.canonicalize_dtype(leaf.dtype.newbyteorder("=")) for leaf in leaves]
        datum = [jax.ShapeDtypeStruct(leaf.shape[1:], kind) for leaf, kind in zip(leaves, types, strict=True)]
        super().__init__(jax.tree.unflatten(jax.tree.structure(first), datum))
        self.keep(0, first)

    @property
    def layout(self) -> tuple:
        return *super().layout, self.batch_size, self.ragged

    def shapes(self, where: list) -> list[jax.ShapeDtypeStruct]:
        """A request is an array of batch numbers."""
        shape = (*where[0].shape, self.batch_size)
        return [jax.ShapeDtypeStruct((*shape, *row.shape), row.dtype) for row in jax.tree.leaves(self.datum)]

    def read(self, where: list[np.ndarray]) -> list[np.ndarray]:
        (numbers,) = where
        low, high = int(numbers.min()), int(numbers.max())
        if low not in self.kept:
            self.kept.clear()
        for number in range(max(self.kept, default=low - 1) + 1, high + 1):
            self.keep(number, self.go_to(number))
        self.firsts.append(low)
        for old in [number for number in self.kept if number < min(self.firsts)]:
            del self.kept[old]
        rows = [self.kept[int(number)] for number in numbers.reshape(-1)]
        stacked = [np.stack(leaf) for leaf in zip(*rows, strict=True)]
        return [leaf.reshape(*numbers.shape, *leaf.shape[1:]) for leaf in stacked]

    def begin(self, where: list[np.ndarray]) -> None:
        """Not beyond the run's last batch: a loader may have no more, or wait for more forever."""
        (numbers,) = where
        if numbers.min() < self.steps:
            super().begin([np.minimum(numbers, np.uint32(self.steps - 1))])

    def go_to(self, number: int) -> Tree:
        """This batch, and those after it next: by the loader itself, or by reading what comes before."""
        if self.place != number and callable(self.loader):
            self.place, self.batches = number, None
        elif not 0 <= self.place <= number:
            self.place, self.batches = 0, None
        while self.place < number:
            self.next_batch()
        return self.next_batch()

    def next_batch(self) -> Tree:
        """The batch that comes. Where there is none, an epoch has ended and the next begins."""
        try:
            for _ in range(2):
                if self.batches is None:
                    self.batches = iter(self.loader(self.place) if callable(self.loader) else self.loader)
                for batch in self.batches:
                    self.place += 1
                    return batch
                self.batches = None
        except BaseException as error:
            number, self.place, self.batches = self.place, NOWHERE, None
            if not isinstance(error, Exception):
                raise
            told = f"{type(error).__name__}: {first_line(error)}"
            raise InputError(f"the loader failed at batch number {number:,} ({told}).") from error
        raise InputError(f"the loader has no batch number {self.place:,}, also when begun again.")

    def keep(self, number: int, batch: Tree) -> None:
        """A batch as it is used: checked, and a ragged one filled up with its last row, which gets no weight."""
        datum = jax.tree.leaves(self.datum)
        if not alike(batch, self.datum):
            raise InputError(f"the loader's batch number {number:,} has another structure than the first.")
        whole, epoch = self.batch_size, -(-self.size // self.batch_size)
        rows = self.size - (epoch - 1) * whole if self.ragged and number % epoch == epoch - 1 else whole
        leaves = []
        for leaf, like in zip(jax.tree.leaves(batch), datum, strict=True):
            array = as_array(leaf, number)
            if array.shape != (rows, *like.shape):
                short = rows == whole and array.shape[1:] == like.shape
                raise InputError(
                    f"the loader's batch number {number:,} has shape {array.shape}, not {(rows, *like.shape)}"
                    + "; write ragged=True if every epoch ends with such a one, or let the loader drop it" * short
                    + "."
                )
            check_numbers(array, like.dtype, f"the loader's batch number {number:,}", 0)
            array = np.array(array, like.dtype)  # a copy: a loader may use its memory again
            leaves.append(np.concatenate([array, np.repeat(array[-1:], whole - rows, axis=0)]))
        self.kept[number] = leaves

    def verify(self, known: Any, progress: bool | None) -> None:
        """Only the first batch can be looked at."""
        if self.digest is None:
            total = hashlib.sha256(f"{self.size} {self.batch_size} {self.ragged}".encode())
            for leaf in self.locked_read([np.zeros(1, np.uint32)]):
                total.update(f"{leaf.dtype}{leaf.shape}".encode() + leaf.tobytes())
            self.digest = total.hexdigest()


def as_array(leaf: Any, number: int) -> np.ndarray:
    """An array of numbers, from whatever can be one."""
    try:
        array = np.asarray(leaf)
        if array.dtype.kind in "fiub" and array.dtype.itemsize <= 8:
            return array
        told = f"dtype {array.dtype}"
    except Exception as error:  # tensors elsewhere than in memory, and more
        told = first_line(error)
    raise InputError(f"the loader's batch number {number:,} cannot be used ({told}); give arrays of numbers.")
