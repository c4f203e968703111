"""Finished parts on disk, so that a killed reproduction goes on where it was, and never takes what is not its own.

A part is kept under a name made of its function, its settings, the versions of JAX and NumPy, and the code of this
package but its drawing: whatever could change the numbers changes the name.
"""

import hashlib
import json
import time
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from strang.paper.figure import Part
from strang.util.files import replace_file
from strang.util.version import versions

LOOKS = ("figures.py", "inline.py", "page.py", "pages.py")  # change how numbers look, not what they are


class Kept(NamedTuple):
    """A part's result, the seconds it took when it was made, and whether it came from the disk."""

    result: Any
    seconds: float
    reused: bool


@cache
def fingerprint() -> str:
    """A hash of the package's code and of the versions."""
    digest = hashlib.sha256(json.dumps(versions("scipy"), sort_keys=True).encode())
    root = Path(__file__).resolve().parent.parent
    for path in sorted(path for path in root.rglob("*.py") if path.name not in LOOKS):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def key(part: Part) -> dict[str, Any]:
    """Everything that decides the part's result."""
    function = f"{part.function.__module__}.{part.function.__qualname__}"
    return {"function": function, "settings": part.settings, "code": fingerprint()}


def place(part: Part, folder: Path) -> Path:
    name = hashlib.sha256(json.dumps(key(part), sort_keys=True).encode()).hexdigest()[:24]
    return folder / f"{name}.json"


def find(part: Part, folder: Path) -> Kept | None:
    """The part's result if exactly this was kept in the folder."""
    found = read(place(part, folder))
    if found is None or found.get("key") != key(part):
        return None
    return Kept(found["result"], found["seconds"], True)


def make(part: Part) -> Kept:
    """The part's result, made now, in whatever process."""
    started = time.perf_counter()
    result = part.function(**part.settings)
    return Kept(result, time.perf_counter() - started, False)


def put(part: Part, made: Kept, folder: Path) -> Kept:
    """Keep what was made."""
    content = {"result": made.result, "seconds": made.seconds, "key": key(part)}
    write(place(part, folder), json.dumps({**content, "checksum": checksum(content)}, allow_nan=False))
    return made


def keep(part: Part, folder: Path, fresh: bool = False) -> Kept:
    """The part's result: from the folder if it was kept there, else made now and kept."""
    found = None if fresh else find(part, folder)
    return put(part, make(part), folder) if found is None else found


def checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read(path: Path) -> dict[str, Any] | None:
    """What was kept, or None where there is nothing, or nothing whole: then it is made anew."""
    try:
        content = json.loads(path.read_text())
        claimed = content.pop("checksum")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return content if claimed == checksum(content) else None


def write(path: Path, text: str) -> None:
    """Replace a file, and make its folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text.encode())
