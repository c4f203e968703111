"""The paper's figures, one file each: what it claims, what came out, under which reading."""

import json
from pathlib import Path
from typing import Any

from ..errors import choose

FIGURES = ("fig1",)


def reproduce(figures: list[str], *, full: bool, out: Path) -> tuple[dict[str, Any], list[str]]:
    """Run the figures (by default all), write pictures and `results.json` to `out`, and give results and lines."""
    from . import figure1

    makers = {"fig1": figure1.make}
    for name in figures:
        if name not in makers and name != "all":
            raise choose("figure", name, [*FIGURES, "all"])
    chosen = list(makers) if not figures or "all" in figures else figures
    out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"full": full}
    lines: list[str] = []
    for name in chosen:
        results[name], text = makers[name](full, out)
        lines += text
    path = out / "results.json"
    path.write_text(json.dumps(results, indent=1, allow_nan=False))
    return results, [*lines, f"numbers in {path}"]
