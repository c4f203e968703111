"""Documents in the layout of the compiled loops, checked here because the loops do not check bounds."""

from typing import Any, NamedTuple

import numpy as np

from strang.lda.text.bags import from_csr_arrays

SLICE_TOKENS = 1 << 20  # tokens whose topics are held in memory together


class Documents(NamedTuple):
    """Bags of words: document d has `counts[j]` tokens of word `indices[j]` for j from indptr[d] to indptr[d + 1]."""

    indptr: np.ndarray  # int64
    indices: np.ndarray  # int32
    counts: np.ndarray  # int32

    @property
    def tokens(self) -> np.ndarray:
        """Where each document's tokens begin, and at the end the total number of tokens."""
        return np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)])[self.indptr]


def as_documents(documents: Any, vocabulary: int) -> Documents:
    """Check (indptr, indices, counts) over a vocabulary of this size, and convert it to the loops' dtypes."""
    indptr, indices, counts = documents
    bags = from_csr_arrays(indptr, indices, counts, vocabulary)
    return Documents(read_only(bags.offsets, np.int64), read_only(bags.ids, np.int32), read_only(bags.counts, np.int32))


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
        begin, end = documents.indptr[first], documents.indptr[last]
        indptr = read_only(documents.indptr[first : last + 1] - begin, np.int64)
        yield Documents(indptr, documents.indices[begin:end], documents.counts[begin:end]), first, last
        first = last


def kept_sweeps(sweeps: int) -> int:
    """How many of the Gibbs sweeps are counted: those after the first half."""
    return sweeps - sweeps // 2
