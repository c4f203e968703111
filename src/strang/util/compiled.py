"""Compiled code is kept on disk, so that the next process need not compile it again: JAX's own compilation cache, in a
folder of the user's.

`STRANG_COMPILED` names another folder, or is `off`. Where JAX was given a folder already, it stays.

In memory it is kept as long as there is room: a process that compiles more than Linux has places for would crash.
"""

import hashlib
import os
import platform
import time
from functools import cache
from pathlib import Path

MOST = 1 << 29  # bytes; above it what was used longest ago is deleted
TRIM_SECONDS = 3600.0  # seconds between two looks at the sizes of all files, which are thousands
MAPPED, LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")  # a process's pieces of memory, on Linux
FULL = 0.6  # of the pieces that a process may have, beyond which compiled code is forgotten
LOOK_SECONDS = 2.0  # seconds between two looks at the pieces: to read them all may take as long as a small run


_looked = float("-inf")  # when there was a look at the pieces


def keep_compiled_code() -> None:
    """Keeps compiled code on disk, and in memory as long as there is room."""
    global _looked
    keep_on_disk()
    now = time.monotonic()
    if now - _looked < LOOK_SECONDS:
        return
    _looked = now
    if nearly_full():
        import jax

        jax.clear_caches()


def nearly_full() -> bool:
    """Whether a process has most of the pieces of memory that it may have; each compiled program takes dozens."""
    try:
        return MAPPED.read_bytes().count(b"\n") > FULL * int(LIMIT.read_text())
    except (OSError, ValueError):  # a system without such a limit, or that does not tell
        return False


@cache  # once in a process
def keep_on_disk() -> None:
    """Tells JAX where to keep compiled code, unless it knows or is not to."""
    import jax  # late: the help of the command line does without

    wanted = os.environ.get("STRANG_COMPILED", "")
    if wanted == "off" or getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    base = Path(wanted) if wanted else user_folder() / "compiled"
    folder = base / machine()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if is_due(folder / "trimmed"):
            trim(folder)
        if not os.access(folder, os.W_OK):
            return
    except OSError:  # a home that cannot be written to: then everything is compiled anew
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # many are small, and there are many of them
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def user_folder() -> Path:
    """Where a user's programs keep what they can make again."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "strang"


def machine() -> str:
    """A name for processors of one kind: code that was compiled for another may not run."""
    try:
        about = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    except (OSError, StopIteration):
        about = platform.processor()
    return f"{platform.machine()}-{hashlib.sha256(about.encode()).hexdigest()[:12]}"


def is_due(stamp: Path) -> bool:
    """Whether no process has trimmed a folder for long; this one then does."""
    due = not stamp.exists() or time.time() - stamp.stat().st_mtime > TRIM_SECONDS
    if due:
        stamp.touch()
    return due


def trim(folder: Path) -> None:
    """Deletes what was used longest ago, where a folder has become large."""
    entries = [(path, path.stat()) for path in folder.iterdir() if path.is_file()]
    excess = sum(found.st_size for _, found in entries) - MOST
    for path, found in sorted(entries, key=lambda entry: max(entry[1].st_atime, entry[1].st_mtime)):
        if excess <= 0:
            break
        path.unlink(missing_ok=True)
        excess -= found.st_size
