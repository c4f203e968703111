"""Rows that the host brings into compiled code: what a source has to offer, and how it is asked.

What is asked for is known beforehand, since batches are functions of (key, l). So compiled code says with every request
what it will want next, and a thread brings that while the device computes. What is returned depends on the request
alone; that some of it was at hand already only saves time.
"""

import itertools
import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from strang.util.errors import InputError
from strang.util.trees import Tree

_numbers = itertools.count(1)
_sources: weakref.WeakValueDictionary = weakref.WeakValueDictionary()


class Source:
    """`datum` is the shape of one row. To JAX, sources of one layout are equal, so that they share a compilation; which
    one is meant is a number that compiled code is given."""

    marks: Sequence[Any] = (None,)  # of files, which tell whether they changed; None: one that does not tell
    digest: str | None = None  # of the content, once verified

    def __init__(self, datum: Tree):
        self.datum, self.number = datum, next(_numbers)
        self.waited = 0.0  # seconds that compiled code stood still for rows
        self.failure: BaseException | None = None
        self.lock = threading.Lock()
        self.pool: ThreadPoolExecutor | None = None
        self.coming: dict[bytes, Future] = {}
        self.guard = threading.Lock()  # of what is coming, since every device asks from a thread of its own
        self.expect(1, 2**32)
        _sources[self.number] = self

    @property
    def layout(self) -> tuple:
        return type(self), jax.tree.structure(self.datum), *((d.shape, d.dtype) for d in jax.tree.leaves(self.datum))

    def __eq__(self, other):
        return isinstance(other, Source) and self.layout == other.layout

    def __hash__(self):
        return hash(self.layout)

    def shapes(self, where: list) -> list[jax.ShapeDtypeStruct]:
        """What a request gives, one array for each leaf of a datum."""
        raise NotImplementedError

    def read(self, where: list[np.ndarray]) -> list[np.ndarray]:
        """The same, read; no two threads read at once."""
        raise NotImplementedError

    def verify(self, known: tuple[list[Any], str] | None, progress: bool | None) -> None:
        """Look at all there is once and set `digest`; `known` are the marks and the digest of an earlier look."""

    def expect(self, requests: int, steps: int) -> None:
        """A run of so many steps in all, each of which makes so many requests. As many again are what full gradients
        ask for, or what a stopped run left, which is the oldest and goes first."""
        self.room, self.steps = 2 * requests, steps

    def take(self, where: list[np.ndarray], ahead: list[np.ndarray]) -> list[np.ndarray]:
        """Answer a request, and begin with the next. A source that failed gives zeros from then on, since compiled code
        cannot be left; `check` tells, and what was computed since is thrown away."""
        started = time.perf_counter()
        try:
            if self.failure is not None:
                raise self.failure
            with self.guard:
                coming = self.coming.pop(name_of(where), None)
            found = self.locked_read(where) if coming is None else coming.result()
            if ahead:
                self.begin(ahead)
        except BaseException as error:  # Ctrl-C too: it mostly comes while something waits
            self.failure = error
            found = [np.zeros(each.shape, each.dtype) for each in self.shapes(where)]
        with self.guard:
            self.waited += time.perf_counter() - started
        return found

    def begin(self, where: list[np.ndarray]) -> None:
        """Let the thread bring what will be asked for."""
        name = name_of(where)
        with self.guard:
            if name in self.coming:
                return
            if self.pool is None:
                self.pool = ThreadPoolExecutor(1, thread_name_prefix="strang-rows")
            while len(self.coming) >= self.room:
                self.coming.pop(next(iter(self.coming))).cancel()
            # The arrays belong to the compiled code and end with this call: hence copies.
            self.coming[name] = self.pool.submit(self.locked_read, [np.array(each) for each in where])

    def locked_read(self, where: list[np.ndarray]) -> list[np.ndarray]:
        with self.lock:
            return self.read(where)

    def check(self) -> None:
        """Raise what went wrong inside compiled code."""
        if self.failure is not None:
            failure, self.failure = self.failure, None
            with self.guard:
                self.coming.clear()
            raise failure


def name_of(where: list[np.ndarray]) -> bytes:
    """What tells a request from others."""
    return b"".join(each.tobytes() for each in where)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Remote:
    """The rows of a source, where an array would be: for compiled code no more than its number."""

    number: Any
    source: Source = field(metadata={"static": True})

    def fetch(self, where: Tree, ahead: Tree = None) -> Tree:
        """Rows from inside compiled code; `ahead` is what will be asked for next."""
        shapes = self.source.shapes(jax.tree.leaves(where))
        shapes = jax.tree.unflatten(jax.tree.structure(self.source.datum), shapes)
        return jax.pure_callback(serve, shapes, self.number, where, ahead, vmap_method="expand_dims")


def serve(number, where: Tree, ahead: Tree) -> Tree:
    """The host's side of `fetch`; under `vmap` every array has further axes in front."""
    source = _sources[int(np.ravel(number)[0])]
    found = source.take(*([np.asarray(leaf) for leaf in jax.tree.leaves(tree)] for tree in (where, ahead)))
    return jax.tree.unflatten(jax.tree.structure(source.datum), found)


def remote(source: Source) -> Remote:
    return Remote(np.uint32(source.number), source)


def check_numbers(rows: np.ndarray, dtype: np.dtype, name: str, first: int) -> None:
    """Refuse what is not finite, or another number, in the dtype in which it is used; `first` is the first row's."""
    with np.errstate(over="ignore"):
        used = rows.astype(dtype, copy=False)
    if np.issubdtype(dtype, np.floating):
        right, reason = np.isfinite(used), "is not finite"
    elif used is not rows and used.itemsize < rows.itemsize:
        right, reason = used == rows, f"does not fit {np.dtype(dtype)}"
    else:
        return
    if not right.all():
        where = np.unravel_index(np.argmin(right), right.shape)
        row = first + int(where[0])
        raise InputError(f"{name} {reason}: {rows[where]} in row {row:,}; remove or mend such rows first.")
