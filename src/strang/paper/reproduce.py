"""The paper, reproduced: one file a figure, each with what the paper claims, what came out, and under which reading."""

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from strang.paper import belief, figure1, figure2, figure3, mean_flow, part_cache, second_order, theorems, topics
from strang.paper import unit_precision as unit
from strang.paper.figure import FULL, QUICK, Effort, Figure, Verdict
from strang.paper.part_cache import keep, write
from strang.parallel import dask
from strang.util.errors import choose
from strang.util.progress import track
from strang.util.version import versions

# A figure is a module with `parts(effort)`, the work to be done, and `figure(effort, results)`, what to show of it.
FIGURES: dict[str, ModuleType] = {
    "fig1": figure1,
    "fig2": figure2,
    "fig3": figure3,
    "unit": unit,
    "order2": second_order,
    "theorems": theorems,
    "meanflow": mean_flow,
    "topics": topics,
    "belief": belief,
}
TOGETHER = {"table1": ["topics", "belief"], "all": list(FIGURES)}
AGREE = 4.5  # standard errors


class Report(NamedTuple):
    """What was made, and how: `reused` parts came from an earlier, interrupted or equal, reproduction."""

    figures: list[Figure]
    seconds: dict[str, float]
    parts: int
    reused: int
    effort: Effort

    @property
    def verdicts(self) -> list[Verdict]:
        return [verdict for figure in self.figures for verdict in figure.verdicts]


def reproduce(
    names: list[str],
    *,
    effort: Effort = QUICK,
    out: Path,
    fresh: bool = False,
    progress: bool | None = None,
    scheduler: str | None = None,
) -> Report:
    """Make the figures (by default all) and write `index.html` and `results.json` to `out`; with the address of a Dask
    scheduler its workers make the parts."""
    from strang.paper import page

    for name in names:
        if name not in FIGURES and name not in TOGETHER:
            raise choose("figure", name, [*FIGURES, *TOGETHER])
    asked = [each for name in names or ["all"] for each in TOGETHER.get(name, [name])]
    chosen = list(dict.fromkeys(asked))
    (out / "parts").mkdir(parents=True, exist_ok=True)  # if it cannot be, better now than after the first part
    made = hand_out(scheduler, chosen, effort, out / "parts", fresh, progress) if scheduler else 0
    report = make(chosen, effort, out / "parts", fresh and not made, progress)
    report = report._replace(reused=report.reused - made)
    about = about_page(report)
    write(out / "results.json", json.dumps(results(report, about), indent=1, allow_nan=False))
    write(out / "index.html", page.render(report.figures, report.verdicts, about))
    return report


def hand_out(scheduler: str, names: list[str], effort: Effort, folder: Path, fresh: bool, progress: bool | None) -> int:
    """Let a cluster make the parts that are not kept yet, and keep each as it comes; gives their number."""
    wanted = {str(part_cache.place(part, folder)): part for name in names for part in FIGURES[name].parts(effort)}
    missing = [part for part in wanted.values() if fresh or part_cache.find(part, folder) is None]
    for number, made in dask.spread(scheduler, part_cache.make, missing, "parts", progress) if missing else ():
        part_cache.put(missing[number], made, folder)
    return len(missing)


def make(names: list[str], effort: Effort, folder: Path, fresh: bool, progress: bool | None) -> Report:
    """Do the work of each figure part by part, taking what was kept unless all is to be `fresh`."""
    figures, seconds, count, reused = [], {}, 0, 0
    for name in names:
        kept = []
        for part in track(FIGURES[name].parts(effort), name, progress):
            kept.append(keep(part, folder, fresh))
        figures.append(FIGURES[name].figure(effort, [each.result for each in kept]))
        seconds[name] = sum(each.seconds for each in kept)
        count += len(kept)
        reused += sum(each.reused for each in kept)
    return Report(figures, seconds, count, reused, effort)


def agreement(figures: list[Figure]) -> dict[str, Any]:
    """How many simulated points there are with an exact value, and how many are within 4.5 standard errors of it."""
    scores = [
        abs(point["value"] - point["exact"]) / point["se"]
        for figure in figures
        for panel in figure.panels
        for series in panel.series
        for point in series.points
        if point["value"] is not None and point["exact"] is not None and point["se"]
    ]
    return {
        "count": len(scores),
        "within": sum(z <= AGREE for z in scores),
        "tolerance": AGREE,
        "largest": max(scores, default=0.0),
    }


def about_page(report: Report) -> dict[str, Any]:
    """What the page says of itself."""
    asked = [] if len(report.seconds) == len(FIGURES) else list(report.seconds)
    return {
        "title": "On the convergence of stochastic gradient MCMC with high-order integrators, reproduced",
        "effort": effort_sentence(report.effort),
        "versions": versions("scipy"),
        "seconds": report.seconds,
        "total_seconds": sum(report.seconds.values()),
        "points": agreement(report.figures),
        "left_out": [name for name in FIGURES if name not in report.seconds],
        "command": " ".join(["strang reproduce", *asked, f"--{report.effort.name}"]),
    }


def effort_sentence(effort: Effort) -> str:
    """How much was simulated, and how that compares with the paper."""
    share = (
        "at least the paper's own counts; Table 1 says its own"
        if effort.name == FULL.name
        else "less than the paper's 200 runs of 10⁶ steps; --full makes those"
    )
    return (
        f"{effort.name}: {effort.runs} runs of {effort.steps:,} steps for invariant measures, {effort.trace_runs:,} "
        f"of up to {effort.longest:,} for traces ({share})"
    )


def results(report: Report, about: dict[str, Any]) -> dict[str, Any]:
    """All that the page shows, for machines. Only `about` holds run times."""
    return {
        "verdicts": [asdict(verdict) for verdict in report.verdicts],
        "figures": {figure.name: asdict(figure) for figure in report.figures},
        "about": about,
    }


def describe(report: Report, out: Path) -> list[str]:
    """The verdict table and what else there is to say on a terminal."""
    points = agreement(report.figures)
    width = max((len(verdict.verdict) for verdict in report.verdicts), default=0)
    lines = [f"{verdict.verdict:{width}}  {verdict.where}: {verdict.claim}" for verdict in report.verdicts]
    counts = Counter(verdict.verdict for verdict in report.verdicts)
    agreed = [
        f"{points['within']} of {points['count']} simulated points are within {AGREE} standard errors of their exact "
        f"values, the farthest at {points['largest']:.2f}"
    ]
    return [
        *lines,
        "",
        "; ".join(f"{count} {kind}" for kind, count in counts.items()),
        *(agreed if points["count"] else []),
        f"{report.reused} of {report.parts} parts were taken from {out / 'parts'} (same code, versions and settings; "
        "--fresh makes them anew)"
        if report.reused
        else f"all {report.parts} parts were made now and kept in {out / 'parts'}",
        f"the page is {out / 'index.html'}, every number is in {out / 'results.json'}",
    ]
