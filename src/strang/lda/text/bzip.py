"""The blocks of a bzip2 file from any byte on, so that several threads can read one file, and go on with it anywhere.

bzip2 packs 900 kB at a time into independent blocks. Each begins at some bit with the digits of pi, a stream ends with
those of its square root, and streams may follow one another. A single block, dressed as a stream of its own, is read by
Python's decompressor, which checks it too.
"""

import bz2
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np

from strang.util.simd import COMPILE

BLOCK, END = 0x314159265359, 0x177245385090
MARGIN_BYTES = 2 << 20  # a block has less than one million


class Block(NamedTuple):
    begin: int  # its first bit in the file
    text: bytes | None  # None if it is damaged


@numba.njit(**COMPILE)
def _marks(data):
    """The bits at which blocks (1) and ends of streams (0) begin."""
    bits, n, window = np.zeros((len(data) // 6 + 1, 2), np.int64), 0, np.uint64(0)
    mask, block, end = np.uint64((1 << 48) - 1), np.uint64(BLOCK), np.uint64(END)
    for i in range(len(data)):
        window = (window << np.uint64(8)) | np.uint64(data[i])
        for shift in range(7, -1, -1):
            seen, bit = (window >> np.uint64(shift)) & mask, 8 * i - 40 - shift
            if seen in (block, end) and bit >= 0:  # the zeros that END begins with may lie before the data
                bits[n, 0], bits[n, 1] = bit, seen == block
                n += 1
    return bits[:n]


def marks(data: bytes) -> list[list[int]]:
    return _marks(np.frombuffer(data, np.uint8)).tolist()


def decode(data: bytes, begin: int, end: int) -> bytes | None:
    """The text of the block in these bits, or None."""
    array = np.frombuffer(data, np.uint8)[begin // 8 : end // 8 + 1].astype(np.uint16)
    shifted = ((array << (begin % 8)) | (np.append(array[1:], 0) >> (8 - begin % 8))).astype(np.uint8).tobytes()
    whole, rest = divmod(end - begin, 8)
    if whole < 10:
        return None
    checksum = int.from_bytes(shifted[6:10])  # that of a stream of one block is the block's
    last = (shifted[whole] >> (8 - rest) if rest else 0) << 80 | END << 32 | checksum
    tail = (last << (-rest % 8)).to_bytes((rest + 80 + 7) // 8)
    unpack = bz2.BZ2Decompressor()
    try:
        text = unpack.decompress(b"BZh9" + shifted[:whole] + tail)
    except (OSError, ValueError, EOFError):
        return None
    return text if unpack.eof else None


def blocks(path: Path, start: int, stop: int) -> Iterator[Block]:
    """The blocks that begin at these bytes of the file; the last may end behind them."""
    with path.open("rb") as file:
        file.seek(start)
        data = file.read(stop - start + MARGIN_BYTES)
    begins, at = marks(data), 0
    while at < len(begins) and begins[at][0] < 8 * (stop - start):
        begin, is_block = begins[at]
        at += 1
        if is_block:
            text = None
            for k in range(at, min(at + 2, len(begins))):  # once in 2^48 bits a mark is none
                text = decode(data, begin, begins[k][0])
                if text is not None:
                    at = k
                    break
            yield Block(8 * start + begin, text)
