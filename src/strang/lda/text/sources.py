"""What a corpus can be made from, recognised by its name and content."""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from strang.lda.text.chunks import Unit, head
from strang.lda.text.matrices import npz_units, uci_units, uci_vocabulary
from strang.lda.text.texts import dump_units, json_units, parquet_units, text_units
from strang.lda.text.vocabulary import read_words
from strang.util.errors import InputError

SAMPLE = 4096  # bytes at both ends of a file
READERS = {"dump": dump_units, "json": json_units, "parquet": parquet_units}
KNOWN = (
    "a MediaWiki dump (.xml, .xml.gz, .xml.bz2), Parquet or JSON lines with a field text, "
    "UCI docword*.txt, a .npz with indptr, indices and counts, or a folder of text files"
)


@dataclass(frozen=True)
class Source:
    """`words` is the vocabulary of a corpus that is counted already; `units` reads parts of about so many bytes."""

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
        total = hashlib.sha256()
        for path in self.files:
            name, size = name_in(self.path, path), path.stat().st_size
            with path.open("rb") as file:
                first = file.read(SAMPLE)
                file.seek(max(size - SAMPLE, 0))
                total.update(json.dumps([name, size]).encode() + first + file.read(SAMPLE))
        return {
            "kind": self.kind,
            "name": self.path.name,
            "files": len(self.files),
            "bytes": self.size,
            "sample": total.hexdigest(),
        }


def open_source(path: Path, vocabulary: Path | None) -> Source:
    """The source at a path; one that is counted already needs its vocabulary."""
    if not path.exists():
        raise InputError(f"there is no {path}; give {KNOWN}.")
    files = [path] if path.is_file() else list_files(path)
    kinds = {kind for kind in map(kind_of, files) if kind}
    if len(kinds) > 1:
        raise InputError(f"{path} holds {' and '.join(sorted(kinds))} files; give one kind.")
    kind = kinds.pop() if kinds else "text"
    if path.is_file() and kind == "text":
        if b"<mediawiki" not in head(path):
            raise InputError(f"{path} is none of what is known: {KNOWN}.")
        kind = "dump"
    if kind in ("uci", "npz"):
        if path.is_dir():
            raise InputError(f"{path} holds counts; give the file of counts itself.")
        words = read_words(counted_vocabulary(path, kind, vocabulary), lower=False)
        counted = uci_units if kind == "uci" else npz_units
        return Source(kind, path, files, partial(counted, path, len(words)), words)
    if kind == "text":
        return Source(kind, path, files, partial(text_units, path, files))
    files = [file for file in files if kind_of(file) == kind or file == path]

    def units(size: int) -> Iterator[Unit]:
        return (unit._replace(file=name_in(path, file)) for file in files for unit in READERS[kind](file, size))

    return Source(kind, path, files, units)


def name_in(source: Path, file: Path) -> str:
    """The name of a file of a source, without the places above it."""
    return file.name if file == source else file.relative_to(source).as_posix()


def counted_vocabulary(path: Path, kind: str, given: Path | None) -> Path:
    if given is None and kind == "uci":
        given = uci_vocabulary(path)
    if given is None or not given.exists():
        raise InputError(f"{path} holds counts of numbered words; write --vocabulary FILE, one word a line.")
    return given


def list_files(folder: Path) -> list[Path]:
    """All files but hidden ones, in the order of their names."""
    found = (path for path in folder.rglob("*") if path.is_file())
    files = [path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    if not files:
        raise InputError(f"{folder} is an empty folder; give {KNOWN}.")
    return sorted(files, key=lambda path: path.relative_to(folder).as_posix())


def kind_of(path: Path) -> str | None:
    name = path.name.removesuffix(".gz")
    if name.endswith(".parquet"):
        return "parquet"
    if name.endswith((".jsonl", ".ndjson", ".json")):
        return "json"
    if name.endswith(".npz"):
        return "npz"
    if name.startswith("docword") and name.endswith(".txt"):
        return "uci"
    if ".xml" in name:
        return "dump"
    return "text" if name.endswith(".txt") else None
