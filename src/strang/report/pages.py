"""A plain page about one run: headings, pictures, tables. Self-contained, without scripts."""

import base64
import importlib.util
import io
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from strang.report.figures import extra, number, svg
from strang.report.panels import Bar, Bars, Panel, Table


class Section(NamedTuple):
    """A heading, a sentence or two, and what to look at: panels, pictures (from `mosaic`), bars and tables."""

    heading: str
    text: str = ""
    panels: list[Panel] = []  # noqa: RUF012
    pictures: list[tuple[str, str]] = []  # noqa: RUF012  (source, description)
    tables: list[Table] = []  # noqa: RUF012
    bars: list[Bars] = []  # noqa: RUF012


def available() -> bool:
    """Whether what makes pages is installed."""
    return all(map(importlib.util.find_spec, ("matplotlib", "jinja2")))


def plain_page(title: str, lead: str, sections: list[Section]) -> str:
    """The page as HTML."""
    jinja2 = extra("jinja2")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": number, "lengths": lengths}
    template = resources.files(__package__).joinpath("plain.html").read_text("utf-8")
    shown: list[Any] = [
        (section, [(panel, svg(panel, f"p{i}-{k}")) for k, panel in enumerate(section.panels)])
        for i, section in enumerate(sections)
    ]
    return environment.from_string(template).render(title=title, lead=lead, sections=shown)


def lengths(bar: Bar, end: float) -> tuple[str, str, str]:
    """In hundredths of the scale: the bar, and where its whisker of ± one standard deviation begins and how long it is.

    >>> lengths(Bar("word", 0.2, 0.05), 0.25), lengths(Bar("word", 0.2, float("nan")), 0.25)
    (('80', '60', '40'), ('80', '80', '0'))
    """
    low, high = (max(bar.value - bar.sd, 0.0), bar.value + bar.sd) if bar.sd == bar.sd else (bar.value, bar.value)
    return f"{100 * bar.value / end:.3g}", f"{100 * low / end:.3g}", f"{100 * (high - low) / end:.3g}"


def mosaic(images: np.ndarray, height: int, width: int, columns: int, *, symmetric: bool = False) -> str:
    """Small grey images in rows, as a picture that stands in the page: from 0 to 1, or by sign around grey."""
    images = np.asarray(images, float)
    if symmetric:
        images = 0.5 + 0.5 * images / max(float(np.abs(images).max()), 1e-12)
    rows = -(-len(images) // columns)
    canvas = np.full((rows * (height + 1) + 1, columns * (width + 1) + 1), 0.5)
    for k, image in enumerate(images):
        top, left = (k // columns) * (height + 1) + 1, (k % columns) * (width + 1) + 1
        canvas[top : top + height, left : left + width] = image.reshape(height, width)
    file = io.BytesIO()
    extra("matplotlib.image").imsave(
        file, 1 - canvas, cmap="gray", vmin=0, vmax=1, format="png", metadata={"Software": None}
    )
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
