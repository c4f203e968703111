"""Writing files that a kill, or a full disk, leaves whole, one process at a time."""

import fcntl
import io
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from strang.util.errors import InputError, first_line

HOLD_SECONDS = 0.2  # how long to try for a lock: who looks whether a run is held has it for an instant


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to; what is there afterwards takes the file's place, and a kill or a full disk leaves the old."""
    if path.exists() and not path.is_file():  # a folder, or a device, which must not become a file
        raise InputError(f"{path} is no file to write to; write the name of a new or an ordinary one.")
    place = path.resolve()  # a link goes on pointing to it
    temporary = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, place)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # a failed write does not know its file
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the renaming itself
    finally:
        os.close(folder)


def temporaries(folder: Path, *names: str) -> list[Path]:
    """What `replacing` has left of files with these names, or patterns of them, where its process was killed."""
    found = (path for name in names for path in folder.glob(f".{name}.[0-9]*"))
    return [path for path in found if path.suffix[1:].isdigit()]


def replace_file(path: Path, content: bytes) -> None:
    """Write a file anew so that a kill at any moment, or a full disk, leaves the old one."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_npz(path: Path, arrays: dict[str, Any]) -> None:
    """Write arrays by name as an uncompressed `.npz`, so that a kill or a full disk leaves the old file."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    replace_file(path, buffer.getvalue())


def read_npz(path: Path, advice: str, single: str | None = None) -> dict[str, np.ndarray]:
    """The arrays of a `.npz` by name, read without pickle.

    Args:
        path: the file.
        advice: how the error ends where the file is damaged: what to do instead.
        single: the name to give the array of a `.npy` file, if such a file will do as well.
    """
    try:
        with path.open("rb") as handle:
            found = np.load(handle, allow_pickle=False)
            if isinstance(found, np.ndarray):
                if single is None:
                    raise ValueError("it holds a single array")
                return {single: found}
            return {name: found[name] for name in found.files}
    except FileNotFoundError:
        raise InputError(f"there is no {path}.") from None
    except Exception as error:  # a damaged archive raises almost anything
        raise damaged(path, error, advice) from None


def damaged(path: Path, reason: BaseException | str, advice: str) -> InputError:
    """The error for a file that is not what was written."""
    return InputError(f"{path} is damaged ({reason if isinstance(reason, str) else first_line(reason)}); {advice}")


def write_at(handle: int, content: bytes, place: int) -> None:
    """All of it, also where the system takes it in parts."""
    left = memoryview(content)
    while left:
        done = os.pwrite(handle, left, place)
        left, place = left[done:], place + done


def npy_header(shape: tuple[int, ...], dtype: np.dtype) -> bytes:
    """The header of a .npy file; its length does not depend on the number of rows."""
    file = io.BytesIO()
    about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, about)
    return file.getvalue()


def hold(path: Path, wait: bool = False) -> int:
    """A lock that ends with the process, however it ends; to be waited for, or an error where another has it."""
    handle, started = os.open(path, os.O_RDWR | os.O_CREAT, 0o644), time.monotonic()
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                return handle
            except BlockingIOError:
                if time.monotonic() - started >= HOLD_SECONDS:
                    raise InputError(
                        f"another process is running in {path.parent}; wait for it, or write another folder."
                    ) from None
                time.sleep(0.01)
    except BaseException:
        os.close(handle)
        raise
