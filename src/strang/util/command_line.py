"""What all commands share: how results are printed, and options that several have."""

import json
from typing import Annotated, Any

import typer

from strang.util.numbers import finite

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Parts = Annotated[
    int | None, typer.Option(help="Cut each batch in so many parts for processes to share; by default one for each.")
]
BatchOrder = Annotated[str, typer.Option(help="full, iid, reshuffled, symmetric or cyclic.")]
Scheduler = Annotated[str | None, typer.Option(help="The address of a Dask scheduler whose workers are to run it.")]


def emit(result: dict[str, Any], as_json: bool, lines: list[str]) -> None:
    """Print the result as JSON, in which numbers that are not finite are null, or as lines for people."""
    print(json.dumps(finite(result), allow_nan=False) if as_json else "\n".join(lines))


def options_in(arguments: dict[str, Any], *without: str) -> dict[str, Any]:
    """The arguments of a command, but for some: what its `locals()` are when it begins."""
    return {name: value for name, value in arguments.items() if name not in without}
