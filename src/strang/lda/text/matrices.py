"""Readers of counts: UCI bag-of-words files and CSR arrays in a .npz, both read a part at a time."""

import zipfile
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numba
import numpy as np

from strang.lda.text.bags import Bags, check, check_indptr
from strang.lda.text.units import MAX_ARRAY_BYTES, READ_BYTES, Content, Damage, Unit, head, parts
from strang.util.errors import InputError
from strang.util.simd import COMPILE

ENTRY_BYTES = 8  # of a unit, per entry


@numba.njit(**COMPILE)
def _parse(text, rows):
    """Fill rows with the three numbers of each line; (lines, byte of the first that is not of this form or -1)."""
    n, i = 0, 0
    while i < len(text):
        begin = i
        for column in range(3):
            while i < len(text) and text[i] == 32:
                i += 1
            value, digits = 0, 0
            while i < len(text) and 48 <= text[i] <= 57:
                value = 10 * value + (text[i] - 48)
                i, digits = i + 1, digits + 1
            if digits == 0 or digits > 18:
                return n, begin
            rows[n, column] = value
        while i < len(text) and (text[i] == 32 or text[i] == 13):
            i += 1
        if i < len(text) and text[i] != 10:
            return n, begin
        i += 1
        n += 1
    return n, -1


def uci_units(path: Path, vocabulary: int, size: int) -> Iterator[Unit]:
    """Lines "document word count", both numbered from 1, under a head of three lines: documents, words, lines."""
    try:
        total, words, expected = (int(line) for line in head(path).split(b"\n", 3)[:3])
    except ValueError:
        raise InputError(f"{path} does not begin with three numbers: documents, words and lines.") from None
    if words != vocabulary:
        raise InputError(f"{path} is about {words:,} words, its vocabulary has {vocabulary:,}; give the right one.")
    lines, length, last, head_lines = 0, 0, 0, 3
    waiting = np.empty((0, 3), np.int64)  # entries of a document that may not be whole
    for part in parts(path, b"\n", size):
        text = part.text
        while head_lines and text:
            text, head_lines = text.partition(b"\n")[2], head_lines - 1
        rows = uci_rows(path, text, lines + 4, vocabulary)
        lines, length = lines + len(rows), length + len(part.text)
        rows = np.concatenate([waiting, rows])
        numbers = rows[:, 0]
        if len(rows) and (numbers[0] < 1 or numbers[-1] > total or (numbers[1:] < numbers[:-1]).any()):
            wrong = f"are not numbered from 1 to {total:,} in rising order"
            raise InputError(f"the documents of {path} {wrong}; sort its lines.")
        whole = int(np.searchsorted(numbers, numbers[-1])) if len(rows) else 0
        end = int(numbers[whole - 1]) if whole else last
        if rows[whole:].nbytes > MAX_ARRAY_BYTES:
            raise InputError(f"a document of {path} has more than {len(rows) - whole:,} lines: it is damaged.")
        yield Unit(path.name, part.size, partial(uci_content, rows[:whole], end - last, part.damage))
        last, waiting = end, rows[whole:]
    if lines > expected:
        raise InputError(f"{path} has {lines:,} lines of counts, its head says {expected:,}.")
    if lines < expected:
        cut = Damage(f"the file ends after {lines:,} of {expected:,} counts,", length)
        yield Unit(path.name, 0, partial(uci_content, waiting[:0], 0, (cut,)))
    else:
        yield Unit(path.name, 0, partial(uci_content, waiting, total - last))


