"""Bags of words in normal form: in each document every word once, ids rising, counts positive whole numbers."""

from typing import Any, NamedTuple

import numba
import numpy as np

from strang.util.errors import InputError

COMPILE: dict[str, Any] = {"nogil": True, "error_model": "numpy", "cache": True}  # for threads
MOST = np.iinfo(np.uint16).max  # a larger count is stored as several entries of its word, so that nothing is lost


class Bags(NamedTuple):
    """`lengths` entries a document, one behind the other, each a word's id and how often it is there."""

    lengths: np.ndarray
    ids: np.ndarray
    counts: np.ndarray


def check(bags: Bags, vocabulary: int, first: int = 0) -> Bags:
    """Whole positive numbers and known words, or an error that says where; `first` is the number of document 0."""
    lengths, ids, counts = bags
    if len(ids) and ids.dtype.kind not in "iu":
        raise InputError(f"word ids have dtype {ids.dtype}; give whole numbers.")
    whole = counts if counts.dtype.kind in "biu" else as_whole(counts)
    for what, given, bad in (
        ("word id", ids, (ids < 0) | (ids >= vocabulary)),
        ("count", counts, (whole < 0) | (whole > np.iinfo(np.int32).max)),
    ):
        if bad.any():
            entry = int(np.argmax(bad))
            document = first + int(np.searchsorted(np.cumsum(lengths), entry, side="right"))
            expected = (
                f"whole numbers from 0 to {vocabulary - 1:,}: the vocabulary has {vocabulary:,} words"
                if what == "word id"
                else "whole numbers, not negative and below 2^31"
            )
            raise InputError(f"document {document:,} has the {what} {given[entry]}; {what}s are {expected}.")
    return Bags(lengths.astype(np.int64), ids.astype(np.int32), whole.astype(np.int32))


def check_indptr(indptr: np.ndarray) -> np.ndarray:
    if indptr.ndim != 1 or indptr.dtype.kind not in "iu" or not len(indptr):
        raise InputError(f"indptr has shape {indptr.shape} and dtype {indptr.dtype}; give one row of whole numbers.")
    indptr = indptr.astype(np.int64)
    if indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        raise InputError("indptr does not begin with 0 and never fall, so it does not say where documents begin.")
    return indptr


def as_whole(counts: np.ndarray) -> np.ndarray:
    """Floats as whole numbers, those that are none as -1."""
    if counts.dtype.kind != "f":
        raise InputError(f"counts have dtype {counts.dtype}; give whole numbers.")
    fits = np.isfinite(counts) & (counts == np.floor(counts)) & (np.abs(counts) < 2**53)
    return np.where(fits, counts, -1).astype(np.int64)


def tidy(bags: Bags) -> Bags:
    """Normal form: entries of one word added up, zeros left out, ids rising."""
    lengths, ids, counts = bags
    document = np.repeat(np.arange(len(lengths)), lengths)
    key = document * (int(ids.max(initial=0)) + 1) + ids
    if (key[1:] <= key[:-1]).any():
        order = np.argsort(key, kind="stable")
        key, document, ids, counts = key[order], document[order], ids[order], counts[order]
        begins = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: len(key)])
        document, ids = document[begins], ids[begins]
        counts = np.add.reduceat(counts.astype(np.int64), begins)
    kept = counts > 0
    if not kept.all():
        document, ids, counts = document[kept], ids[kept], counts[kept]
    return Bags(np.bincount(document, minlength=len(lengths)), ids, counts)


def split_large(bags: Bags) -> Bags:
    """Counts above MOST as several entries."""
    lengths, ids, counts = bags
    if counts.max(initial=0) <= MOST:
        return bags
    document = np.repeat(np.arange(len(lengths)), lengths)
    times = -(-counts // MOST)
    entries = np.repeat(np.where(times > 1, MOST, counts), times)
    entries[np.cumsum(times) - 1] = counts - (times - 1) * MOST
    return Bags(np.bincount(np.repeat(document, times), minlength=len(lengths)), np.repeat(ids, times), entries)


def take(bags: Bags, numbers: np.ndarray) -> Bags:
    """These documents, in this order."""
    lengths = bags.lengths[numbers]
    starts = np.cumsum(bags.lengths) - bags.lengths
    total = int(lengths.sum())
    ids, counts = np.empty(total, bags.ids.dtype), np.empty(total, bags.counts.dtype)
    copy_runs(starts[numbers], lengths, np.cumsum(lengths) - lengths, bags.ids, bags.counts, ids, counts)
    return Bags(lengths, ids, counts)


@numba.njit(**COMPILE)
def copy_runs(starts, lengths, places, ids, counts, new_ids, new_counts):
    """Entries starts..starts + lengths to their new places."""
    for d in range(len(starts)):
        start, place = starts[d], places[d]
        for k in range(lengths[d]):
            new_ids[place + k] = ids[start + k]
            new_counts[place + k] = counts[start + k]
