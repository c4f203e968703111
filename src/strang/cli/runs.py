"""`strang resume`, `strang report` and `strang watch`: stored runs, gone on with or seen from outside."""

from pathlib import Path
from typing import Annotated

import typer

from strang.util.command_line import Json, emit
from strang.util.errors import need

Folder = Annotated[Path, typer.Argument(help="The folder given as --store.")]


def resume(
    folder: Folder,
    steps: Annotated[int | None, typer.Option(help="So many more; by default to what was first asked for.")] = None,
    json: Json = False,
) -> None:
    """Go on with a stored run, bit for bit as if it had never stopped, and print what it would have printed."""
    from strang.applications import resumed

    result, lines = resumed(folder, steps)
    emit(result, json, lines)


def report(
    folder: Folder,
    html: Annotated[Path | None, typer.Option(help="A file to write the report to as one page, with curves.")] = None,
    netcdf: Annotated[Path | None, typer.Option(help="A file to write the draws to, for ArviZ and xarray.")] = None,
    json: Json = False,
) -> None:
    """What a stored run has come to: averages with errors, health, speed, and how well its chains mix."""
    from strang.report import stored as reports
    from strang.util.files import replace_file, replacing

    content = reports.report(folder)
    if netcdf is not None:
        need("h5netcdf", "arviz")
        draws = reports.to_arviz(folder)
        with replacing(netcdf) as temporary:
            draws.to_netcdf(temporary, engine="h5netcdf")
    if html is not None:
        from strang.report.stored_page import page

        replace_file(html, page(content).encode())
    written = {"page is": html, "draws are in": netcdf}
    emit(content, json, [*reports.describe(content), *(f"the {what} {path}" for what, path in written.items() if path)])


def watch(folder: Folder) -> None:
    """A stored run in the terminal as it goes; ends with the run, or with Ctrl-C."""
    from strang.report.watch import watch as show

    show(folder)
