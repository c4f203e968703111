"""The reproduction of the paper: every figure with few runs, which parts are reused, and the page in a browser.

Points are compared with their exact values at 6 standard errors here: runs are few, and squared errors are skewed.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from browser import chromium, problems
from strang.paper import (
    belief,
    figure1,
    figure2,
    figure3,
    mean_flow,
    measure,
    part_cache,
    reproduce,
    second_order,
    topics,
)
from strang.paper import unit_precision as unit
from strang.paper.figure import NOT_REPRODUCED, UNDER_READING, Effort, Part

TINY = Effort("tiny", runs=8, steps=5_000, trace_runs=40, longest=400)
NAMES = ["fig1", "fig2", "fig3", "unit", "order2", "meanflow", "table1"]  # theorems are tested in test_theorems


def without_some(simulate):
    """`simulate` without the slowest to compile, which test_gaussian compares with exact values as well."""

    def simulated(target, policy, sizes, *args):
        if policy in ("reshuffled", "nogin"):
            return [{"value": None, "se": None, "diverged": 0}] * len(sizes)
        return simulate(target, policy, sizes, *args)

    return simulated


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """All figures with few runs and a coarse search, once for all tests here.

    Compiling takes most of the time: all grids have 40 chains, so that figures share what is compiled. Unequal
    precisions replace the double well, which takes a minute to compile and is simulated in test_galerkin.
    """
    out = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figure1, "SIZES", figure1.SIZES[::3])  # 5 cells of 8 runs
        patch.setattr(figure1, "SGNHT_SIZES", figure1.SIZES[:5])
        patch.setattr(figure1, "CURVE", figure1.CURVE[::6])
        patch.setitem(figure2.CURVE, "D", 10_000)
        patch.setattr(figure3, "FIXED_GRID", (0.001, 0.301))  # 2 cells of 20 runs
        patch.setattr(figure3, "DECREASING_GRID", (0.003, 0.027))
        patch.setattr(figure3, "SEARCH_RUNS", 20)
        patch.setattr(figure3, "FRICTIONS", (10.0,))
        patch.setattr(figure3, "CONTESTS", [contest for contest in figure3.CONTESTS if contest.tuned_at == 500])
        patch.setitem(unit.LONGEST, "decreasing", 30_000)
        patch.delitem(second_order.PROBLEMS, "paper")
        exact_only = second_order.PROBLEMS["precisions"]()._replace(simulated=())
        patch.setitem(second_order.PROBLEMS, "well", lambda: exact_only)
        patch.setattr(second_order, "simulate", without_some(second_order.simulate))
        patch.setattr(belief, "unavailable", lambda: "not in this test")  # see test_belief
        patch.setattr(topics, "parts", lambda effort: [])  # see test_topics
        return reproduce.reproduce(NAMES, effort=TINY, out=out, progress=False), out


def all_points(figures):
    return [p for f in figures for panel in f.panels for series in panel.series for p in series.points]


def test_every_simulated_point_agrees_with_its_exact_value(made):
    report, _ = made
    scored = [p for p in all_points(report.figures) if None not in (p["value"], p["exact"]) and p["se"]]
    assert len(scored) > 250
    far = [p for p in scored if abs(p["value"] - p["exact"]) > 6 * p["se"]]
    assert len(far) < 0.02 * len(scored), far  # skewed squares of 8 or 40 runs; the report itself has 2000
    assert reproduce.agreement(report.figures)["count"] == len(scored)


def test_a_wrong_simulation_is_detected(monkeypatch):
    """Batches of 9 instead of 10, whose gradient noise is 11 % larger, give a bias far from the exact value."""
    settings = {"scheme": ["sghmc", "chen:ABOBA"], "scales": [0.005], "frictions": [10.0], "stops": [40_000]}
    right = measure.errors(**settings, runs=40)["bias"][0][0]
    monkeypatch.setattr(measure, "BATCH", 9)
    wrong = measure.errors(**settings, runs=40)["bias"][0][0]
    assert abs(right["value"] - right["exact"]) < 4.5 * right["se"]
    assert abs(wrong["value"] - right["exact"]) > 6 * wrong["se"]


def test_first_unstable_step_sizes():
    limits = {key: round(value["limit"], 3) for key, value in figure1.curves(steps=1000, sizes=[1e-3]).items()}
    assert [limits[f"euler-old {d}"] for d in (10, 20, 30)] == [0.010, 0.020, 0.030]
    assert [limits[f"euler-new {d}"] for d in (10, 20, 30)] == [0.054, 0.046, 0.040]
    assert [limits[f"chen:ABOBA {d}"] for d in (10, 20, 30)] == [0.065, 0.071, 0.092]
    assert limits["sgld 1"] == 0.002


def verdict_of(report, claim):
    (matching,) = [verdict for verdict in report.verdicts if claim in verdict.claim]
    return matching


@pytest.mark.parametrize(
    ("claim", "verdict", "reading"),
    [
        ("Euler has larger biases", UNDER_READING, "old momentum"),
        ("Euler quickly explodes", UNDER_READING, "below 0.0649"),
        ("α = 1/3 is optimal for the bias of SGHMC-F", UNDER_READING, "from 1,000 to 10,000"),
        ("α = 1/5 is optimal for the MSE of SGHMC-F", UNDER_READING, "only for L from"),
        ("bias, fixed steps tuned at L = 500", NOT_REPRODUCED, "with full gradients SGHMC is"),
        ("MSE, decreasing steps tuned at L = 500", UNDER_READING, "stability limit"),
        ("the benefit is not as large", NOT_REPRODUCED, ""),
        ("α = 1/3 is optimal for the bias with fixed steps", UNDER_READING, "full gradients"),
        ("splitting's MSE falls like L^-0.8", UNDER_READING, "full gradients"),
        ("O(1/(Lh) + h²)", UNDER_READING, "not with independent batches"),
        ("Higher-order integrators", UNDER_READING, "with independent batches all have order 1"),
    ],
)
def test_verdicts(made, claim, verdict, reading):
    actual = verdict_of(made[0], claim)
    assert actual.verdict == verdict
    assert reading in actual.reading


def test_results_hold_every_plotted_number(made):
    report, out = made
    results = json.loads((out / "results.json").read_text())
    assert results["verdicts"] == [json.loads(json.dumps(v.__dict__)) for v in report.verdicts]
    keys = {"claim", "where", "verdict", "reading", "numbers", "why", "basis"}
    assert all(set(verdict) == keys for verdict in results["verdicts"])
    series = [s for figure in results["figures"].values() for panel in figure["panels"] for s in panel["series"]]
    points = [point for one in series for point in one["points"]]
    assert len(points) == len(all_points(report.figures))
    assert all({"x", "value", "se", "exact"} <= set(point) for point in points)


def test_the_page_in_a_browser(made):
    report, out = made
    with chromium() as opened:
        assert problems(opened, out / "index.html", [verdict.verdict for verdict in report.verdicts]) == []


def without_times(text):
    return re.sub(r'<(\w+) class="[^"]*runtime[^"]*">.*?</\1>', "", text, flags=re.DOTALL)


def test_a_second_run_reuses_only_equal_parts(made, tmp_path):
    first, out = made
    assert first.reused == 0
    shutil.copytree(out / "parts", tmp_path / "parts")
    second = reproduce.reproduce(["meanflow"], effort=TINY, out=tmp_path, progress=False)
    assert second.reused == second.parts > 0
    assert second.figures == [figure for figure in first.figures if figure.name == "meanflow"]
    assert "were taken from" in "\n".join(reproduce.describe(second, tmp_path))
    fresh = reproduce.reproduce(["meanflow"], effort=TINY, out=tmp_path, fresh=True, progress=False, processes=2)
    assert (fresh.reused, fresh.figures) == (0, second.figures)
    for part, other in zip(*(mean_flow.parts(TINY._replace(runs=runs)) for runs in (TINY.runs, 13)), strict=True):
        assert part_cache.load(part, tmp_path / "parts") is not None
        assert part_cache.load(other, tmp_path / "parts") is None


def count(*, calls: str, by: int) -> int:
    """A part that appends to a file whenever it is computed."""
    Path(calls).write_text(Path(calls).read_text() + "x")
    return by


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", '{"result": 1}', "cut", "changed"])
def test_damaged_parts_are_computed_again(tmp_path, damage):
    calls = tmp_path / "calls"
    calls.write_text("")
    part = Part("", count, {"calls": str(calls), "by": 3})
    assert part_cache.load_or_compute(part, tmp_path / "parts").result == 3
    assert part_cache.load_or_compute(part, tmp_path / "parts").reused
    (path,) = (tmp_path / "parts").iterdir()
    text = path.read_text()
    path.write_text({"cut": text[:-9], "changed": text.replace('"result": 3', '"result": 4')}.get(damage, damage))
    assert part_cache.load_or_compute(part, tmp_path / "parts") == (3, pytest.approx(0, abs=1), False)
    assert calls.read_text() == "xx"


def test_other_code_is_not_reused(tmp_path, monkeypatch):
    calls = tmp_path / "calls"
    calls.write_text("")
    part = Part("", count, {"calls": str(calls), "by": 3})
    part_cache.load_or_compute(part, tmp_path / "parts")
    monkeypatch.setattr(part_cache, "fingerprint", lambda: "other code")
    assert not part_cache.load_or_compute(part, tmp_path / "parts").reused


def test_temporary_files_of_killed_processes_are_removed(tmp_path, monkeypatch):
    """A reproduction removes what killed ones left, but not what a running process may still be writing."""
    monkeypatch.setattr(belief, "parts", lambda effort: [])
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    names = [f".{'0' * 24}.json.{pid}" for pid in (ended.pid, os.getpid(), 10**30, os.getppid())] + [f"{'0' * 24}.json"]
    (tmp_path / "parts").mkdir()
    for name in names:
        (tmp_path / "parts" / name).write_text("{")
    reproduce.reproduce(["belief"], effort=TINY, out=tmp_path, progress=False)
    assert {path.name for path in (tmp_path / "parts").iterdir()} == set(names[3:])


PROGRAM = """
import sys
from pathlib import Path
from strang.paper import reproduce
from strang.paper.figure import Effort
effort = Effort("tiny", runs=8, steps=5_000, trace_runs=40, longest=400)
reproduce.reproduce(["meanflow"], effort=effort, out=Path(sys.argv[1]), progress=False)
"""


def test_a_killed_reproduction_ends_with_the_same_page(made, tmp_path):
    """Killed as soon as two parts are stored, and then left to finish."""
    parts = tmp_path / "killed" / "parts"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path / "killed")])
    deadline = time.time() + 120
    while process.poll() is None and time.time() < deadline and len(list(parts.glob("*.json"))) < 2:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed" / "index.html").exists()
    seen = len(list(parts.glob("*.json")))
    resumed = reproduce.reproduce(["meanflow"], effort=TINY, out=tmp_path / "killed", progress=False)
    shutil.copytree(made[1] / "parts", tmp_path / "whole" / "parts")  # computed without a break
    whole = reproduce.reproduce(["meanflow"], effort=TINY, out=tmp_path / "whole", progress=False)
    assert seen <= resumed.reused < resumed.parts
    assert whole.reused == whole.parts
    assert resumed.figures == whole.figures
    one, other = ((tmp_path / name / "index.html").read_text() for name in ("killed", "whole"))
    assert without_times(one) == without_times(other)
    assert without_times(one) != one
    results = [json.loads((tmp_path / name / "results.json").read_text()) for name in ("killed", "whole")]
    for result in results:
        del result["about"]
    assert results[0] == results[1]
