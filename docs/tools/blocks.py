"""Runs the Python blocks of pages, each page in a namespace and a folder of its own, all in one process.

    python docs/tools/blocks.py docs/guides/trust.md ...             runs them
    python docs/tools/blocks.py --write docs/guides/trust.md ...     and writes what they print below each block

A block that imports a library that is not installed is left out. What a page shows as the output of a block is the
```text block right below it; a line `...` stands for any lines.
"""

import contextlib
import importlib.util
import io
import json
import os
import re
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

FENCE = re.compile(r"(?ms)^( *)```python([^\n]*)\n(.*?)^\1```[ ]*\n(?:\n?^\1```text([^\n]*)\n(.*?)^\1```[ ]*\n)?")
OTHERS = ("blackjax", "posteriors", "torch", "gensim")  # libraries that the project does not install


# What tuning chose, where two choices cost about the same, may differ between processors.
CHOSEN = re.compile(r"SG\w+ \w+:\w+, |gradient noise V|full gradients: |independent batches: |\w+ sweeps")


class Block(NamedTuple):
    code: str
    shown: str | None  # what the page says it prints
    span: tuple[int, int] | None = None  # where that is


def blocks_of(text: str) -> list[Block]:
    return [
        Block(plain(found[3], found[1]), plain(found[5], found[1]) if found[5] is not None else None, found.span(5))
        for found in FENCE.finditer(text)
    ]


def plain(text: str, indent: str) -> str:
    return re.sub(rf"(?m)^{indent}", "", text)


def needs(code: str) -> list[str]:
    """Libraries that a block imports and that are not there."""
    imported = re.findall(r"(?m)^(?:import|from) (.*)", code)
    words = [word for line in imported for word in re.findall(r"\w+", line)]
    return [name for name in words if name in OTHERS and importlib.util.find_spec(name) is None]


def run(code: list[str], name: str) -> list[str | None]:
    """What each block prints; None where it was left out."""
    space: dict[str, Any] = {"__name__": "__main__"}
    printed: list[str | None] = []
    for number, block in enumerate(code):
        if needs(block):
            printed.append(None)
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(block, f"{name}, block {number + 1}", "exec"), space)
        printed.append(out.getvalue())
    return printed


def same(shown: str, printed: str) -> list[str]:
    """Lines of the page that the block did not print, numbers, spaces and choices aside; `...` stands for any lines."""
    lines = {elided(line) for line in printed.splitlines()}
    told = [line for line in shown.splitlines() if line.strip() not in ("", "...") and not CHOSEN.match(line)]
    return [line for line in told if elided(line) not in lines]


def elided(line: str) -> str:
    """A line without its numbers: how many there are, and what they are, differs between machines."""
    line = re.sub(r"[-−+]?\b(?:\d[\d,]*\.?\d*(?:e[-+]?\d+)?|nan|inf)\b", "#", line)
    return re.sub(r"#(?:[ ,]*#)*", "#", re.sub(r"[\s–-]+", " ", line)).strip()


def written(text: str, printed: list[str | None]) -> str:
    """The page with what its blocks printed in place of what it showed."""
    for block, output in reversed(list(zip(blocks_of(text), printed, strict=True))):
        if block.shown is not None and output is not None and block.span is not None and "..." not in block.shown:
            text = text[: block.span[0]] + output.rstrip() + "\n" + text[block.span[1] :]
    return text


def main() -> None:
    """Prints a line of JSON for each page: {"page", "seconds", "printed" or "error"}."""
    write, pages = "--write" in sys.argv, [each for each in sys.argv[1:] if each != "--write"]
    changes = json.loads(os.environ.get("STRANG_SMALLER", "{}"))
    around, before = os.environ.get("STRANG_SURROUNDINGS"), Path.cwd()
    failed = False
    for page in pages:
        path, begun = Path(page).resolve(), time.process_time()
        code = []
        for block in blocks_of(path.read_text()):
            text = block.code
            for large, small in changes.items():
                text = text.replace(large, small)
            code.append(text)
        with tempfile.TemporaryDirectory() as folder:
            for each in Path(around).iterdir() if around else ():
                Path(folder, each.name).symlink_to(each)
            os.chdir(folder)
            try:
                result: dict[str, Any] = {"printed": run(code, page)}
            except Exception:
                result, failed = {"error": traceback.format_exc()}, True
            finally:
                os.chdir(before)
        if write and "printed" in result:
            path.write_text(written(path.read_text(), result["printed"]))
        print(json.dumps({"page": page, "seconds": time.process_time() - begun, **result}), flush=True)
        if "jax" in sys.modules:
            sys.modules["jax"].clear_caches()
    sys.exit(failed)


if __name__ == "__main__":
    main()
