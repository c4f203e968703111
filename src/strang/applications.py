"""The applications: each registers its commands, and how runs that it stored are resumed.

An application is a module `commands` with `register(app)`, which adds its commands to the command line, and `STORED`,
which has for each command whose runs are kept in folders a function `(folder, spec, steps) -> (result, lines)`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from strang.lda import commands as lda
from strang.paper import commands as paper
from strang.regression import commands as regression
from strang.sbn import commands as sbn
from strang.util.errors import InputError
from strang.util.front_door import front_door

APPLICATIONS: tuple[Any, ...] = (paper, lda, sbn, regression)


@front_door
def resume(folder: str | Path, *, steps: int | None = None) -> dict[str, Any]:
    """Go on with a run that a command keeps in a folder, bit for bit as if it had never stopped.

    Runs of `strang.sample` go on when the same call is made again.

    Args:
        folder: the folder given as `--store`.
        steps: so many more; by default to what was first asked for.

    Returns:
        What the command would have given with `--json`.

    Raises:
        InputError: the folder holds no run, or one that was begun from Python.
        OSError: the folder could not be written.
    """
    return resumed(Path(folder), steps)[0]


def resumed(folder: Path, steps: int | None) -> tuple[dict[str, Any], list[str]]:
    """The result of a resumed run, for machines and for people."""
    from strang.storage.manifest import read_spec

    if steps is not None and steps < 1:
        raise InputError(f"steps is {steps}; write how many more to make, at least 1.")
    known: dict[str, Callable] = {name: function for each in APPLICATIONS for name, function in each.STORED.items()}
    spec = read_spec(folder)
    command = spec["about"].get("command")
    if command not in known:
        raise InputError(f"{folder} was begun from Python: to go on, make the same call of strang.sample again.")
    return known[command](folder, spec, steps)
