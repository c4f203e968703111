"""Progress on standard error, only where a person is watching."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Item = TypeVar("Item")


@contextmanager
def bar(total: int, what: str, visible: bool | None) -> Iterator:
    """Shows a progress bar and yields a function `done(count, text)`; `visible` None means only on a terminal."""
    visible = sys.stderr.isatty() if visible is None else visible
    columns = BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[text]}")
    description, screen = TextColumn("{task.description}"), Console(stderr=True)
    with Progress(description, *columns, console=screen, disable=not visible) as progress:
        task = progress.add_task(what, total=total, text="")
        yield lambda count, text="": progress.update(task, completed=count, text=text)


def track(items: Iterable[Item], what: str, visible: bool | None) -> Iterator[Item]:
    """Yields the items and moves a progress bar as they are taken."""
    items = list(items)
    with bar(len(items), what, visible) as done:
        for count, item in enumerate(items):
            yield item
            done(count + 1)
