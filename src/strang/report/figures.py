"""Panels as pictures: one inline SVG each for the page, or all of a figure side by side as a PNG.

The SVG takes its text colour and font from the page around it, so that one picture serves light, dark and print; the
colours of the series were chosen to stand out from white and from near-black alike. Equal panels give equal bytes.
"""

import io
import math
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from strang.report.inline import tidy
from strang.report.panels import Panel, Point, Series
from strang.util.errors import need

COLOURS = ("#2b7bd4", "#d0660a", "#0f8f6f", "#b452c4", "#d63d5c", "#8a7a10", "#128ba3", "#7a7f87", "#6a5be0")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
WIDTH, HEIGHT = 3.8, 2.5  # inches, without the legend
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


def extra(module: str) -> Any:
    """A module that only pages need."""
    return need(module, "report")


def svg(panel: Panel, name: str) -> str:
    """The panel as an inline SVG whose ids begin with `name`. Hovering over a point shows its numbers."""
    with settings():
        figure = canvas(WIDTH, _height(panel))
        titles = _plot(figure.subplots(), panel)
        _legend(figure, panel, loc="outside lower center")
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return tidy(ET.fromstring(file.getvalue()), panel, name, titles)


def png(panels: list[Panel], path: Path, dpi: int = 144) -> None:
    """The panels side by side, on white."""
    with settings():
        figure = canvas(WIDTH * len(panels), max(map(_height, panels)) + 0.2)
        figure.set_facecolor("white")
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _plot(axes, panel)
            axes.set_title(textwrap.fill(panel.title, 44), pad=6 + 9 * len(_exploded(panel)))
            below = extra("matplotlib.transforms").ScaledTranslation(0, -0.45, figure.dpi_scale_trans)
            _legend(axes, panel, loc="upper center", bbox_to_anchor=(0.5, 0), bbox_transform=axes.transAxes + below)
        figure.savefig(path, dpi=dpi, metadata={"Software": None})


