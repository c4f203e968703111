"""Words and their counts from UTF-8 text. Letters a-z make a word, after upper case is lowered; dashes and white space
end it; every other character is left out ("don't" is dont). So bytes that are not UTF-8 do no harm.
"""

from itertools import pairwise
from typing import NamedTuple

import numba
import numpy as np

from strang.lda.text.bags import Bags
from strang.util.simd import COMPILE


class Texts(NamedTuple):
    """Documents one after another: document d is text[offsets[d]:offsets[d + 1]]."""

    text: np.ndarray
    offsets: np.ndarray


class Lexicon(NamedTuple):
    """A hash table of `size` words, which grows. Word w is letters[ends[w]:ends[w + 1]]."""

    slots: np.ndarray
    hashes: np.ndarray
    letters: np.ndarray
    ends: np.ndarray
    size: int


EMPTY = Lexicon(np.zeros(0, np.int32), np.zeros(0, np.uint64), np.zeros(0, np.uint8), np.zeros(1, np.int64), 0)


def join(documents: list[bytes]) -> Texts:
    offsets = np.cumsum([0, *map(len, documents)], dtype=np.int64)
    return Texts(np.frombuffer(bytearray(b"".join(documents)), np.uint8), offsets)


def count_words(texts: Texts, lexicon: Lexicon = EMPTY) -> tuple[Bags, Lexicon]:
    """Bags of all words, numbered as in the lexicon; new words get the next numbers.

    >>> counts, lexicon = count_words(join([b"A rose is a Rose", b"is it?"]))
    >>> words_of(lexicon), counts.lengths.tolist(), counts.ids.tolist(), counts.counts.tolist()
    ([b'a', b'rose', b'is', b'it'], [3, 2], [0, 1, 2, 2, 3], [2, 2, 1, 1, 1])
    """
    (slots, hashes, letters, ends, size), (text, offsets) = lexicon, texts
    lengths = np.zeros(len(offsets) - 1, np.int64)
    ids = counts = np.empty(0, np.int32)
    place = np.empty(0, np.int64)
    at, done = np.array([0, offsets[0], 0, 0, size]), False
    while not done:
        n, size = at[3:].tolist()
        ids, counts = widen(ids, n + MIN_FREE), widen(counts, n + MIN_FREE)
        hashes = widen(hashes, size + MIN_FREE)
        ends, place = widen(ends, len(hashes) + 1), widen(place, len(hashes), -1)
        letters = widen(letters, ends[size] + len(text))
        if len(slots) < 2 * len(hashes):
            slots = _hash_table(hashes[:size], 1 << (2 * len(hashes) - 1).bit_length())
        done = _count(text, offsets, at, lengths, ids, counts, place, slots, hashes, letters, ends)
    n, size = at[3:].tolist()
    return Bags(lengths, ids[:n].copy(), counts[:n].copy()), Lexicon(slots, hashes, letters, ends, size)


def widen(array: np.ndarray, size: int, fill: int = 0) -> np.ndarray:
    """The array with room for `size`, at least doubled when it grows, so that growing costs no more than filling."""
    extra = max(size, 2 * len(array)) - len(array)
    return array if size <= len(array) else np.append(array, np.full(extra, fill, array.dtype))


def words_of(lexicon: Lexicon) -> list[bytes]:
    """The words in the order of their numbers."""
    ends = lexicon.ends[: lexicon.size + 1].tolist()
    letters = lexicon.letters[: ends[-1]].tobytes()
    return [letters[begin:end] for begin, end in pairwise(ends)]


START, PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)  # of the FNV-1a hash
MIN_FREE = 1 << 16  # words and entries that there is room for whenever counting goes on
BREAK, WIDE = 1, 2  # a byte that ends a word; one that begins a character of several bytes, which may end a word
MEANING = np.zeros(256, np.uint8)
MEANING[97:123] = MEANING[65:91] = np.arange(97, 123)
MEANING[[32, 45, 9, 10, 11, 12, 13]] = BREAK
MEANING[[0xC2, 0xE2]] = WIDE


@numba.njit(**COMPILE)
def _wide(text, i, stop):
    """The number of bytes of the Unicode space, dash or line end at i; 0 if it is none."""
    if text[i] == 0xC2:
        return 2 if i + 1 < stop and text[i + 1] == 0xA0 else 0
    if i + 2 < stop and text[i + 1] == 0x80:
        last = text[i + 2]
        if 0x80 <= last <= 0x8B or 0x90 <= last <= 0x95 or last == 0xA8 or last == 0xA9 or last == 0xAF:
            return 3
    return 0


@numba.njit(**COMPILE)
def _hash_table(hashes, size):
    """The words with these hashes in a table of `size` slots, a power of two."""
    slots, mask = np.full(size, -1, np.int32), np.uint64(size - 1)
    for word in range(len(hashes)):
        slot = hashes[word] & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = word
    return slots


@numba.njit(**COMPILE)
def _count(text, offsets, at, lengths, ids, counts, place, slots, hashes, letters, ends):
    """Count until everything is counted or an array is full; `at` says how far: document, byte, where the document's
    entries begin, entries, words.

    The letters of a word are written behind the lexicon's, and stay there if the word is new. `place` is a word's last
    entry, which is of this document if it lies behind its first. Growing arrays in here would cost ten times the time.
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
