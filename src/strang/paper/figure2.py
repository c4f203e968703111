"""Figure 2 and its version in the appendix: bias and MSE of SGHMC against the number of steps, for different rates α.

SGHMC-F has the fixed step h = 0.033 L^-α in a run of L steps, SGHMC-D the decreasing steps h_l = 0.045 l^-α.
"""

from itertools import product
from typing import Any

import numpy as np

from strang.paper import measure
from strang.paper.figure import Effort, Figure, Part, Verdict
from strang.paper.verdicts import decide, listed, otherwise, partly, reproduced
from strang.theory import exponents

FRICTION = 10.0
ALPHAS = (0.1, 0.2, 0.3, 1 / 3, 0.4, 0.5, 0.7)
NAMES = ("0.1", "1/5", "0.3", "1/3", "0.4", "1/2", "0.7")
SCALES = {"F": 0.033, "D": 0.045}
BEST = {"bias": 3, "mse": 1}  # places of 1/3 and 1/5, which the paper calls optimal
CURVE = {"F": 1_000_000, "D": 100_000}  # length of the exact curves; decreasing steps cost a product of maps each
KINDS = {"F": "fixed", "D": "decreasing"}
PANELS = (("D", "bias"), ("F", "mse"), ("F", "bias"), ("D", "mse"))  # the paper's order: two in Figure 2, two in K
WORD = "chen:ABOBA"


def parts(effort: Effort) -> list[Part]:
    """Runs of every length for each α (F), one run for each α (D), and the exact curves."""
    stops = measure.stops(effort, first=10)
    schemes = {kind: [["sghmc", WORD, name, alpha] for alpha in ALPHAS] for kind, name in KINDS.items()}
    traces = [(f"SGHMC-F, L = {stop:,}", "F", [stop]) for stop in stops] + [("SGHMC-D", "D", stops)]
    work: list[Part] = []
    for label, kind, ends in traces:
        for scheme, name in zip(schemes[kind], NAMES, strict=True):
            cell = {"scheme": scheme, "scales": [SCALES[kind]], "frictions": [FRICTION]}
            settings = {**cell, "stops": ends, "runs": effort.trace_runs, "seed": len(work)}
            work.append(Part(f"{label}, α = {name}", measure.errors, settings))
    for kind, order in product(KINDS, ("iid", "full")):
        curve = {"schemes": schemes[kind], "scale": SCALES[kind], "friction": FRICTION, "batch_order": order}
        curve["steps"] = measure.dense(10, CURVE[kind], 41)
        work.append(Part(f"exact curves, {kind}, {order} batches", measure.exact_curves, curve))
    return work


def figure(effort: Effort, results: list[Any]) -> Figure:
    *cells, iid_f, full_f, iid_d, full_d = results
    exact, noiseless = {"F": iid_f, "D": iid_d}, {"F": full_f, "D": full_d}
    count = len(ALPHAS)
    panels = []
    for kind, goal in PANELS:
        runs = cells[:-count] if kind == "F" else cells[-count:]
        points = [[point for cell in runs[i::count] for point in cell[goal][0]] for i in range(count)]
        title = f"{measure.NAMES[goal]} of SGHMC-{kind} ({'Figure 2' if (kind, goal) in PANELS[:2] else 'appendix'})"
        panels.append(measure.rates_panel(title, goal, NAMES, points, exact[kind], BEST[goal]))
    verdicts = [optimal(kind, goal, exact[kind], noiseless[kind]) for kind, goal in PANELS]
    return Figure(
        "fig2",
        "Figure 2: which rate α is best",
        "“These are α = 1/3 for the bias and α = 1/5 for the MSE, in both fixed-step-size SGHMC (SGHMC-F) and "
        "decreasing-step-size SGHMC (SGHMC-D)”, with h = 0.033 L^-α and h_l = 0.045 l^-α. Smaller rates are ahead at "
        "the beginning, “but eventually they slow down and are surpassed by the optimal rates”.",
        "Thick: the rate that the paper calls optimal. Follow it to the right: it leads for a while, but with "
        "independent minibatches every scheme is of order 1, the optimal rates become 1/2 and 1/3, and larger α "
        "overtake it.",
        {**measure.SETTINGS, "D": FRICTION, "integrator": WORD, **measure.lengths(effort)},
        panels,
        verdicts=[*verdicts, early_lead(exact)],
    )


