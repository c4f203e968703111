"""What all commands share: common options, and the printing of results."""

import json
from typing import Annotated, Any

import typer

from strang.util.numbers import finite

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Parts = Annotated[int | None, typer.Option(help="Parts of each batch, for processes to share; by default one each.")]
BatchOrder = Annotated[str, typer.Option(help="full, iid, reshuffled, symmetric or cyclic.")]
Scheduler = Annotated[str | None, typer.Option(help="Address of a Dask scheduler, to run on its workers.")]


def emit(result: dict[str, Any], as_json: bool, lines: list[str]) -> None:
    """Prints the result as JSON (numbers that are not finite become null), or as lines of text."""
    print(json.dumps(finite(result), allow_nan=False) if as_json else "\n".join(lines))
