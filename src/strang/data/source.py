"""Rows that the host reads for compiled code.

Batches are functions of (key, l), so compiled code knows its next request and announces it with every request; a thread
reads those rows while the device computes. What is returned depends on the request alone.
"""

import itertools
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from strang.util.errors import InputError
from strang.util.host import call_host
from strang.util.trees import Tree

_numbers = itertools.count(1)
_sources: weakref.WeakValueDictionary = weakref.WeakValueDictionary()


class Source(ABC):
    """Rows that are not in device memory; `datum` holds shapes and dtypes of one row.

    A request is a list of arrays of numbers (of rows, or of batches): one per leaf of a datum, or one for all leaves.
    Sources of one layout are equal to JAX, so that they share a compilation; which one is meant is a number that
    compiled code gets as an input.
    """

    marks: Sequence[Any] = (None,)  # of each file, what changes when it does; None where that is unknown
    digest: str | None = None  # hash of the content, once verified
    rows_per_number: tuple[int, ...] = ()  # the axes that a number of a request stands for

    def __init__(self, datum: Tree):
        self.datum, self.number = datum, np.uint32(next(_numbers))
        self.waited = 0.0  # seconds that compiled code has waited for rows
        self.failure: BaseException | None = None
        self.pool: ThreadPoolExecutor | None = None
        self.pending: dict[bytes, Future] = {}
        self.read_lock = threading.Lock()
        self.pending_lock = threading.Lock()  # every device asks from a thread of its own
        self.expect(1, 2**32)
        _sources[int(self.number)] = self

    @property
    def layout(self) -> tuple:
        rows = ((row.shape, row.dtype) for row in jax.tree.leaves(self.datum))
        return type(self), self.rows_per_number, jax.tree.structure(self.datum), *rows

    def __eq__(self, other):
        return isinstance(other, Source) and self.layout == other.layout

    def __hash__(self):
        return hash(self.layout)

    def shapes(self, request: list) -> list[jax.ShapeDtypeStruct]:
        """Shapes and dtypes of the answer to a request, one per leaf of a datum."""
        return [
            jax.ShapeDtypeStruct((*numbers.shape, *self.rows_per_number, *row.shape), row.dtype)
            for row, numbers in zip(jax.tree.leaves(self.datum), itertools.cycle(request), strict=False)
        ]

    @abstractmethod
    def read(self, request: list[np.ndarray]) -> list[np.ndarray]:
        """Reads the rows of a request; never called by two threads at once."""

    def verify(self, known: tuple[list[Any], str] | None, progress: bool | None) -> None:  # noqa: B027 (may be left out)
        """Checks all rows once and sets `digest`; `known` are the marks and the digest of an earlier check."""

    def expect(self, requests: int, steps: int) -> None:
        """Prepares for a run of `steps` steps in all, with `requests` requests each. Twice as many may be pending: the
        others are of full gradients or of a run that was stopped, and the oldest are dropped first."""
        self.max_pending, self.steps = 2 * requests, steps

    def take(self, request: list[np.ndarray], ahead: list[np.ndarray]) -> list[np.ndarray]:
        """Answers a request and starts to read the next one. After a failure it returns zeros, since compiled code
        cannot be left; `check` then raises the error, and what was computed since is discarded."""
        started = time.perf_counter()
        try:
            if self.failure is not None:
                raise self.failure
            with self.pending_lock:
                pending = self.pending.pop(request_id(request), None)
            rows = self.locked_read(request) if pending is None else pending.result()
            if ahead:
                self.begin(ahead)
        except BaseException as error:  # Ctrl-C too: it mostly comes while something waits
            self.failure = error
            rows = [np.zeros(each.shape, each.dtype) for each in self.shapes(request)]
        with self.pending_lock:
            self.waited += time.perf_counter() - started
        return rows

    def begin(self, request: list[np.ndarray]) -> None:
        """Lets the thread read what will be asked for."""
        name = request_id(request)
        with self.pending_lock:
            if name in self.pending:
                return
            if self.pool is None:
                self.pool = ThreadPoolExecutor(1, thread_name_prefix="strang-rows")
            while len(self.pending) >= self.max_pending:
                self.pending.pop(next(iter(self.pending))).cancel()
            # The arrays belong to the compiled code and are only valid during this call: hence copies.
            self.pending[name] = self.pool.submit(self.locked_read, [np.array(each) for each in request])

    def locked_read(self, request: list[np.ndarray]) -> list[np.ndarray]:
        with self.read_lock:
            return self.read(request)

    def check(self) -> None:
        """Raises the error that occurred inside compiled code, if there was one."""
        if self.failure is not None:
            failure, self.failure = self.failure, None
            with self.pending_lock:
                self.pending.clear()
            raise failure


def request_id(request: list[np.ndarray]) -> bytes:
    return b"".join(each.tobytes() for each in request)


def row_of(array: Any) -> jax.ShapeDtypeStruct:
    """Shape and dtype of one row of an array, in the precision in which rows are used."""
    return jax.ShapeDtypeStruct(array.shape[1:], jax.dtypes.canonicalize_dtype(array.dtype.newbyteorder("=")))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Remote:
    """Stands for the rows of a source in the place of an array; in compiled code it is only the source's number."""

    number: Any
    source: Source = field(metadata={"static": True})

    def fetch(self, request: Tree, ahead: Tree = None) -> Tree:
        """Reads rows from inside compiled code; `ahead` is the next request."""
        structure = jax.tree.structure(self.source.datum)
        shapes = jax.tree.unflatten(structure, self.source.shapes(jax.tree.leaves(request)))
        return call_host(serve, shapes, self.number, request, ahead, vmap_method="expand_dims")


def serve(number, request: Tree, ahead: Tree) -> Tree:
    """The host's side of `fetch`; under `vmap` every array has further axes in front."""
    source = _sources[int(np.ravel(number)[0])]
    rows = source.take(jax.tree.leaves(request), jax.tree.leaves(ahead))
    return jax.tree.unflatten(jax.tree.structure(source.datum), rows)


def check_numbers(rows: np.ndarray, dtype: np.dtype, name: str, first: int) -> None:
    """Raises if a number is not finite, or changes, in the dtype in which it is used; `first` numbers the first row."""
    with np.errstate(over="ignore"):
        used = rows.astype(dtype, copy=False)
    if np.issubdtype(dtype, np.floating):
        valid, reason = np.isfinite(used), "is not finite"
    elif used is not rows and used.itemsize < rows.itemsize:
        valid, reason = used == rows, f"does not fit {np.dtype(dtype)}"
    else:
        return
    if not valid.all():
        place = np.unravel_index(np.argmin(valid), valid.shape)
        row = f"{rows[place]} in row {first + int(place[0]):,}"
        raise InputError(f"{name} {reason}: {row}; remove or fix such rows first.")
