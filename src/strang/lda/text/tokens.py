"""Words and their counts from UTF-8 text: upper case is lowered, dashes and white space end a word, letters a-z make
it, every other character is left out ("don't" is dont). A byte that is not UTF-8 therefore changes nothing.
"""

from itertools import pairwise
from typing import NamedTuple

import numba
import numpy as np

from strang.lda.text.bags import COMPILE, Bags


class Texts(NamedTuple):
    """Documents one behind the other: document d is text[offsets[d]:offsets[d + 1]]."""

    text: np.ndarray
    offsets: np.ndarray


class Lexicon(NamedTuple):
    """A growing hash table of words. Word w is letters[ends[w]:ends[w + 1]]; `size` words are there."""

    slots: np.ndarray
    hashes: np.ndarray
    letters: np.ndarray
    ends: np.ndarray
    size: int


EMPTY = Lexicon(np.zeros(0, np.int32), np.zeros(0, np.uint64), np.zeros(0, np.uint8), np.zeros(1, np.int64), 0)


def join(pieces: list[bytes]) -> Texts:
    """Documents from their bytes."""
    offsets = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum([len(piece) for piece in pieces], out=offsets[1:])
    return Texts(np.frombuffer(bytearray(b"".join(pieces)), np.uint8), offsets)


def count_words(texts: Texts, lexicon: Lexicon = EMPTY) -> tuple[Bags, Lexicon]:
    """Bags of all words, numbered as they come; with a lexicon, as in it, new words behind.

    >>> counts, lexicon = count_words(join([b"A rose is a Rose", b"is it?"]))
    >>> words_of(lexicon), counts.lengths.tolist(), counts.ids.tolist(), counts.counts.tolist()
    ([b'a', b'rose', b'is', b'it'], [3, 2], [0, 1, 2, 2, 3], [2, 2, 1, 1, 1])
    """
    slots, hashes, letters, ends, size = lexicon
    text, offsets = texts
    lengths = np.zeros(len(offsets) - 1, np.int64)
    ids = counts = np.empty(0, np.int32)
    place = np.empty(0, np.int64)
    at, done = np.array([0, offsets[0], 0, 0, size]), False
    while not done:
        n, size = at[3:].tolist()
        ids, counts = widen(ids, n + ROOM), widen(counts, n + ROOM)
        hashes = widen(hashes, size + ROOM)
        ends, place = widen(ends, len(hashes) + 1), widen(place, len(hashes), -1)
        letters = widen(letters, ends[size] + len(text))
        slots = rehash(slots, hashes[:size], 2 * len(hashes))
        done = _count(text, offsets, at, lengths, ids, counts, place, slots, hashes, letters, ends)
    n, size = at[3:].tolist()
    return Bags(lengths, ids[:n].copy(), counts[:n].copy()), Lexicon(slots, hashes, letters, ends, size)


def widen(array: np.ndarray, size: int, fill: int = 0) -> np.ndarray:
    """The array with room for `size`, at least doubled when it grows, so that growing costs no more than filling."""
    if size <= len(array):
        return array
    wide = np.full(max(size, 2 * len(array)), fill, array.dtype)
    wide[: len(array)] = array
    return wide


def rehash(slots: np.ndarray, hashes: np.ndarray, least: int) -> np.ndarray:
    """The table of these words with at least so many slots, a power of two."""
    if least <= len(slots):
        return slots
    wide = np.full(1 << (least - 1).bit_length(), -1, np.int32)
    _fill(wide, hashes)
    return wide


def words_of(lexicon: Lexicon) -> list[bytes]:
    """The words in the order of their numbers."""
    letters = lexicon.letters[: lexicon.ends[lexicon.size]].tobytes()
    ends = lexicon.ends[: lexicon.size + 1].tolist()
    return [letters[begin:end] for begin, end in pairwise(ends)]


START, PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)  # of the FNV-1a hash
ROOM = 1 << 16  # words and entries that there is at least room for when counting goes on
BREAK, WIDE = 1, 2  # what a byte is where it is neither a letter nor nothing
MEANING = np.zeros(256, np.uint8)
MEANING[97:123] = MEANING[65:91] = np.arange(97, 123)
MEANING[[32, 45, 9, 10, 11, 12, 13]] = BREAK
MEANING[[0xC2, 0xE2]] = WIDE


@numba.njit(**COMPILE)
def _wide(text, i, stop):
    """How many bytes the space, dash or line end of Unicode at i has; 0 if it is none."""
    if text[i] == 0xC2:
        return 2 if i + 1 < stop and text[i + 1] == 0xA0 else 0
    if i + 2 < stop and text[i + 1] == 0x80:
        last = text[i + 2]
        if 0x80 <= last <= 0x8B or 0x90 <= last <= 0x95 or last == 0xA8 or last == 0xA9 or last == 0xAF:
            return 3
    return 0


@numba.njit(**COMPILE)
def _fill(slots, hashes):
    mask = np.uint64(len(slots) - 1)
    for word in range(len(hashes)):
        slot = hashes[word] & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = word


@numba.njit(**COMPILE)
def _count(text, offsets, at, lengths, ids, counts, place, slots, hashes, letters, ends):
    """Count until everything is counted or an array is full; `at` says how far this is: document, byte, where the
    document's entries begin, entries, words.

    A word's letters are written behind the lexicon's; one that is new just stays there. `place` is where a word's last
    entry is: it is of this document if it lies behind its first. Arrays do not grow in here, since that would make
    every byte ten times dearer.
    """
    d, i, first, n, size = at
    mask = np.uint64(len(slots) - 1)
    entries, words = len(ids), len(hashes)
    while d < len(lengths):
        stop, tail, begin, length, hash_ = offsets[d + 1], ends[size], i, 0, START
        while i <= stop:
            letter = MEANING[text[i]] if i < stop else BREAK
            i += 1
            if letter > WIDE:
                if length == 0:
                    begin = i - 1
                letters[tail + length] = letter
                length += 1
                hash_ = (hash_ ^ np.uint64(letter)) * PRIME
                continue
            if letter == WIDE:
                wide = _wide(text, i - 1, stop)
                if wide:
                    i += wide - 1
                    letter = BREAK
            if letter == BREAK and length:
                if n == entries or size == words:
                    at[:] = d, begin, first, n, size
                    return False
                hash_ ^= hash_ >> np.uint64(32)
                slot = hash_ & mask
                while True:
                    word = slots[slot]
                    if word < 0:
                        word = size
                        slots[slot], hashes[word] = word, hash_
                        tail += length
                        size += 1
                        ends[size] = tail
                        break
                    if hashes[word] == hash_ and ends[word + 1] - ends[word] == length:
                        k = 0
                        while k < length and letters[ends[word] + k] == letters[tail + k]:
                            k += 1
                        if k == length:
                            break
                    slot = (slot + np.uint64(1)) & mask
                if place[word] >= first:
                    counts[place[word]] += 1
                else:
                    place[word], ids[n], counts[n] = n, word, 1
                    n += 1
                length, hash_ = 0, START
        lengths[d] = n - first
        d, i, first = d + 1, stop, n
    at[:] = d, i, first, n, size
    return True
