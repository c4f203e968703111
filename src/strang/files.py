"""Writing files that a kill, or a full disk, leaves whole, one process at a time."""

import fcntl
import io
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from .errors import InputError

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
