"""A stored run in the terminal as it goes, from any process that can read its folder."""

import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from strang.report.stored import describe, overview
from strang.storage.manifest import read_spec
from strang.storage.series import read_series
from strang.storage.store import is_held
from strang.util.errors import InputError

TAIL = 1 << 16  # bytes of the series that are read: the last few saves
PAUSE = 0.5  # seconds between looks


def watch(folder: str | Path, console: Console | None = None, pause: float = PAUSE) -> dict[str, Any]:
    """Show the run until it is finished, nobody runs it any more, or Ctrl-C; gives what was shown last."""
    folder = Path(folder)
    found = look(folder)
    with Live(console=console, auto_refresh=False) as live:
        try:
            while True:
                live.update(picture(found), refresh=True)
                if found["state"] != "running":
                    break
                time.sleep(pause)
                found = look(folder)
        except KeyboardInterrupt:
            pass
    if not live.console.is_terminal:
        live.console.line()  # where there is nothing to redraw, the last picture ends without one
    return found


def look(folder: Path) -> dict[str, Any]:
    """The run as its last saves left it. The lock is asked for first: what is read after it is free is the end."""
    running = is_held(folder)
    try:
        spec = read_spec(folder)
    except InputError:
        if not running or (folder / "spec.json").exists():
            raise
        spec = {"steps": 1, "about": {}}  # about to begin: the spec is written once the code has been traced
    series = read_series(folder, TAIL)
    return overview(folder, spec, series, series[-1]["step"] if series else 0, running)


def picture(found: dict[str, Any]) -> Table:
    """A bar and the report's lines."""
    first, second, *others = describe(found)
    left = remaining(found)
    lines = [first + (f", about {left} left" if left else ""), second, *others]
    shown = Table.grid()
    shown.add_row(ProgressBar(total=max(found["steps"], 1), completed=found["step"], width=60))
    for line in lines:
        shown.add_row(Text(line))
    return shown


def remaining(found: dict[str, Any]) -> str:
    """The time that is left at the present rate."""
    if found["state"] != "running" or not found["steps_per_second"]:
        return ""
    seconds = round((found["steps"] - found["step"]) * found["chains"] / found["steps_per_second"])
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
