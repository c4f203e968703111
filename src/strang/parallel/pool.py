"""Independent tasks on the cores of this machine, each in a process of its own: compiling and Python then share them
as well, which threads of one process do not."""

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from strang.util.compiled import keep_compiled_code
from strang.util.errors import InputError
from strang.util.progress import bar


def spread(
    processes: int, function: Callable, items: Sequence, what: str, progress: bool | None
) -> Iterator[tuple[int, Any]]:
    """The number and the result of function(item) for each item, as the processes finish them."""
    fresh = multiprocessing.get_context("spawn")  # JAX's threads do not live on in a fork
    with ProcessPoolExecutor(processes, fresh, begin_process) as pool, bar(len(items), what, progress) as done:
        futures = {pool.submit(function, item): number for number, item in enumerate(items)}
        try:
            for count, future in enumerate(as_completed(futures), start=1):
                yield futures[future], future.result()
                done(count)
        except BrokenProcessPool:
            raise InputError("a process that computed was killed, perhaps for want of memory; write fewer.") from None
        except BaseException:  # also Ctrl-C: do not wait for what is under way
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                child.terminate()
            raise


def begin_process() -> None:
    """Leave Ctrl-C to the process that started this one, and share compiled code with the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_compiled_code()
