"""Documents as the compiled loops of `lda` read them, checked, since these trust them blindly."""

from typing import Any, NamedTuple

import numpy as np

from strang.util.errors import InputError

SLICE = 1 << 20  # tokens whose topics are held in memory together


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

    @property
    def tokens(self) -> np.ndarray:
        """Where each document's tokens begin, and after the last the number of all."""
        return np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)])[self.indptr]


def as_documents(documents: Any, words: int) -> Documents:
    """Documents in the loops' own dtypes, none of whose words are outside the vocabulary of so many `words`."""
    indptr, indices, counts = documents
    counts = np.asarray(counts)
    if counts.dtype.kind == "f" and (broken := counts[counts != np.floor(counts)]).size:
        raise InputError(f"a document holds a word {broken[0]} times; counts must be whole numbers.")
    found = Documents(frozen(indptr, np.int64), frozen(indices, np.int32), frozen(counts, np.int32))
    ends = found.indptr
    if len(ends) == 0 or ends[0] != 0 or ends[-1] != len(found.indices) or (np.diff(ends) < 0).any():
        raise InputError(f"indptr runs from {ends[:1]} to {ends[-1:]}, not from 0 to {len(found.indices)} upwards.")
    if len(found.counts) != len(found.indices):
        raise InputError(f"there are {len(found.indices)} indices and {len(found.counts)} counts; write as many.")
    if len(found.indices) and not (found.indices.min() >= 0 and found.indices.max() < words):
        outside = found.indices.max() if found.indices.max() >= words else found.indices.min()
        raise InputError(f"a document holds word number {outside}; there are words 0 to {words - 1}.")
    if len(found.counts) and found.counts.min() < 0:
        raise InputError(f"a document holds a word {found.counts.min()} times; counts must not be negative.")
    return found


def as_bags(rows: np.ndarray) -> Documents:
    """Documents from dense counts, one row each; not checked yet."""
    where, words = np.nonzero(rows)
    return Documents(np.searchsorted(where, np.arange(len(rows) + 1)), words, rows[where, words])


def frozen(array: Any, dtype: type) -> np.ndarray:
    """The array as one that must not be written to, whoever owns it: loops are compiled for one kind only."""
    view: np.ndarray = np.ascontiguousarray(array, dtype).view()
    view.flags.writeable = False
    return view


def slices(documents: Documents):
    """Runs of whole documents with not many more than SLICE tokens: the run, and its first and last document."""
    tokens, first = documents.tokens, 0
    while first < len(tokens) - 1:
        last = max(first + 1, int(np.searchsorted(tokens, tokens[first] + SLICE, "right")) - 1)
        part = documents.between(first, last)
        yield part._replace(indptr=frozen(part.indptr, np.int64)), first, last
        first = last
