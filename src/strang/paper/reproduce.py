"""Reproduces the paper: one section per figure or table, with a verdict on each of its claims."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from strang.paper import belief, figure1, figure2, figure3, mean_flow, part_cache, second_order, theorems, topics
from strang.paper import unit_precision as unit
from strang.paper.figure import FULL, QUICK, Effort, Figure, Verdict
from strang.parallel import dask, pool
from strang.report.pages import need_pages
from strang.util.compiled import keep_compiled_code
from strang.util.errors import choose, whole
from strang.util.files import remove_leftovers, replace_file
from strang.util.progress import track
from strang.util.version import versions

# A figure is a module with `parts(effort)`, the work to do, and `figure(effort, results)`, the section made from it.
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
GROUPS = {"table1": ["topics", "belief"], "all": list(FIGURES)}
MAX_STANDARD_ERRORS = 4.5  # distance up to which a simulated point agrees with its exact value


class Report(NamedTuple):
    """A reproduction: its figures, the seconds each took, and how many of its parts came from an earlier one."""

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
    processes: int = 1,
) -> Report:
    """Compute figures of the paper (by default all) and write `index.html` and `results.json` to the folder `out`.

    Finished parts are stored in its folder `parts`, from where a killed reproduction continues; `fresh` computes also
    those again. With the address of a Dask scheduler its workers compute the parts, else so many `processes` here.
    """
    from strang.paper import page

    for name in names:
        if name not in FIGURES and name not in GROUPS:
            raise choose("figure", name, [*FIGURES, *GROUPS])
    need_pages()
    keep_compiled_code()
    chosen = list(dict.fromkeys(each for name in names or ["all"] for each in GROUPS.get(name, [name])))
    folder = out / "parts"
    folder.mkdir(parents=True, exist_ok=True)  # if this fails, better now than after the first part
    remove_leftovers(folder, "*.json")
    spread = partial(dask.spread, scheduler) if scheduler else partial(pool.spread, whole("processes", processes))
    alone = scheduler is None and processes == 1
    computed = 0 if alone else compute_elsewhere(spread, chosen, effort, folder, fresh, progress)
    report = compute(chosen, effort, folder, fresh and not computed, progress)
    report = report._replace(reused=report.reused - computed)
    content = results(report)
    replace_file(out / "results.json", json.dumps(content, indent=1, allow_nan=False).encode())
    replace_file(out / "index.html", page.render(report.figures, content["about"]).encode())
    return report


def compute_elsewhere(
    spread: Callable, names: list[str], effort: Effort, folder: Path, fresh: bool, progress: bool | None
) -> int:
    """Let other processes compute the parts that are not stored yet, store each as it arrives, and return their
    number."""
    wanted = {part_cache.path_of(part, folder): part for name in names for part in FIGURES[name].parts(effort)}
    missing = [part for part in wanted.values() if fresh or part_cache.load(part, folder) is None]
    for number, computed in spread(part_cache.compute, missing, "parts", progress) if missing else ():
        part_cache.store(missing[number], computed, folder)
    return len(missing)


def compute(names: list[str], effort: Effort, folder: Path, fresh: bool, progress: bool | None) -> Report:
    """Compute the figures part by part, using the stored parts unless `fresh`."""
    figures, seconds, count, reused = [], {}, 0, 0
    for name in names:
        parts = track(FIGURES[name].parts(effort), name, progress)
        computed = [part_cache.load_or_compute(part, folder, fresh) for part in parts]
        figures.append(FIGURES[name].figure(effort, [each.result for each in computed]))
        seconds[name] = sum(each.seconds for each in computed)
        count += len(computed)
        reused += sum(each.reused for each in computed)
    return Report(figures, seconds, count, reused, effort)


def agreement(figures: list[Figure]) -> dict[str, Any]:
    """How many simulated points have an exact value, and how many of them agree with it."""
    scores = [
        abs(point["value"] - point["exact"]) / point["se"]
        for figure in figures
        for panel in figure.panels
        for series in panel.series
        for point in series.points
        if point["value"] is not None and point["exact"] is not None and point["se"]
    ]
    within, largest = sum(z <= MAX_STANDARD_ERRORS for z in scores), max(scores, default=0.0)
    return {"count": len(scores), "within": within, "tolerance": MAX_STANDARD_ERRORS, "largest": largest}


def about_page(report: Report) -> dict[str, Any]:
    """How the report was made: what its page says about itself."""
    left_out = [name for name in FIGURES if name not in report.seconds]
    return {
        "title": "On the convergence of stochastic gradient MCMC with high-order integrators, reproduced",
        "effort": effort_sentence(report.effort),
        "versions": versions("scipy"),
        "seconds": report.seconds,
        "total_seconds": sum(report.seconds.values()),
        "points": agreement(report.figures),
        "left_out": left_out,
        "command": " ".join(["strang reproduce", *(report.seconds if left_out else ()), f"--{report.effort.name}"]),
    }


def effort_sentence(effort: Effort) -> str:
    """How much was simulated, compared with the paper."""
    comparison = "less than the paper's 200 runs of 10⁶ steps; --full makes those"
    if effort.name == FULL.name:
        comparison = "at least the paper's own counts; Table 1 states its own"
    return (
        f"{effort.name}: {effort.runs} runs of {effort.steps:,} steps for invariant measures, {effort.trace_runs:,} "
        f"of up to {effort.longest:,} for traces ({comparison})"
    )


def results(report: Report) -> dict[str, Any]:
    """Everything on the page as JSON data. Only `about` holds run times."""
    return {
        "verdicts": [asdict(verdict) for verdict in report.verdicts],
        "figures": {figure.name: asdict(figure) for figure in report.figures},
        "about": about_page(report),
    }


def describe(report: Report, out: Path) -> list[str]:
    """The verdicts, and where the report is, as lines for the terminal."""
    points = agreement(report.figures)
    width = max((len(verdict.verdict) for verdict in report.verdicts), default=0)
    lines = [f"{verdict.verdict:{width}}  {verdict.where}: {verdict.claim}" for verdict in report.verdicts]
    counts = Counter(verdict.verdict for verdict in report.verdicts)
    lines += ["", "; ".join(f"{count} {kind}" for kind, count in counts.items())]
    if points["count"]:
        lines.append(
            f"{points['within']} of {points['count']} simulated points are within {MAX_STANDARD_ERRORS} standard "
            f"errors of their exact values, the farthest at {points['largest']:.2f}"
        )
    origin = f"all {report.parts} parts were computed now and stored in {out / 'parts'}"
    if report.reused:
        origin = f"{report.reused} of {report.parts} parts were taken from {out / 'parts'}"
        origin += " (same code, versions and settings; --fresh computes them again)"
    return [*lines, origin, f"the page is {out / 'index.html'}, every number is in {out / 'results.json'}"]
