"""Figure 3 and its versions in the appendix: SGHMC with the splitting against SGLD with Euler, each with its best step.

The paper's protocol: the factor C of the step size (and D of SGHMC) is searched on a grid for one number of steps, then
used for all. Fixed steps are h = C L^-α, decreasing ones h_l = C l^-α; α is the paper's theoretical optimum for each.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from strang.paper import measure
from strang.paper.figure import Effort, Figure, Part, Verdict
from strang.paper.verdicts import decide, listed, otherwise, partly, reproduced
from strang.report.figures import number
from strang.report.panels import Panel, Point, Series, Table

FRICTIONS = (10.0, 20.0, 30.0)
FIXED_GRID = tuple(round(0.001 + 0.002 * k, 3) for k in range(250))  # 0.001 ... 0.499
DECREASING_GRID = tuple(round(0.003 + 0.002 * k, 3) for k in range(24))  # 0.003 ... 0.049
ALPHAS = {"bias": {"sghmc": 1 / 3, "sgld": 1 / 2}, "mse": {"sghmc": 1 / 5, "sgld": 1 / 3}}
INTEGRATORS = {"sghmc": "chen:ABOBA", "sgld": "euler", "sgnht": "chen:ABOBA"}
LABELS = {"sghmc": "SGHMC, splitting", "sgld": "SGLD, Euler", "sgnht": "SGNHT, splitting"}
CURVE = 100_000
DENSE = measure.dense(100, CURVE, 31)
STABLE_START = 0.001  # half of SGLD's stability limit, and not on the paper's grid
SEARCH_RUNS = 200  # the paper's; the plotted points have more
NO_VALUE = {"value": None, "se": None}
MAX_ERROR = 1e3  # larger errors are of steps that diverge, and are not plotted


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
    """One part for each comparison: its grid search, then the curves at the best cell. Two more are exact only."""
    common = {"stops": measure.stops(effort), "runs": effort.trace_runs}
    return [
        *(Part(each.title, compete, {**each._asdict(), **common, "seed": i}) for i, each in enumerate(CONTESTS)),
        *(Part(f"full gradients, {goal}", full_gradients, {"goal": goal, "tuned_at": 500}) for goal in ALPHAS),
    ]


def compete(*, goal: str, kind: str, tuned_at: int, stops: list[int], runs: int, seed: int) -> dict[str, Any]:
    """The grid search of every dynamics, simulated and exact, and its curve against the number of steps."""
    every = 10 if kind == "fixed" else 2  # of the grid's cells has the runs to be compared with its exact value
    competed = {}
    for dynamics in LABELS:
        alpha = ALPHAS[goal]["sgld" if dynamics == "sgld" else "sghmc"]
        scheme = measure.Scheme(dynamics, INTEGRATORS[dynamics], kind, alpha)
        cells = cells_of(dynamics, FIXED_GRID if kind == "fixed" else DECREASING_GRID)
        tuning = {"scheme": scheme, "stops": [tuned_at]}
        searched = [cell[0] for cell in simulate(goal, cells, **tuning, runs=min(SEARCH_RUNS, runs), seed=seed)]
        grid = {cell: {**point, **NO_VALUE} for cell, point in zip(cells, searched, strict=True)}
        simulated = searched[::every]
        if dynamics != "sgnht":
            simulated = [cell[0] for cell in simulate(goal, cells[::every], **tuning, runs=runs, seed=50 + seed)]
        grid |= zip(cells[::every], simulated, strict=True)
        best = cells[least(searched, "value" if dynamics == "sgnht" else "exact")]
        (curve,) = simulate(goal, [best], scheme=scheme, stops=stops, runs=runs, seed=100 + 20 * seed)
        competed[dynamics] = {
            "alpha": alpha,
            "grid": [{**grid[cell], "x": cell[0], "friction": cell[1]} for cell in cells[:: every // 2]],
            "chosen": best,
            "chosen_simulated": cells[least(searched, "value")],
            "curve": measure.with_curve(curve, DENSE, measure.exact_errors(scheme, *best, DENSE)[goal]),
        }
    if kind == "decreasing":
        scheme = measure.Scheme("sgld", "euler", kind, ALPHAS[goal]["sgld"])
        competed["sgld"]["stable_start"] = measure.exact_errors(scheme, STABLE_START, 1.0, [CURVE])[goal][0]
    return competed


def full_gradients(*, goal: str, tuned_at: int) -> dict[str, Any]:
    """The same search and curves with full gradients, exactly: fixed steps, no simulation."""
    competed = {}
    for dynamics, alpha in ALPHAS[goal].items():
        scheme = measure.Scheme(dynamics, INTEGRATORS[dynamics], "fixed", alpha)
        cells = cells_of(dynamics, FIXED_GRID)
        tried = [measure.exact_errors(scheme, *cell, [tuned_at], "full")[goal][0] for cell in cells]
        best = cells[least([{"exact": error} for error in tried], "exact")]
        errors = measure.exact_errors(scheme, *best, DENSE, "full")[goal]
        curve = measure.with_curve([], DENSE, [None if error is None else abs(error) for error in errors])
        # C fits L = 500: shorter runs may diverge
        competed[dynamics] = {"alpha": alpha, "chosen": best, "curve": without_huge(curve)}
    return competed


def cells_of(dynamics: str, grid: Sequence[float]) -> list[tuple[float, float]]:
    """The pairs (C, D) that are searched; SGLD has no friction."""
    return [(scale, friction) for friction in ((1.0,) if dynamics == "sgld" else FRICTIONS) for scale in grid]


def simulate(goal: str, cells, **settings: Any) -> list[list[Point]]:
    """Bias or MSE in every cell (C, D) at the stops. SGNHT starts cold, because V is not known while searching."""
    scales, frictions = zip(*cells, strict=True)
    return measure.errors(scales=scales, frictions=frictions, warm_thermostat=False, **settings)[goal]


def least(points: list[Point], by: str) -> int:
    """The place of the least error, of those that have one."""
    return int(np.argmin([np.inf if point[by] is None else abs(point[by]) for point in points]))


def figure(effort: Effort, results: list[Any]) -> Figure:
    *competed, full_bias, full_mse = results
    by_contest = dict(zip(CONTESTS, competed, strict=True))
    full = {"bias": full_bias, "mse": full_mse}
    noiseless = "fixed steps, full gradients (not in the paper)"
    panels = [race(contest.title, contest.goal, result) for contest, result in by_contest.items()]
    panels += [race(f"{measure.NAMES[goal]}, {noiseless}", goal, result) for goal, result in full.items()]
    panels += [search(contest, result) for contest, result in by_contest.items()]
    verdicts = [faster(contest, result, full[contest.goal]) for contest, result in by_contest.items()]
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
        [chosen(by_contest)],
        [*verdicts, smaller_benefit(by_contest)],
    )


def race(title: str, goal: str, by_dynamics: dict[str, Any]) -> Panel:
    series = [Series(LABELS[name], result["curve"], name == "sghmc") for name, result in by_dynamics.items()]
    return Panel(title, "steps L", measure.QUANTITIES[goal], series)


def search(contest: Contest, by_dynamics: dict[str, Any]) -> Panel:
    """The grid: error at the tuning L against C."""
    by_label: dict[str, list[Point]] = {}
    for name, result in by_dynamics.items():
        for point in result["grid"]:
            label = LABELS[name] + ("" if name == "sgld" else f", D = {point['friction']:g}")
            by_label.setdefault(label, []).append(point)
    series = [Series(label, without_huge(points)) for label, points in by_label.items()]
    return Panel(f"Search: {contest.title}", "C", measure.QUANTITIES[contest.goal], series)


def without_huge(points: list[Point]) -> list[Point]:
    """The points, without the values of those whose errors are astronomic because the step diverges."""
    nothing = {**NO_VALUE, "exact": None}
    huge = [max(abs(point[key] or 0.0) for key in ("value", "exact")) >= MAX_ERROR for point in points]
    return [{**point, **nothing} if hide else point for point, hide in zip(points, huge, strict=True)]


def chosen(by_contest: dict[Contest, Any]) -> Table:
    """The best cells of the searches, by exact errors and by simulated ones as in the paper."""
    rows = []
    for contest, by_dynamics in by_contest.items():
        for name, result in by_dynamics.items():
            cells = [*result["chosen"], *result["chosen_simulated"]]
            for place in {"sgld": (1, 3), "sgnht": (0, 1)}.get(name, ()):  # no friction; no exact errors
                cells[place] = "–"
            rows.append([contest.title, LABELS[name], result["alpha"], *cells])
    columns = ["comparison", "dynamics", "α", "C, exact", "D, exact", "C, simulated", "D, simulated"]
    return Table(f"Chosen by exact errors, and by those of {SEARCH_RUNS} simulated runs", columns, rows)


def at_end(result: dict[str, Any]) -> float:
    """The exact error at the last L that every curve has."""
    return next(abs(point["exact"]) for point in result["curve"] if point["x"] == CURVE)


def faster(contest: Contest, by_dynamics: dict[str, Any], full: dict[str, Any]) -> Verdict:
    """Whether SGHMC's exact error is the smaller one at every number of steps."""
    both = zip(by_dynamics["sghmc"]["curve"], by_dynamics["sgld"]["curve"], strict=True)
    pairs = [(a, b) for a, b in both if a["exact"] is not None and b["exact"] is not None]
    ahead = [a["x"] for a, b in pairs if abs(a["exact"]) < abs(b["exact"])]
    limit, every = 2 / measure.PRECISION, len(ahead) == len(pairs)
    forced = contest.kind == "decreasing" and min(DECREASING_GRID) > limit
    sghmc, sgld = at_end(by_dynamics["sghmc"]), at_end(by_dynamics["sgld"])
    with_full = at_end(full["sghmc"]) / at_end(full["sgld"])
    numbers = {
        f"SGHMC's error at L = {CURVE:,}": sghmc,
        f"SGLD's error at L = {CURVE:,}": sgld,
        "SGHMC's over SGLD's": sghmc / sgld,
        "SGLD's C": by_dynamics["sgld"]["chosen"][0],
        "SGHMC's C and D": list(by_dynamics["sghmc"]["chosen"]),
    }
    made = f"SGHMC's error is {number(sghmc / sgld)} times SGLD's at L = {CURVE:,}, and the smaller one at "
    made += f"{len(ahead)} of "
    made += f"{len(pairs)} lengths."
    noise = " Minibatch noise makes the error here, hV/(2D) for SGHMC and hV/2 for SGLD, which gets as far with much "
    noise += f"smaller steps; with full gradients the ratio is {number(with_full)}."
    if contest.kind == "fixed":
        numbers["SGHMC's over SGLD's, full gradients"] = with_full
    else:
        start = f"SGLD's error with the stable first step {STABLE_START:g}, not on the grid"
        numbers[start] = by_dynamics["sgld"]["stable_start"]
    full_gradients = "with full gradients SGHMC is" if with_full < 1 else "also with full gradients"
    return decide(
        f"SGHMC converges faster than SGLD: {measure.NAMES[contest.goal]}, {contest.kind} steps tuned at L = "
        f"{contest.tuned_at}",
        "Section 5, Figure 3" if contest.where == "Figure 3" else "Appendix K",
        numbers,
        reproduced(every and not forced, "at every L shown", made),
        partly(
            every,
            f"on the paper's grid, whose smallest first step 0.003 is beyond SGLD's stability limit {limit:.4f}",
            f"{made} SGLD explodes in its first steps there and needs the rest of the run to forget it.",
        ),
        partly(
            ahead,
            f"only from L = {min(ahead, default=0):,} to {max(ahead, default=0):,}; {full_gradients}",
            made + noise,
        ),
        otherwise(f"the paper's minibatches of 10: SGLD is ahead at every L shown; {full_gradients}", made + noise),
    )


