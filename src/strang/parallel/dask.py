"""Independent tasks on an existing Dask cluster.

A scheduler is trusted: Dask sends functions as pickles over its connections, and whoever reaches them may run anything.
Nothing is pickled to disk.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

from strang.util.errors import InputError, first_line, need
from strang.util.progress import bar
from strang.util.version import versions

PATIENCE = 5.0  # seconds that a scheduler and its first worker have to answer


def spread(
    scheduler: str, function: Callable, items: Sequence, what: str, progress: bool | None
) -> Iterator[tuple[int, Any]]:
    """The number and the result of function(item) for each item, as the workers finish them."""
    with connected(scheduler) as client:
        yield from gathered(client, lambda item: client.submit(function, item, pure=False), items, what, progress)


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """A client of the scheduler, which has workers, and these what we have."""
    distributed = need("distributed", "dask")
    try:
        client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no Dask scheduler answers at {address} ({first_line(error)}); start one by `dask scheduler`, and write "
            "the address that it prints, such as tcp://10.0.0.1:8786."
        ) from None
    with quiet(), client:
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise InputError(
                f"the scheduler at {address} has no workers; start some by `dask worker {address}`."
            ) from None
        check_workers(client)
        yield client


@contextmanager
def quiet() -> Iterator[None]:
    """Without Dask's own log, which is a page of traceback where the scheduler goes away; we say it in a sentence."""
    log = logging.getLogger("distributed.client")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)


def check_workers(client) -> None:
    """Other versions give other numbers."""
    mine = versions()
    for worker, theirs in client.run(versions, on_error="return").items():
        if not isinstance(theirs, dict):
            raise InputError(f"worker {worker} cannot run Strang ({first_line(theirs)}); install it there.")
        other = [
            f"{name} {theirs.get(name)} instead of {mine[name]}" for name in mine if theirs.get(name) != mine[name]
        ]
        if other:
            raise InputError(f"worker {worker} has {', '.join(other)}; install the same there.")


def gathered(client, submit: Callable, items: Sequence, what: str, progress: bool | None) -> Iterator[tuple[int, Any]]:
    """Number and result of each item, in the order in which they come."""
    distributed = need("distributed", "dask")
    futures = {submit(item): number for number, item in enumerate(items)}
    with bar(len(items), what, progress) as done:
        for count, future in enumerate(distributed.as_completed(futures, loop=client.loop), start=1):
            try:
                result = future.result()
            except distributed.KilledWorker as error:
                raise InputError(f"worker after worker died over the same task ({first_line(error)}).") from None
            except (CancelledError, OSError) as error:
                raise InputError(
                    f"the Dask scheduler went away ({first_line(error)}) after {count - 1} of {len(items)} tasks; "
                    "start it again, and write the same command: a reproduction goes on from its finished parts."
                ) from None
            yield futures[future], result
            done(count)
