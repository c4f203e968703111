"""The numbers of all rows: in memory, or in `.npy` files that are made once, part after part, beside the table.

`matrix.json` counts the parts that are done and is replaced after these are on the disk: what was killed goes on.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from strang.data import files as open_files
from strang.data.batches import Data, as_data
from strang.regression.encoding import Encoding, Rows
from strang.regression.tables import Table
from strang.util.errors import InputError
from strang.util.files import hold, npy_header, replace_file, write_at
from strang.util.progress import bar

FORMAT = "strang regression 1"
IN_MEMORY = 1 << 29  # bytes of a matrix from a file that are kept in memory
SYNC_BYTES = 1 << 26  # after which is noted how far the files are
MANIFEST = "matrix.json"


class Built(NamedTuple):
    """All rows as data, and those that were held out, if any; `folder` is where they are, if not in memory."""

    data: Data
    held: Rows | None
    folder: Path | None


class Request(NamedTuple):
    """What is to be built."""

    encoding: Encoding
    table: Table
    holdout: float
    seed: int

    @property
    def names(self) -> list[str]:
        e = self.encoding
        more = [
            name
            for k, g in enumerate(e.groups)
            for name in (f"group_{k}", f"z_{k}")
            if name[0] == "g" or not g.intercept_only
        ]
        return ["x", "y", *(name for name in ("offset", "trials", "weights") if name in e.specs), *more]

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a row."""
        if name == "x":
            return (len(self.encoding.names),)
        return (len(self.encoding.groups[int(name[2:])].names),) if name.startswith("z_") else ()

    @property
    def width(self) -> int:
        """Bytes of a row."""
        return 4 * sum(int(np.prod(self.shape(name))) for name in self.names)

    def parts(self) -> Iterator[Callable[[], Iterator[tuple[Rows, np.ndarray]]]]:
        """Parts of the table, each a function to its numbers and to which of its rows are held out."""
        for number, part in enumerate(self.table.parts(self.encoding.columns)):
            yield lambda part=part, number=number: self.encoded(part, number)  # type: ignore[misc]

    def encoded(self, part: Callable[[], Iterator[Any]], number: int) -> Iterator[tuple[Rows, np.ndarray]]:
        rng, first = np.random.default_rng([self.seed, number]), 0
        for frame in part():
            whole = frame.notna().all(axis=1).to_numpy()
            held = rng.random(len(frame)) < self.holdout
            if whole.any():
                try:
                    found = self.encoding.rows(frame[whole], first)
                except InputError as error:
                    part_of = f" (Rows count from the beginning of part {number + 1} of the table.)" if number else ""
                    raise InputError(f"{error}{part_of}") from None
                yield found, held[whole]
            first += len(frame)


def build(request: Request, cache: Path | None, progress: bool | None) -> Built:
    """The numbers of all rows, in memory where they fit or the table is there anyway.

    Raises:
        InputError: a row cannot be encoded, or the folder cannot be written.
    """
    table, rows = request.table, request.encoding.survey.rows
    if cache is None and (not table.marks or rows * request.width <= IN_MEMORY):
        return in_memory(request, progress)
    path = Path(table.name)
    folder = path.with_name(f"{path.name}.glm") if cache is None else cache
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = hold(folder / "lock", wait=True)
        try:
            counts = write(request, folder, progress)
        finally:
            os.close(lock)
    except OSError as error:
        raise InputError(
            f"cannot write in {folder} ({error.strerror}); the matrix of {rows:,} rows takes {rows * request.width:,} "
            "bytes: make room, or write cache=FOLDER. What was written is kept."
        ) from None
    data = open_files({name: folder / f"{name}.npy" for name in request.names})
    held = None
    if counts["held"]:
        held = {name: np.load(folder / f"held.{name}.npy", mmap_mode="r") for name in request.names}
    return Built(data, held, folder)


