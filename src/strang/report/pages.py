"""Plain pages about runs: headings, pictures, tables. Self-contained, without scripts."""

import base64
import importlib.util
import io
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from strang.report.figures import number, svg
from strang.report.panels import Bar, Bars, Panel, Series, Table
from strang.util.errors import need
from strang.util.files import replace_file

TEMPERATURE = {
    "Kinetic temperature (should be 1, and is above it with noisy gradients)": {"temperature": "temperature"}
}


class Section(NamedTuple):
    """A heading, a sentence or two, and what to look at: panels, pictures (from `mosaic`), bars and tables."""

    heading: str
    text: str = ""
    panels: list[Panel] = []  # noqa: RUF012
    pictures: list[tuple[str, str]] = []  # noqa: RUF012  (source, description)
    tables: list[Table] = []  # noqa: RUF012
    bars: list[Bars] = []  # noqa: RUF012


def need_pages() -> None:
    """Raises if what pages are made with is not installed; to be asked before hours of work, not after them."""
    for module in ("jinja2", "matplotlib"):
        need(module, "report")


def render(package: str, template: str, filters: dict[str, Callable], **values: Any) -> str:
    """Fills in an HTML template that lies in a package."""
    jinja2 = need("jinja2", "report")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": number, **filters}
    return environment.from_string(resources.files(package).joinpath(template).read_text("utf-8")).render(**values)


def plain_page(title: str, lead: str, sections: list[Section]) -> str:
    """Makes a page of sections, as HTML."""
    drawn = [
        (section, [(panel, svg(panel, f"p{i}-{k}")) for k, panel in enumerate(section.panels)])
        for i, section in enumerate(sections)
    ]
    return render(__package__, "plain.html", {"lengths": lengths}, title=title, lead=lead, sections=drawn)


def fit_page(title: str, lead: str, curves: list[Panel], sections: list[Section], result: dict[str, Any]) -> str:
    """Makes the page of a fit: learning curves, sections of the application's own, and a table of the result."""
    rows = [[name, value if isinstance(value, int | float | None) else str(value)] for name, value in result.items()]
    table = Section("Settings and results", tables=[Table("As in the JSON", ["name", "value"], rows)])
    return plain_page(title, lead, [Section("How it went", panels=curves), *sections, table])


def learning_curves(series: list[dict[str, Any]], x: str, panels: dict[str, dict[str, str]]) -> list[Panel]:
    """Makes panels of what was measured at the saves of a fit against the measurement `x`. `panels` has the lines of
    each title, as {measurement: label}; the first of several is drawn thick, and what was not measured is left out."""
    drawn = []
    for title, lines in panels.items():
        first, *others = lines
        curves = []
        for name, label in lines.items():
            known = [entry for entry in series if isinstance(entry.get(name), int | float) and x in entry]
            if known:
                points = [{"x": entry[x], "exact": entry[name]} for entry in known]
                curves.append(Series(label, points, emphasis=bool(others) and name == first))
        if curves:
            values = [point["exact"] for curve in curves for point in curve.points]
            wide = min(values) > 0 and max(values) > 10 * min(values)
            drawn.append(Panel(title, x, first, curves, log_x=False, log_y=wide))
    return drawn


def write_index(folder: Path, make: Callable[[], str]) -> str | None:
    """Writes a page to the folder's index.html and return its path; None where the packages for pages are missing."""
    if not all(map(importlib.util.find_spec, ("matplotlib", "jinja2"))):
        return None
    replace_file(folder / "index.html", make().encode())
    return str(folder / "index.html")


def lengths(bar: Bar, end: float) -> tuple[str, str, str]:
    """Returns percentages of the scale: the bar, and the start and length of its whisker of ± one standard deviation.

    >>> lengths(Bar("word", 0.2, 0.05), 0.25), lengths(Bar("word", 0.2, float("nan")), 0.25)
    (('80', '60', '40'), ('80', '80', '0'))
    """
    low = max(bar.value - bar.whisker, 0.0)
    length, start, width = (f"{100 * each / end:.3g}" for each in (bar.value, low, bar.value + bar.whisker - low))
    return length, start, width


def mosaic(images: np.ndarray, height: int, columns: int, *, symmetric: bool = False) -> str:
    """Puts small grey images in rows, as one picture inside the page; values go from 0 to 1, or are signed."""
    images, width = np.asarray(images, float), images.shape[1] // height
    if symmetric:
        images = 0.5 + 0.5 * images / max(float(np.abs(images).max()), 1e-12)
    rows = -(-len(images) // columns)
    canvas = np.full((rows * (height + 1) + 1, columns * (width + 1) + 1), 0.5)
    for k, image in enumerate(images):
        top, left = (k // columns) * (height + 1) + 1, (k % columns) * (width + 1) + 1
        canvas[top : top + height, left : left + width] = image.reshape(height, width)
    file = io.BytesIO()
    need("matplotlib.image", "report").imsave(
        file, 1 - canvas, cmap="gray", vmin=0, vmax=1, format="png", metadata={"Software": None}
    )
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
