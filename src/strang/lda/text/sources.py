"""What a corpus can be made from, recognised by its name and content.

JSON lines, Parquet and text files are read here, MediaWiki dumps in `mediawiki`, counts in `matrices`.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from strang.lda.text.matrices import npz_units, uci_units
from strang.lda.text.mediawiki import dump_units
from strang.lda.text.tokens import join
from strang.lda.text.units import MAX_ARRAY_BYTES, MAX_PAGE_BYTES, Content, Damage, Part, Unit, head, parts
from strang.lda.text.vocabulary import read_words
from strang.util.errors import InputError, first_line, need

SAMPLE_BYTES = 4096  # at both ends of a file
MAX_UNIT_FILES = 4096
ENDINGS = {".parquet": "parquet", ".jsonl": "json", ".ndjson": "json", ".json": "json", ".npz": "npz", ".txt": "text"}
SUPPORTED = (
    "a MediaWiki dump (.xml, .xml.gz, .xml.bz2), Parquet or JSON lines with a field text, "
    "UCI docword*.txt, a .npz with indptr, indices and counts, or a folder of text files"
)


def json_texts(part: Part) -> Content:
    """The field `text` of each line that is a JSON object; null is an empty document."""
    texts, damage, place = [], list(part.damage), 0
    for line in part.text.split(b"\n"):
        try:
            if line.strip():
                text = json.loads(line)["text"]
                texts.append(b"" if text is None else text.encode(errors="replace"))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            damage.append(Damage("there is no JSON object with a field text", place))
        place += len(line) + 1
    return Content(join(texts), len(part.text), tuple(damage))


def parquet_units(path: Path, size: int) -> Iterator[Unit]:
    """Row groups of a Parquet file, several if they are small."""
    arrow, parquet = need("pyarrow", "lda"), need("pyarrow.parquet", "lda")
    try:
        file = parquet.ParquetFile(path)
        metadata, field = file.metadata, file.schema_arrow.field("text")
    except (arrow.ArrowException, OSError) as error:
        raise InputError(f"{path} is damaged or no Parquet file ({first_line(error)}).") from None
    except KeyError:
        raise InputError(f"{path} has no column text; it has {', '.join(file.schema_arrow.names)}.") from None
    if not (arrow.types.is_string(field.type) or arrow.types.is_large_string(field.type)):
        raise InputError(f"the column text of {path} holds {field.type}; expected strings.")
    groups, begin, length = metadata.num_row_groups, 0, 0
    group_bytes = path.stat().st_size / max(groups, 1)
    for end in range(1, groups + 1):
        group_length = metadata.row_group(end - 1).total_byte_size
        if group_length > MAX_ARRAY_BYTES:
            size_now = f"{group_length / 2**30:,.1f} GiB"
            raise InputError(f"row group {end - 1} of {path} unpacks to {size_now}; write row groups of less than one.")
        length += group_length
        if length >= size or end == groups:
            place = metadata.row_group(begin).column(0).data_page_offset
            read = partial(parquet_texts, path, begin, end, place)
            yield Unit(path.name, int(end * group_bytes) - int(begin * group_bytes), read)
            begin, length = end, 0


def parquet_texts(path: Path, begin: int, end: int, place: int) -> Content:
    arrow, parquet = need("pyarrow", "lda"), need("pyarrow.parquet", "lda")
    try:
        with parquet.ParquetFile(path) as file:
            column = file.read_row_groups(list(range(begin, end)), columns=["text"]).column("text")
    except (arrow.ArrowException, OSError):
        broken = Damage(f"row groups {begin} to {end - 1} cannot be read, which begin", place, "file")
        return Content(join([]), damage=(broken,))
    texts = join([text or b"" for text in column.cast(arrow.large_binary()).to_pylist()])
    return Content(texts, len(texts.text))


def text_units(folder: Path, files: list[Path], size: int) -> Iterator[Unit]:
    """Each file is a document."""
    begin, length = 0, 0
    for end, path in enumerate(files, start=1):
        length += path.stat().st_size
        if length >= size or end - begin == MAX_UNIT_FILES or end == len(files):
            yield Unit(folder.name, length, partial(file_texts, folder, files[begin:end]))
            begin, length = end, 0


def file_texts(folder: Path, files: list[Path]) -> Content:
    texts, damage = [], []
    for path in files:
        with path.open("rb") as file:
            text = file.read(MAX_PAGE_BYTES + 1)
        zero = text.find(b"\0")
        if zero >= 0:
            damage.append(Damage(f"{path.relative_to(folder)} is no text: it has a zero", zero, "file"))
        elif len(text) > MAX_PAGE_BYTES:
            large = f"{path.relative_to(folder)} is larger than a document may be, and goes on"
            damage.append(Damage(large, MAX_PAGE_BYTES, "file"))
        else:
            texts.append(text)
    return Content(join(texts), damage=tuple(damage))


def json_units(path: Path, size: int) -> Iterator[Unit]:
    return (Unit(path.name, part.size, partial(json_texts, part)) for part in parts(path, b"\n", size))


READERS = {"dump": dump_units, "json": json_units, "parquet": parquet_units}
COUNT_READERS = {"uci": uci_units, "npz": npz_units}


@dataclass(frozen=True)
class Source:
    """`units(size)` are parts of about `size` bytes; `words` is the vocabulary if the source holds counts already."""

    kind: str
    path: Path
    files: list[Path]
    units: Callable[[int], Iterator[Unit]]
    words: list[str] | None = None

    @property
    def size(self) -> int:
        return sum(file.stat().st_size for file in self.files)

    def identity(self) -> dict[str, Any]:
        """Name and sizes, and a hash of the names, sizes, beginnings and ends of the files."""
        digest = hashlib.sha256()
        for path in self.files:
            size = path.stat().st_size
            with path.open("rb") as file:
                first = file.read(SAMPLE_BYTES)
                file.seek(max(size - SAMPLE_BYTES, 0))
                digest.update(json.dumps([name_in(self.path, path), size]).encode() + first + file.read(SAMPLE_BYTES))
        size, sample = self.size, digest.hexdigest()
        return {"kind": self.kind, "name": self.path.name, "files": len(self.files), "bytes": size, "sample": sample}


def open_source(path: Path, vocabulary: Path | None) -> Source:
    """The source at a path; one that holds counts needs its vocabulary."""
    if not path.exists():
        raise InputError(f"there is no {path}; give {SUPPORTED}.")
    files = [path] if path.is_file() else list_files(path)
    kinds = {kind for kind in map(kind_of, files) if kind}
    if len(kinds) > 1:
        raise InputError(f"{path} holds {' and '.join(sorted(kinds))} files; give one kind.")
    kind = kinds.pop() if kinds else "text"
    if path.is_file() and kind == "text":
        if b"<mediawiki" not in head(path):
            raise InputError(f"{path} is none of what is known: {SUPPORTED}.")
        kind = "dump"
    if kind in COUNT_READERS:
        if path.is_dir():
            raise InputError(f"{path} holds counts; give the file of counts itself.")
        if vocabulary is None and kind == "uci":  # docword.nips.txt.gz has vocab.nips.txt beside it
            vocabulary = path.with_name(path.name.removesuffix(".gz").replace("docword", "vocab", 1))
        if vocabulary is None or not vocabulary.exists():
            raise InputError(f"{path} holds counts of numbered words; write --vocabulary FILE, one word per line.")
        words = read_words(vocabulary, lower=False)
        return Source(kind, path, files, partial(COUNT_READERS[kind], path, len(words)), words)
    if kind == "text":
        return Source(kind, path, files, partial(text_units, path, files))
    files = [file for file in files if kind_of(file) == kind or file == path]

    def units(size: int) -> Iterator[Unit]:
        return (unit._replace(file=name_in(path, file)) for file in files for unit in READERS[kind](file, size))

    return Source(kind, path, files, units)


def name_in(source: Path, file: Path) -> str:
    """The name of a file of a source, without the folders above the source."""
    return file.name if file == source else file.relative_to(source).as_posix()


def list_files(folder: Path) -> list[Path]:
    """All files but hidden ones, in the order of their names."""
    files = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    if not (names := [name for name in files if not any(part.startswith(".") for part in name.parts)]):
        raise InputError(f"{folder} is an empty folder; give {SUPPORTED}.")
    return [files[name] for name in sorted(names, key=Path.as_posix)]


def kind_of(path: Path) -> str | None:
    name = path.name.removesuffix(".gz")
    if name.startswith("docword") and name.endswith(".txt"):
        return "uci"
    kind = next((kind for ending, kind in ENDINGS.items() if name.endswith(ending)), None)
    return "dump" if ".xml" in name and kind in (None, "text") else kind
