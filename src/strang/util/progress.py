"""Progress on standard error, only where a person is watching."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Item = TypeVar("Item")


@contextmanager
def bar(total: int, what: str, show: bool | None) -> Iterator:
    """Yields a function `done(count, text)`; `show` None means only on a terminal."""
    show = sys.stderr.isatty() if show is None else show
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, TextColumn("{task.fields[text]}"), console=Console(stderr=True), disable=not show) as shown:
        task = shown.add_task(what, total=total, text="")
        yield lambda count, text="": shown.update(task, completed=count, text=text)


def track(items: Iterable[Item], what: str, show: bool | None) -> Iterator[Item]:
    """The items, with a bar that moves as they are taken."""
    items = list(items)
    with bar(len(items), what, show) as done:
        for count, item in enumerate(items):
            yield item
            done(count + 1)
