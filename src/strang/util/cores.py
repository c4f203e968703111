"""How many cores there are, and who uses them."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

_lock = threading.Lock()
_devices_at_work = 0


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def devices_at_work(count: int) -> Iterator[None]:
    """Says that so many devices of this process compute, each of which may call the host."""
    global _devices_at_work
    with _lock:
        _devices_at_work += count
    try:
        yield
    finally:
        with _lock:
            _devices_at_work -= count


def cores_per_device() -> int:
    """The cores that a loop on the host may use if all devices at work call one at the same time; rounded up."""
    return -(-cores() // max(1, _devices_at_work))


@cache
def free_cores() -> threading.Semaphore:
    """Counts the cores that no thread computes on. Threads of all loops that hold one while they compute share the
    cores, also where devices call the host at the same time."""
    return threading.Semaphore(cores())