@contextmanager
def settings() -> Iterator[None]:
    with extra("matplotlib").rc_context({**SETTINGS}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # only measured here: the browser has more fonts
        yield


def canvas(width: float, height: float) -> Any:
    return extra("matplotlib.figure").Figure(figsize=(width, height), layout="constrained", facecolor="none")


def _height(panel: Panel) -> float:
    """So high that the axes are as high with any legend and label."""
    labels = _labels(panel)
    lines = sum(label.count("\n") + 1 for label in labels) / _columns(labels)
    lines += textwrap.fill(panel.x_label, 46).count("\n")
    return HEIGHT + 0.165 * math.ceil(lines) + 0.11 * len(_exploded(panel))


# Numbers as text


def number(value: Any) -> str:
    """About four digits, for people.

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
    if isinstance(value, Real):
        return _digits(value).replace("-", "−")
    return str(value)


def _digits(value: Real) -> str:
    size = abs(float(value))
    if isinstance(value, Integral) or (size < 1e7 and (size.is_integer() or size >= 1e4)):
        return f"{round(float(value)) if not isinstance(value, Integral) else int(value):,}"
    return "-∞" if value == -math.inf else "∞" if value == math.inf else _power(f"{float(value):.4g}")


def _power(text: str) -> str:
    """1e-05 as a power of ten.

    >>> _power("-2.5e-07"), _power("1e+06"), _power("1e+00"), _power("0.25")
    ('-2.5×10⁻⁷', '10⁶', '1', '0.25')
    """
    mantissa, e, exponent = text.partition("e")
    if not e or int(exponent) in (0, 1):
        return f"{float(text):g}"
    return {"1": "", "-1": "-"}.get(mantissa, f"{mantissa}×") + "10" + str(int(exponent)).translate(SUPERSCRIPTS)


def describe(point: Point) -> str:
    """The numbers of a point.

    >>> describe({"x": 0.005, "value": 0.0123, "se": 0.0004, "exact": 0.0124})
    '0.0123 ± 0.0004 (exact 0.0124, −0.2 se)'
    """
    value, exact, se = (_finite(point.get(key)) for key in ("value", "exact", "se"))
    if value is None:
        diverged = point.get("diverged")
        told = [f"{number(diverged)} diverged"] if diverged else []
        return ", ".join([*told, *([f"exact {number(exact)}"] if exact is not None else [])]) or "–"
    text = number(value) + (f" ± {_power(f'{se:.2g}')}" if se is not None else "")
    if exact is None:
        return text
    score = f", {(value - exact) / se:+.1f} se".replace("-", "−") if se else ""
    return f"{text} (exact {number(exact)}{score})"


# What is where


def _finite(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _shown(value: Any, log: bool) -> float:
    """Where it stands on the axis, NaN for nowhere. Log axes show magnitudes."""
    found = _finite(value)
    return math.nan if found is None or (log and found == 0) else abs(found) if log else found


def _xy(panel: Panel, series: Series, key: str) -> np.ndarray:
    """x, y and the number of the point in its series, a row for each point; y is NaN where there is nothing to show."""
    rows = [
        (float(p["x"]), _shown(p.get(key), panel.log_y), i)
        for i, p in enumerate(series.points)
        if p["x"] > 0 or not panel.log_x
    ]
    return np.array(rows, dtype=float).reshape(-1, 3)


def _exploded(panel: Panel) -> list[int]:
    """The series with points that have no value because chains diverged."""
    return [k for k, series in enumerate(panel.series) if any(map(_lost, series.points))]


def _lost(point: Point) -> bool:
    return point.get("value") is None and bool(point.get("diverged"))


def _limits(values: np.ndarray, log: bool) -> tuple[float, float]:
    """Around the values with a margin, error bars left aside: one that reaches zero has no end on a log axis."""
    values = values[np.isfinite(values)]
    if not values.size:
        return (0.1, 1.0) if log else (0.0, 1.0)
    ends = np.array([values.min(), values.max()])
    if log:
        ends = np.log10(ends)
    margin = 0.06 * (ends[1] - ends[0]) or (0.3 if log else 0.1 * abs(ends[0]) or 1.0)
    low, high = ends[0] - margin, ends[1] + margin
    return (10.0**low, 10.0**high) if log else (low, high)


def _fraction(value: Any, limits: tuple[float, float], log: bool) -> Any:
    """Where on the axis, from 0 to 1."""
    low, high, found = (np.log(each) if log else np.asarray(each) for each in (*limits, value))
    return (found - low) / (high - low)


# Drawing


def _plot(axes: Any, panel: Panel) -> dict[str, list[str]]:
    """Draw it all; give the hover texts of the points of each artist, by the artist's id and in the order drawn."""
    curves = [_xy(panel, series, key) for series in panel.series for key in ("value", "exact")]
    every = np.concatenate([*curves, np.empty((0, 3))])
    marks = [(x, label) for x, label in panel.marks if _finite(x) is not None and (x > 0 or not panel.log_x)]
    x_limits = _limits(np.append(every[:, 0], [x for x, _ in marks]), panel.log_x)
    y_limits = _limits(every[:, 1], panel.log_y)
    _axes(axes, panel, x_limits, y_limits)
    titles: dict[str, list[str]] = {}
    for k, series in enumerate(panel.series):
        titles |= _series(axes, panel, series, k, y_limits[0])
    for row, k in enumerate(_exploded(panel)):
        titles |= _crosses(axes, panel, k, 1.03 + 0.045 * row)
    return titles | _marks(axes, marks, curves, panel, (x_limits, y_limits))


def _axes(axes: Any, panel: Panel, x_limits: tuple[float, float], y_limits: tuple[float, float]) -> None:
    axes.set_facecolor("none")
    axes.set_xlabel(textwrap.fill(panel.x_label, 46))
    axes.set_ylabel(textwrap.fill(panel.y_label, 32))
    axes.set(xscale="log" if panel.log_x else "linear", yscale="log" if panel.log_y else "linear")
    axes.set(xlim=x_limits, ylim=y_limits)
    for axis, log, (low, high) in ((axes.xaxis, panel.log_x, x_limits), (axes.yaxis, panel.log_y, y_limits)):
        _ticks(axis, log, low, high)
    axes.grid(color="#000000", alpha=0.13, linewidth=0.5)
    axes.set_axisbelow(True)


def _ticks(axis: Any, log: bool, low: float, high: float) -> None:
    """Powers of ten, with steps between them where there are few; round numbers on a short or linear axis."""
    ticker = extra("matplotlib.ticker")
    decades = math.log10(high / low) if log else 0.0
    if decades < 0.7:
        axis.set_major_locator(ticker.MaxNLocator(5))
        axis.set_major_formatter(ticker.ScalarFormatter(useOffset=False, useMathText=False))
    else:
        form = "g" if low > 2e-4 and high < 5e4 else ".0e"
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if decades < 2 else (1,), numticks=8))
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: _power(f"{value:{form}}")))
    axis.set_minor_formatter(ticker.NullFormatter())


