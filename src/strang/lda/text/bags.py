"""Bags of words. In normal form each document has every word once, with rising ids and positive whole counts."""

from typing import Any, NamedTuple

import numba
import numpy as np

from strang.util.errors import InputError
from strang.util.simd import COMPILE

MAX_STORED_COUNT = np.iinfo(np.uint16).max  # a larger count is stored as several entries, so that nothing is lost


class Bags(NamedTuple):
    """Documents one after another: document d has `lengths[d]` entries, each the id of a word and its count."""

    lengths: np.ndarray
    ids: np.ndarray
    counts: np.ndarray

    @property
    def offsets(self) -> np.ndarray:
        """Where the entries of each document begin, and the number of all entries."""
        return np.append(0, np.cumsum(self.lengths))

    @property
    def owners(self) -> np.ndarray:
        """The document of each entry."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def select(self, entries: np.ndarray) -> "Bags":
        """Only these entries (a mask, or their places), of the same number of documents."""
        lengths = np.bincount(self.owners[entries], minlength=len(self.lengths))
        return Bags(lengths, self.ids[entries], self.counts[entries])


def check(bags: Bags, vocabulary: int, first: int = 0) -> Bags:
    """Whole positive numbers and known words, or an error that says where; `first` is the number of document 0."""
    lengths, ids, counts = bags
    if len(ids) and ids.dtype.kind not in "iu":
        raise InputError(f"word ids have dtype {ids.dtype}; give whole numbers.")
    if counts.dtype.kind == "f":
        counts = np.where((counts == np.floor(counts)) & (np.abs(counts) < 2**53), counts, -1).astype(np.int64)
    elif counts.dtype.kind not in "biu":
        raise InputError(f"counts have dtype {counts.dtype}; give whole numbers.")
    known = f" from 0 to {vocabulary - 1:,}: the vocabulary has {vocabulary:,} words"
    for what, values, wrong, expected in (
        ("word id", ids, (ids < 0) | (ids >= vocabulary), known),
        ("count", bags.counts, (counts < 0) | (counts > np.iinfo(np.int32).max), ", not negative and below 2^31"),
    ):
        if wrong.any():
            entry = int(np.argmax(wrong))
            place = f"document {first + bags.owners[entry]:,}"
            raise InputError(f"{place} has the {what} {values[entry]}; {what}s are whole numbers{expected}.")
    return Bags(lengths.astype(np.int64), ids.astype(np.int32), counts.astype(np.int32))


def from_csr_arrays(indptr: Any, indices: Any, counts: Any, vocabulary: int) -> Bags:
    """Bags from the arrays of a CSR matrix, documents by words, checked."""
    indptr, indices, counts = check_indptr(np.asarray(indptr)), np.asarray(indices), np.asarray(counts)
    if not len(indices) == len(counts) == indptr[-1]:
        entries = f"indices has {len(indices):,} and counts {len(counts):,} entries"
        raise InputError(f"indptr ends with {indptr[-1]:,}, {entries}.")
    return check(Bags(np.diff(indptr), indices, counts), vocabulary)


def check_indptr(indptr: np.ndarray) -> np.ndarray:
    if indptr.ndim != 1 or indptr.dtype.kind not in "iu" or not len(indptr):
        raise InputError(f"indptr has shape {indptr.shape} and dtype {indptr.dtype}; give one row of whole numbers.")
    indptr = indptr.astype(np.int64)
    if indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        raise InputError("indptr does not begin with 0 and never fall, so it does not say where documents begin.")
    return indptr


def tidy(bags: Bags) -> Bags:
    """Normal form: entries of one word added up, zeros left out, ids rising."""
    key = bags.owners * (int(bags.ids.max(initial=0)) + 1) + bags.ids
    if (key[1:] <= key[:-1]).any():
        order = np.argsort(key, kind="stable")
        key = key[order]
        begins = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
        totals = np.add.reduceat(bags.counts[order].astype(np.int64), begins)
        bags = bags.select(order[begins])._replace(counts=totals)
    positive = bags.counts > 0
    return bags if positive.all() else bags.select(positive)


def split_large(bags: Bags) -> Bags:
    """Store counts above MAX_STORED_COUNT as several entries."""
    if bags.counts.max(initial=0) <= MAX_STORED_COUNT:
        return bags
    times = -(-bags.counts // MAX_STORED_COUNT)
    counts = np.full(times.sum(), MAX_STORED_COUNT, bags.counts.dtype)
    counts[np.cumsum(times) - 1] = bags.counts - (times - 1) * MAX_STORED_COUNT
    return bags.select(np.repeat(np.arange(len(times)), times))._replace(counts=counts)


def take(bags: Bags, documents: np.ndarray) -> Bags:
    """These documents, in this order."""
    lengths = bags.lengths[documents]
    taken = Bags(lengths, *(np.empty(int(lengths.sum()), array.dtype) for array in (bags.ids, bags.counts)))
    copy_runs(bags.offsets[documents], lengths, taken.offsets, bags.ids, bags.counts, taken.ids, taken.counts)
    return taken


@numba.njit(**COMPILE)
def copy_runs(starts, lengths, places, ids, counts, new_ids, new_counts):
    """Copy entries starts..starts + lengths to their new places."""
    for d in range(len(starts)):
        start, place = starts[d], places[d]
        for k in range(lengths[d]):
            new_ids[place + k] = ids[start + k]
            new_counts[place + k] = counts[start + k]
