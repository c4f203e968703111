"""Words and their counts from UTF-8 text.

Letters a-z make a word, after upper case is lowered, and what is no letter ends it: foo/bar and np.array are two words.
Apostrophes and soft hyphens are left out ("don't" is dont), and so are letters of other alphabets that use spaces, up
to U+1FFF; bytes that are not UTF-8 do no harm. Tokens of another kind are found by a pattern, which costs more time.
"""

import re
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


def find_tokens(texts: Texts, pattern: re.Pattern) -> Texts:
    """What a pattern finds in the text of each document, after upper case is lowered: one token per line.

    >>> find_tokens(join([b"Use np.array"]), re.compile(r"[\\w.]+")).text.tobytes()
    b'use\\nnp.array'
    """
    documents = []
    for begin, end in pairwise(texts.offsets.tolist()):
        text = texts.text[begin:end].tobytes().decode(errors="replace").lower().replace("\n", " ")
        documents.append("\n".join(pattern.findall(text)).encode())
    return join(documents)


def count_words(texts: Texts, lexicon: Lexicon = EMPTY, *, lines: bool = False) -> tuple[Bags, Lexicon]:
    """Bags of all words, or of all `lines`, numbered as in the lexicon; new ones get the next numbers.

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
        arrays = lengths, ids, counts, place, slots, hashes, letters, ends
        done = _count(text, offsets, LINES if lines else LETTERS, at, *arrays)
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
LEFT_OUT, BREAK, WIDE = 0, 1, 2  # what a byte is if no letter; WIDE begins a character that may end a word
LETTERS = np.full(256, BREAK, np.uint8)  # by the value of a byte; from E3 on come ideographs and emoji
LETTERS[97:123] = LETTERS[65:91] = np.arange(97, 123)
LETTERS[[39, *range(0x80, 0xE2), *range(0xF5, 0x100)]] = LEFT_OUT  # an apostrophe; other alphabets, and no UTF-8
LETTERS[[0xC2, 0xC3, 0xE2]] = WIDE
LINES = np.where(np.arange(256) > WIDE, np.arange(256), LEFT_OUT).astype(np.uint8)
LINES[10] = BREAK


@numba.njit(**COMPILE)
def _ends_word(text, i, stop):
    """Whether the character at i, which begins with C2, C3 or E2, ends a word."""
    second, third = text[i + 1] if i + 1 < stop else 0, text[i + 2] if i + 2 < stop else 0
    if text[i] == 0xC2:  # all signs but ª, µ, º and the soft hyphen
        return not (second == 0xAA or second == 0xAD or second == 0xB5 or second == 0xBA)
    if text[i] == 0xC3:  # × and ÷ among letters
        return second == 0x97 or second == 0xB7
    return second < 0xB0 and not (second == 0x80 and third == 0x99)  # the apostrophe ’


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
def _count(text, offsets, meaning, at, lengths, ids, counts, place, slots, hashes, letters, ends):
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
            letter = meaning[text[i]] if i < stop else BREAK
            i += 1
            if letter > WIDE:
                if length == 0:
                    begin = i - 1
                letters[tail + length] = letter
                length += 1
                hash_ = (hash_ ^ np.uint64(letter)) * PRIME
                continue
            if length and (letter == BREAK or (letter == WIDE and _ends_word(text, i - 1, stop))):
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
