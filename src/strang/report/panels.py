"""What is drawn: points, series, panels, bars, tables. All of it is plain data."""

import math
from dataclasses import dataclass, field
from typing import Any

Point = dict[str, Any]  # "x", and "value", "se" (simulated) and "exact", each a number or None; more where it helps


@dataclass(frozen=True)
class Series:
    """A curve through the exact values of its points, with the simulated values as markers; either may be missing."""

    label: str
    points: list[Point]
    emphasis: bool = False  # drawn thick: what the paper says is best


@dataclass(frozen=True)
class Panel:
    """Axes with series. Log scales show magnitudes; `marks` are the x of vertical lines, such as stability limits; axes
    end with the values, or on a linear scale with `whole_bars` also with their error bars. With `names` x counts from 0
    to what is named, and nothing joins the points."""

    title: str
    x_label: str
    y_label: str
    series: list[Series]
    marks: list[float] = field(default_factory=list)
    log_x: bool = True
    log_y: bool = True
    whole_bars: bool = False
    names: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Table:
    """Cells in rows under named columns; numbers are rounded when they are shown."""

    title: str
    columns: list[str]
    rows: list[list[Any]]


@dataclass(frozen=True)
class Bar:
    """A named number that is not negative, with its standard deviation (or NaN)."""

    label: str
    value: float
    sd: float

    @property
    def whisker(self) -> float:
        """The standard deviation that is drawn: 0 where it is unknown."""
        return 0.0 if math.isnan(self.sd) else self.sd


@dataclass(frozen=True)
class Bars:
    """Bars on a common scale."""

    title: str
    bars: list[Bar]

    @property
    def end(self) -> float:
        """The end of the scale: that of the longest bar with its whisker."""
        return max((bar.value + bar.whisker for bar in self.bars), default=0.0) or 1.0
