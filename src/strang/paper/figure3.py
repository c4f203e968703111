"""Figure 3 and its appendix twins: SGHMC with the splitting against SGLD with Euler, each with its best step.

The paper's protocol: the factor C of the step size (and D of SGHMC) is searched on a grid for one number of steps, then
kept for all. Fixed steps are h = C L^-α, decreasing ones h_l = C l^-α; α is what theory gives for each, by the paper.
"""

from typing import Any, NamedTuple

import numpy as np

from strang.paper import measure
from strang.paper.figure import (
    NOT_REPRODUCED,
    REPRODUCED,
    UNDER_READING,
    Effort,
    Figure,
    Panel,
    Part,
    Point,
    Series,
    Table,
    Verdict,
)

FRICTIONS = (10.0, 20.0, 30.0)
FIXED_GRID = tuple(round(0.001 + 0.002 * k, 3) for k in range(250))  # 0.001 ... 0.499
DECREASING_GRID = tuple(round(0.003 + 0.002 * k, 3) for k in range(24))  # 0.003 ... 0.049
ALPHAS = {"bias": {"sghmc": 1 / 3, "sgld": 1 / 2}, "mse": {"sghmc": 1 / 5, "sgld": 1 / 3}}
INTEGRATORS = {"sghmc": "chen:ABOBA", "sgld": "euler", "sgnht": "chen:ABOBA"}
LABELS = {"sghmc": "SGHMC, splitting", "sgld": "SGLD, Euler", "sgnht": "SGNHT, splitting"}
STOPS = tuple(round(10 ** (k / 2)) for k in range(4, 13))  # 100 ... 10^6 by half decades
CURVE = 100_000
DENSE = np.geomspace(100, CURVE, 31).round().astype(int).tolist()
STABLE_START = 0.001  # half of SGLD's stability limit, and not on the paper's grid
SEARCH_RUNS = 200  # the paper's; the points that are shown have more
GOALS = {"bias": "bias of the mean of θ²", "mse": "MSE of the mean of θ²"}


class Contest(NamedTuple):
    """One comparison: what is compared, fixed or decreasing steps, and the L for which C is chosen."""

    goal: str
    kind: str
    tuned_at: int

    @property
    def where(self) -> str:
        return "Figure 3" if self.goal == "bias" and self.tuned_at == 500 else "appendix"

    @property
    def title(self) -> str:
        return f"{measure.NAMES[self.goal]}, {self.kind} steps tuned at L = {self.tuned_at} ({self.where})"


CONTESTS = (
    Contest("bias", "fixed", 500),
    Contest("bias", "decreasing", 500),
    Contest("bias", "fixed", 200),
    Contest("mse", "fixed", 200),
    Contest("mse", "fixed", 500),
    Contest("mse", "decreasing", 500),
)


def parts(effort: Effort) -> list[Part]:
    """One part for each comparison: its grid search, then the curves at what was found. Two more are exact only."""
    stops = [stop for stop in STOPS if stop <= effort.longest]
    found = [
        Part(contest.title, compete, {**contest._asdict(), "stops": stops, "runs": effort.trace_runs, "seed": i})
        for i, contest in enumerate(CONTESTS)
    ]
    full = [Part(f"full gradients, {goal}", full_gradients, {"goal": goal, "tuned_at": 500}) for goal in GOALS]
    return [*found, *full]


