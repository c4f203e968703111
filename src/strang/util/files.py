"""Atomic writes, which a kill or a full disk cannot leave half done, and locks between processes."""

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
from strang.util.memory import check_fits

LOCK_SECONDS = 0.2  # how long to try for a lock: a process that only checks whether a run is locked holds it briefly


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path and then moves what was written there to `path`; a kill or full disk leaves the old."""
    if path.exists() and not path.is_file():  # a folder, or a device, which must not become a file
        raise InputError(f"{path} is no file to write to; write the name of a new or an ordinary one.")
    target = path.resolve()  # a symbolic link keeps pointing to it
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # errors of a write do not name the file
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # makes the renaming itself durable
    finally:
        os.close(folder)


def temporaries(folder: Path, *names: str) -> list[Path]:
    """The files that a killed process left behind in `replacing`, for files with these names or name patterns."""
    paths = (path for name in names for path in folder.glob(f".{name}.[0-9]*"))
    return [path for path in paths if path.suffix[1:].isdigit()]


def remove_leftovers(folder: Path, *names: str) -> None:
    """Deletes the temporary files of killed processes where no lock keeps others away: not those of running ones."""
    for path in temporaries(folder, *names):
        if not is_other_process(int(path.suffix[1:])):
            path.unlink(missing_ok=True)


def is_other_process(pid: int) -> bool:
    """Whether a process with this number, other than this one, is running: it may still be writing."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return pid != os.getpid()


def replace_file(path: Path, content: bytes) -> None:
    """Replaces a file atomically: a kill or a full disk leaves the old one."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_npz(path: Path, arrays: dict[str, Any]) -> None:
    """Writes named arrays as an uncompressed `.npz`, atomically."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    replace_file(path, buffer.getvalue())


def read_npz(path: Path, advice: str, single: str | None = None) -> dict[str, np.ndarray]:
    """Reads the arrays of a `.npz` by name, without pickle. `advice` ends the error for a damaged file; `single` is the
    name for the array of a `.npy` file, which by default is an error."""
    try:
        with path.open("rb") as handle:
            check_fits(f"{path}", os.fstat(handle.fileno()).st_size, "give a smaller file")
            loaded = np.load(handle, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                if single is None:
                    raise ValueError("it holds a single array")
                return {single: loaded}
            check_fits(f"{path}", sum(member.file_size for member in loaded.zip.infolist()), "give a smaller file")
            return {name: loaded[name] for name in loaded.files}
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"there is no {path}.") from None
    except Exception as error:  # a damaged archive raises almost anything
        raise damaged(path, error, advice) from None


def damaged(path: Path, reason: BaseException | str, advice: str) -> InputError:
    """The error for a damaged file: its path, the reason and what to do."""
    return InputError(f"{path} is damaged ({reason if isinstance(reason, str) else first_line(reason)}); {advice}")


def write_at(handle: int, content: bytes, offset: int) -> None:
    """Writes all of the content at an offset, also where the system accepts only part of it per call."""
    rest = memoryview(content)
    while rest:
        written = os.pwrite(handle, rest, offset)
        rest, offset = rest[written:], offset + written


def npy_header(shape: tuple[int, ...], dtype: np.dtype) -> bytes:
    """The header of a `.npy` file; its length does not depend on the number of rows."""
    file = io.BytesIO()
    fields = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, fields)
    return file.getvalue()


def hold(path: Path, wait: bool = False) -> int:
    """Takes a lock file that is released when the process ends; waits for it, or raises if another process has it."""
    handle, started = os.open(path, os.O_RDWR | os.O_CREAT, 0o644), time.monotonic()
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                return handle
            except BlockingIOError:
                if time.monotonic() - started >= LOCK_SECONDS:
                    raise InputError(
                        f"another process is running in {path.parent}; wait for it, or write another folder."
                    ) from None
                time.sleep(0.01)
    except BaseException:
        os.close(handle)
        raise
