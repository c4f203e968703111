"""One pass over a table before anything is built: what its columns are, their levels, and some rows of it."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from strang.regression.tables import Table
from strang.util.errors import InputError, need
from strang.util.progress import bar

SAMPLE = 100_000  # rows from which splines and scales are taken; of a smaller table, all
MAX_LEVELS = 1_000  # of a column that is encoded, one coefficient each
SHOWN = 5  # levels in a sentence


@dataclass
class Column:
    """What is known of a column.

    Attributes:
        kind: `number`, `text` or `category`, whose levels have an order if it says so.
        missing: in how many rows.
        low, high: of numbers.
        levels: how often each occurs, where that was asked for.
        order: the levels of a category in their order.
    """

    kind: str = ""
    missing: int = 0
    low: float = np.inf
    high: float = -np.inf
    levels: Counter = field(default_factory=Counter)
    order: list[Any] | None = None
    ordered: bool = False


@dataclass
class Survey:
    """What one pass over a table found: rows that are complete, columns by name, and a sample of complete rows."""

    rows: int
    dropped: int
    columns: dict[str, Column]
    groups: dict[str, Counter]
    sample: Any

    def levels(self, name: str) -> list[Any]:
        """The levels of a column in the order in which they are encoded."""
        column = self.columns[name]
        return list(column.order) if column.order is not None else sorted(column.levels)


def take_survey(
    table: Table, columns: list[str], encoded: list[str], groups: list[tuple[str, ...]], missing: str, progress: Any
) -> Survey:
    """Goes over a table once.

    Args:
        table: where rows come from.
        columns: all that are used.
        encoded: those that stand in C(...).
        groups: columns, or several together, by whose levels effects vary.
        missing: `error` or `drop`.
        progress: whether to show a progress bar; None: on a terminal.

    Raises:
        InputError: a column is not there, or is not of one kind; values are missing; nothing is left.
    """
    check_columns(table, columns)
    found, sample = Survey(0, 0, {name: Column() for name in columns}, {}, None), Sample()
    found.groups = {":".join(by): Counter() for by in groups}
    total = 0
    with bar(table.rows or 1, f"looking through {table.name}", progress) as show:
        for frame in table.frames(columns):
            for name in columns:
                note(found.columns[name], name, frame[name], name in encoded)
            whole = frame.notna().all(axis=1).to_numpy()
            found.dropped += int((~whole).sum())
            frame = frame[whole]
            for by in groups:
                found.groups[":".join(by)].update(group_labels(frame, by).value_counts().to_dict())
            sample.add(frame, [name for name in columns if found.columns[name].kind == "number"], encoded)
            total += len(whole)
            found.rows += int(whole.sum())
            show(total if table.rows else 0, f"{total:,} rows")
    if not total:
        raise InputError(f"{table.name} is empty: it has no rows.")
    if found.dropped and missing == "error":
        counts = ", ".join(f"{name} in {c.missing:,} rows" for name, c in found.columns.items() if c.missing)
        raise InputError(f"values are missing: {counts}; fill them, or write missing='drop' to leave such rows out.")
    if not found.rows:
        raise InputError(f"every one of the {total:,} rows of {table.name} has a missing value; nothing is left.")
    found.sample = sample.frame()
    return found


def check_columns(table: Table, columns: list[str]) -> None:
    """Every column that is used must be there."""
    from difflib import get_close_matches

    for name in columns:
        if name not in table.columns:
            near = get_close_matches(name, table.columns, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(table.columns[:20])}."
            raise InputError(f"{table.name} has no column {name!r}; {hint}")


def note(column: Column, name: str, values: Any, encoded: bool) -> None:
    """Adds what a part of a column says."""
    kind = kind_of(name, values)
    if column.kind and kind and kind != column.kind:
        raise InputError(f"column {name} mixes types: it is {column.kind} first and {kind} later; make it one of them.")
    column.kind = column.kind or kind
    column.missing += int(values.isna().sum())
    there = values.dropna()
    if kind == "number":
        numbers = there.to_numpy(float)
        if not np.isfinite(numbers).all():
            raise InputError(f"column {name} has values that are infinite; remove or mend such rows first.")
        if len(numbers):
            column.low, column.high = min(column.low, numbers.min()), max(column.high, numbers.max())
    if kind == "category":
        before = column.order or []
        column.order = [*before, *(level for level in values.cat.categories if level not in before)]
        column.ordered = bool(values.cat.ordered)
    if kind in ("text", "category") or encoded:
        column.levels.update(there.value_counts().to_dict())


def kind_of(name: str, values: Any) -> str:
    """What a column is; nothing where all of it is missing."""
    types = need("pandas", "glm").api.types
    if isinstance(values.dtype, types.CategoricalDtype):
        return "category"
    if types.is_bool_dtype(values.dtype) or types.is_numeric_dtype(values.dtype):
        return "number" if not types.is_complex_dtype(values.dtype) else refuse(name, "complex numbers")
    if types.is_datetime64_any_dtype(values.dtype) or types.is_timedelta64_dtype(values.dtype):
        return refuse(name, "dates or times")
    kind = types.infer_dtype(values, skipna=True)
    if kind in ("integer", "floating", "mixed-integer-float", "decimal", "boolean"):
        return "number"
    if kind in ("string", "empty"):
        return "text" if kind == "string" else ""
    mixed = kind.startswith("mixed")
    if mixed:
        kinds = sorted({type(value).__name__ for value in values.dropna()})
        raise InputError(f"column {name} mixes types ({', '.join(kinds)}); make it numbers, or text, throughout.")
    return refuse(name, f"values of type {kind}")


def refuse(name: str, what: str) -> str:
    raise InputError(f"column {name} has {what}; make numbers or text of it first.")


def check_numbers(survey: Survey, names: list[str], encoded: list[str], where: str) -> None:
    """Columns that are used as numbers must be such."""
    for name in names:
        column = survey.columns[name]
        if column.kind == "text" and name not in encoded:
            levels = list(column.levels)
            strange = [level for level in levels if not is_number(level)]
            if strange and len(strange) < len(levels):
                raise InputError(
                    f"column {name} mixes numbers and text: {shown(strange)} {'is' if len(strange) == 1 else 'are'} no "
                    f"number; mend it, or write C({name}) where it is to be classes."
                )
            raise InputError(f"column {name} holds text ({shown(levels)}); write C({name}) in {where}.")
        if column.kind == "number" and column.low == column.high and name not in encoded:
            raise InputError(f"column {name} is constant, {column.low:g} in all rows; leave it out of {where}.")
    for name in encoded:
        count = len(survey.levels(name))
        if count > MAX_LEVELS:
            raise InputError(
                f"C({name}) has {count:,} levels, a coefficient each; write a group term, (1 | {name}), for so many."
            )
        if count < 2:
            raise InputError(f"column {name} is constant: C({name}) has one level; leave it out of {where}.")


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def shown(levels: list[Any]) -> str:
    """Some levels, for a sentence."""
    return ", ".join(repr(level) for level in levels[:SHOWN]) + (", ..." if len(levels) > SHOWN else "")


def group_labels(frame: Any, by: tuple[str, ...]) -> Any:
    """The level of each row, as text; of several columns, joined by colons."""
    labels = frame[by[0]].astype(str)
    for name in by[1:]:
        labels = labels + ":" + frame[name].astype(str)
    return labels


class Sample:
    """Some rows of a table, drawn as it goes by: those whose random numbers are smallest; and the rows that hold the
    ends of numbers and levels that are encoded, so that what is made from the sample fits all rows."""

    def __init__(self):
        self.frames: list[Any] = []
        self.keys: list[np.ndarray] = []
        self.most, self.rng, self.seen = 1.0, np.random.default_rng(0), 0
        self.ends: list[Any] = []
        self.known: dict[str, set] = {}
        self.limits: dict[str, tuple[float, float]] = {}

    def add(self, frame: Any, numbers: list[str], encoded: list[str]) -> None:
        keys = self.rng.random(len(frame))
        self.seen += len(frame)
        self.ends += [frame.iloc[list(places)] for places in [self.extreme(frame, numbers, encoded)] if places]
        chosen = keys < self.most
        self.frames.append(frame[chosen])
        self.keys.append(keys[chosen])
        if sum(map(len, self.keys)) > 2 * SAMPLE:
            self.shorten()

    def extreme(self, frame: Any, numbers: list[str], encoded: list[str]) -> list[int]:
        """The places of rows that widen what is known."""
        places = []
        for name in numbers if len(frame) else []:
            values = frame[name].to_numpy(float)
            low, high = self.limits.get(name, (np.inf, -np.inf))
            if values.min() < low or values.max() > high:
                places += [int(values.argmin()), int(values.argmax())]
                self.limits[name] = min(low, values.min()), max(high, values.max())
        for name in encoded:
            known = self.known.setdefault(name, set())
            fresh = frame[name].drop_duplicates()
            fresh = fresh[[value not in known for value in fresh]]
            known.update(fresh)
            places += [int(place) for place in frame.index.get_indexer(fresh.index)]
        return sorted(set(places))

    def shorten(self) -> None:
        """Keeps the rows with the smallest numbers, in their order."""
        pandas = need("pandas", "glm")
        frame, keys = pandas.concat(self.frames), np.concatenate(self.keys)
        if len(keys) > SAMPLE:
            self.most = float(np.partition(keys, SAMPLE - 1)[SAMPLE - 1])
            frame, keys = frame[keys <= self.most], keys[keys <= self.most]
        self.frames, self.keys = [frame], [keys]

    def frame(self) -> Any:
        self.shorten()
        whole = self.seen <= SAMPLE
        pandas = need("pandas", "glm")
        return pandas.concat(self.frames if whole else [*self.frames, *self.ends], ignore_index=True)