def _series(axes: Any, panel: Panel, series: Series, k: int, bottom: float) -> dict[str, list[str]]:
    """The exact curve, error bars, and markers: filled, or hollow where a log axis shows a negative value."""
    colour, marker, front = COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)], 3 + series.emphasis
    exact, value = _xy(panel, series, "exact"), _xy(panel, series, "value")
    drawn = value[np.isfinite(value[:, 1])]
    if np.isfinite(exact[:, 1]).any():
        line = exact[np.isfinite(exact[:, 1])]
        axes.plot(line[:, 0], line[:, 1], color=colour, lw=2.4 if series.emphasis else 1.1, zorder=front)
    else:
        axes.plot(drawn[:, 0], drawn[:, 1], color=colour, lw=1, ls=(0, (4, 3)), alpha=0.5, zorder=front)
    errors = np.array([_finite(series.points[int(i)].get("se")) or 0.0 for i in drawn[:, 2]])
    low = np.maximum(drawn[:, 1] - errors, bottom) if panel.log_y else drawn[:, 1] - errors
    axes.vlines(drawn[:, 0], low, drawn[:, 1] + errors, color=colour, lw=1, zorder=front + 2)
    bare = exact[np.isfinite(exact[:, 1]) & ~np.isfinite(value[:, 1])]
    negative = np.array([panel.log_y and series.points[int(i)]["value"] < 0 for i in drawn[:, 2]], dtype=bool)
    size = 5.2 if series.emphasis else 4.4
    common = {"ls": "none", "color": colour, "clip_on": False, "zorder": front + 4}
    titles = {}
    for kind, points, face in (
        ("curve", bare, colour),
        ("full", drawn[~negative], colour),
        ("open", drawn[negative], "none"),
    ):
        if not len(points):
            continue  # an empty artist takes room in the layout
        gid, visible = f"{kind}-{k}", kind != "curve"
        axes.plot(
            points[:, 0], points[:, 1], gid=gid, marker=marker if visible else "o", mfc=face, mew=0.9,
            ms=size if visible else 0.5, **common | ({} if visible else {"zorder": 6.5, "alpha": 0})
        )  # fmt: skip
        titles[gid] = _titles(series, points)
    return titles


def _titles(series: Series, points: np.ndarray) -> list[str]:
    chosen = [series.points[int(i)] for i in points[:, 2]]
    return [f"{series.label}: x = {number(point['x'])}, {describe(point)}" for point in chosen]


def _crosses(axes: Any, panel: Panel, k: int, height: float) -> dict[str, list[str]]:
    """A cross above the axes for each point of the series that diverged."""
    series, gid = panel.series[k], f"lost-{k}"
    points = _xy(panel, series, "value")
    points = points[[_lost(series.points[int(i)]) for i in points[:, 2]]]
    axes.plot(
        points[:, 0], np.full(len(points), height), gid=gid, marker="x", ms=4, mew=1.1, ls="none",
        color=COLOURS[k % len(COLOURS)], clip_on=False, transform=axes.get_xaxis_transform()
    )  # fmt: skip
    return {gid: _titles(series, points)}


