"""`strang report` and `strang watch`: stored runs, seen from outside."""

from pathlib import Path
from typing import Annotated

import typer

from .base import Json, emit

Folder = Annotated[Path, typer.Argument(help="The folder given as --store.")]


def report(
    folder: Folder,
    html: Annotated[Path | None, typer.Option(help="A file to write the report to as one page, with curves.")] = None,
    json: Json = False,
) -> None:
    """What a stored run has come to: averages with errors, health, speed, and how well its chains mix."""
    from .. import report as reports
    from ..files import replace_file

    found = reports.report(folder)
    if html is not None:
        from ..report.page import page

        replace_file(html, page(found).encode())
    emit(found, json, [*reports.describe(found), *([f"the page is {html}"] if html else [])])


def watch(folder: Folder) -> None:
    """A stored run in the terminal as it goes; ends with the run, or with Ctrl-C."""
    from ..report.watch import watch as show

    show(folder)