def optimal(kind: str, goal: str, exact: dict[str, Any], noiseless: dict[str, Any]) -> Verdict:
    """Where the paper's α has the least exact error, and whether it falls at the paper's rate."""
    best, last, winners = BEST[goal], exact["steps"][-1], measure.winners(exact, goal)
    won = [l for l, place in zip(exact["steps"], winners, strict=True) if place == best]
    claimed, rate = {"bias": 2 / 3, "mse": 4 / 5}[goal], measure.last_decade_rate(exact, goal, best)
    theory = exponents(1, ALPHAS[best])[goal == "mse"]
    ends = NAMES[winners[-1]], NAMES[measure.winners(noiseless, goal)[-1]]
    made = f"At L = {last:,} α = {ends[0]} is best with minibatches and α = {ends[1]} with full gradients. α = "
    made += f"{NAMES[best]} falls like L^-{rate:.2f} over the last decade; the paper claims {claimed:.2f}, and "
    made += f"{theory:.2f} "
    made += "is what independent minibatches leave, whose effective order is 1."
    return decide(
        f"α = {NAMES[best]} is optimal for the {measure.NAMES[goal]} of SGHMC-{kind}",
        "Section 5, Figure 2" if (kind, goal) in PANELS[:2] else "Appendix K",
        {
            f"best α at L = {last:,}, minibatches": ends[0],
            f"best α at L = {last:,}, full gradients": ends[1],
            f"α = {NAMES[best]} is best for L": [won[0], won[-1]] if won else "never",
            "rate over the last decade": rate,
            "rate the paper claims": claimed,
            "rate that theory gives with this α and independent minibatches": theory,
        },
        reproduced(last in won and abs(rate - claimed) < 0.05, "asymptotically", made),
        partly(
            won, f"only for L from {min(won, default=0):,} to {max(won, default=0):,}, where the curves cross", made
        ),
        otherwise(f"no L up to {last:,}", made),
    )


def early_lead(exact: dict[str, dict[str, Any]]) -> Verdict:
    """Smaller rates than the paper's are ahead somewhere up to L = 100 and behind at the end, in all four panels."""
    numbers, failing, overtaking = {}, [], []
    for (kind, curve), (goal, best) in product(exact.items(), BEST.items()):
        values, start = np.abs(np.array(curve[goal])), np.array(curve["steps"]) <= 100
        early = (values[:best, start] < values[best, start]).any(1)
        late = values[:best, -1] > values[best, -1]
        failing += [] if early.all() and late.all() else [f"SGHMC-{kind}, {goal}"]
        overtaken = values[best + 1 :, -1] < values[best, -1]
        overtaking += [f"SGHMC-{kind}, {goal}"] if overtaken.any() else []
        name = f"SGHMC-{kind}, {goal}, at L = {curve['steps'][-1]:,}: larger α ahead of α = {NAMES[best]}"
        numbers[name] = [NAMES[best + 1 + i] for i in np.flatnonzero(overtaken)] or "none"
    made = f"Of four panels, smaller rates are ahead before L = 100 and behind at the end in {4 - len(failing)}, and "
    made += f"larger ones are ahead of the paper's at the end in {len(overtaking)}. A larger step forgets the start "
    made += "sooner and has the larger bias later, whatever the order of the scheme."
    return decide(
        "Rates smaller than the optimal ones are ahead at the beginning, but are surpassed by the optimal rates "
        "eventually",
        "Section 5, Figure 2",
        {"smaller rates ahead before L = 100 and behind at the end, in all four panels": not failing, **numbers},
        reproduced(not failing and not overtaking, "as stated", made),
        partly(not failing, "for the smaller rates; larger ones overtake the paper's as well", made),
        otherwise(f"not for {listed(failing)}", made),
    )
