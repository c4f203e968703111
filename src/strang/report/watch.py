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

TAIL_BYTES = 1 << 16  # of the series that are read: the last few saves
PAUSE_SECONDS = 0.5


def watch(folder: str | Path, console: Console | None = None, pause: float = PAUSE_SECONDS) -> dict[str, Any]:
    """Shows the run until it is finished, no process runs it any more, or Ctrl-C; returns the last overview."""
    result = read(Path(folder))
    with Live(console=console, auto_refresh=False) as live:
        try:
            live.update(grid(result), refresh=True)
            while result["state"] == "running":
                time.sleep(pause)
                result = read(Path(folder))
                live.update(grid(result), refresh=True)
        except KeyboardInterrupt:
            pass
    if not live.console.is_terminal:
        live.console.line()  # where there is nothing to redraw, the last picture ends without one
    return result


def read(folder: Path) -> dict[str, Any]:
    """The run as its last saves left it. The lock is tried first: what is read once it is free is the end."""
    running = is_held(folder)
    try:
        spec = read_spec(folder)
    except InputError:
        if not running or (folder / "spec.json").exists():
            raise
        spec = {"steps": 1, "about": {}}  # about to begin: the spec is written once the code has been traced
    series = read_series(folder, TAIL_BYTES)
    return overview(folder, spec, series, series[-1]["step"] if series else 0, running)


def grid(result: dict[str, Any]) -> Table:
    """A progress bar and the lines of the report, the first with the time left at the present rate."""
    first, *others = describe(result)
    if result["state"] == "running" and result["steps_per_second"]:
        seconds = round((result["steps"] - result["step"]) * result["chains"] / result["steps_per_second"])
        first += f", about {seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02} left"
    table = Table.grid()
    table.add_row(ProgressBar(total=max(result["steps"], 1), completed=result["step"], width=60))
    for line in (first, *others):
        table.add_row(Text(line))
    return table
