"""What a figure of the report is made of: points, series, panels, tables, verdicts. All of it is plain data."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from strang.report.panels import Panel as Panel
from strang.report.panels import Point as Point
from strang.report.panels import Series as Series
from strang.report.panels import Table as Table

REPRODUCED = "reproduced"
UNDER_READING = "reproduced under this reading"
NOT_REPRODUCED = "not reproduced"


class Effort(NamedTuple):
    """How much is simulated. The exact values do not depend on it, except that they are those of runs as long.

    Paper: 200 runs a point throughout. We: 2000 for traces of bias and MSE also in full, because the square of the
    error of a short run is so skewed that 200 of them do not give a standard error to rely on.
    """

    name: str
    runs: int  # replicates where a long run shows the invariant measure
    steps: int  # its length
    trace_runs: int  # replicates where bias and MSE are shown against the number of steps
    longest: int  # the most steps there
    corpus: str | None = None  # a prepared one for the topic models


QUICK = Effort("quick", runs=50, steps=100_000, trace_runs=2000, longest=30_000)
FULL = Effort("full", runs=200, steps=1_000_000, trace_runs=2000, longest=1_000_000)


class Part(NamedTuple):
    """One piece of work, a pure function of JSON settings to a JSON result, so that it can be kept on disk."""

    label: str
    function: Callable[..., Any]
    settings: dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """What came of a claim. `reading` says under which reading of it, `numbers` what decided, `why` in a sentence."""

    claim: str
    where: str
    verdict: str
    reading: str
    numbers: dict[str, Any]
    why: str


@dataclass(frozen=True)
class Figure:
    """A section of the report: what the paper says, what to look at, and what came out."""

    name: str
    title: str
    says: str
    look: str
    settings: dict[str, Any]
    panels: list[Panel] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