def _marks(
    axes: Any, marks: list[tuple[float, str]], curves: list[np.ndarray], panel: Panel, limits: Any
) -> dict[str, list[str]]:
    """Dotted lines, each with its label along it, at the end and on the side where it covers least."""
    crowd = _crowd(curves, panel, limits)
    titles: dict[str, list[str]] = {}
    for i, (x, label) in enumerate(sorted(marks)):
        axes.axvline(x, color="#000000", alpha=0.7, lw=0.9, ls=(0, (1, 2)), zorder=1)
        if not label:
            continue
        titles[f"mark-{i}"] = [label]
        label = textwrap.shorten(label, 36, placeholder=" …")
        at, length = float(_fraction(x, limits[0], panel.log_x)), min(1.0, 0.022 * len(label) + 0.03)
        places = [(side, end) for end in (1, 0) for side in (-1, 1)]
        boxes = [
            (min(at, at + 0.05 * s), max(at, at + 0.05 * s), (1 - length) * e, length + (1 - length) * e)
            for s, e in places
        ]
        (side, end), box = min(zip(places, boxes, strict=True), key=lambda each: _covered(crowd, each[1]))
        crowd = np.concatenate([crowd, _filled(box)])
        text = axes.annotate(
            label, (x, end), (2.5 * side, 2 - 4 * end), xycoords=axes.get_xaxis_transform(), textcoords="offset points",
            rotation=90, fontsize=7, ha="right" if side < 0 else "left", va="top" if end else "bottom",
        )  # fmt: skip
        text.set(gid=f"mark-{i}", in_layout=False)
    return titles


def _crowd(curves: list[np.ndarray], panel: Panel, limits: Any) -> np.ndarray:
    """Where ink is, in fractions of the axes: the points and ten places between each two."""
    found = [np.empty((0, 2))]
    for curve in curves:
        ink = curve[np.isfinite(curve[:, 1])]
        x, y = _fraction(ink[:, 0], limits[0], panel.log_x), _fraction(ink[:, 1], limits[1], panel.log_y)
        fine = np.linspace(0, max(len(ink) - 1, 0), 10 * len(ink))
        found.append(
            np.stack([np.interp(fine, np.arange(len(ink)), each) for each in (x, y)], axis=1) if len(ink) else found[0]
        )
    return np.concatenate(found)


def _covered(crowd: np.ndarray, box: tuple[float, float, float, float]) -> float:
    left, right, low, high = box
    inside = (crowd[:, 0] > left) & (crowd[:, 0] < right) & (crowd[:, 1] > low) & (crowd[:, 1] < high)
    return float(inside.sum()) + (1000.0 if left < 0 or right > 1.02 else 0.0)


def _filled(box: tuple[float, float, float, float]) -> np.ndarray:
    x, y = np.meshgrid(np.linspace(*box[:2], 6), np.linspace(*box[2:], 20))
    return np.stack([x.ravel(), y.ravel()], axis=1)


def _labels(panel: Panel) -> list[str]:
    return [textwrap.fill(series.label, 46) for series in panel.series]


def _columns(labels: list[str]) -> int:
    return 2 if len(labels) > 1 and max(map(len, labels)) <= 22 else 1


def _legend(owner: Any, panel: Panel, **where: Any) -> None:
    """Below the axes, where it covers nothing."""
    line = extra("matplotlib.lines").Line2D
    handles = []
    for k, series in enumerate(panel.series):
        exact, value = (any(_finite(p.get(key)) is not None for p in series.points) for key in ("exact", "value"))
        style = {"lw": 2.4 if series.emphasis else 1.1} if exact else {"lw": 1, "ls": (0, (4, 3))}
        marker = MARKERS[k % len(MARKERS)] if value else "x" if not exact else "none"
        handles.append(line([], [], color=COLOURS[k % len(COLOURS)], marker=marker, ms=4.6, **style))
    labels = _labels(panel)
    if labels:
        owner.legend(
            handles, labels, ncols=_columns(labels), frameon=False, fontsize=8.3, handlelength=2.4, columnspacing=1.4,
            labelspacing=0.3, borderpad=0.2, **where,
        )  # fmt: skip
