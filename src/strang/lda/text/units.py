"""Units, parts of a source that are read independently of one another, and readers of files that sources share."""

import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from strang.lda.text import bzip
from strang.lda.text.bags import Bags
from strang.lda.text.tokens import Texts
from strang.util.errors import InputError

READ_BYTES = 1 << 20  # read from a file at a time
MAX_PAGE_BYTES = 64 << 20  # without an end the page or line is damaged; a page of MediaWiki has at most two million
MAX_ARRAY_BYTES = 1 << 30  # of an array or row group that is read at once


class Damage(NamedTuple):
    what: str
    byte: int
    of: str = "text"  # whether that is a byte of the file, or of the text that comes out of it


class Content(NamedTuple):
    documents: Texts | Bags
    length: int = 0  # of the text
    damage: tuple[Damage, ...] = ()
    left_out: Mapping[str, int] = MappingProxyType({})  # why, and how many documents
    ends: bool | None = None  # whether here is the source's end; None for sources that have no mark for it


class Unit(NamedTuple):
    file: str
    size: int  # bytes of the file
    read: Callable[[], Content]


class Part(NamedTuple):
    text: bytes  # whole pages or lines
    size: int  # bytes of the file
    damage: tuple[Damage, ...] = ()  # where the file is broken, if it is


def head(path: Path) -> bytes:
    """The first text of a file, unpacked."""
    if path.suffix == ".bz2":
        with path.open("rb") as file:
            magic = file.read(3)
        block = next(bzip.blocks(path, 0, READ_BYTES), None)
        if magic != b"BZh" or block is None or block.text is None:
            raise InputError(f"{path} is no bzip2 file, or its first block is damaged, at byte 4.")
        return block.text
    first = next(unpacked(path, READ_BYTES), (b"", 0))
    if isinstance(first, Damage):
        raise InputError(f"{path} is no gzip file, or damaged at its beginning.")
    return first[0][:READ_BYTES]


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
    for read in unpacked(path, min(READ_BYTES, size)):
        if isinstance(read, Damage):
            yield Part(bytes(text), taken, (read,))
            return
        text += read[0]
        taken += read[1]
        at = text.rfind(mark) if len(text) >= size else -1
        if at >= 0 or len(text) >= size + MAX_PAGE_BYTES:
            cut = at + len(mark) if at >= 0 else len(text)
            yield Part(bytes(text[:cut]), taken)
            del text[:cut]
            taken = 0
    yield Part(bytes(text), taken)
