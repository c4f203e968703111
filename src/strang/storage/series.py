"""What was measured at each save of a run: a line of JSON each, with its checksum, in `series.jsonl`."""

import json
import os
from pathlib import Path
from typing import Any

from strang.storage.manifest import UNREADABLE, checksum
from strang.util.files import replace_file


def line_of(entry: dict[str, Any]) -> str:
    """A line of the series, with its checksum."""
    return json.dumps({**entry, "sum": checksum(entry)}) + "\n"


def read_series(folder: Path, last: int | None = None) -> list[dict[str, Any]]:
    """What was measured at each save, or at those in the last `last` bytes; a line that is not whole ends it, as
    after a kill."""
    try:
        with (Path(folder) / "series.jsonl").open("rb") as file:
            skipped = file.seek(-min(last, file.seek(0, os.SEEK_END)), os.SEEK_END) if last else 0
            lines = file.read().decode("utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    entries = []
    for line in lines[bool(skipped) :]:
        try:
            entry = json.loads(line)
            if entry.pop("sum") != checksum(entry) or not isinstance(entry["step"], int):
                break
        except UNREADABLE:
            break
        entries.append(entry)
    return entries


def latest(series: list[dict[str, Any]]) -> dict[str, Any]:
    """The last of each thing that was measured, since a save need not measure all."""
    return {name: value for entry in series for name, value in entry.items()}


def throughput(series: list[dict[str, Any]], chains: int) -> list[tuple[int, float, float]]:
    """Between saves: the step at the end, the seconds, and the steps of all chains per second. A line says since which
    step its process was running, and its seconds count from there."""
    rates = []
    before: dict[str, Any] = {}
    for entry in series:
        fresh = not before or entry.get("since") != before["since"]
        steps = entry["step"] - (entry.get("since", 0) if fresh else before["step"])
        seconds = entry.get("seconds", 0) - (0 if fresh else before["seconds"])
        if steps > 0 and seconds > 0:
            rates.append((entry["step"], seconds, steps * chains / seconds))
        before = {"since": None, "seconds": 0, **entry}
    return rates


def drop_lines_after(folder: Path, step: int) -> None:
    """Drop what was measured after the saved chain."""
    path = folder / "series.jsonl"
    if path.exists():
        kept = [line_of(entry) for entry in read_series(folder) if entry["step"] <= step]
        replace_file(path, "".join(kept).encode())
