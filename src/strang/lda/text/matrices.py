"""Corpora that are counted already: UCI bag-of-words files and CSR arrays in a .npz, both read a part at a time."""

import zipfile
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO

import numba
import numpy as np

from strang.lda.text.bags import COMPILE, Bags, check, check_indptr
from strang.lda.text.chunks import Content, Damage, Unit, head, parts
from strang.util.errors import InputError

ENTRY = 8  # bytes of a unit that an entry counts for


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


def uci_vocabulary(path: Path) -> Path:
    """The vocabulary that belongs to a docword file: docword.nips.txt.gz has vocab.nips.txt beside it."""
    return path.with_name(path.name.removesuffix(".gz").replace("docword", "vocab", 1))


def uci_units(path: Path, vocabulary: int, size: int) -> Iterator[Unit]:
    """Lines "document word count", both numbered from 1, under a head of three lines: documents, words, lines."""
    total, expected = uci_head(path, vocabulary)
    lines, length, last, head_lines = 0, 0, 0, 3
    waiting = np.empty((0, 3), np.int64)  # entries of a document that may not be whole
    for part in parts(path, b"\n", size):
        text = part.text
        while head_lines and text:
            text, head_lines = text.partition(b"\n")[2], head_lines - 1
        rows = uci_rows(path, text, lines + 4, vocabulary)
        lines, length = lines + len(rows), length + len(part.text)
        rows = np.concatenate([waiting, rows])
        documents = rows[:, 0]
        if len(rows) and (documents[0] < 1 or documents[-1] > total or (documents[1:] < documents[:-1]).any()):
            raise InputError(
                f"the documents of {path} are not numbered from 1 to {total:,} in rising order; sort its lines."
            )
        whole = int(np.searchsorted(documents, documents[-1])) if len(rows) else 0
        yield Unit(path.name, part.size, partial(uci_content, rows[:whole], last, 0, part.damage))
        last = int(documents[whole - 1]) if whole else last
        waiting = rows[whole:]
    if lines > expected:
        raise InputError(f"{path} has {lines:,} lines of counts, its head says {expected:,}.")
    if lines < expected:
        cut = Damage(f"the file ends after {lines:,} of {expected:,} counts,", length)
        yield Unit(path.name, 0, partial(uci_content, waiting[:0], last, 0, (cut,)))
    else:
        end = int(waiting[-1, 0]) if len(waiting) else last
        yield Unit(path.name, 0, partial(uci_content, waiting, last, total - end, ()))


def uci_head(path: Path, vocabulary: int) -> tuple[int, int]:
    """The numbers of documents and of lines that the file says it has."""
    try:
        documents, words, expected = (int(line) for line in head(path).split(b"\n", 3)[:3])
    except ValueError:
        raise InputError(f"{path} does not begin with three numbers: documents, words and lines.") from None
    if words != vocabulary:
        raise InputError(f"{path} is about {words:,} words, its vocabulary has {vocabulary:,}; give the right one.")
    return documents, expected


def uci_rows(path: Path, text: bytes, first: int, vocabulary: int) -> np.ndarray:
    """The numbers of each line, from line number `first` on; a last line that is cut is left out."""
    rows = np.empty((text.count(b"\n") + 1, 3), np.int64)
    n, bad = _parse(np.frombuffer(text, np.uint8), rows)
    line, newline, _ = text[max(bad, 0) :].partition(b"\n")
    if bad >= 0 and (newline or line.strip(b"0123456789 ")):
        shown = line[:40].decode(errors="replace")
        raise InputError(
            f"line {first + n:,} of {path} is {shown!r}; expected three whole numbers: document, word and count."
        )
    rows = rows[:n]
    wrong = (rows[:, 1] < 1) | (rows[:, 1] > vocabulary) | (rows[:, 2] >= 1 << 31)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(
            f"line {first + at:,} of {path} has the word {rows[at, 1]} and the count {rows[at, 2]}; "
            f"words go from 1 to {vocabulary:,}, counts are below 2^31."
        )
    return rows


def uci_content(rows: np.ndarray, last: int, more: int, damage: tuple[Damage, ...]) -> Content:
    """Whole documents behind number `last`. Numbers that are missing are empty documents, and `more` at the end."""
    numbers, lengths = np.unique(rows[:, 0], return_counts=True)
    missing = int(numbers[-1]) - last - len(numbers) if len(rows) else 0
    bags = Bags(lengths, (rows[:, 1] - 1).astype(np.int32), rows[:, 2].astype(np.int32))
    return Content(bags, damage=damage, left_out={"empty_documents": missing + more})


def npz_units(path: Path, vocabulary: int, size: int) -> Iterator[Unit]:
    """The arrays `indptr`, `indices` and `counts` (or SciPy's `data`), never whole in memory but for the first."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
            counts = "counts" if "counts" in names else "data"
            if missing := {"indptr", "indices", counts} - names:
                raise InputError(f"{path} has no array {sorted(missing)[0]!r}; expected indptr, indices and counts.")
            if "format" in names and not archive.read("format.npy").endswith(b"csr"):
                raise InputError(f"{path} is no CSR matrix; save it as matrix.tocsr().")
            if "shape" in names and (width := read_all(archive, "shape").tolist()[-1:]) != [vocabulary]:
                raise InputError(f"{path} has {width} columns, its vocabulary {vocabulary:,} words.")
            indptr = check_indptr(read_all(archive, "indptr"))
            with archive.open("indices.npy") as first, archive.open(f"{counts}.npy") as second:
                yield from npz_parts(path, indptr, first, second, vocabulary, size)
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged or no .npz of plain arrays ({error}).") from None


def npz_parts(
    path: Path, indptr: np.ndarray, first: IO[bytes], second: IO[bytes], vocabulary: int, size: int
) -> Iterator[Unit]:
    (ids_type, ids_size), (counts_type, counts_size) = read_header(first), read_header(second)
    if not ids_size == counts_size == indptr[-1]:
        raise InputError(
            f"indptr of {path} ends with {indptr[-1]:,}; it has {ids_size:,} indices, {counts_size:,} counts."
        )
    begin, bytes_each = 0, path.stat().st_size / max(len(indptr) - 1, 1)
    while begin < len(indptr) - 1:
        end = int(np.searchsorted(indptr, indptr[begin] + size // ENTRY, side="right"))
        end = min(max(end - 1, begin + 1), begin + size, len(indptr) - 1)
        lengths = np.diff(indptr[begin : end + 1])
        bags = Bags(lengths, read_some(first, ids_type, lengths.sum()), read_some(second, counts_type, lengths.sum()))
        weight = round(end * bytes_each) - round(begin * bytes_each)
        yield Unit(path.name, weight, partial(checked, bags, vocabulary, begin))
        begin = end


def checked(bags: Bags, vocabulary: int, first: int) -> Content:
    return Content(check(bags, vocabulary, first))


def read_header(file: IO[bytes]) -> tuple[np.dtype, int]:
    """The dtype and length of the array that a .npy file holds; the numbers follow."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if len(shape) != 1 or dtype.hasobject or dtype.kind not in "iuf":
        raise ValueError(f"an array has shape {shape} and dtype {dtype}")
    return dtype, shape[0]


def read_some(file: IO[bytes], dtype: np.dtype, number: int) -> np.ndarray:
    data = file.read(int(number) * dtype.itemsize)
    if len(data) != number * dtype.itemsize:
        raise EOFError("an array is cut")
    return np.frombuffer(data, dtype)


def read_all(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(f"{name}.npy") as file:
        return read_some(file, *read_header(file))
