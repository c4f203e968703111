"""Parquet and Arrow tables, copied once into one `.npy` file per column, so that any row can be read by itself.

The copy is made beside the table, one part after the other. `table.json` counts the parts that are done and is replaced
after these are on the disk: a copy that was killed goes on, and a copy of a table that has changed is made anew. One
process copies, and others that want the same table wait for it.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from strang.data.disk import TABLE_SUFFIXES, files_of
from strang.util.errors import InputError, first_line, need
from strang.util.files import hold, npy_header, replace_file, write_at
from strang.util.progress import bar

FORMAT = "strang table 1"
DECODED_ROWS = 1 << 16  # decoded together
SYNC_BYTES = 1 << 26  # after which the copy notes how far it is


class Part(NamedTuple):
    """Rows that can be read by themselves: a row group, or a record batch."""

    rows: int
    batches: Callable[[], Iterator[Any]]


class Column(NamedTuple):
    path: Path
    row: tuple[int, ...]
    dtype: np.dtype


def open_table(path: Path, cache: Path | None, columns: list[str] | None) -> dict[str, Path]:
    """Copies a table if that is not done yet, and returns the `.npy` file of each column by name."""
    pa = need("pyarrow", "tables")
    paths = files_of(path, TABLE_SUFFIXES) if path.is_dir() else [path]
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


def parts_of(path: Path, columns: list[str] | None = None) -> list[Part]:
    """The row groups of a Parquet file, or the record batches of an Arrow file; of the former only these columns."""
    if not path.is_file():
        raise InputError(f"there is no file {path}.")
    if path.suffix == ".parquet":
        file = need("pyarrow.parquet", "tables").ParquetFile(path, page_checksum_verification=True)
        counts = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
        readers = [
            partial(file.iter_batches, DECODED_ROWS, row_groups=[number], columns=columns)
            for number in range(len(counts))
        ]
    else:
        pa = need("pyarrow", "tables")
        arrow = pa.ipc.open_file(pa.memory_map(str(path)))
        counts = [arrow.get_batch(number).num_rows for number in range(arrow.num_record_batches)]
        readers = [partial(map, arrow.get_batch, [number]) for number in range(len(counts))]
    return [Part(rows, read) for rows, read in zip(counts, readers, strict=True) if rows]


def copied(folder: Path, paths: list[Path], parts: list[Part], names: list[str]) -> dict[str, Path]:
    """Makes or completes the copy in this folder."""
    marks = [[path.name, (status := path.stat()).st_size, status.st_mtime_ns] for path in paths]
    first = next(parts[0].batches())
    columns = {}
    for place, name in enumerate(names):
        rows, file = plain(first, name, 0), "".join(c if c.isalnum() or c in "-_" else "_" for c in f"{place}-{name}")
        columns[name] = Column(folder / f"{file}.npy", rows.shape[1:], rows.dtype)
    total = sum(part.rows for part in parts)
    asked = {"format": FORMAT, "files": marks, "columns": names, "rows": total}
    folder.mkdir(parents=True, exist_ok=True)
    if parts_done(folder, columns, asked) < len(parts):
        lock = hold(folder / "lock", wait=True)
        try:
            count = copy(folder, parts, columns, asked)
        finally:
            os.close(lock)
        if count != total:
            raise InputError(f"{paths[0]} is damaged: it has {count:,} rows, but says that it has {total:,}.")
    return {name: column.path for name, column in columns.items()}


def copy(folder: Path, parts: list[Part], columns: dict[str, Column], asked: dict[str, Any]) -> int:
    """Copies the parts that are missing, which another process may have done by now, and counts the rows."""
    done, total = parts_done(folder, columns, asked), asked["rows"]
    at, unsynced = sum(part.rows for part in parts[:done]), 0
    if done == len(parts):
        return at
    if not done:
        (folder / "table.json").unlink(missing_ok=True)  # its parts are about to be overwritten
    headers = {name: npy_header((total, *column.row), column.dtype) for name, column in columns.items()}
    with ExitStack() as stack, bar(total, f"copying {', '.join(columns)}", None) as show:
        mode = "rb+" if done else "wb+"
        handles = {name: stack.enter_context(column.path.open(mode)).fileno() for name, column in columns.items()}
        for name, handle in handles.items():
            write_at(handle, headers[name], 0)
        for number, part in enumerate(parts[done:], start=done + 1):
            for batch in part.batches():
                for name, column in columns.items():
                    rows = plain(batch, name, at)
                    if (rows.shape[1:], rows.dtype) != (column.row, column.dtype):
                        raise InputError(
                            f"column {name} has rows of shape {rows.shape[1:]} and dtype {rows.dtype} from row {at:,} "
                            f"on, and {column.row} and {column.dtype} before."
                        )
                    write_at(handles[name], rows.tobytes(), len(headers[name]) + at * rows[0].nbytes)
                    unsynced += rows.nbytes
                at += batch.num_rows
                show(at)
            if unsynced > SYNC_BYTES or number == len(parts):
                for handle in handles.values():
                    os.fsync(handle)
                replace_file(folder / "table.json", json.dumps({**asked, "parts": number}).encode())
                unsynced = 0
    return at


def parts_done(folder: Path, columns: dict[str, Column], asked: dict[str, Any]) -> int:
    """How many parts of what is asked for are in the folder."""
    try:
        stored = json.loads((folder / "table.json").read_bytes())
        done = stored.pop("parts")
        whole = stored == asked and isinstance(done, int) and all(column.path.exists() for column in columns.values())
        return done if whole else 0
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return 0


def plain(batch: Any, name: str, first: int) -> np.ndarray:
    """Converts a column of numbers, or of equally long lists of numbers, to an array."""
    if name not in batch.schema.names:
        raise InputError(f"there is no column {name!r}; choose from: {', '.join(batch.schema.names)}.")
    types = need("pyarrow", "tables").types
    values, row = batch.column(name), []
    values.validate(full=True)  # the reader trusts lengths and offsets: with damaged ones it would end the process
    while not (missing := values.null_count):
        flexible = types.is_list(values.type) or types.is_large_list(values.type)
        if not (flexible or types.is_fixed_size_list(values.type)):
            break
        if flexible and len(set(np.diff(values.offsets))) > 1:
            raise InputError(f"column {name} has lists of different lengths; pad them, or leave it out (columns=...).")
        row.append(len(values.flatten()) // len(values))
        values = values.flatten()
    if missing:
        raise InputError(f"column {name} has a missing value in rows {first:,} to {first + len(batch) - 1:,}; fill it.")
    array = values.to_numpy(zero_copy_only=False)
    if array.dtype.kind not in "fiub":
        raise InputError(f"column {name} has type {values.type}, not numbers; choose others with columns=[...].")
    return np.ascontiguousarray(array).reshape(len(batch), *row)
