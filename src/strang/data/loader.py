"""Batches from a user's loader: an iterator that is read in order, ahead of the run by a thread."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np

from strang.data.source import Source, check_numbers, row_of
from strang.util.errors import InputError, first_line, whole
from strang.util.trees import Tree, alike

UNKNOWN = -1  # the place of a loader that was interrupted
CACHED_REQUESTS = 3  # whose batches are kept: a measurement's, its block's, and the one read ahead


class Loader(Source):
    """Batches of a loader: number l is the l-th that comes, epoch after epoch. A request is an array of numbers."""

    def __init__(self, loader: Callable[[int], Iterable] | Iterable, size: int, ragged: bool):
        if not callable(loader) and (isinstance(loader, Iterator) or not isinstance(loader, Iterable)):
            raise InputError(
                f"a {type(loader).__name__} cannot be read from the start again; "
                "give a function from a batch number to an iterator that goes on from there."
            )
        self.loader, self.size, self.ragged = loader, whole("size", size), bool(ragged)
        self.cached: dict[int, list[np.ndarray]] = {}
        self.firsts: deque[int] = deque(maxlen=CACHED_REQUESTS)  # the lowest number of each of the last requests
        self.batches: Iterator | None = None
        self.place = 0  # the number of the batch that comes next
        first = self.next_batch()
        leaves = [as_array(leaf, 0) for leaf in jax.tree.leaves(first)]
        lengths = {leaf.shape[0] if leaf.ndim else 0 for leaf in leaves}
        if len(lengths) != 1 or 0 in lengths:
            raise InputError(f"the loader's batches have leading axes of {sorted(lengths)}; give as many rows in each.")
        self.batch_size = min(lengths.pop(), self.size)
        self.rows_per_number = (self.batch_size,)
        super().__init__(jax.tree.unflatten(jax.tree.structure(first), map(row_of, leaves)))
        self.cache(0, first)

    def read(self, request: list[np.ndarray]) -> list[np.ndarray]:
        (numbers,) = request
        low, high = int(numbers.min()), int(numbers.max())
        if low not in self.cached:
            self.cached.clear()
        for number in range(max(self.cached, default=low - 1) + 1, high + 1):
            self.cache(number, self.go_to(number))
        self.firsts.append(low)
        for old in [number for number in self.cached if number < min(self.firsts)]:
            del self.cached[old]
        rows = [self.cached[int(number)] for number in numbers.reshape(-1)]
        stacked = [np.stack(leaf) for leaf in zip(*rows, strict=True)]
        return [leaf.reshape(*numbers.shape, *leaf.shape[1:]) for leaf in stacked]

    def begin(self, request: list[np.ndarray]) -> None:
        """Reads ahead, but not beyond the run's last batch: a loader may have no more, or wait for more forever."""
        (numbers,) = request
        if numbers.min() < self.steps:
            super().begin([np.minimum(numbers, np.uint32(self.steps - 1))])

    def go_to(self, number: int) -> Tree:
        """Reads batch `number`: the loader starts there if it is a function, else the batches before are skipped."""
        if self.place != number and callable(self.loader):
            self.place, self.batches = number, None
        elif not 0 <= self.place <= number:
            self.place, self.batches = 0, None
        while self.place < number:
            self.next_batch()
        return self.next_batch()

    def next_batch(self) -> Tree:
        """Reads the next batch; where an epoch has ended, the next one begins."""
        try:
            for _ in range(2):
                if self.batches is None:
                    self.batches = iter(self.loader(self.place) if callable(self.loader) else self.loader)
                for batch in self.batches:
                    self.place += 1
                    return batch
                self.batches = None
        except BaseException as error:
            number, self.place, self.batches = self.place, UNKNOWN, None
            if not isinstance(error, Exception):
                raise
            reason = f"{type(error).__name__}: {first_line(error)}"
            raise InputError(f"the loader failed at batch number {number:,} ({reason}).") from error
        raise InputError(f"the loader has no batch number {self.place:,}, also when begun again.")

    def cache(self, number: int, batch: Tree) -> None:
        """Checks a batch and keeps a copy; a short last batch is filled up with its last row, which gets no weight."""
        name = f"the loader's batch number {number:,}"
        if not alike(batch, self.datum):
            raise InputError(f"{name} has another structure than the first.")
        epoch = -(-self.size // self.batch_size)
        surplus = epoch * self.batch_size - self.size if self.ragged and number % epoch == epoch - 1 else 0
        leaves = []
        for leaf, row in zip(jax.tree.leaves(batch), jax.tree.leaves(self.datum), strict=True):
            array, shape = as_array(leaf, number), (self.batch_size - surplus, *row.shape)
            if array.shape != shape:
                short = not surplus and array.shape[1:] == row.shape
                raise InputError(
                    f"{name} has shape {array.shape}, not {shape}"
                    + "; write ragged=True if every epoch ends with a short batch, or let the loader drop it" * short
                    + "."
                )
            check_numbers(array, row.dtype, name, 0)
            array = np.array(array, row.dtype)  # a copy: a loader may reuse its memory
            leaves.append(np.concatenate([array, np.repeat(array[-1:], surplus, axis=0)]))
        self.cached[number] = leaves

    def verify(self, known: Any, progress: bool | None) -> None:
        """Hashes the first batch, since all batches cannot be read twice."""
        if self.digest is None:
            total = hashlib.sha256(f"{self.size} {self.batch_size} {self.ragged}".encode())
            for leaf in self.locked_read([np.zeros(1, np.uint32)]):
                total.update(f"{leaf.dtype}{leaf.shape}".encode() + leaf.tobytes())
            self.digest = total.hexdigest()


def as_array(leaf: Any, number: int) -> np.ndarray:
    """Converts a leaf of batch `number` to an array of numbers."""
    try:
        array = np.asarray(leaf)
        if array.dtype.kind in "fiub" and array.dtype.itemsize <= 8:
            return array
        reason = f"dtype {array.dtype}"
    except Exception as error:  # tensors elsewhere than in memory, and more
        reason = first_line(error)
    raise InputError(f"the loader's batch number {number:,} cannot be used ({reason}); give arrays of numbers.")
