"""The report as one HTML page that needs nothing else: no script, no network, pictures inline.

Run times stand in elements of class `runtime` and nowhere else, so that two reproductions can be compared by comparing
their pages without those.
"""

import re
from collections import Counter
from importlib import resources
from typing import Any

from strang.paper.figure import NOT_REPRODUCED, REPRODUCED, UNDER_READING, Figure, Panel, Point, Table, Verdict
from strang.report.figures import describe, extra, number, svg

KINDS = {REPRODUCED: "good", UNDER_READING: "partly", NOT_REPRODUCED: "bad"}
SIGNS = {REPRODUCED: "✓", UNDER_READING: "≈", NOT_REPRODUCED: "✗"}


def render(figures: list[Figure], verdicts: list[Verdict], about: dict[str, Any]) -> str:
    """The page. `about` has title, effort, versions, seconds, total_seconds, points, left_out and command."""
    jinja2 = extra("jinja2")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": number, "duration": duration, "paragraphs": paragraphs, "slug": slug}
    template = resources.files(__package__).joinpath("page.html").read_text("utf-8")
    return environment.from_string(template).render(
        sections=[section(figure, verdicts) for figure in figures],
        verdicts=verdicts,
        counts=counts(verdicts),
        about=about,
        kinds=KINDS,
        signs=SIGNS,
    )


def section(figure: Figure, verdicts: list[Verdict]) -> dict[str, Any]:
    """What the template shows of a figure: pictures, the numbers in them, and where its verdicts stand in the table."""
    name = slug(figure.name)
    return {
        "figure": figure,
        "pictures": [(panel, svg(panel, f"{name}-{i}")) for i, panel in enumerate(figure.panels)],
        "numbers": [numbers(panel) for panel in figure.panels],
        "verdicts": [
            (verdict, verdicts.index(verdict) + 1 if verdict in verdicts else 0) for verdict in figure.verdicts
        ],
    }


def numbers(panel: Panel) -> Table:
    """What hovering over the panel's points shows, for telephones and screen readers: a row for each simulated x."""
    found: dict[float, dict[int, Point]] = {}
    for k, series in enumerate(panel.series):
        for point in series.points:
            found.setdefault(point["x"], {})[k] = point
    simulated = {x for x, points in found.items() if any(map(_simulated, points.values()))} or set(found)
    rows: list[list[Any]] = [
        [x, *(describe(found[x][k]) if k in found[x] else None for k in range(len(panel.series)))]
        for x in sorted(simulated)
    ]
    return Table(panel.title, [panel.x_label, *(series.label for series in panel.series)], rows)


def _simulated(point: Point) -> bool:
    return point.get("value") is not None or bool(point.get("diverged"))


def counts(verdicts: list[Verdict]) -> dict[str, int]:
    """How many of each kind, the known kinds first and even if there are none."""
    return {**dict.fromkeys(KINDS, 0), **Counter(verdict.verdict for verdict in verdicts)}


def paragraphs(text: str) -> list[str]:
    return [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]


def slug(name: str) -> str:
    """Letters, digits and hyphens, for ids.

    >>> slug("Figure 3 <b>")
    'Figure-3-b'
    """
    return re.sub(r"[^\w-]+", "-", name).strip("-")


def duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> duration(4.26), duration(75), duration(7300)
    ('4.3 s', '1 min 15 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
