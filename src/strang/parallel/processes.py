"""Several processes that run one program together, on JAX's own runtime.

All random numbers are functions of (key, step), so every process holds the same chains. They share the work of each
gradient; the first one writes and prints, and decides for all what depends on a clock or on Ctrl-C.
"""

import os
import signal
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from strang.util.errors import InputError, first_line
from strang.util.launched import COORDINATOR, LAUNCHER_PIPE, NAMES, PROCESSES, RANK, is_launched
from strang.util.launched import rank as rank
from strang.util.trees import Tree


def start() -> None:
    """Join the other processes: to be called before anything that uses JAX's devices.

    `STRANG_COORDINATOR` says where they meet: `host:port` of the first one, or `auto` where JAX is to find out. Number
    and rank are `strang launch`'s, Open MPI's or SLURM's. Without that variable there is one process: nothing to do.
    """
    address = os.environ.get(COORDINATOR)
    if address is None or jax.distributed.is_initialized():
        return
    known = [[os.environ[name] for name in names] for names in NAMES if set(names) <= set(os.environ)]
    if address != "auto" and not known:
        raise InputError(
            f"{COORDINATOR} is {address}, but not how many processes meet there; write strang launch -n N -- ..., or "
            f"set {PROCESSES} and {RANK} too."
        )
    try:
        jax.config.update("jax_enable_preemption_service", False)  # it would catch SIGTERM, and the process live on
        sys.stdout = without_library_output(sys.stdout)
        count, own = map(int, known[0]) if address != "auto" else (None, None)
        jax.distributed.initialize(None if address == "auto" else address, count, own)
    except RuntimeError as error:
        raise InputError(f"this process cannot join the others: {first_line(error)}") from None
    if address == "auto":
        os.environ |= {PROCESSES: str(jax.process_count()), RANK: str(jax.process_index())}
    if LAUNCHER_PIPE in os.environ:
        threading.Thread(target=end_with_launcher, args=(int(os.environ[LAUNCHER_PIPE]),), daemon=True).start()


def without_library_output(output: Any) -> Any:
    """Python's output as before, but none from JAX's library, which prints a line for every peer among the results."""
    output.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return open(kept, "w", buffering=1, encoding=output.encoding, errors=output.errors)


def end_with_launcher(handle: int) -> None:
    """End when a pipe closes that only the launcher holds open: however it ends, no process outlives it."""
    os.read(handle, 1)
    os._exit(1)


def check_started() -> None:
    """Refuse a process that was launched with others but has not joined them: each would write over the others."""
    if is_launched() and not jax.distributed.is_initialized():
        raise InputError("this process was launched with others; write strang.parallel.start() at the top.")


def agree(*numbers: int) -> list[int]:
    """The numbers of the first process, in all processes."""
    return list(numbers) if jax.process_count() == 1 else gather(np.array(numbers, np.int32))[0].tolist()


def gather(own: np.ndarray) -> np.ndarray:
    """What each process has, in the order of their ranks.

    To be called while no chains run: gloo takes messages between the same devices in the order in which they come.
    """
    mesh, mine = first_devices()
    sent = np.ascontiguousarray(own).reshape(1, -1).view(np.uint8)  # bytes, which no precision can round
    array = jax.make_array_from_single_device_arrays(
        (jax.process_count(), sent.shape[1]), NamedSharding(mesh, PartitionSpec("rank")), [jax.device_put(sent, mine)]
    )
    return np.asarray(gathered(mesh)(array).addressable_data(0)).view(own.dtype).reshape(-1, *own.shape)


@cache
def first_devices() -> tuple[Mesh, Any]:
    """The first device of each process, and of this one."""
    chosen = {device.process_index: device for device in reversed(jax.devices())}
    return Mesh(np.array([chosen[k] for k in sorted(chosen)]), ("rank",)), chosen[jax.process_index()]


@cache
def gathered(mesh: Mesh) -> Callable:
    return jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, PartitionSpec()))


def check_same(tree: Tree, what: str) -> None:
    """Raise an error unless all processes hold the same numbers, to the last bit."""
    if jax.process_count() == 1:
        return
    total = 0
    for leaf in jax.tree.leaves(tree):
        total = zlib.crc32(np.ascontiguousarray(leaf).tobytes(), total)
    totals = gather(np.array([total], np.uint32)).ravel()
    if (totals != totals[0]).any():
        other = int(np.flatnonzero(totals != totals[0])[0])
        raise InputError(f"processes 0 and {other} differ in {what}.")


@contextmanager
def first_ahead() -> Iterator[None]:
    """Let the first process go through the body before the others; if it fails there, they do not begin."""
    if rank() and not agree(0)[0]:
        raise InputError("the first process could not go on; see what it says.")
    try:
        yield
    except BaseException:
        if not rank():
            agree(0)
        raise
    if not rank():
        agree(1)


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Note Ctrl-C instead of acting on it, and yield a function that says whether it came: several processes must not
    end at different steps."""
    if jax.process_count() == 1 or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield lambda: bool(came)
    finally:
        signal.signal(signal.SIGINT, before)
