"""The report as one self-contained HTML page: no script, no network, pictures inline.

Run times are only in elements of class `runtime`: without these, equal reproductions have equal pages.
"""

import re
from collections import Counter
from typing import Any

from strang.paper.figure import CANNOT_TELL, EXACT, NOT_REPRODUCED, REPRODUCED, UNDER_READING, Figure, Verdict
from strang.report import pages
from strang.report.figures import describe, svg
from strang.report.panels import Panel, Table

KINDS = {REPRODUCED: "good", UNDER_READING: "partly", NOT_REPRODUCED: "bad", CANNOT_TELL: "other"}
SIGNS = {REPRODUCED: "✓", UNDER_READING: "≈", NOT_REPRODUCED: "✗", CANNOT_TELL: "?"}


def render(figures: list[Figure], about: dict[str, Any]) -> str:
    """The page as HTML. `about` comes from `strang.paper.reproduce.about_page`."""
    verdicts = [verdict for figure in figures for verdict in figure.verdicts]
    return pages.render(
        __package__,
        "page.html",
        {"duration": duration, "slug": slug},
        sections=[section(figure, verdicts) for figure in figures],
        verdicts=verdicts,
        exact=sum(verdict.basis == EXACT for verdict in verdicts),
        counts={**dict.fromkeys(KINDS, 0), **Counter(verdict.verdict for verdict in verdicts)},
        firsts={
            verdict.verdict: len(verdicts) - i for i, verdict in enumerate(reversed(verdicts))
        },  # rows of the table
        about=about,
        kinds=KINDS,
        signs=SIGNS,
    )


def section(figure: Figure, verdicts: list[Verdict]) -> dict[str, Any]:
    """The template's data for a figure: pictures, the numbers in them, and its verdicts with their table rows."""
    name = slug(figure.name)
    return {
        "figure": figure,
        "pictures": [(panel, svg(panel, f"{name}-{i}")) for i, panel in enumerate(figure.panels)],
        "numbers": [numbers(panel) for panel in figure.panels],
        "verdicts": [(verdict, verdicts.index(verdict) + 1) for verdict in figure.verdicts],
    }


def numbers(panel: Panel) -> Table:
    """The panel's values as a table, for telephones and screen readers: a row for each simulated x."""
    by_x: dict[float, list[Any]] = {}
    simulated = set()
    for k, series in enumerate(panel.series):
        for point in series.points:
            by_x.setdefault(point["x"], [None] * len(panel.series))[k] = describe(point)
            if point.get("value") is not None or point.get("diverged"):
                simulated.add(point["x"])
    rows = [[x, *by_x[x]] for x in sorted(simulated or by_x)]
    return Table(panel.title, [panel.x_label, *(series.label for series in panel.series)], rows)


def slug(name: str) -> str:
    """The name in letters, digits and hyphens, for ids.

    >>> slug("Figure 3 <b>")
    'Figure-3-b'
    """
    return re.sub(r"[^\w-]+", "-", name).strip("-")


def duration(seconds: float) -> str:
    """Seconds as readable text.

    >>> duration(4.26), duration(75), duration(7300)
    ('4.3 s', '1 min 15 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
