"""Documents in the layout of the compiled loops, checked here because the loops do not check bounds."""

from typing import Any, NamedTuple

import numpy as np

from strang.util.errors import InputError

SLICE_TOKENS = 1 << 20  # tokens whose topics are held in memory together


class Documents(NamedTuple):
    """Bags of words: document d has `counts[j]` tokens of word `indices[j]` for j from indptr[d] to indptr[d + 1]."""

    indptr: np.ndarray  # int64
    indices: np.ndarray  # int32
    counts: np.ndarray  # int32

    def between(self, first: int, last: int) -> "Documents":
        """Documents first to last − 1."""
        indptr = self.indptr[first : last + 1]
        entries = slice(indptr[0], indptr[-1])
        return Documents(indptr - indptr[0], self.indices[entries], self.counts[entries])

    def select(self, numbers: np.ndarray) -> "Documents":
        """The documents with these numbers, in this order."""
        lengths = np.diff(self.indptr)[numbers]
        indptr = np.append(0, np.cumsum(lengths))
        entries = np.arange(indptr[-1]) + np.repeat(self.indptr[numbers] - indptr[:-1], lengths)
        return Documents(indptr, self.indices[entries], self.counts[entries])

    @property
    def tokens(self) -> np.ndarray:
        """Where each document's tokens begin, and at the end the total number of tokens."""
        return np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)])[self.indptr]


def as_documents(documents: Any, vocabulary: int) -> Documents:
    """Check (indptr, indices, counts) over a vocabulary of this size, and convert it to the loops' dtypes."""
    ends, indices, counts = documents
    counts = np.asarray(counts)
    if counts.dtype.kind == "f" and (broken := counts[counts != np.floor(counts)]).size:
        raise InputError(f"a document holds a word {broken[0]} times; counts must be whole numbers.")
    ends, indices, counts = read_only(ends, np.int64), read_only(indices, np.int32), read_only(counts, np.int32)
    if len(ends) == 0 or ends[0] != 0 or ends[-1] != len(indices) or (np.diff(ends) < 0).any():
        raise InputError(f"indptr runs from {ends[:1]} to {ends[-1:]}, not from 0 to {len(indices)} upwards.")
    if len(counts) != len(indices):
        raise InputError(f"there are {len(indices)} indices and {len(counts)} counts; write as many.")
    least, largest = indices.min(initial=0), indices.max(initial=0)
    if least < 0 or largest >= vocabulary:
        outside = least if least < 0 else largest
        raise InputError(f"a document holds word number {outside}; there are words 0 to {vocabulary - 1}.")
    if counts.min(initial=0) < 0:
        raise InputError(f"a document holds a word {counts.min()} times; counts must not be negative.")
    return Documents(ends, indices, counts)


def as_bags(rows: np.ndarray) -> Documents:
    """Documents from dense counts, one per row; not yet checked."""
    where, words = np.nonzero(rows)
    return Documents(np.searchsorted(where, np.arange(len(rows) + 1)), words, rows[where, words])


def read_only(array: Any, dtype: type) -> np.ndarray:
    """A contiguous read-only view or copy: the loops are compiled for this one kind of array."""
    view: np.ndarray = np.ascontiguousarray(array, dtype).view()
    view.flags.writeable = False
    return view


def slices(documents: Documents):
    """Yield runs of whole documents of about SLICE_TOKENS tokens, each with its first and last document."""
    tokens, first = documents.tokens, 0
    while first < len(tokens) - 1:
        last = max(first + 1, int(np.searchsorted(tokens, tokens[first] + SLICE_TOKENS, "right")) - 1)
        part = documents.between(first, last)
        yield part._replace(indptr=read_only(part.indptr, np.int64)), first, last
        first = last


def kept_sweeps(sweeps: int) -> int:
    """How many of the Gibbs sweeps are counted: those after the first half."""
    return sweeps - sweeps // 2
