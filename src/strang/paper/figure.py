"""What a section of the report is made of: the work to do, panels, tables and verdicts. All of it is plain data."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from strang.report.panels import Panel, Table

REPRODUCED = "reproduced"
UNDER_READING = "reproduced under this reading"
NOT_REPRODUCED = "not reproduced"
CANNOT_TELL = "cannot be told at this resolution"  # the claimed difference is smaller than what could be seen
EXACT, SIMULATED, BOTH = "exact values", "simulated runs", "exact values and simulated runs"


class Effort(NamedTuple):
    """How much is simulated. Exact values depend on it only through the length of the runs.

    Paper: 200 runs per point throughout. We: 2000 for traces of bias and MSE also in full, because the squared error
    of a short run is so skewed that 200 of them do not give a reliable standard error.
    """

    name: str
    runs: int  # replicates of long runs, which measure the invariant measure
    steps: int  # length of these
    trace_runs: int  # replicates of the runs whose bias and MSE are plotted against the number of steps
    longest: int  # length of the longest of these
    corpus: str | None = None  # folder of a prepared corpus for the topic models


QUICK = Effort("quick", runs=50, steps=100_000, trace_runs=2000, longest=30_000)
FULL = Effort("full", runs=200, steps=1_000_000, trace_runs=2000, longest=1_000_000)


class Part(NamedTuple):
    """One piece of work: a pure function from JSON settings to a JSON result, so that it can be cached on disk."""

    label: str
    function: Callable[..., Any]
    settings: dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """The result for one claim: under which `reading` of it, which `numbers` decided, and `why` in a sentence; `basis`
    says whether it rests on exact values or on simulated runs."""

    claim: str
    where: str
    verdict: str
    reading: str
    numbers: dict[str, Any]
    why: str
    basis: str = EXACT


@dataclass(frozen=True)
class Figure:
    """A section of the report: what the paper says, what to look at, and the results."""

    name: str
    title: str
    says: str
    look: str
    settings: dict[str, Any]
    panels: list[Panel] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
