"""Pictures: a panel as inline SVG for a page, all panels of a figure side by side as a PNG, groups of bars as a PNG.

The SVG takes its text colour and font from the page around it, so that one picture serves light, dark and print; the
colours of the series were chosen to stand out from white and from near-black alike. Equal panels give equal bytes.
"""

import io
import math
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import compress
from numbers import Integral, Real
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from strang.report.inline import inline_svg
from strang.report.panels import Bars, Panel, Point, Series
from strang.util.errors import need
from strang.util.files import replacing

COLOURS = ("#2b7bd4", "#d0660a", "#0f8f6f", "#b452c4", "#d63d5c", "#8a7a10", "#128ba3", "#7a7f87", "#6a5be0")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
WIDTH, HEIGHT = 3.8, 2.5  # inches, without the legend
MAX_COLUMNS = 4  # of groups of bars
SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "strang",
    "text.parse_math": False,  # labels are text: a dollar sign is a dollar sign
    "font.size": 8.8,
    "axes.titlesize": 9.5,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": 8.3,
    "ytick.labelsize": 8.3,
}
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
Limits = tuple[float, float]
Arrays = tuple[list[Point], np.ndarray, np.ndarray, np.ndarray]  # points, x, value, exact; NaN: nothing to draw
Titles = dict[str, list[str]]  # hover texts of the points of each artist, by the artist's id and in the order drawn


def svg(panel: Panel, name: str) -> str:
    """Draws the panel as an inline SVG whose ids begin with `name`. Hovering over a point shows its numbers."""
    with _canvas(WIDTH, _height(panel), "none") as figure:
        titles = _plot(figure.subplots(), panel)
        _legend(figure, panel, loc="outside lower center")
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return inline_svg(ET.fromstring(file.getvalue()), panel, name, titles)


def png(panels: list[Panel], path: Path, dpi: int = 144) -> None:
    """Draws the panels side by side, on white."""
    with _canvas(WIDTH * len(panels), max(map(_height, panels)) + 0.2) as figure:
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _plot(axes, panel)
            axes.set_title(textwrap.fill(panel.title, 44), pad=6 + 9 * len(_diverged_series(panel)))
            below = _matplotlib("transforms").ScaledTranslation(0, -0.45, figure.dpi_scale_trans)
            _legend(axes, panel, loc="upper center", bbox_to_anchor=(0.5, 0), bbox_transform=axes.transAxes + below)
        figure.savefig(path, dpi=dpi, metadata={"Software": None})