def uci_rows(path: Path, text: bytes, first: int, vocabulary: int) -> np.ndarray:
    """The numbers of each line, from line number `first` on; a last line that is cut is left out."""
    rows = np.empty((text.count(b"\n") + 1, 3), np.int64)
    n, bad = _parse(np.frombuffer(text, np.uint8), rows)
    line, newline, _ = text[max(bad, 0) :].partition(b"\n")
    if bad >= 0 and (newline or line.strip(b"0123456789 ")):
        start = line[:40].decode(errors="replace")
        expected = "three whole numbers: document, word and count"
        raise InputError(f"line {first + n:,} of {path} is {start!r}; expected {expected}.")
    rows = rows[:n]
    wrong = (rows[:, 1] < 1) | (rows[:, 1] > vocabulary) | (rows[:, 2] >= 1 << 31)
    if wrong.any():
        at = int(np.argmax(wrong))
        has = f"line {first + at:,} of {path} has the word {rows[at, 1]} and the count {rows[at, 2]}"
        raise InputError(f"{has}; words go from 1 to {vocabulary:,}, counts are below 2^31.")
    return rows


def uci_content(rows: np.ndarray, documents: int, damage: tuple[Damage, ...] = ()) -> Content:
    """Whole documents; those of the `documents` that have no row are empty."""
    lengths = np.unique(rows[:, 0], return_counts=True)[1]
    bags = Bags(lengths, (rows[:, 1] - 1).astype(np.int32), rows[:, 2].astype(np.int32))
    return Content(bags, damage=damage, left_out={"empty_documents": documents - len(lengths)})


def npz_units(path: Path, vocabulary: int, size: int) -> Iterator[Unit]:
    """The arrays `indptr`, `indices` and `counts` (or SciPy's `data`), never whole in memory but for the first."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
            counts_name = "counts" if "counts" in names else "data"
            if missing := {"indptr", "indices", counts_name} - names:
                raise InputError(f"{path} has no array {sorted(missing)[0]!r}; expected indptr, indices and counts.")
            if "format" in names and not archive.open("format.npy").read(READ_BYTES).endswith(b"csr"):
                raise InputError(f"{path} is no CSR matrix; save it as matrix.tocsr().")
            if "shape" in names and (width := ArrayReader(archive, "shape").read().tolist()[-1:]) != [vocabulary]:
                raise InputError(f"{path} has {width} columns, its vocabulary {vocabulary:,} words.")
            indptr = check_indptr(ArrayReader(archive, "indptr").read())
            ids, counts = ArrayReader(archive, "indices"), ArrayReader(archive, counts_name)
            if not ids.size == counts.size == indptr[-1]:
                has = f"{ids.size:,} indices, {counts.size:,} counts"
                raise InputError(f"indptr of {path} ends with {indptr[-1]:,}; it has {has}.")
            begin, documents = 0, len(indptr) - 1
            document_bytes = path.stat().st_size / max(documents, 1)
            while begin < documents:
                end = int(np.searchsorted(indptr, indptr[begin] + size // ENTRY_BYTES, side="right"))
                end = min(max(end - 1, begin + 1), begin + size, documents)
                lengths = np.diff(indptr[begin : end + 1])
                bags = Bags(lengths, ids.read(int(lengths.sum())), counts.read(int(lengths.sum())))
                unit_bytes = round(end * document_bytes) - round(begin * document_bytes)
                yield Unit(path.name, unit_bytes, partial(Content, check(bags, vocabulary, begin)))
                begin = end
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise InputError(f"{path} is damaged or no .npz of plain arrays ({error}).") from None


class ArrayReader:
    """Reads an array of an .npz from its beginning on, some numbers at a time."""

    def __init__(self, archive: zipfile.ZipFile, name: str):
        self.file = archive.open(f"{name}.npy")
        version = np.lib.format.read_magic(self.file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, self.dtype = read(self.file)
        if len(shape) != 1 or self.dtype.hasobject or self.dtype.kind not in "iuf":
            raise ValueError(f"an array has shape {shape} and dtype {self.dtype}")
        self.size = shape[0]

    def read(self, number: int | None = None) -> np.ndarray:
        size = (self.size if number is None else number) * self.dtype.itemsize
        if size > MAX_ARRAY_BYTES:
            largest = f"{MAX_ARRAY_BYTES >> 30} GiB are the most of indptr and of a document"
            raise ValueError(f"{size / 2**30:,.1f} GiB of an array would be read at once; {largest}")
        data = self.file.read(size)
        if len(data) != size:
            raise EOFError("an array is cut")
        return np.frombuffer(data, self.dtype)
