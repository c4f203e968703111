"""A run is a folder: `spec.json` says what is run, `chain.npz` how far it is, `series.jsonl` what was measured, and
`samples/` has the thinned positions, if any were asked for.

The chain is replaced atomically, so a kill at any moment leaves the last saved one whole. A run only goes on with the
code, numbers and data it was begun with: the spec holds a hash of each. Nothing is pickled.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from strang.parallel import processes
from strang.sampling.job import Job, like_draw
from strang.sampling.record import Chain
from strang.storage.draws import Draws, mapped_tree
from strang.storage.manifest import check_about, check_same, checksum, parts_in, read_spec, spec_of
from strang.storage.series import drop_lines_after, line_of
from strang.util.errors import InputError, whole
from strang.util.files import damaged, hold, read_npz, replace_file, temporaries, write_npz
from strang.util.trees import Tree, on_device

SAVE_SECONDS = 10.0  # between saves where no number of steps is given
FILES = ("spec.json", "chain.npz", "series.jsonl", "index.html")  # of every run
SUM = "samples "  # before a file's name: its checksum, kept with the chain
BEGIN_ANEW = "the run cannot go on from it. Delete it to begin anew."


def stored_parts(folder: str | Path | None, parts: int | None) -> int | None:
    """The parts asked for, or where none are, those that the run in the folder was begun with."""
    begun = folder is not None and (Path(folder) / "spec.json").exists()
    return parts_in(read_spec(Path(folder))) if parts is None and begun and folder is not None else parts


class Store:
    """The folder of one run, held by one process at a time. `chain` is where it goes on from. Where several processes
    run together the first one writes; the others only read where to go on."""

    def __init__(
        self,
        folder: str | Path,
        job: Job,
        every: int | None,
        about: dict[str, Any] | None = None,
        files: tuple[str, ...] = (),
    ):
        """`files` are names, or patterns of names, of what else an application writes there."""
        if not isinstance(folder, str | Path):
            raise InputError(f"store is {folder!r}; write the path of a folder.")
        self.every = None if every is None else whole("every", every)
        self.folder, self.thin, self.files = Path(folder), job.thin or 1, (*FILES, *files)
        self.opened = self.saved = time.monotonic()
        self.samples: Draws | None = None
        self.lock: int | None = None
        self.writes = processes.rank() == 0
        about = check_about(about)
        try:
            with processes.first_ahead():
                self.chain = self.begin(job, about) if self.writes else self.last(job)
            self.step = self.begun = int(self.chain.step)
            processes.check_same(self.step, f"the step they find in {folder}: it must be on a disk that they share")
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
        for left in temporaries(self.folder, *self.files):
            left.unlink()
        path = self.folder / "chain.npz"
        chain, sums = self.last(job), sums_of(read_chain(path)) if path.exists() else None
        step = int(chain.step)
        if step > job.steps:
            raise InputError(f"{self.folder} is at step {step:,} already, but steps is {job.steps:,}; write more.")
        if job.thin:
            self.samples = Draws(self.folder / "samples", like_draw(job), step // job.thin, sums)
        replace_file(self.folder / "spec.json", json.dumps({**spec, "sum": checksum(spec)}, indent=1).encode())
        drop_lines_after(self.folder, step)
        return chain

    def due(self, step: int) -> bool:
        """Whether to save now: at multiples of `every`, or after some seconds."""
        if not self.writes:
            return False
        return step % self.every == 0 if self.every else time.monotonic() - self.saved > SAVE_SECONDS

    def keep(self, positions: Tree) -> None:
        """The thinned positions of a block, if any are kept; they count from the next save on."""
        if self.samples:
            with self.explain_write_errors():
                self.samples.append(positions)

    def draws(self, job: Job, count: int) -> Tree:
        """The first `count` thinned positions, left on the disk."""
        return mapped_tree(self.folder / "samples", like_draw(job), count)

    def save(self, chain: Chain, measured: dict[str, Any]) -> None:
        """What was measured first, then the chain: a kill between the two leaves a line that is dropped on resuming.
        A chain that is not where its samples are, since Ctrl-C came between them, is not saved."""
        step = int(chain.step)
        if not self.writes or (self.samples and self.samples.count != step // self.thin):
            return
        arrays = named_leaves(chain)
        with self.explain_write_errors():
            if self.samples:
                self.samples.settle()
                arrays |= {SUM + name: np.asarray(total, np.uint32) for name, total in self.samples.sums.items()}
            with (self.folder / "series.jsonl").open("a") as file:
                file.write(line_of({"seconds": time.monotonic() - self.opened, **measured, "since": self.begun}))
            write_npz(self.folder / "chain.npz", arrays)
        self.saved, self.step = time.monotonic(), step

    @contextmanager
    def explain_write_errors(self) -> Iterator[None]:
        """Explain what survives a failed write."""
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


def forget(folder: Path) -> None:
    """Removes a run from its folder, so that another can begin there; files of others are left."""
    handle = hold(folder / "lock")
    try:
        # The spec first: a kill on the way leaves a folder in which a run begins anew.
        names = "spec.json", "chain.npz", "series.jsonl"
        for path in (*(folder / name for name in names), *folder.glob("samples/*")):
            path.unlink(missing_ok=True)
    finally:
        os.close(handle)


def is_held(folder: Path) -> bool:
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


def read_chain(path: Path) -> dict[str, np.ndarray]:
    """Everything in a saved chain by its name: the chain's leaves, and the checksums of its samples."""
    return read_npz(path, BEGIN_ANEW)


def load_chain(path: Path, like: Chain) -> Chain:
    """The saved chain in the structure of a fresh one of the same run; anything else in the file is an error."""
    arrays, wanted = read_chain(path), named_leaves(like)
    try:
        if {name for name in arrays if not name.startswith(SUM)} != set(wanted):
            raise ValueError("it holds other arrays")
        for name, expected in wanted.items():
            array = arrays[name]
            if (array.shape, array.dtype) != (expected.shape, expected.dtype):
                raise ValueError(f"{name} has shape {array.shape} and dtype {array.dtype}")
    except (ValueError, TypeError) as error:
        raise damaged(path, error, BEGIN_ANEW) from None
    return jax.tree.unflatten(jax.tree.structure(like), [on_device(arrays[name]) for name in wanted])


def sums_of(arrays: dict[str, np.ndarray]) -> dict[str, int]:
    """The checksums of the samples up to a saved chain, by file."""
    return {name.removeprefix(SUM): int(value) for name, value in arrays.items() if name.startswith(SUM)}
