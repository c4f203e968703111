"""Figure 2 and its appendix twin: bias and MSE of SGHMC against the number of steps, for different rates α.

SGHMC-F has the fixed step h = 0.033 L^-α in a run of L steps, SGHMC-D the decreasing steps h_l = 0.045 l^-α.
"""

from typing import Any

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
    Verdict,
)
from strang.theory import exponents

FRICTION = 10.0
ALPHAS = (0.1, 0.2, 0.3, 1 / 3, 0.4, 0.5, 0.7)
NAMES = ("0.1", "1/5", "0.3", "1/3", "0.4", "1/2", "0.7")
SCALES = {"F": 0.033, "D": 0.045}
BEST = {"bias": 3, "mse": 1}  # places of 1/3 and 1/5, which the paper calls optimal
STOPS = tuple(round(10 ** (k / 2)) for k in range(2, 13))  # 10 ... 10^6 by half decades
CURVE = {"F": 1_000_000, "D": 100_000}  # how far the exact curves go; a decreasing step costs a product of maps a step
QUANTITIES = {"bias": "bias of the mean of θ²", "mse": "MSE of the mean of θ²"}


def parts(effort: Effort) -> list[Part]:
    """Runs of every length for each α (F), one run for each α (D), and the exact curves."""
    common = {"dynamics": "sghmc", "integrator": "chen:ABOBA", "frictions": [FRICTION], "runs": effort.trace_runs}
    stops = [stop for stop in STOPS if stop <= effort.longest]
    work = [(f"SGHMC-F, L = {stop:,}", "F", [stop]) for stop in stops] + [("SGHMC-D", "D", stops)]
    found: list[Part] = []
    for label, kind, ends in work:
        for alpha, name in zip(ALPHAS, NAMES, strict=True):
            step = {"sizes": [size(kind, alpha, ends[0])], "alphas": None if kind == "F" else [alpha], "stops": ends}
            found.append(Part(f"{label}, α = {name}", measure.errors, {**common, **step, "seed": len(found)}))
    exact = [
        Part(f"exact curves, {kind}, {order} batches", curves, {"kind": kind, "order": order, "steps": steps(kind)})
        for kind in SCALES
        for order in ("iid", "full")
    ]
    return [*found, *exact]


def size(kind: str, alpha: float, stop: int) -> float:
    return SCALES[kind] * (stop**-alpha if kind == "F" else 1.0)


def steps(kind: str) -> list[int]:
    """Where the exact curves have their points: half decades among them, for the verdicts."""
    dense = np.geomspace(10, CURVE[kind], 41).round().astype(int).tolist()
    return sorted({*dense, *(stop for stop in STOPS if stop <= CURVE[kind])})


def curves(*, kind: str, order: str, steps: list[int]) -> dict[str, Any]:
    """Exact bias and MSE for each α at each number of steps."""
    found: dict[str, Any] = {"steps": steps, "bias": [], "mse": []}
    for alpha in ALPHAS:
        if kind == "D":
            both = measure.exact_errors("sghmc", "chen:ABOBA", SCALES["D"], FRICTION, alpha, steps, order)
        else:
            each = [
                measure.exact_errors("sghmc", "chen:ABOBA", size("F", alpha, stop), FRICTION, None, [stop], order)
                for stop in steps
            ]
            both = {goal: [point[goal][0] for point in each] for goal in QUANTITIES}
        for goal in QUANTITIES:
            found[goal].append(both[goal])
    return found


def figure(effort: Effort, results: list[Any]) -> Figure:
    *cells, iid_f, full_f, iid_d, full_d = results
    count = len(ALPHAS)
    by_length = [cells[i : i + count] for i in range(0, len(cells) - count, count)]
    simulated = {
        "F": {goal: [[row[i][goal][0][0] for row in by_length] for i in range(count)] for goal in QUANTITIES},
        "D": {goal: [cell[goal][0] for cell in cells[-count:]] for goal in QUANTITIES},
    }
    exact = {"F": iid_f, "D": iid_d}
    noiseless = {"F": full_f, "D": full_d}
    shown = (("D", "bias"), ("F", "mse"), ("F", "bias"), ("D", "mse"))  # the paper's order, then the appendix
    panels = [panel(kind, goal, simulated[kind][goal], exact[kind]) for kind, goal in shown]
    verdicts = [optimal(kind, goal, exact[kind], noiseless[kind]) for kind, goal in shown]
    verdicts.append(early_lead(exact))
    return Figure(
        "fig2",
        "Figure 2: which rate α is best",
        "“These are α = 1/3 for the bias and α = 1/5 for the MSE, in both fixed-step-size SGHMC (SGHMC-F) and "
        "decreasing-step-size SGHMC (SGHMC-D)”, with h = 0.033 L^-α and h_l = 0.045 l^-α. Smaller rates are ahead at "
        "the beginning, “but eventually they slow down and are surpassed by the optimal rates”.",
        "Thick: the rate that the paper calls optimal. Follow it to the right: it leads for a while, but with "
        "independent minibatches every scheme is of order 1, the optimal rates become 1/2 and 1/3, and larger α "
        "overtake it.",
        {**measure.SETTINGS, "D": FRICTION, "integrator": "chen:ABOBA", **measure.lengths(effort)},
        panels,
        verdicts=verdicts,
    )


