"""Parquet and Arrow tables, copied once into one .npy file a column, so that any row can be read by itself.

The copy is made beside the table, a part of it at a time. How far it is stands in `table.json`, which is replaced after
what it counts is on the disk: a copy that was killed goes on, and one of a table that changed since is made anew. One
process copies, and others that want the same table wait for it.
"""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from strang.data.disk import TABLES, files_of
from strang.util.errors import InputError, first_line, need
from strang.util.files import hold, npy_header, replace_file, write_at
from strang.util.progress import bar

FORMAT = "strang table 1"
ROWS = 1 << 16  # that are decoded together
SETTLE = 1 << 26  # bytes after which the copy says how far it is


class Part(NamedTuple):
    """Rows that can be read by themselves: a row group, or a record batch."""

    rows: int
    batches: Callable[[], Iterator[Any]]


class Column(NamedTuple):
    path: Path
    row: tuple[int, ...]
    dtype: np.dtype


def open_table(path: Path, cache: Path | None, columns: list[str] | None) -> dict[str, Path]:
    """The columns of a table as .npy files, by name."""
    pa = need("pyarrow", "tables")
    paths = files_of(path, TABLES) if path.is_dir() else [path]
    try:
        parts = [part for each in paths for part in parts_of(each)]
        columns = list(next(parts[0].batches()).schema.names) if columns is None else list(columns)
        folder = path.with_name(f"{path.name}.rows") if cache is None else cache
        return copied(folder, paths, parts, columns)
    except InputError:
        raise
    except OSError as error:
        raise InputError(
            f"{path} cannot be copied to .npy files ({error.strerror or first_line(error)}); "
            "if there is no room beside it, write cache=FOLDER."
        ) from None
    except (pa.ArrowException, ValueError, KeyError, IndexError, StopIteration) as error:
        raise InputError(f"{path} cannot be read as a table, or has no rows ({first_line(error)}).") from None


def parts_of(path: Path) -> list[Part]:
    """A Parquet file by row groups, an Arrow file by record batches."""
    if not path.is_file():
        raise InputError(f"there is no file {path}.")
    if path.suffix == ".parquet":
        file = need("pyarrow.parquet", "tables").ParquetFile(path, page_checksum_verification=True)

        def group(number: int) -> Callable[[], Iterator[Any]]:
            return lambda: file.iter_batches(ROWS, row_groups=[number])

        groups = (file.metadata.row_group(number).num_rows for number in range(file.num_row_groups))
        return [Part(rows, group(number)) for number, rows in enumerate(groups) if rows]
    pa = need("pyarrow", "tables")
    reader = pa.ipc.open_file(pa.memory_map(str(path)))

    def batch(number: int) -> Callable[[], Iterator[Any]]:
        return lambda: iter([reader.get_batch(number)])

    counts = (reader.get_batch(number).num_rows for number in range(reader.num_record_batches))
    return [Part(rows, batch(number)) for number, rows in enumerate(counts) if rows]


def copied(folder: Path, paths: list[Path], parts: list[Part], names: list[str]) -> dict[str, Path]:
    """The copy in this folder, gone on with where it is not whole."""
    marks = [[path.name, (about := path.stat()).st_size, about.st_mtime_ns] for path in paths]
    first = next(parts[0].batches())
    total = sum(part.rows for part in parts)
    columns = {name: column_of(folder, f"{place}-{name}", plain(first, name, 0)) for place, name in enumerate(names)}
    asked = {"format": FORMAT, "files": marks, "columns": names, "rows": total}
    folder.mkdir(parents=True, exist_ok=True)
    if parts_done(folder, asked) < len(parts):
        lock = hold(folder / "lock", wait=True)
        try:
            at = copy(folder, parts, columns, asked)
        finally:
            os.close(lock)
        if at != total:
            raise InputError(f"{paths[0]} is damaged: it has {at:,} rows, not the {total:,} that it counts.")
    return {name: column.path for name, column in columns.items()}


def copy(folder: Path, parts: list[Part], columns: dict[str, Column], asked: dict[str, Any]) -> int:
    """Copy what is missing, which may be nothing by now, and count the rows."""
    done, total = parts_done(folder, asked), asked["rows"]
    at, unsettled = sum(part.rows for part in parts[:done]), 0
    if done == len(parts):
        return at
    if not done:
        (folder / "table.json").unlink(missing_ok=True)  # what it counts is about to be written over
    handles = [
        os.open(column.path, os.O_RDWR | os.O_CREAT | (0 if done else os.O_TRUNC), 0o644) for column in columns.values()
    ]
    try:
        for handle, column in zip(handles, columns.values(), strict=True):
            write_at(handle, npy_header((total, *column.row), column.dtype), 0)
        with bar(total, f"copying {', '.join(columns)}", None) as show:
            for number, part in enumerate(parts[done:], start=done + 1):
                for batch in part.batches():
                    for handle, (name, column) in zip(handles, columns.items(), strict=True):
                        rows = rows_of(batch, name, column, at)
                        begin = len(npy_header((total, *column.row), column.dtype)) + at * rows[0].nbytes
                        write_at(handle, rows.tobytes(), begin)
                        unsettled += rows.nbytes
                    at += batch.num_rows
                    show(at)
                if unsettled > SETTLE or number == len(parts):
                    for handle in handles:
                        os.fsync(handle)
                    replace_file(folder / "table.json", json.dumps({**asked, "parts": number}).encode())
                    unsettled = 0
    finally:
        for handle in handles:
            os.close(handle)
    return at


def parts_done(folder: Path, asked: dict[str, Any]) -> int:
    """How much of what is asked for is there already."""
    try:
        found = json.loads((folder / "table.json").read_bytes())
        done = found.pop("parts")
        return done if found == asked and isinstance(done, int) else 0
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return 0


def column_of(folder: Path, name: str, rows: np.ndarray) -> Column:
    """How a column is stored, from its first rows."""
    file = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
    return Column(folder / f"{file}.npy", rows.shape[1:], rows.dtype)


def rows_of(batch: Any, name: str, column: Column, first: int) -> np.ndarray:
    """The next rows of a column, like those before."""
    rows = plain(batch, name, first)
    if (rows.shape[1:], rows.dtype) != (column.row, column.dtype):
        raise InputError(
            f"column {name} has rows of shape {rows.shape[1:]} and dtype {rows.dtype} from row {first:,} on, and "
            f"{column.row} and {column.dtype} before."
        )
    return rows


def plain(batch: Any, name: str, first: int) -> np.ndarray:
    """A column as an array: numbers, or lists of equally many numbers."""
    if name not in batch.schema.names:
        raise InputError(f"there is no column {name!r}; choose from: {', '.join(batch.schema.names)}.")
    types = need("pyarrow", "tables").types
    values, row = batch.column(name), []
    while not (missing := values.null_count):
        flexible = types.is_list(values.type) or types.is_large_list(values.type)
        if not (flexible or types.is_fixed_size_list(values.type)):
            break
        if flexible and len(set(np.diff(values.offsets))) > 1:
            raise InputError(f"column {name} has lists of different lengths; pad them, or leave it out (columns=...).")
        row.append(len(values.flatten()) // len(values))
        values = values.flatten()
    if missing:
        raise InputError(f"column {name} has a missing value in rows {first:,} to {first + len(batch) - 1:,}; mend it.")
    array = values.to_numpy(zero_copy_only=False)
    if array.dtype.kind not in "fiub":
        raise InputError(f"column {name} has type {values.type}, not numbers; choose others with columns=[...].")
    return np.ascontiguousarray(array).reshape(len(batch), *row)
