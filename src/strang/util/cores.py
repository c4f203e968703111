"""How many cores there are."""

import os
import threading
from functools import cache


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def free_cores() -> threading.Semaphore:
    """Counts the cores that no thread computes on. Threads of all loops that hold one while they compute share the
    cores, also where devices call the host at the same time."""
    return threading.Semaphore(cores())
