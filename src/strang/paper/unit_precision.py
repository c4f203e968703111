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
from strang.paper.verdicts import decide, listed, otherwise, partly, reproduced
from strang.report.panels import Table
from strang.theory import rates

SCALE, FRICTION = 2.0, 3.0
ALPHAS = (0.1, 0.2, 1 / 3, 0.5, 0.7)
NAMES = ("0.1", "1/5", "1/3", "1/2", "0.7")
BEST = {"bias": 2, "mse": 1}
WORDS = {"chen:ABOBA": 2, "euler-old": 1}  # with their orders
MAX_RATE_ERROR = 0.06  # up to which a measured rate counts as the one claimed
ORDERS = {"full": "full gradients", "iid": "independent minibatches"}
LONGEST = {"fixed": 100_000_000, "decreasing": 300_000}


def parts(effort: Effort) -> list[Part]:
    """Simulated traces for each α, and exact curves far beyond them."""
    full: dict[str, Any] = {"batch_order": "full", "target": "unit"}
    runs = {"scales": [SCALE], "frictions": [FRICTION], "stops": measure.stops(effort), "runs": effort.trace_runs}
    traces: list[Part] = []
    for kind, (alpha, name) in product(LONGEST, zip(ALPHAS, NAMES, strict=True)):
        settings = {"scheme": ["sghmc", "chen:ABOBA", kind, alpha], **runs, **full, "seed": 20 * len(traces)}
        traces.append(Part(f"{kind} steps, α = {name}", measure.errors, settings))
    curves = []
    for word, kind, order in product(WORDS, LONGEST, ORDERS):
        schemes = [["sghmc", word, kind, alpha] for alpha in ALPHAS]
        steps = measure.dense(100, LONGEST[kind], round(8 * np.log10(LONGEST[kind] / 100)) + 1)  # eight per decade
        settings = {"schemes": schemes, "scale": SCALE, "friction": FRICTION, "steps": steps}
        settings |= full if order == "full" else {"batch_order": order, "target": "noisy unit"}
        curves.append(Part(f"exact, {word}, {kind} steps, {ORDERS[order]}", measure.exact_curves, settings))
    return traces + curves


def figure(effort: Effort, results: list[Any]) -> Figure:
    count = len(ALPHAS)
    traces = {kind: results[count * i : count * (i + 1)] for i, kind in enumerate(LONGEST)}
    curves = dict(zip(product(WORDS, LONGEST, ORDERS), results[2 * count :], strict=True))
    contests = list(product(LONGEST, BEST))
    panels = []
    for kind, goal in contests:
        points, title = [trace[goal][0] for trace in traces[kind]], f"{measure.NAMES[goal]}, {kind} steps"
        panels.append(measure.rates_panel(title, goal, NAMES, points, curves["chen:ABOBA", kind, "full"], BEST[goal]))
    falls = [
        [word, kind, ORDERS[order], name, *(last_decade_rate(curve, goal, i) for goal in BEST)]
        for (word, kind, order), curve in curves.items()
        for i, name in enumerate(NAMES)
        if all(curve[goal][i][-1] is not None for goal in BEST)
    ]
    splitting = {kind: {order: curves["chen:ABOBA", kind, order] for order in ORDERS} for kind in LONGEST}
    verdicts = [best_rate(kind, goal, splitting[kind]) for kind, goal in contests]
    verdicts += [faster_than_euler(goal, curves) for goal in BEST]
    verdicts.append(same_rates(*(splitting[kind]["full"] for kind in LONGEST)))
    return Figure(
        "unit",
        "Where the paper's theory holds: full gradients, unit precision",
        "“The optimal bias decreases at a rate of L^-K/(K+1) with step size h ∝ L^-1/(K+1); while this is "
        "L^-2K/(2K+1) with h ∝ L^-1/(2K+1) for the MSE”: with the splitting α = 1/3 and rate 2/3, α = 1/5 and rate "
        "4/5.",
        "Thick: the rates that theory calls optimal. Without minibatch noise, on a target whose discretisation error "
        "shows, they end below all others.",
        {
            "target": "U = θ²/2, full gradients; with minibatches of variance V = 0.4 in the table and the verdicts",
            "dynamics": f"SGHMC, chen:ABOBA, D = {FRICTION:g}",
            "step sizes": "2 L^-α, 2 l^-α",
            "start": "θ0 ~ N(0, 4), p0 ~ N(0, 1), no burn-in",
            **measure.lengths(effort),
        },
        panels,
        [
            Table(
                "Rate over the last decade of L (exact)",
                ["integrator", "steps", "gradients", "α", "bias", "MSE"],
                falls,
            )
        ],
        verdicts,
    )


