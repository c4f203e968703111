"""Readers of text: MediaWiki dumps, JSON lines, Parquet, and folders of files."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from strang.lda.text import bzip
from strang.lda.text.chunks import READ, Content, Damage, Part, Unit, head, parts
from strang.lda.text.dump import article, namespaces, pages
from strang.lda.text.tokens import Texts, join
from strang.lda.text.wikitext import strip
from strang.util.errors import InputError, first_line, need

PACKED = 4  # bytes of text that come out of one of bzip2, about
FILES = 4096  # at most in a unit
LOST = b"\0"  # in the place of a damaged block: no page with it is whole


def dump_units(path: Path, size: int) -> Iterator[Unit]:
    """Pages of a MediaWiki dump: of bzip2 by ranges of its bytes, otherwise one after the other."""
    begin = head(path)
    if b"<mediawiki" not in begin:
        raise InputError(f"{path} is no MediaWiki dump: <mediawiki does not stand at its beginning.")
    others = namespaces(begin)
    if path.suffix != ".bz2":
        for part in parts(path, b"</page>", size):
            yield Unit(path.name, part.size, partial(articles, part, iter(()), others))
        return
    end, step = path.stat().st_size, max(size // PACKED, 1)
    for start in range(0, end, step):
        yield Unit(
            path.name, min(step, end - start), partial(bzip_articles, path, start, min(start + step, end), others)
        )


def bzip_articles(path: Path, start: int, stop: int, others: frozenset[bytes]) -> Content:
    """The articles of the pages that begin in the blocks that begin at these bytes."""
    found = list(bzip.blocks(path, start, stop))
    damage = tuple(Damage("a bzip2 block is damaged or cut", b.begin // 8, "file") for b in found if b.text is None)
    own = b"".join(LOST if block.text is None else block.text for block in found)
    size = path.stat().st_size
    later = (block for s in range(stop, size, READ) for block in bzip.blocks(path, s, min(s + READ, size)))
    more = (LOST if block.text is None else block.text for block in later)
    return articles(Part(own, stop - start, damage), more, others)


def articles(part: Part, more: Iterator[bytes], others: frozenset[bytes]) -> Content:
    """The prose of the articles among the pages that begin in a part."""
    found, damage, left_out = [], list(part.damage), {"redirects": 0, "other_namespaces": 0}
    text, own = part.text, len(part.text)
    if text.rfind(b"<") > text.rfind(b">"):  # a tag is cut
        text += next(more, b"")
    for page in pages(text, own, more):
        if isinstance(page, Damage):
            damage.append(page)
            continue
        prose = article(page[1], others)
        if isinstance(prose, bytes):
            found.append(prose)
        elif prose is None:
            damage.append(Damage("a page has no title or text, or a byte 0, which begins", page[0]))
        else:
            left_out[prose] += 1
    ends = 0 <= text.find(b"</mediawiki>") < own
    return Content(strip(join(found)), own, tuple(damage), left_out, ends)


def json_units(path: Path, size: int) -> Iterator[Unit]:
    for part in parts(path, b"\n", size):
        yield Unit(path.name, part.size, partial(json_texts, part))


def json_texts(part: Part) -> Content:
    """The field `text` of each line that is a JSON object; null is an empty document."""
    found, damage, place = [], list(part.damage), 0
    for line in part.text.split(b"\n"):
        try:
            if line.strip():
                found.append(text_of(json.loads(line)).encode(errors="replace"))
        except (ValueError, KeyError, TypeError, RecursionError):
            damage.append(Damage("there is no JSON object with a field text", place))
        place += len(line) + 1
    return Content(join(found), len(part.text), tuple(damage))


def text_of(record: Any) -> str:
    if not isinstance(record["text"], str | None):
        raise TypeError("no text")
    return record["text"] or ""


def parquet_units(path: Path, size: int) -> Iterator[Unit]:
    """Row groups of a Parquet file, several if they are small."""
    arrow, parquet = need("pyarrow", "lda"), need("pyarrow.parquet", "lda")
    try:
        file = parquet.ParquetFile(path)
        groups, field = file.metadata, file.schema_arrow.field("text")
    except (arrow.ArrowException, OSError) as error:
        raise InputError(f"{path} is damaged or no Parquet file ({first_line(error)}).") from None
    except KeyError:
        raise InputError(f"{path} has no column text; it has {', '.join(file.schema_arrow.names)}.") from None
    if not (arrow.types.is_string(field.type) or arrow.types.is_large_string(field.type)):
        raise InputError(f"the column text of {path} holds {field.type}; expected strings.")
    weight = path.stat().st_size / max(groups.num_row_groups, 1)
    begin, length = 0, 0
    for end in range(1, groups.num_row_groups + 1):
        length += groups.row_group(end - 1).total_byte_size
        if length >= size or end == groups.num_row_groups:
            place = groups.row_group(begin).column(0).data_page_offset
            read = partial(parquet_texts, path, begin, end, place)
            yield Unit(path.name, int(end * weight) - int(begin * weight), read)
            begin, length = end, 0


def parquet_texts(path: Path, begin: int, end: int, place: int) -> Content:
    arrow, parquet = need("pyarrow", "lda"), need("pyarrow.parquet", "lda")
    try:
        with parquet.ParquetFile(path) as file:
            column = file.read_row_groups(list(range(begin, end)), columns=["text"]).column("text")
    except (arrow.ArrowException, OSError):
        broken = Damage(f"row groups {begin} to {end - 1} cannot be read, which begin", place, "file")
        return Content(join([]), damage=(broken,))
    column = column.combine_chunks().cast(arrow.large_string()).fill_null("")
    column = arrow.concat_arrays(column.chunks) if isinstance(column, arrow.ChunkedArray) else column
    _, offsets, text = column.buffers()
    whole = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(text, np.uint8) if text is not None else np.empty(0, np.uint8)
    return Content(Texts(data[whole[0] : whole[-1]].copy(), whole - whole[0]), len(data))


def text_units(folder: Path, files: list[Path], size: int) -> Iterator[Unit]:
    """Each file is a document."""
    taken: list[Path] = []
    length = 0
    for path in files:
        taken.append(path)
        length += path.stat().st_size
        if length >= size or len(taken) == FILES or path is files[-1]:
            yield Unit(folder.name, length, partial(file_texts, folder, taken))
            taken, length = [], 0


def file_texts(folder: Path, files: list[Path]) -> Content:
    found, damage = [], []
    for path in files:
        text = path.read_bytes()
        zero = text.find(b"\0")
        if zero < 0:
            found.append(text)
        else:
            damage.append(Damage(f"{path.relative_to(folder)} is no text: it has a zero", zero, "file"))
    return Content(join(found), damage=tuple(damage))