def bars_png(groups: list[Bars], path: Path, dpi: int = 144) -> None:
    """Draws each group of bars on axes of its own; whiskers are ± one standard deviation."""
    columns = min(MAX_COLUMNS, len(groups))
    rows = -(-len(groups) // columns)
    height = 0.55 + 0.17 * max(len(group.bars) for group in groups)
    with _canvas(2.7 * columns, height * rows) as figure:
        places = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axes, group in zip(places, groups, strict=False):
            names = [textwrap.shorten(bar.label, 20, placeholder="…") for bar in group.bars]
            values, whiskers = [bar.value for bar in group.bars], [bar.whisker for bar in group.bars]
            axes.barh(range(len(names)), values, xerr=whiskers, color=COLOURS[0], alpha=0.7, error_kw={"lw": 1.1})
            axes.set_yticks(range(len(names)), names)
            axes.invert_yaxis()
            axes.set_xlim(0, 1.02 * group.end)
            axes.locator_params(axis="x", nbins=4)
            axes.set_title(group.title, fontsize=8)
        for axes in places[len(groups) :]:
            axes.set_visible(False)
        with replacing(path) as temporary:
            figure.savefig(temporary, format="png", dpi=dpi, metadata={"Software": None})


@contextmanager
def _canvas(width: float, height: float, colour: str = "white") -> Iterator[Any]:
    """A figure of this size in inches, while Matplotlib has the settings of all our pictures."""
    with need("matplotlib", "report").rc_context(SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # only measured here: the browser has more fonts
        yield _matplotlib("figure").Figure(figsize=(width, height), layout="constrained", facecolor=colour)


def _matplotlib(module: str) -> Any:
    return need(f"matplotlib.{module}", "report")


def _height(panel: Panel) -> float:
    """The height of the picture that leaves the axes equally high with any legend and label."""
    labels = _labels(panel)
    lines = sum(label.count("\n") + 1 for label in labels) / _columns(labels)
    lines += textwrap.fill(panel.x_label, 46).count("\n")
    upright = 0.062 * max(map(len, _names(panel)), default=0)
    return HEIGHT + 0.165 * math.ceil(lines) + 0.11 * len(_diverged_series(panel)) + upright


def _names(panel: Panel) -> list[str]:
    return [textwrap.shorten(name, 28, placeholder="…") or name[:28] for name in panel.names]


# Numbers as text


def number(value: Any) -> str:
    """Formats a value with about four digits, for people.

    >>> [number(value) for value in (None, 0.00123456, -2.5e-7, 1e-5, 100_000, True, [1.0, 2.5])]
    ['–', '0.001235', '−2.5×10⁻⁷', '10⁻⁵', '100,000', 'yes', '1, 2.5']
    """
    if value is None or (isinstance(value, Real) and math.isnan(value)):
        return "–"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {number(each)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(number, value))
    if not isinstance(value, Real):
        return str(value)
    size = abs(float(value))
    whole = isinstance(value, Integral) or (size < 1e7 and (size.is_integer() or size >= 1e4))
    text = f"{round(value):,}" if whole else _power(f"{float(value):.4g}").replace("inf", "∞")
    return text.replace("-", "−")


def _power(text: str) -> str:
    """Writes a number like 1e-05 as a power of ten.

    >>> _power("-2.5e-07"), _power("1e+06"), _power("1e+00"), _power("0.25")
    ('-2.5×10⁻⁷', '10⁶', '1', '0.25')
    """
    mantissa, e, exponent = text.partition("e")
    if not e or int(exponent) in (0, 1):
        return f"{float(text):g}"
    return {"1": "", "-1": "-"}.get(mantissa, f"{mantissa}×") + "10" + str(int(exponent)).translate(SUPERSCRIPTS)


def describe(point: Point) -> str:
    """Formats the numbers of a point.

    >>> describe({"x": 0.005, "value": 0.0123, "se": 0.0004, "exact": 0.0124})
    '0.0123 ± 0.0004 (exact 0.0124, −0.2 se)'
    """
    value, exact, se = (_finite(point.get(key)) for key in ("value", "exact", "se"))
    if value is None:
        parts = [f"{number(point['diverged'])} diverged"] if point.get("diverged") else []
        return ", ".join(parts + ([] if exact is None else [f"exact {number(exact)}"])) or "–"
    text = number(value) + (f" ± {_power(f'{se:.2g}')}" if se is not None else "")
    if exact is None:
        return text
    score = f", {(value - exact) / se:+.1f} se".replace("-", "−") if se else ""
    return f"{text} (exact {number(exact)}{score})"


# What is where


def _finite(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _arrays(panel: Panel, series: Series) -> Arrays:
    points = [point for point in series.points if point["x"] > 0 or not panel.log_x]
    x, value, exact = (np.array([point.get(key) for point in points], float) for key in ("x", "value", "exact"))
    for values in (value, exact):
        if panel.log_y:
            np.abs(values, out=values)  # log axes show magnitudes
        values[np.isinf(values) | (panel.log_y & (values == 0))] = np.nan
    return points, x, value, exact


def _diverged_series(panel: Panel) -> list[int]:
    """The numbers of the series with points that have no value because chains diverged."""
    return [k for k, series in enumerate(panel.series) if any(map(_diverged, series.points))]


def _diverged(point: Point) -> bool:
    return point.get("value") is None and bool(point.get("diverged"))


def _limits(values: np.ndarray, log: bool) -> Limits:
    """The ends of an axis: the values' with a margin."""
    values = values[np.isfinite(values)]
    if not values.size:
        return (0.1, 1.0) if log else (0.0, 1.0)
    ends = np.array([values.min(), values.max()])
    ends = np.log10(ends) if log else ends
    margin = 0.06 * (ends[1] - ends[0]) or (0.3 if log else 0.1 * abs(ends[0]) or 1.0)
    low, high = ends[0] - margin, ends[1] + margin
    return (10.0**low, 10.0**high) if log else (low, high)


def _errors(points: list[Point]) -> np.ndarray:
    return np.array([_finite(point.get("se")) or 0.0 for point in points])


# Drawing


def _plot(axes: Any, panel: Panel) -> Titles:
    arrays = [_arrays(panel, series) for series in panel.series]
    marks = [x for x in panel.marks if math.isfinite(x) and (x > 0 or not panel.log_x)]
    heights = [y for _, _, *values in arrays for y in values]
    if panel.whole_bars and not panel.log_y:  # one that reaches zero has no end on a log axis
        heights += [value + sign * _errors(points) for points, _, value, _ in arrays for sign in (-1, 1)]
    limits = (
        _limits(np.concatenate([marks, *(x for _, x, *_ in arrays)]), panel.log_x),
        _limits(np.concatenate([[], *heights]), panel.log_y),
    )
    _axes(axes, panel, limits)
    for x in marks:
        axes.axvline(x, color="#000000", alpha=0.7, lw=0.9, ls=(0, (1, 2)), zorder=1)
    titles: Titles = {}
    for k, drawn in enumerate(arrays):
        titles |= _series(axes, panel, k, drawn, limits[1][0])
    return titles


def _axes(axes: Any, panel: Panel, limits: tuple[Limits, Limits]) -> None:
    axes.set_facecolor("none")
    axes.set_xlabel(textwrap.fill(panel.x_label, 46))
    axes.set_ylabel(textwrap.fill(panel.y_label, 32))
    axes.set(xscale="log" if panel.log_x else "linear", yscale="log" if panel.log_y else "linear")
    axes.set(xlim=limits[0], ylim=limits[1])
    _ticks(axes.xaxis, panel.log_x, *limits[0])
    if panel.names:
        axes.set_xlim(-0.7, len(panel.names) - 0.3)
        axes.set_xticks(range(len(panel.names)), _names(panel), rotation=90, fontsize=7.5)
    _ticks(axes.yaxis, panel.log_y, *limits[1])
    axes.grid(color="#000000", alpha=0.13, linewidth=0.5)
    axes.set_axisbelow(True)


def _ticks(axis: Any, log: bool, low: float, high: float) -> None:
    """Ticks at powers of ten, with steps between where these are few; at round numbers on a short or linear axis."""
    ticker = _matplotlib("ticker")
    decades = math.log10(high / low) if log else 0.0
    if decades < 0.7:
        axis.set_major_locator(ticker.MaxNLocator(5))
        axis.set_major_formatter(ticker.ScalarFormatter(useOffset=False, useMathText=False))
    else:
        form = "g" if low > 2e-4 and high < 5e4 else ".0e"
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if decades < 2 else (1,), numticks=8))
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: _power(f"{value:{form}}")))
    axis.set_minor_formatter(ticker.NullFormatter())


