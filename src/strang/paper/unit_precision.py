"""Where the paper's theory holds: full gradients on a target of unit precision, on which α = 1/3 and 1/5 are best.

On the paper's own model the discretisation error is far too small to matter with full gradients, and minibatch noise
hides it. Here U = θ²/2, D = 3, h = 2 L^-α (or h_l = 2 l^-α), θ0 ~ N(0, 4): transient and discretisation balance.
"""

from itertools import product
from typing import Any

import numpy as np

from strang.paper import measure
from strang.paper.figure import Effort, Figure, Part, Verdict
from strang.paper.measure import last_decade_rate
from strang.paper.verdicts import outcome
from strang.report.panels import Table
from strang.theory import rates

SCALE, FRICTION = 2.0, 3.0
ALPHAS = (0.1, 0.2, 1 / 3, 0.5, 0.7)
NAMES = ("0.1", "1/5", "1/3", "1/2", "0.7")
BEST = {"bias": 2, "mse": 1}
WORDS = {"chen:ABOBA": 2, "euler-old": 1}  # with their orders
MAX_RATE_ERROR = 0.06  # up to which a measured rate counts as the one claimed
LONGEST = {"fixed": 100_000_000, "decreasing": 300_000}


def parts(effort: Effort) -> list[Part]:
    """Simulated traces for each α, and exact curves far beyond them."""
    common: dict[str, Any] = {"batch_order": "full", "target": "unit"}
    runs = {"scales": [SCALE], "frictions": [FRICTION], "stops": measure.stops(effort), "runs": effort.trace_runs}
    traces: list[Part] = []
    for kind, (alpha, name) in product(LONGEST, zip(ALPHAS, NAMES, strict=True)):
        settings = {"scheme": ["sghmc", "chen:ABOBA", kind, alpha], **runs, **common, "seed": 20 * len(traces)}
        traces.append(Part(f"{kind} steps, α = {name}", measure.errors, settings))
    curves = []
    for word, kind in product(WORDS, LONGEST):
        schemes = [["sghmc", word, kind, alpha] for alpha in ALPHAS]
        steps = measure.dense(100, LONGEST[kind], round(8 * np.log10(LONGEST[kind] / 100)) + 1)  # eight per decade
        settings = {"schemes": schemes, "scale": SCALE, "friction": FRICTION, "steps": steps, **common}
        curves.append(Part(f"exact, {word}, {kind} steps", measure.exact_curves, settings))
    return traces + curves


def figure(effort: Effort, results: list[Any]) -> Figure:
    count = len(ALPHAS)
    traces = {kind: results[count * i : count * (i + 1)] for i, kind in enumerate(LONGEST)}
    curves = dict(zip(product(WORDS, LONGEST), results[2 * count :], strict=True))
    contests = list(product(LONGEST, BEST))
    panels = []
    for kind, goal in contests:
        points, title = [trace[goal][0] for trace in traces[kind]], f"{measure.NAMES[goal]}, {kind} steps"
        panels.append(measure.rates_panel(title, goal, NAMES, points, curves["chen:ABOBA", kind], BEST[goal]))
    falls = [
        [word, kind, name, *(last_decade_rate(curve, goal, i) for goal in BEST)]
        for (word, kind), curve in curves.items()
        for i, name in enumerate(NAMES)
        if all(curve[goal][i][-1] is not None for goal in BEST)
    ]
    verdicts = [best_rate(kind, goal, curves["chen:ABOBA", kind]) for kind, goal in contests]
    verdicts += [faster_than_euler(goal, curves) for goal in BEST]
    verdicts.append(same_rates(curves["chen:ABOBA", "fixed"], curves["chen:ABOBA", "decreasing"]))
    return Figure(
        "unit",
        "Where the paper's theory holds: full gradients, unit precision",
        "“The optimal bias decreases at a rate of L^-K/(K+1) with step size h ∝ L^-1/(K+1); while this is "
        "L^-2K/(2K+1) with h ∝ L^-1/(2K+1) for the MSE”: with the splitting α = 1/3 and rate 2/3, α = 1/5 and rate "
        "4/5.",
        "Thick: the rates that theory calls optimal. Without minibatch noise, on a target whose discretisation error "
        "shows, they end below all others.",
        {
            "target": "U = θ²/2, full gradients",
            "dynamics": f"SGHMC, chen:ABOBA, D = {FRICTION:g}",
            "step sizes": "2 L^-α, 2 l^-α",
            "start": "θ0 ~ N(0, 4), p0 ~ N(0, 1), no burn-in",
            **measure.lengths(effort),
        },
        panels,
        [Table("Rate over the last decade of L (exact)", ["integrator", "steps", "α", "bias", "MSE"], falls)],
        verdicts,
    )