def smaller_benefit(by_contest: dict[Contest, Any]) -> Verdict:
    """“though the benefit is not as large as using fix step size”: SGLD's error over SGHMC's in both cases."""
    gain = {}
    for kind, goal in product(("fixed", "decreasing"), ALPHAS):
        results = by_contest[Contest(goal, kind, 500)]
        gain[goal, kind] = at_end(results["sgld"]) / at_end(results["sghmc"])
    holds = [goal for goal in ALPHAS if 1 < gain[goal, "decreasing"] < gain[goal, "fixed"]]
    made = "; ".join(
        f"SGLD's {measure.NAMES[goal]} is {number(gain[goal, 'fixed'])} times SGHMC's with fixed steps and "
        f"{number(gain[goal, 'decreasing'])} times with decreasing ones"
        for goal in ALPHAS
    )
    grid = ". The grid of decreasing steps starts SGLD where it explodes; the grid of fixed steps does not."
    reading = f"exact errors at L = {CURVE:,}, tuned at L = 500"
    return decide(
        "With decreasing steps SGHMC is still faster than SGLD, though the benefit is not as large as with fixed steps",
        "Appendix K",
        {f"SGLD's {measure.NAMES[goal]} over SGHMC's, {kind} steps": value for (goal, kind), value in gain.items()},
        reproduced(len(holds) == len(ALPHAS), reading, f"{made}."),
        partly(holds, f"for the {listed([measure.NAMES[goal] for goal in holds])}; {reading}", f"{made}."),
        otherwise(reading, made + grid),
    )