def _series(axes: Any, panel: Panel, k: int, drawn: Arrays, bottom: float) -> Titles:
    """Draws the exact curve, error bars, and markers: filled, hollow where a log axis shows a negative value, and a
    cross above the axes where chains diverged."""
    series, (points, x, value, exact) = panel.series[k], drawn
    colour, front = COLOURS[k % len(COLOURS)], 3 + series.emphasis
    has_value, has_exact = np.isfinite(value), np.isfinite(exact)
    if has_exact.any():
        axes.plot(x[has_exact], exact[has_exact], color=colour, lw=2.4 if series.emphasis else 1.1, zorder=front)
    elif not panel.names:
        axes.plot(x[has_value], value[has_value], color=colour, lw=1, ls=(0, (4, 3)), alpha=0.5, zorder=front)
    errors = _errors(points)
    low = np.maximum(value - errors, bottom) if panel.log_y else value - errors
    axes.vlines(x[has_value], low[has_value], (value + errors)[has_value], color=colour, lw=1, zorder=front + 2)
    negative = np.array([panel.log_y and (point.get("value") or 0) < 0 for point in points], dtype=bool)
    diverged = np.array([_diverged(point) for point in points], dtype=bool)
    above = np.full(len(x), 1.03 + 0.045 * sum(each < k for each in _diverged_series(panel)))
    size = 5.2 if series.emphasis else 4.4
    marker = {"marker": MARKERS[k % len(MARKERS)], "mew": 0.9, "ms": size, "zorder": front + 4}
    hidden = {"marker": "o", "mew": 0.9, "ms": 0.5, "zorder": 6.5, "alpha": 0}  # to hover over
    cross = {"marker": "x", "mew": 1.1, "ms": 4, "transform": axes.get_xaxis_transform()}
    titles = {}
    for kind, chosen, y, style in (
        ("curve", has_exact & ~has_value, exact, {**hidden, "mfc": colour}),
        ("full", has_value & ~negative, value, {**marker, "mfc": colour}),
        ("open", has_value & negative, value, {**marker, "mfc": "none"}),
        ("lost", diverged, above, cross),
    ):
        if chosen.any():  # an empty artist takes room in the layout
            axes.plot(x[chosen], y[chosen], gid=f"{kind}-{k}", ls="none", color=colour, clip_on=False, **style)
            titles[f"{kind}-{k}"] = [
                f"{series.label}: {_place(panel, point)}, {describe(point)}" for point in compress(points, chosen)
            ]
    return titles


def _place(panel: Panel, point: Point) -> str:
    """Where a point is, in words."""
    return panel.names[int(point["x"])] if panel.names else f"x = {number(point['x'])}"


def _labels(panel: Panel) -> list[str]:
    return [textwrap.fill(series.label, 46) for series in panel.series]


def _columns(labels: list[str]) -> int:
    return 2 if len(labels) > 1 and max(map(len, labels)) <= 22 else 1


def _legend(owner: Any, panel: Panel, **where: Any) -> None:
    """Puts a legend below the axes, where it covers nothing."""
    handles, labels = [], _labels(panel)
    for k, series in enumerate(panel.series):
        exact, value = (any(_finite(p.get(key)) is not None for p in series.points) for key in ("exact", "value"))
        style = {"lw": 2.4 if series.emphasis else 1.1} if exact else {"lw": 1, "ls": (0, (4, 3))}
        marker = MARKERS[k % len(MARKERS)] if value else "x" if not exact else "none"
        line = _matplotlib("lines").Line2D([], [], color=COLOURS[k % len(COLOURS)], marker=marker, ms=4.6, **style)
        handles.append(line)
    if labels:
        owner.legend(
            handles, labels, ncols=_columns(labels), frameon=False, fontsize=8.3, handlelength=2.4, columnspacing=1.4,
            labelspacing=0.3, borderpad=0.2, **where,
        )  # fmt: skip
