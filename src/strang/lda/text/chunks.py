"""A source is read in units that need nothing of one another: what is done in one is kept when the rest is killed."""

import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from strang.lda.text import bzip
from strang.lda.text.bags import Bags
from strang.lda.text.tokens import Texts
from strang.util.errors import InputError

READ = 1 << 20  # bytes at a time
LONGEST = 64 << 20  # bytes without a mark; a page of MediaWiki has at most two million


class Damage(NamedTuple):
    """Something unreadable: what it is, and at which byte of the file, or of the text that comes out of it."""

    what: str
    byte: int
    of: str = "text"


class Content(NamedTuple):
    """What a unit holds: documents, how long its text is, what of it could not be read, what was left out, and whether
    it says that nothing more comes (None where a file does not say so)."""

    documents: Texts | Bags
    length: int = 0
    damage: tuple[Damage, ...] = ()
    left_out: Mapping[str, int] = MappingProxyType({})
    ends: bool | None = None


class Unit(NamedTuple):
    """A part of a file, worth so many of its bytes, and how to read it."""

    file: str
    size: int
    read: Callable[[], Content]


class Part(NamedTuple):
    """Whole pages or lines of a text, and where the file is broken if it is."""

    text: bytes
    size: int
    damage: tuple[Damage, ...]


def head(path: Path) -> bytes:
    """The first text of a file, unpacked."""
    with path.open("rb") as file:
        data = file.read(READ)
    if path.suffix == ".bz2":
        first = next(bzip.blocks(path, 0, READ), None)
        if first is None or first.text is None or data[:3] != b"BZh":
            raise InputError(f"{path} is no bzip2 file, or its first block is damaged, at byte 4.")
        return first.text
    try:
        return zlib.decompressobj(wbits=31).decompress(data, READ) if path.suffix == ".gz" else data
    except zlib.error:
        raise InputError(f"{path} is no gzip file, or damaged at its beginning.") from None


def unpacked(path: Path, step: int) -> Iterator[tuple[bytes, int] | Damage]:
    """The text of a plain or gzip file with the bytes that it took in the file; of a broken one what is whole."""
    with path.open("rb") as file:
        if path.suffix != ".gz":
            while data := file.read(step):
                yield data, len(data)
            return
        unpack, inside = zlib.decompressobj(wbits=31), False
        while data := file.read(step):
            size = len(data)
            while data:
                try:
                    text = unpack.decompress(data, 4 * step)
                except zlib.error:
                    yield Damage("the gzip data is broken", file.tell() - len(data), "file")
                    return
                yield text, size
                size, inside, data = 0, not unpack.eof, unpack.unconsumed_tail
                if unpack.eof:  # another member may follow
                    data = unpack.unused_data.lstrip(b"\0")
                    unpack = zlib.decompressobj(wbits=31)
        if inside:
            yield Damage("the file is cut inside its gzip data", file.tell(), "file")


def parts(path: Path, mark: bytes, size: int) -> Iterator[Part]:
    """The text in parts of about `size` bytes, each cut behind a mark such as the end of a page or line."""
    text, taken = bytearray(), 0
    for found in unpacked(path, min(READ, size)):
        if isinstance(found, Damage):
            yield Part(bytes(text), taken, (found,))
            return
        text += found[0]
        taken += found[1]
        if len(text) >= size:
            cut = text.rfind(mark) + len(mark)
            if cut < len(mark):
                if len(text) < size + LONGEST:
                    continue
                cut = len(text)
            yield Part(bytes(text[:cut]), taken, ())
            del text[:cut]
            taken = 0
    yield Part(bytes(text), taken, ())
