"""Finished parts on disk, so that a killed reproduction continues where it stopped.

A part's file is named after a hash of its function, its settings, the versions of JAX and NumPy, and all code of this
package except its drawing: whatever could change the numbers changes the name.
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

DRAWING = ("figures.py", "inline.py", "page.py", "pages.py")  # files that change how numbers look, not what they are


class PartResult(NamedTuple):
    """A part's result, the seconds it took to compute, and whether it was read from the disk."""

    result: Any
    seconds: float
    reused: bool


def sha256(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@cache
def fingerprint() -> str:
    """A hash of the package's code and of the versions."""
    digest = hashlib.sha256(json.dumps(versions("scipy"), sort_keys=True).encode())
    root = Path(__file__).resolve().parent.parent
    for path in sorted(path for path in root.rglob("*.py") if path.name not in DRAWING):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def key(part: Part) -> dict[str, Any]:
    """Everything that decides the part's result."""
    function = f"{part.function.__module__}.{part.function.__qualname__}"
    return {"function": function, "settings": part.settings, "code": fingerprint()}


def path_of(part: Part, folder: Path) -> Path:
    return folder / f"{sha256(key(part))[:24]}.json"


def load(part: Part, folder: Path) -> PartResult | None:
    """The part's stored result, or None if exactly this part was not stored or its file is damaged."""
    try:
        content = json.loads(path_of(part, folder).read_text())
        checksum = content.pop("checksum")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if checksum != sha256(content) or content.get("key") != key(part):
        return None
    return PartResult(content["result"], content["seconds"], True)


def compute(part: Part) -> PartResult:
    started = time.perf_counter()
    result = part.function(**part.settings)
    return PartResult(result, time.perf_counter() - started, False)


def store(part: Part, computed: PartResult, folder: Path) -> PartResult:
    content = {"result": computed.result, "seconds": computed.seconds, "key": key(part)}
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**content, "checksum": sha256(content)}, allow_nan=False)
    replace_file(path_of(part, folder), text.encode())
    return computed


def load_or_compute(part: Part, folder: Path, fresh: bool = False) -> PartResult:
    """The part's result from the folder, or computed now and stored there; always computed if `fresh`."""
    return (None if fresh else load(part, folder)) or store(part, compute(part), folder)