def best_rate(kind: str, goal: str, by_order: dict[str, dict[str, Any]]) -> Verdict:
    """Whether the paper's α ends below the others, and falls at its rate, with full gradients and with minibatches."""
    best, claimed = BEST[goal], getattr(rates(2), f"{goal}_rate")
    winner = {order: NAMES[measure.winners(curve, goal)[-1]] for order, curve in by_order.items()}
    rate = {order: last_decade_rate(curve, goal, best) for order, curve in by_order.items()}
    close = {order: abs(rate[order] - claimed) < MAX_RATE_ERROR for order in by_order}
    logarithm = kind == "decreasing" and goal == "bias"  # an extra log L at α = 1/(K+1): erratum A16
    holds = [order for order in by_order if winner[order] == NAMES[best] and (close[order] or logarithm)]
    made = f"At L = {LONGEST[kind]:,} the best α is {winner['full']} with full gradients and {winner['iid']} with "
    made += (
        f"independent minibatches; α = {NAMES[best]} falls like L^-{rate['full']:.2f} and L^-{rate['iid']:.2f}, and "
    )
    made += (
        f"{claimed:.2f} is claimed. Transient 1/(Lh) and discretisation balance there if K = 2; minibatches make K 1."
    )
    factor = "; up to a factor log L" if logarithm and not close["full"] else ""
    return decide(
        f"α = {NAMES[best]} is optimal for the {measure.NAMES[goal]} with {kind} steps, rate {claimed:.3g}",
        f"Theorem {1 if goal == 'bias' else 2}, Remark 8" if kind == "fixed" else "Theorem 4, Remark 9",
        {f"best α at L = {LONGEST[kind]:,}, {ORDERS[order]}": winner[order] for order in by_order}
        | {f"rate over the last decade, {ORDERS[order]}": rate[order] for order in by_order}
        | {"rate claimed": claimed},
        reproduced(len(holds) == len(by_order), f"full gradients and independent minibatches{factor}", made),
        partly(holds, f"{listed([ORDERS[order] for order in holds])} alone{factor}", made),
        otherwise("full gradients and independent minibatches", made),
    )


def faster_than_euler(goal: str, curves: dict[Any, Any]) -> Verdict:
    """Each scheme at its own optimal α: the rate of the splitting against that of Euler, by minibatches."""
    claimed = {word: getattr(rates(order), f"{goal}_rate") for word, order in WORDS.items()}
    measured = {}
    for (word, order), batches in product(WORDS.items(), ORDERS):
        place = int(np.abs(np.array(ALPHAS) - getattr(rates(order), f"{goal}_alpha")).argmin())
        measured[word, batches] = last_decade_rate(curves[word, "fixed", batches], goal, place)
    fast, slow = WORDS
    holds = [
        batches
        for batches in ORDERS
        if all(abs(measured[word, batches] - claimed[word]) < MAX_RATE_ERROR for word in WORDS)
        and measured[fast, batches] > measured[slow, batches]
    ]
    made = "; ".join(
        f"with {label} the splitting's falls like L^-{measured[fast, batches]:.2f} and Euler's like "
        f"L^-{measured[slow, batches]:.2f}"
        for batches, label in ORDERS.items()
    )
    reading = "Euler with the old momentum (appendix I), each at its own α"
    return decide(
        f"The splitting's {measure.NAMES[goal]} falls like L^-{claimed[fast]:.3g}, Euler's like L^-{claimed[slow]:.3g}",
        "Abstract, Remark 8" if goal == "mse" else "Remark 8",
        {f"{word}: rate over the last decade, {ORDERS[order]}": value for (word, order), value in measured.items()}
        | {f"{word}: rate claimed": value for word, value in claimed.items()},
        reproduced(len(holds) == len(ORDERS), f"full gradients and independent minibatches, {reading}", f"{made}."),
        partly(holds, f"{listed([ORDERS[order] for order in holds])} alone, {reading}", f"{made}."),
        otherwise(reading, f"{made}."),
    )


def same_rates(fixed: dict[str, Any], decreasing: dict[str, Any]) -> Verdict:
    """Fixed and decreasing steps at the optimal α, over the last decade that both have."""
    last, both = min(LONGEST.values()), (fixed, decreasing)
    pairs = {goal: [last_decade_rate(curve, goal, best, last) for curve in both] for goal, best in BEST.items()}
    same = [measure.NAMES[goal] for goal, (one, other) in pairs.items() if abs(one - other) < MAX_RATE_ERROR]
    made = "; ".join(f"{measure.NAMES[goal]}: L^-{one:.2f} and L^-{other:.2f}" for goal, (one, other) in pairs.items())
    made = (
        f"Rates with fixed and with decreasing steps, {made}. At α = 1/(K+1) the sum of h^(K+1) over the steps is that "
    )
    made += "of 1/l, which grows like log L (erratum A16)."
    return decide(
        "Decreasing steps have the same convergence rates as fixed ones",
        "Abstract, Theorem 4",
        {f"{measure.NAMES[goal]}: rates of fixed and decreasing steps": pair for goal, pair in pairs.items()},
        reproduced(len(same) == len(pairs), "as stated", made),
        partly(same, f"for the {listed(same)} alone", made),
        otherwise("neither for the bias nor for the MSE", made),
    )