def best_rate(kind: str, goal: str, curve: dict[str, Any]) -> Verdict:
    """Whether the paper's α ends below the others, and falls at its rate."""
    best, winner = BEST[goal], measure.winners(curve, goal)[-1]
    claimed, measured = getattr(rates(2), f"{goal}_rate"), last_decade_rate(curve, goal, best)
    wins, close = winner == best, abs(measured - claimed) < MAX_RATE_ERROR
    logarithm = kind == "decreasing" and goal == "bias"  # an extra log L at α = 1/(K+1): erratum A16
    return Verdict(
        f"α = {NAMES[best]} is optimal for the {measure.NAMES[goal]} with {kind} steps, rate {claimed:.3g}",
        f"Theorem {1 if goal == 'bias' else 2}, Remark 8" if kind == "fixed" else "Theorem 4, Remark 9",
        outcome(False, wins and (close or logarithm)),
        "full gradients on a target whose discretisation error shows; with independent minibatches K is 1, see Figure 2"
        + ("; up to a factor log L" if logarithm and not close else ""),
        {f"best α at L = {LONGEST[kind]:,}": NAMES[winner]}
        | {"rate over the last decade": measured, "rate claimed": claimed},
        "Transient 1/(Lh) and discretisation h² (h⁴ in the MSE) balance at this α.",
    )


def faster_than_euler(goal: str, curves: dict[Any, Any]) -> Verdict:
    """Each scheme at its own optimal α: the rate of the splitting against that of Euler."""
    measured, claimed = {}, {}
    for word, order in WORDS.items():
        theory = rates(order)
        alpha, claimed[word] = getattr(theory, f"{goal}_alpha"), getattr(theory, f"{goal}_rate")
        place = int(np.abs(np.array(ALPHAS) - alpha).argmin())
        measured[word] = last_decade_rate(curves[word, "fixed"], goal, place)
    close = all(abs(measured[word] - claimed[word]) < MAX_RATE_ERROR for word in WORDS)
    fast, slow = WORDS
    return Verdict(
        f"The splitting's {measure.NAMES[goal]} falls like L^-{claimed[fast]:.3g}, Euler's like L^-{claimed[slow]:.3g}",
        "Abstract, Remark 8" if goal == "mse" else "Remark 8",
        outcome(False, close and measured[fast] > measured[slow]),
        "full gradients, Euler with the old momentum (appendix I), each at its own α",
        {f"{word}: rate over the last decade": value for word, value in measured.items()}
        | {f"{word}: rate claimed": value for word, value in claimed.items()},
        "With independent minibatches both have order 1 and the same rate.",
    )


def same_rates(fixed: dict[str, Any], decreasing: dict[str, Any]) -> Verdict:
    """Fixed and decreasing steps at the optimal α, over the last decade that both have."""
    last, both = min(LONGEST.values()), (fixed, decreasing)
    pairs = {goal: [last_decade_rate(curve, goal, best, last) for curve in both] for goal, best in BEST.items()}
    gaps = {goal: abs(one - other) for goal, (one, other) in pairs.items()}
    same = all(gap < MAX_RATE_ERROR for gap in gaps.values())
    return Verdict(
        "Decreasing steps have the same convergence rates as fixed ones",
        "Abstract, Theorem 4",
        outcome(same, gaps["mse"] < MAX_RATE_ERROR),
        "as stated" if same else "for the MSE; the bias has a factor log L more with decreasing steps",
        {f"{measure.NAMES[goal]}: rates of fixed and decreasing steps": pair for goal, pair in pairs.items()},
        "At α = 1/(K+1) the sum of h^(K+1) over the steps is that of 1/l, which grows like log L (erratum A16).",
    )
