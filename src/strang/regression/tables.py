"""Tables as pandas frames, part after part: frames, Arrow tables, CSV, Parquet and Arrow files, and folders."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from strang.data.disk import TABLE_SUFFIXES, files_of
from strang.data.tables import parts_of
from strang.util.errors import InputError, first_line, need

CSV_SUFFIXES = (".csv", ".tsv", ".txt", ".gz")
CSV_BLOCK = 1 << 24  # bytes that are read together
PART_ROWS = 1 << 18  # of a frame in memory


@dataclass(frozen=True)
class Table:
    """Rows in parts that can be read by themselves.

    Attributes:
        name: for sentences.
        columns: their names.
        parts: each a function of the wanted columns to frames; `parts()` begins with the first.
        marks: of each file, what changes when it does; empty for what is in memory.
        rows: how many, where that is known before reading.
    """

    name: str
    columns: list[str]
    parts: Callable[[list[str]], Iterator[Callable[[], Iterator[Any]]]]
    marks: tuple[tuple[Any, ...], ...] = ()
    rows: int | None = None

    def frames(self, columns: list[str]) -> Iterator[Any]:
        """All frames, with these columns."""
        for part in self.parts(columns):
            yield from part()


def open_table(data: Any) -> Table:
    """A table of whatever people have.

    Raises:
        InputError: it is none, cannot be read, or is empty.
    """
    if isinstance(data, str | Path):
        return open_path(Path(data))
    pandas = need("pandas", "glm")
    if isinstance(data, Mapping):
        try:
            data = pandas.DataFrame(dict(data))
        except ValueError as error:
            raise InputError(f"the columns of the table do not fit together ({first_line(error)}).") from None
    elif not isinstance(data, pandas.DataFrame):
        if hasattr(data, "collect") and hasattr(data, "collect_schema"):  # a lazy frame of Polars
            data = data.collect()
        if not hasattr(data, "to_pandas"):
            raise InputError(
                f"the table is a {type(data).__name__}; give a pandas or Polars frame, an Arrow table, a dict of "
                "columns, or the path of a CSV or Parquet file or of a folder of Parquet files."
            )
        data = data.to_arrow() if hasattr(data, "to_arrow") else data
        data = data.to_pandas()
    return in_memory("the table", data)


def in_memory(name: str, frame: Any, marks: tuple = ()) -> Table:
    """A frame as a table."""
    frame = frame.rename(columns=str).reset_index(drop=True)
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise InputError(f"{name} has the column {twice[0]!r} twice; rename one of them.")
    if not len(frame) or not len(frame.columns):
        raise InputError(f"{name} is empty: it has {len(frame)} rows and {len(frame.columns)} columns.")

    def parts(columns: list[str]) -> Iterator[Callable[[], Iterator[Any]]]:
        for start in range(0, len(frame), PART_ROWS):
            yield lambda start=start: iter([frame[columns].iloc[start : start + PART_ROWS]])  # type: ignore[misc]

    return Table(name, list(frame.columns), parts, marks, len(frame))


def open_path(path: Path) -> Table:
    """A table in a file, or in the files of a folder."""
    if not path.exists():
        raise InputError(f"there is no file or folder {path}.")
    if path.is_dir():
        paths = files_of(path, TABLE_SUFFIXES)
        if not paths:
            raise InputError(f"{path} holds no {', '.join(TABLE_SUFFIXES)} files; give a folder of Parquet files.")
        return open_arrow(path, paths)
    if path.suffix in TABLE_SUFFIXES:
        return open_arrow(path, [path])
    if path.suffix in CSV_SUFFIXES:
        return open_csv(path)
    raise InputError(f"{path} is no table by its name; give one that ends in {', '.join((*TABLE_SUFFIXES, '.csv'))}.")


def marks_of(paths: list[Path]) -> tuple[tuple[Any, ...], ...]:
    """Names, sizes and times of change."""
    return tuple((path.name, (status := path.stat()).st_size, status.st_mtime_ns) for path in paths)


def open_arrow(path: Path, paths: list[Path]) -> Table:
    """Parquet and Arrow files, a row group or record batch at a time."""
    pa = need("pyarrow", "glm")
    with explained(path):
        found = [part for each in paths for part in parts_of(each)]
        if not found:
            raise InputError(f"{path} is empty: it has no rows.")
        columns = list(next(found[0].batches()).schema.names)

    def parts(wanted: list[str]) -> Iterator[Callable[[], Iterator[Any]]]:
        for each in (part for one in paths for part in parts_of(one, wanted)):

            def frames(each=each) -> Iterator[Any]:
                with explained(path):
                    for batch in each.batches():
                        batch.validate(full=True)  # the reader trusts lengths and offsets
                        yield pa.Table.from_batches([batch]).select(wanted).to_pandas()

            yield frames

    return Table(str(path), columns, parts, marks_of(paths), sum(part.rows for part in found))


class explained:
    """Turns the errors of a reader into sentences."""

    def __init__(self, path: Path):
        self.path = path

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace) -> None:
        if error is None or isinstance(error, InputError | GeneratorExit):
            return
        pa = need("pyarrow", "glm")
        if isinstance(error, OSError) and not isinstance(error, pa.ArrowException):
            raise InputError(f"{self.path} cannot be read ({error.strerror or first_line(error)}).") from None
        if isinstance(error, pa.ArrowException | ValueError | KeyError | IndexError | StopIteration):
            raise InputError(f"{self.path} cannot be read as a table ({first_line(error)}).") from None


def open_csv(path: Path) -> Table:
    """A text file with a line of names; a column of whole numbers may go on with others."""
    pa, csv = need("pyarrow", "glm"), need("pyarrow.csv", "glm")
    wider: dict[str, Any] = {}
    parsing = csv.ParseOptions(delimiter="\t" if ".tsv" in path.suffixes else ",")

    def reader(columns: list[str] | None, threads: bool = True) -> Any:
        options = csv.ConvertOptions(column_types=wider, strings_can_be_null=True, include_columns=columns)
        return csv.open_csv(path, csv.ReadOptions(block_size=CSV_BLOCK, use_threads=threads), parsing, options)

    try:
        if not path.stat().st_size:
            raise InputError(f"{path} is empty.")
        names = reader(None).schema.names
        widen(reader, wider, pa)
    except pa.ArrowInvalid:
        try:  # without threads the reader says in which line it is
            widen(partial(reader, threads=False), wider, pa)
        except pa.ArrowInvalid as error:
            raise InputError(csv_sentence(path, error)) from None
    except (OSError, UnicodeError) as error:
        raise InputError(f"{path} cannot be read ({first_line(error)}).") from None
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError(f"{path} has the column {twice[0]!r} twice; rename one of them.")

    def parts(columns: list[str]) -> Iterator[Callable[[], Iterator[Any]]]:
        try:
            for batch in reader(columns):
                yield lambda batch=batch: iter([batch.to_pandas()])  # type: ignore[misc]
        except pa.ArrowInvalid as error:
            raise InputError(csv_sentence(path, error)) from None

    return Table(str(path), list(names), parts, marks_of([path]))


def widen(reader: Callable, wider: dict[str, Any], pa: Any) -> None:
    """Reads all of a CSV once, so that it is known to be whole, and which columns are not what they begin as."""
    while True:
        opened = reader(None)
        names = opened.schema.names
        try:
            rows = sum(batch.num_rows for batch in opened)
            if not rows:
                raise InputError("the CSV file is empty: it has a line of names and no rows.")
            return
        except pa.ArrowInvalid as error:
            place = re.search(r"In CSV column #(\d+):.*conversion error to (\w+)", str(error))
            name = names[int(place[1])] if place else None
            if place is None or name is None or place[2] not in ("int64", "null") or name in wider:
                raise
            wider[name] = pa.float64()


def csv_sentence(path: Path, error: BaseException) -> str:
    """What is wrong with a CSV file."""
    said = first_line(error).rstrip(".")
    ragged = re.search(r"Expected (\d+) columns, got (\d+)", said)
    if ragged:
        line = re.search(r"[Rr]ow #(\d+)", said)
        where = f"line {line[1]}" if line else "a line"
        return (
            f"{path} is ragged: {where} has {ragged[2]} fields, and the line of names has {ragged[1]}; put fields with "
            "commas in quotes, or mend the line."
        )
    mixed = re.search(r"conversion error to (\w+): invalid value '(.*)'", said)
    if mixed:
        return f"{path} mixes numbers and text in one column: {mixed[2]!r} is no number; mend it, or write C(...)."
    return f"{path} cannot be read as CSV ({said})."