def in_memory(request: Request, progress: bool | None) -> Built:
    """All numbers as arrays."""
    kept: list[Rows] = []
    held: list[Rows] = []
    done, started = 0, time.perf_counter()
    with bar(request.encoding.survey.rows, "building the matrix", progress) as show:
        for part in request.parts():
            for rows, out in part():
                kept.append(jax.tree.map(lambda x: x[~out], rows))  # noqa: B023
                held.append(jax.tree.map(lambda x: x[out], rows))  # noqa: B023
                done += len(out)
                show(done, speed(done, started))
    data = jax.tree.map(lambda *parts: np.concatenate(parts), *kept)
    kept.clear()
    apart = jax.tree.map(lambda *parts: np.concatenate(parts), *held) if request.holdout else None
    if apart is not None and not (len(apart["y"]) and len(data["y"])):
        raise InputError(f"holdout is {request.holdout:g}, which leaves no rows; write another fraction, such as 0.1.")
    return Built(as_data(data), apart, None)


def speed(rows: int, started: float) -> str:
    """Rows per second, for a progress bar."""
    return f"{rows / max(time.perf_counter() - started, 1e-3):,.0f} rows/s"


def asked_for(request: Request) -> dict[str, Any]:
    """What files must have been made for, to be used again."""
    e = request.encoding
    arrays = [e.centre, e.scale, *(group.scale for group in e.groups)]
    levels = json.dumps([[*map(str, e.levels)], *(group.levels for group in e.groups), *e.names])
    encoding = hashlib.sha256(b"".join(np.asarray(x, float).tobytes() for x in arrays) + levels.encode()).hexdigest()
    return {
        "format": FORMAT, "files": [list(mark) for mark in request.table.marks], "formula": e.formula.text,
        "family": e.family.name, "options": e.options, "holdout": request.holdout, "seed": request.seed,
        "encoding": encoding,
    }  # fmt: skip


def progress_of(folder: Path, asked: dict[str, Any]) -> dict[str, int]:
    """How many parts and rows of what is asked for are in the folder."""
    try:
        found = json.loads((folder / MANIFEST).read_bytes())
        counts = found.pop("counts")
        if found == asked:
            return {name: int(counts[name]) for name in ("parts", "kept", "held", "whole")}
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        pass
    return dict.fromkeys(("parts", "kept", "held", "whole"), 0)


def write(request: Request, folder: Path, progress: bool | None) -> dict[str, int]:
    """Writes the parts that are missing."""
    asked = asked_for(request)
    counts, names = progress_of(folder, asked), request.names
    if counts["whole"]:
        return counts
    if not counts["parts"]:
        (folder / MANIFEST).unlink(missing_ok=True)  # its parts are about to be overwritten
    length = len(npy_header((0,), np.dtype(np.float32)))
    with ExitStack() as stack, bar(request.encoding.survey.rows, "building the matrix", progress) as show:
        mode, handles = "rb+" if counts["parts"] else "wb+", {}
        for kind in ("kept", "held"):
            for name in names:
                handles[kind, name] = stack.enter_context(file_of(folder, kind, name).open(mode)).fileno()
        unsynced, started, before = 0, time.perf_counter(), counts["kept"] + counts["held"]
        for number, part in enumerate(request.parts(), start=1):
            if number <= counts["parts"]:
                continue
            for rows, out in part():
                for kind, which in (("kept", ~out), ("held", out)):
                    for name in names if which.any() else ():
                        own = np.ascontiguousarray(rows[name][which])
                        write_at(handles[kind, name], own.tobytes(), length + counts[kind] * own[0].nbytes)
                        unsynced += own.nbytes
                    counts[kind] += int(which.sum())
                done = counts["kept"] + counts["held"]
                show(done, speed(done - before, started))
            counts["parts"] = number
            if unsynced > SYNC_BYTES:
                save(folder, handles, asked, counts)
                unsynced = 0
        for (kind, name), handle in handles.items():
            dtype = np.dtype(np.int32 if name.startswith("group_") else np.float32)
            header = npy_header((counts[kind], *request.shape(name)), dtype)
            if len(header) != length:
                raise InputError(f"{folder} cannot hold rows of {name}: their header is too long.")
            write_at(handle, header, 0)
        counts["whole"] = 1
        save(folder, handles, asked, counts)
    return counts


def save(folder: Path, handles: dict, asked: dict[str, Any], counts: dict[str, int]) -> None:
    """Makes what was written durable, then notes it."""
    for handle in handles.values():
        os.fsync(handle)
    replace_file(folder / MANIFEST, json.dumps({**asked, "counts": counts}).encode())


def file_of(folder: Path, kind: str, name: str) -> Path:
    return folder / (f"{name}.npy" if kind == "kept" else f"held.{name}.npy")