def compete(*, goal: str, kind: str, tuned_at: int, stops: list[int], runs: int, seed: int) -> dict[str, Any]:
    """The grid search of every dynamics, simulated and exact, and its curve against the number of steps."""
    found = {}
    for dynamics in LABELS:
        alpha = ALPHAS[goal]["sgld" if dynamics == "sgld" else "sghmc"]
        grid = FIXED_GRID if kind == "fixed" else DECREASING_GRID
        cells = [(scale, friction) for friction in ((1.0,) if dynamics == "sgld" else FRICTIONS) for scale in grid]
        searched = [cell[0] for cell in run(dynamics, kind, alpha, cells, tuned_at, min(SEARCH_RUNS, runs), seed)[goal]]
        every = 10 if kind == "fixed" else 2
        few = searched[::every]
        if dynamics != "sgnht":  # enough runs to compare with the exact values
            few = [cell[0] for cell in run(dynamics, kind, alpha, cells[::every], tuned_at, runs, 50 + seed)[goal]]
        shown = dict(zip(cells[::every], few, strict=True))
        exactly = {cell: {**point, "value": None, "se": None} for cell, point in zip(cells, searched, strict=True)}
        best = least(searched, "value" if dynamics == "sgnht" else "exact")
        found[dynamics] = {
            "alpha": alpha,
            "grid": [
                {"x": cell[0], "friction": cell[1], **shown.get(cell, exactly[cell])} for cell in cells[:: every // 2]
            ],
            "chosen": cells[best],
            "chosen_simulated": cells[least(searched, "value")],
            "curve": trace(dynamics, kind, alpha, cells[best], stops, runs, seed)[goal],
        }
    if kind == "decreasing":
        start = measure.exact_errors("sgld", "euler", STABLE_START, 1.0, found["sgld"]["alpha"], [CURVE])
        found["sgld"]["stable_start"] = start[goal][0]
    return found


def full_gradients(*, goal: str, tuned_at: int) -> dict[str, Any]:
    """The same search and curves with full gradients, exactly: fixed steps, no simulation."""
    found = {}
    for dynamics in ("sghmc", "sgld"):
        alpha = ALPHAS[goal][dynamics]
        frictions = (1.0,) if dynamics == "sgld" else FRICTIONS
        cells = [(scale, friction) for friction in frictions for scale in FIXED_GRID]
        best = cells[int(np.argmin([exact_error(dynamics, goal, alpha, cell, tuned_at, "full") for cell in cells]))]
        curve = [
            {"x": l, "value": None, "se": None, "exact": exact_error(dynamics, goal, alpha, best, l, "full")}
            for l in DENSE
        ]
        curve = [point if tame(point) else hidden(point) for point in curve]  # C fits L = 500: shorter runs may explode
        found[dynamics] = {"alpha": alpha, "chosen": best, "curve": curve}
    return found


def exact_error(dynamics: str, goal: str, alpha: float, cell, stop: int, order: str = "iid") -> float:
    """|bias| or MSE after `stop` steps of size C stop^-alpha; a huge number where it explodes."""
    scale, friction = cell
    name = INTEGRATORS[dynamics]
    value = measure.exact_errors(dynamics, name, scale * stop**-alpha, friction, None, [stop], order)[goal][0]
    return abs(value) if value is not None else 1e300


def run(dynamics: str, kind: str, alpha: float, cells, stop: int, runs: int, seed: int) -> dict[str, list[list[Point]]]:
    """Bias and MSE after `stop` steps in every cell (C, D)."""
    fixed = kind == "fixed"
    return measure.errors(
        dynamics=dynamics,
        integrator=INTEGRATORS[dynamics],
        sizes=[scale * (stop**-alpha if fixed else 1.0) for scale, _ in cells],
        frictions=[friction for _, friction in cells],
        alphas=None if fixed else [alpha] * len(cells),
        stops=[stop],
        runs=runs,
        thermostat=False,  # nobody knows V while searching
        seed=seed,
    )


def least(points: list[Point], by: str) -> int:
    """The place of the least error, of those that have one."""
    return int(np.argmin([np.inf if point[by] is None else abs(point[by]) for point in points]))


def trace(dynamics: str, kind: str, alpha: float, cell, stops: list[int], runs: int, seed: int):
    """Errors against the number of steps: one run after the other if h depends on L; with exact values between."""
    scale, friction = cell
    name = INTEGRATORS[dynamics]
    if kind == "fixed":
        each = [run(dynamics, kind, alpha, [cell], stop, runs, 100 + 20 * seed + i) for i, stop in enumerate(stops)]
        simulated = {goal: [found[goal][0][0] for found in each] for goal in GOALS}
        exact = [measure.exact_errors(dynamics, name, scale * l**-alpha, friction, None, [l]) for l in DENSE]
        between = {goal: [found[goal][0] for found in exact] for goal in GOALS}
    else:
        decreasing: dict[str, Any] = {"sizes": [scale], "frictions": [friction], "alphas": [alpha], "thermostat": False}
        found = measure.errors(
            dynamics=dynamics, integrator=name, stops=stops, runs=runs, seed=100 + 20 * seed, **decreasing
        )
        simulated = {goal: found[goal][0] for goal in GOALS}
        between = measure.exact_errors(dynamics, name, scale, friction, alpha, DENSE)
    points: dict[str, list[Point]] = {}
    for goal in GOALS:
        lone = zip(DENSE, between[goal], strict=True)
        extra = [{"x": l, "value": None, "se": None, "exact": value} for l, value in lone if l not in stops]
        points[goal] = sorted([{"x": p["steps"], **p} for p in simulated[goal]] + extra, key=lambda p: p["x"])
    return points


def figure(effort: Effort, results: list[Any]) -> Figure:
    *competed, full_bias, full_mse = results
    found = dict(zip(CONTESTS, competed, strict=True))
    full = {"bias": full_bias, "mse": full_mse}
    panels = [race(contest.title, contest.goal, result) for contest, result in found.items()]
    panels += [
        race(f"{measure.NAMES[goal]}, fixed steps, full gradients (not in the paper)", goal, full[goal])
        for goal in GOALS
    ]
    panels += [search(contest, result) for contest, result in found.items()]
    verdicts = [faster(contest, result, full[contest.goal]) for contest, result in found.items()]
    settings = {
        "grid of C": "0.001 to 0.499 by 0.002 (fixed), 0.003 to 0.049 by 0.002 (decreasing)",
        "grid of D": list(FRICTIONS),
        "runs in the search": SEARCH_RUNS,
        "SGNHT": "ξ0 = D, since V is not known while searching",
    }
    return Figure(
        "fig3",
        "Figure 3: SGHMC against SGLD",
        "“As indicated by both theory and experiments, the SGHMC with the splitting integrator yields a faster "
        "convergence speed than the SGLD with an Euler integrator.” C is chosen on a grid for one L, D among 10, 20, "
        "30.",
        "Error against the number of steps at the chosen C and D; then the same with full gradients; then the "
        "searches. With fixed steps and minibatches SGLD is ahead, although its best C is the smallest of the grid. "
        "With decreasing steps it is far behind, because the grid starts it above its stability limit 0.002. With "
        "full gradients SGHMC wins.",
        {**measure.SETTINGS, **settings, **measure.lengths(effort)},
        panels,
        [chosen(found)],
        [*verdicts, smaller_benefit(found)],
    )


def race(title: str, goal: str, found: dict[str, Any]) -> Panel:
    series = [Series(LABELS[name], result["curve"], name == "sghmc") for name, result in found.items()]
    return Panel(title, "steps L", GOALS[goal], series)


def search(contest: Contest, found: dict[str, Any]) -> Panel:
    """The grid: error at the tuning L against C. Where it explodes, and errors are astronomic, nothing is shown."""
    series = []
    for name, result in found.items():
        for friction in dict.fromkeys(point["friction"] for point in result["grid"]):
            label = LABELS[name] + ("" if name == "sgld" else f", D = {friction:g}")
            mine = [point for point in result["grid"] if point["friction"] == friction]
            series.append(Series(label, [point if tame(point) else hidden(point) for point in mine]))
    return Panel(f"Search: {contest.title}", "C", GOALS[contest.goal], series)


def tame(point: Point) -> bool:
    return all(point[key] is None or abs(point[key]) < 1e3 for key in ("value", "exact"))


def hidden(point: Point) -> Point:
    return {**point, "value": None, "se": None, "exact": None}


def chosen(found: dict[Contest, Any]) -> Table:
    """What the searches found, by exact errors and by simulated ones as in the paper."""
    rows = []
    for contest, results in found.items():
        for name, result in results.items():
            (scale, friction), (seen_scale, seen_friction) = result["chosen"], result["chosen_simulated"]
            exact = ["–", "–"] if name == "sgnht" else [scale, "–" if name == "sgld" else friction]
            seen = [seen_scale, "–" if name == "sgld" else seen_friction]
            rows.append([contest.title, LABELS[name], result["alpha"], *exact, *seen])
    columns = ["comparison", "dynamics", "α", "C, exact", "D, exact", "C, simulated", "D, simulated"]
    return Table(f"Chosen by exact errors, and by those of {SEARCH_RUNS} simulated runs", columns, rows)


def at_end(result: dict[str, Any]) -> float:
    """The exact error at the last L that every curve has."""
    return next(abs(point["exact"]) for point in result["curve"] if point["x"] == CURVE)


def faster(contest: Contest, found: dict[str, Any], full: dict[str, Any]) -> Verdict:
    """Whether SGHMC's exact error is the smaller one at every number of steps."""
    pairs = [
        (a["x"], abs(a["exact"]), abs(b["exact"]))
        for a, b in zip(found["sghmc"]["curve"], found["sgld"]["curve"], strict=True)
        if a["exact"] is not None and b["exact"] is not None
    ]
    ahead = [x for x, sghmc, sgld in pairs if sghmc < sgld]
    everywhere, limit = len(ahead) == len(pairs), 2 / measure.PRECISION
    forced = contest.kind == "decreasing" and min(DECREASING_GRID) > limit
    with_full = at_end(full["sghmc"]) < at_end(full["sgld"])
    if everywhere:
        verdict, reading = REPRODUCED, "at every L shown"
        if forced:
            verdict = UNDER_READING
            reading = (
                f"on the paper's grid, whose smallest first step 0.003 is beyond SGLD's stability limit {limit:.4f}"
            )
    elif ahead:
        verdict, reading = UNDER_READING, f"only from L = {ahead[0]:,} to {ahead[-1]:,}"
    else:
        verdict = NOT_REPRODUCED
        reading = "the paper's minibatches of 10: SGLD is ahead at every L shown; "
        reading += "with full gradients SGHMC is" if with_full else "also with full gradients"
    sghmc, sgld = at_end(found["sghmc"]), at_end(found["sgld"])
    numbers = {
        f"SGHMC's error at L = {CURVE:,}": sghmc,
        f"SGLD's error at L = {CURVE:,}": sgld,
        "SGHMC's over SGLD's": sghmc / sgld,
        "SGLD's C": found["sgld"]["chosen"][0],
        "SGHMC's C and D": list(found["sghmc"]["chosen"]),
    }
    if contest.kind == "fixed":
        numbers["SGHMC's over SGLD's, full gradients"] = at_end(full["sghmc"]) / at_end(full["sgld"])
    else:
        numbers[f"SGLD's error with the stable first step {STABLE_START:g}, not on the grid"] = found["sgld"][
            "stable_start"
        ]
    return Verdict(
        f"SGHMC converges faster than SGLD: {measure.NAMES[contest.goal]}, {contest.kind} steps tuned at L = "
        f"{contest.tuned_at}",
        "Section 5, Figure 3" if contest.where == "Figure 3" else "Appendix K",
        verdict,
        reading,
        numbers,
        "SGLD explodes in its first steps there and needs the rest of the run to forget it."
        if forced
        else "Minibatch noise makes the error here, hV/(2D) for SGHMC and hV/2 for SGLD, which gets as far with much "
        "smaller steps. Friction up to 30 is too little to make up for that.",
    )


def smaller_benefit(found: dict[Contest, Any]) -> Verdict:
    """“though the benefit is not as large as using fix step size”: SGLD's error over SGHMC's in both cases."""
    gain = {}
    for kind in ("fixed", "decreasing"):
        for goal in GOALS:
            results = found[Contest(goal, kind, 500)]
            gain[goal, kind] = at_end(results["sgld"]) / at_end(results["sghmc"])
    holds = all(1 < gain[goal, "decreasing"] < gain[goal, "fixed"] for goal in GOALS)
    return Verdict(
        "With decreasing steps SGHMC is still faster than SGLD, though the benefit is not as large as with fixed steps",
        "Appendix K",
        REPRODUCED if holds else NOT_REPRODUCED,
        f"exact errors at L = {CURVE:,}, tuned at L = 500",
        {f"SGLD's {measure.NAMES[goal]} over SGHMC's, {kind} steps": value for (goal, kind), value in gain.items()},
        "The factor is smaller with decreasing steps."
        if holds
        else "The grid of decreasing steps starts SGLD where it explodes; the grid of fixed steps does not.",
    )
