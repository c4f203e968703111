"""A run is a folder: `spec.json` says what is run, `chain.npz` how far it is, `series.jsonl` what was measured.

The chain is replaced atomically, so a kill at any moment leaves the last saved one whole. A run only goes on with the
code, numbers and data it was begun with: the spec holds a hash of each. Nothing is pickled.
"""

import fcntl
import hashlib
import io
import json
import os
import re
import time
import zipfile
import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .chain import Chain, advance
from .errors import InputError
from .prepare import Job

FORMAT = 1
SAVE_SECONDS = 10.0  # between saves where no number of steps is given
UNREADABLE = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error, RecursionError)
MEANING = {"code": "the model, integrator, average or JAX version", "numbers": "settings", "data": "the data"}


def replace_file(path: Path, content: bytes) -> None:
    """Write a file anew so that a kill at any moment, or a full disk, leaves the old one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the renaming itself
    finally:
        os.close(folder)


def fingerprint(job: Job) -> dict[str, str]:
    """Hashes of what decides every number of a run: the traced code, the settings with the chains' keys, the data."""

    def go_on(inputs, chain, stop):
        return advance(job.program, inputs, chain, stop, None, jnp.uint32(1))

    traced = jax.make_jaxpr(go_on)(job.inputs, job.chain, job.chain.step)
    text = re.sub(r" at 0x[0-9a-f]+", "", str(traced.jaxpr))  # where a function lies in memory says nothing
    return {
        "code": digest([np.frombuffer(text.encode(), np.uint8), *constants(traced)]),
        "numbers": digest(jax.tree.leaves((job.inputs[1:], job.chain.keys))),
        "data": digest(jax.tree.leaves(job.inputs.data)),
    }


def constants(traced) -> list[Any]:
    """The arrays that traced code holds, its inner functions' as well."""
    found = list(traced.consts)
    for equation in traced.jaxpr.eqns:
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "consts")):
            found += constants(inner) if hasattr(inner, "consts") else []
    return found


def digest(arrays) -> str:
    """A hash of arrays with their shapes and dtypes."""
    total = hashlib.sha256()
    for array in map(np.asarray, arrays):
        total.update(f"{array.dtype}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


class Store:
    """The folder of one run, held by one process at a time. `chain` is where it goes on from."""

    def __init__(self, folder: str | Path, job: Job, every: int | None, about: dict[str, Any] | None = None):
        if every is not None and (isinstance(every, bool) or int(every) != every or every < 1):
            raise InputError(f"every is {every}; write a whole number of steps, at least 1.")
        self.folder, self.every, self.saved = Path(folder), every, time.monotonic()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lock = hold(self.folder / "lock")
        try:
            self.chain = self.open({"format": FORMAT, "steps": job.steps, "about": about or {}}, job)
            self.step = int(self.chain.step)
        except BaseException:
            self.close()
            raise

    def open(self, spec: dict[str, Any], job: Job) -> Chain:
        """The last saved chain of the same run, or the first; what a killed process left behind is cleared away."""
        for left in self.folder.glob(".*.*.[0-9]*"):
            left.unlink()
        spec["hashes"] = fingerprint(job)
        if (self.folder / "spec.json").exists():
            check_same(self.folder, read_spec(self.folder), spec)
        path = self.folder / "chain.npz"
        chain = load_chain(path, job.chain) if path.exists() else job.chain
        replace_file(self.folder / "spec.json", json.dumps(spec, indent=1).encode())
        keep_lines(self.folder / "series.jsonl", int(chain.step))
        return chain

    def due(self, step: int) -> bool:
        """Whether to save now: at multiples of `every`, or after some seconds."""
        return step % self.every == 0 if self.every else time.monotonic() - self.saved > SAVE_SECONDS

    def save(self, chain: Chain, measured: dict[str, Any]) -> None:
        """What was measured first, then the chain: a kill between the two leaves a line that is dropped on resuming."""
        with (self.folder / "series.jsonl").open("a") as file:
            file.write(json.dumps(measured) + "\n")
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **named_leaves(chain))
        replace_file(self.folder / "chain.npz", buffer.getvalue())
        self.saved, self.step = time.monotonic(), int(chain.step)

    def close(self) -> None:
        os.close(self.lock)


def hold(path: Path) -> int:
    """A lock that ends with the process, however it ends."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise InputError(
            f"another process is running in {path.parent}; wait for it, or write another folder."
        ) from None
    return handle


def read_spec(folder: Path) -> dict[str, Any]:
    """What the folder says it is."""
    path = Path(folder) / "spec.json"
    try:
        spec = json.loads(path.read_text())
        whole = spec["format"] == FORMAT and set(spec["hashes"]) == set(MEANING) and isinstance(spec["steps"], int)
        if not (whole and isinstance(spec["about"], dict)):
            raise ValueError("not of this format")
    except FileNotFoundError:
        raise InputError(f"{folder} holds no run: there is no spec.json in it.") from None
    except UNREADABLE as error:
        raise InputError(f"{path} is damaged or of another format ({first_line(error)}).") from None
    return spec


def check_same(folder: Path, found: dict[str, Any], mine: dict[str, Any]) -> None:
    """Refuse to go on with other code, settings or data than the run began with."""
    other = [MEANING[name] for name in MEANING if found["hashes"][name] != mine["hashes"][name]]
    if other:
        raise InputError(
            f"{folder} holds another run: {' and '.join(other)} differ from what it began with; "
            "give the same ones, or write another folder."
        )


def named_leaves(chain: Chain) -> dict[str, np.ndarray]:
    """The arrays of a chain by their places in it, such as `.state.position`."""
    pairs = jax.tree_util.tree_leaves_with_path(chain)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in pairs}


def load_chain(path: Path, like: Chain) -> Chain:
    """The saved chain in the structure of a fresh one of the same run; anything else in the file is an error."""
    wanted = named_leaves(like)
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            if set(file.files) != set(wanted):
                raise ValueError("it holds other arrays")
            arrays = {name: file[name] for name in wanted}
        for name, expected in wanted.items():
            array = arrays[name]
            if array.dtype.kind == "V":  # NumPy does not know the name of small floats, but keeps their bytes
                array = arrays[name] = array.view(expected.dtype)
            if (array.shape, array.dtype) != (expected.shape, expected.dtype):
                raise ValueError(f"{name} has shape {array.shape} and dtype {array.dtype}")
    except Exception as error:  # a damaged archive raises almost anything
        raise InputError(
            f"{path} is damaged ({first_line(error)}); the run cannot go on from it. Delete it to begin anew."
        ) from None
    return jax.tree.unflatten(jax.tree.structure(like), [jnp.asarray(arrays[name]) for name in wanted])


def first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def read_series(folder: Path) -> list[dict[str, Any]]:
    """What was measured at each save; a line that is not whole ends it, as after a kill."""
    found = []
    try:
        lines = (Path(folder) / "series.jsonl").read_text("utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    for line in lines:
        try:
            entry = json.loads(line)
            if not isinstance(entry["step"], int):
                break
        except UNREADABLE:
            break
        found.append(entry)
    return found


def keep_lines(path: Path, step: int) -> None:
    """Drop what was measured after the saved chain."""
    if path.exists():
        kept = [json.dumps(entry) for entry in read_series(path.parent) if entry["step"] <= step]
        replace_file(path, "".join(line + "\n" for line in kept).encode())
