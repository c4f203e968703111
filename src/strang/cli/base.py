"""What every command shares: JSON or lines, and how one finds its numbers."""

import json
import math
from typing import Annotated, Any

import typer

from ..distributed import rank

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def emit(result: dict[str, Any], as_json: bool, lines: list[str]) -> None:
    """The result as JSON, in which numbers that are not finite are null, or as lines for people; of several processes
    the first tells."""
    if rank():
        return
    print(json.dumps(finite(result), allow_nan=False) if as_json else "\n".join(lines))


def finite(value):
    """The value with null for every number that JSON cannot hold."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