def panel(kind: str, goal: str, simulated: list[list[Point]], exact: dict[str, Any]) -> Panel:
    series = []
    for i, name in enumerate(NAMES):
        points = [{"x": point["steps"], **point} for point in simulated[i]]
        taken = {point["x"] for point in points}
        between = zip(exact["steps"], exact[goal][i], strict=True)
        points += [{"x": l, "value": None, "se": None, "exact": value} for l, value in between if l not in taken]
        series.append(Series(f"α = {name}", sorted(points, key=lambda point: point["x"]), i == BEST[goal]))
    where = "Figure 2" if (kind, goal) in (("D", "bias"), ("F", "mse")) else "appendix"
    return Panel(f"{goal_name(goal)} of SGHMC-{kind} ({where})", "steps L", QUANTITIES[goal], series)


def goal_name(goal: str) -> str:
    return {"bias": "Bias", "mse": "MSE"}[goal]


def winners(curve: dict[str, Any], goal: str) -> list[int]:
    """The place of the best α at each number of steps."""
    return np.abs(np.array(curve[goal])).argmin(0).tolist()


def slope(curve: dict[str, Any], goal: str, place: int) -> float:
    """−d log error / d log L over the last decade."""
    last = curve["steps"][-1]
    start = curve["steps"].index(last // 10)
    values = np.abs(curve[goal][place])
    return float(-np.log(values[-1] / values[start]) / np.log(10))


def optimal(kind: str, goal: str, exact: dict[str, Any], noiseless: dict[str, Any]) -> Verdict:
    """Where the paper's α has the least exact error, and whether it falls at the paper's rate."""
    best, last = BEST[goal], exact["steps"][-1]
    won = [l for l, place in zip(exact["steps"], winners(exact, goal), strict=True) if place == best]
    claimed = {"bias": 2 / 3, "mse": 4 / 5}[goal]
    found = slope(exact, goal, best)
    asymptotic = last in won and abs(found - claimed) < 0.05
    numbers = {
        f"best α at L = {last:,}, minibatches": NAMES[winners(exact, goal)[-1]],
        f"best α at L = {last:,}, full gradients": NAMES[winners(noiseless, goal)[-1]],
        f"α = {NAMES[best]} is best for L": [won[0], won[-1]] if won else "never",
        "rate over the last decade": found,
        "rate the paper claims": claimed,
        "rate that theory gives with this α and independent minibatches": exponents(1, ALPHAS[best])[goal == "mse"],
    }
    return Verdict(
        f"α = {NAMES[best]} is optimal for the {goal_name(goal) if goal == 'mse' else goal} of SGHMC-{kind}",
        "Section 5, Figure 2" if (kind, goal) in (("D", "bias"), ("F", "mse")) else "Appendix K",
        REPRODUCED if asymptotic else UNDER_READING if won else NOT_REPRODUCED,
        "asymptotically"
        if asymptotic
        else f"only for L from {won[0]:,} to {won[-1]:,}, where the curves cross"
        if won
        else f"no L up to {last:,}",
        numbers,
        "With independent minibatches the effective order is 1, so that the optimal rates are 1/2 (bias) and 1/3 "
        "(MSE); with full gradients the discretisation error of this model is so small that the largest steps win.",
    )


def early_lead(exact: dict[str, dict[str, Any]]) -> Verdict:
    """Smaller rates than the paper's are ahead somewhere up to L = 100 and behind at the end, in all four panels."""
    numbers, holds, also = {}, True, False
    for kind, curve in exact.items():
        for goal, best in BEST.items():
            values = np.abs(np.array(curve[goal]))
            start = np.array(curve["steps"]) <= 100
            early = (values[:best, start] < values[best, start]).any(1)
            late = values[:best, -1] > values[best, -1]
            holds = holds and bool(early.all() and late.all())
            overtaken = values[best + 1 :, -1] < values[best, -1]
            also = also or bool(overtaken.any())
            name = f"SGHMC-{kind}, {goal}, at L = {curve['steps'][-1]:,}: larger α ahead of α = {NAMES[best]}"
            numbers[name] = [NAMES[best + 1 + i] for i in np.flatnonzero(overtaken)] or "none"
    return Verdict(
        "Rates smaller than the optimal ones are ahead at the beginning, but are surpassed by the optimal rates "
        "eventually",
        "Section 5, Figure 2",
        (UNDER_READING if also else REPRODUCED) if holds else NOT_REPRODUCED,
        "for the smaller rates; larger ones overtake the paper's as well" if also else "as stated",
        {"smaller rates ahead before L = 100 and behind at the end, in all four panels": holds, **numbers},
        "A larger step forgets the start sooner and has the larger bias later, whatever the order of the scheme.",
    )
