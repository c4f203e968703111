"""A run is a folder: `spec.json` says what is run, `chain.npz` how far it is, `series.jsonl` what was measured, and
`samples/` has the thinned positions, if any were asked for.

The chain is replaced atomically, so a kill at any moment leaves the last saved one whole. A run only goes on with the
code, numbers and data it was begun with: the spec holds a hash of each. Nothing is pickled.
"""

import fcntl
import io
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import distributed
from .chain import Chain
from .errors import InputError, first_line, whole
from .files import hold, replace_file, temporaries
from .prepare import Job
from .samples import Samples, mapped_tree
from .spec import UNREADABLE, check_same, checksum, cuts_in, read_spec, spec_of
from .tree import Tree

SAVE_SECONDS = 10.0  # between saves where no number of steps is given
WRITTEN = ("spec.json", "chain.npz", "series.jsonl", "kept-*.npz", "topics.npz", "model.npz", "index.html")
SUM = "samples "  # before a file's name: its checksum, kept with the chain


def cuts(folder: str | Path | None, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with the parts and groups that the run in the folder was begun with, where none are asked for."""
    asked = {name: value for name, value in settings.items() if value is not None}
    begun = folder is not None and (Path(folder) / "spec.json").exists()
    return {**settings, **cuts_in(read_spec(Path(folder))), **asked} if begun and folder else settings


class Store:
    """The folder of one run, held by one process at a time. `chain` is where it goes on from. Where several processes
    run together the first one writes; the others only read where to go on."""

    def __init__(self, folder: str | Path, job: Job, every: int | None, about: dict[str, Any] | None = None):
        self.every = None if every is None else whole("every", every)
        self.folder, self.thin = Path(folder), job.thin or 1
        self.opened = self.saved = time.monotonic()
        self.samples: Samples | None = None
        self.lock: int | None = None
        self.writes = distributed.rank() == 0
        try:
            with distributed.first_ahead():
                self.chain = self.begin(job, about or {}) if self.writes else self.last(job)
            self.step = self.begun = int(self.chain.step)
            distributed.check_same(self.step, f"the step they find in {folder}: it must be on a disk that they share")
        except BaseException as error:
            self.close()
            if not isinstance(error, OSError):
                raise
            raise InputError(
                f"cannot write in {folder} ({error.strerror}), so nothing was run; make room, or write another folder."
            ) from None

    def last(self, job: Job) -> Chain:
        """The last saved chain, or the first."""
        path = self.folder / "chain.npz"
        return load_chain(path, job.chain) if path.exists() else job.chain

    def begin(self, job: Job, about: dict[str, Any]) -> Chain:
        """The last saved chain of the same run, or the first; what a killed process left behind is cleared away."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lock, spec = hold(self.folder / "lock"), spec_of(job, about)
        if (self.folder / "spec.json").exists():
            check_same(self.folder, read_spec(self.folder), spec)
        for left in temporaries(self.folder, *WRITTEN):
            left.unlink()
        path = self.folder / "chain.npz"
        chain, sums = self.last(job), sums_of(read_arrays(path)) if path.exists() else None
        step = int(chain.step)
        if step > job.steps:
            raise InputError(f"{self.folder} is at step {step:,} already, but steps is {job.steps:,}; write more.")
        if job.thin:
            draws = step // job.thin
            self.samples = Samples(self.folder / "samples", job.chain.state.position, draws, sums)
        replace_file(self.folder / "spec.json", json.dumps({**spec, "sum": checksum(spec)}, indent=1).encode())
        keep_lines(self.folder / "series.jsonl", step)
        return chain

    def due(self, step: int) -> bool:
        """Whether to save now: at multiples of `every`, or after some seconds."""
        if not self.writes:
            return False
        return step % self.every == 0 if self.every else time.monotonic() - self.saved > SAVE_SECONDS

    def keep(self, positions: Tree) -> None:
        """The thinned positions of a block, if any are kept; they count from the next save on."""
        if self.samples:
            with self.telling():
                self.samples.append(positions)

    def draws(self, job: Job, count: int) -> Tree:
        """The first so many thinned positions, where they are on the disk."""
        return mapped_tree(self.folder / "samples", job.chain.state.position, count)

    def save(self, chain: Chain, measured: dict[str, Any]) -> None:
        """What was measured first, then the chain: a kill between the two leaves a line that is dropped on resuming.
        A chain that is not where its samples are, since Ctrl-C came between them, is not saved."""
        step = int(chain.step)
        if not self.writes:
            return
        if self.samples and self.samples.draws != step // self.thin:
            return
        arrays = named_leaves(chain)
        with self.telling():
            if self.samples:
                self.samples.settle()
                arrays |= {SUM + name: np.asarray(total, np.uint32) for name, total in self.samples.sums.items()}
            with (self.folder / "series.jsonl").open("a") as file:
                file.write(line_of({"seconds": time.monotonic() - self.opened, **measured, "since": self.begun}))
            buffer = io.BytesIO()
            np.savez(buffer, allow_pickle=False, **arrays)
            replace_file(self.folder / "chain.npz", buffer.getvalue())
        self.saved, self.step = time.monotonic(), step

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Say of a full disk what is not lost."""
        try:
            yield
        except OSError as error:
            kept = f"{error.strerror}; the run is kept up to step {self.step:,}, and the same call goes on from there"
            raise OSError(error.errno, kept, str(self.folder)) from error

    def close(self) -> None:
        if self.samples:
            self.samples.close()
        if self.lock is not None:
            os.close(self.lock)


def held(folder: Path) -> bool:
    """Whether a process is running in the folder."""
    try:
        handle = os.open(folder / "lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def named_leaves(chain: Chain) -> dict[str, np.ndarray]:
    """The arrays of a chain by their places in it, such as `.state.position`."""
    pairs = jax.tree_util.tree_leaves_with_path(chain)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in pairs}


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Everything in a saved chain by its name: the chain's leaves, and the checksums of its samples."""
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception as error:  # a damaged archive raises almost anything
        raise damaged(path, error) from None


def damaged(path: Path, error: Exception) -> InputError:
    return InputError(
        f"{path} is damaged ({first_line(error)}); the run cannot go on from it. Delete it to begin anew."
    )


def load_chain(path: Path, like: Chain) -> Chain:
    """The saved chain in the structure of a fresh one of the same run; anything else in the file is an error."""
    arrays, wanted = read_arrays(path), named_leaves(like)
    try:
        if {name for name in arrays if not name.startswith(SUM)} != set(wanted):
            raise ValueError("it holds other arrays")
        for name, expected in wanted.items():
            array = arrays[name]
            if array.dtype.kind == "V":  # NumPy does not know the name of small floats, but keeps their bytes
                array = arrays[name] = array.view(expected.dtype)
            if (array.shape, array.dtype) != (expected.shape, expected.dtype):
                raise ValueError(f"{name} has shape {array.shape} and dtype {array.dtype}")
    except (ValueError, TypeError) as error:
        raise damaged(path, error) from None
    return jax.tree.unflatten(jax.tree.structure(like), [jnp.asarray(arrays[name]) for name in wanted])


def sums_of(arrays: dict[str, np.ndarray]) -> dict[str, int]:
    """The checksums of the samples up to a saved chain, by file."""
    return {name.removeprefix(SUM): int(value) for name, value in arrays.items() if name.startswith(SUM)}


def line_of(entry: dict[str, Any]) -> str:
    """A line of the series, with its checksum."""
    return json.dumps({**entry, "sum": checksum(entry)}) + "\n"


def read_series(folder: Path, last: int | None = None) -> list[dict[str, Any]]:
    """What was measured at each save, or at those in the `last` so many bytes; a line that is not whole ends it, as
    after a kill."""
    try:
        with (Path(folder) / "series.jsonl").open("rb") as file:
            skipped = file.seek(-min(last, file.seek(0, os.SEEK_END)), os.SEEK_END) if last else 0
            lines = file.read().decode("utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines[bool(skipped) :]:
        try:
            entry = json.loads(line)
            if entry.pop("sum") != checksum(entry) or not isinstance(entry["step"], int):
                break
        except UNREADABLE:
            break
        found.append(entry)
    return found


def latest(series: list[dict[str, Any]]) -> dict[str, Any]:
    """The last of each thing that was measured, since a save need not measure all."""
    return {name: value for entry in series for name, value in entry.items()}


def throughput(series: list[dict[str, Any]], chains: int) -> list[tuple[int, float, float]]:
    """Between saves: the step at the end, the seconds, and the steps of all chains a second. A line says since which
    step its process was running, and its seconds count from there."""
    found = []
    before: dict[str, Any] = {}
    for entry in series:
        fresh = not before or entry.get("since") != before["since"]
        steps = entry["step"] - (entry.get("since", 0) if fresh else before["step"])
        seconds = entry.get("seconds", 0) - (0 if fresh else before["seconds"])
        if steps > 0 and seconds > 0:
            found.append((entry["step"], seconds, steps * chains / seconds))
        before = {"since": None, "seconds": 0, **entry}
    return found


def keep_lines(path: Path, step: int) -> None:
    """Drop what was measured after the saved chain."""
    if path.exists():
        kept = [line_of(entry) for entry in read_series(path.parent) if entry["step"] <= step]
        replace_file(path, "".join(kept).encode())
