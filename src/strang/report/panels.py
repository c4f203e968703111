"""What is drawn: points, series, panels, tables. All of it is plain data."""

from dataclasses import dataclass, field
from typing import Any

Point = dict[str, Any]  # "x", and "value", "se" (simulated) and "exact", each a number or None; more where it helps


@dataclass(frozen=True)
class Series:
    """A curve through the points' exact values with the simulated ones on it, as far as there are any."""

    label: str
    points: list[Point]
    emphasis: bool = False  # drawn thick: what the paper says is best


@dataclass(frozen=True)
class Panel:
    """Axes. Log scales show magnitudes; `marks` are vertical lines (x, label), such as stability limits."""

    title: str
    x_label: str
    y_label: str
    series: list[Series]
    marks: list[tuple[float, str]] = field(default_factory=list)
    log_x: bool = True
    log_y: bool = True


@dataclass(frozen=True)
class Table:
    title: str
    columns: list[str]
    rows: list[list[Any]]


@dataclass(frozen=True)
class Bar:
    """A named number that is not negative, with its standard deviation (or NaN)."""

    label: str
    value: float
    sd: float


@dataclass(frozen=True)
class Bars:
    """Bars that belong together, on a scale of their own."""

    title: str
    bars: list[Bar]

    @property
    def end(self) -> float:
        """Where the scale ends: after the longest bar and its whisker."""
        return max((bar.value + (bar.sd if bar.sd == bar.sd else 0.0) for bar in self.bars), default=0.0) or 1.0
