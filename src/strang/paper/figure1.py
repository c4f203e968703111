"""Figure 1: bias of the invariant measure against the step size, the splitting against the Eulers.

Paper: "the Euler integrator". We: three of them, because it prints three updates under that name (erratum A6).
"""

from itertools import product
from typing import Any

import numpy as np

from strang.dynamics import SGHMC, SGLD
from strang.integrators.words import spell
from strang.paper import measure
from strang.paper.figure import BOTH, Effort, Figure, Part, Verdict
from strang.paper.verdicts import decide, listed, otherwise, partly, reproduced
from strang.report.figures import number
from strang.report.panels import Panel, Point, Series, Table
from strang.theory import linear

SPLITTING = "chen:ABOBA"
EULERS = {
    "euler-old": "Euler, old momentum (appendix I)",
    "euler-new": "Euler, new momentum (Algorithm 2)",
    "euler-position-first": "Euler, position first",
}
LABELS = {SPLITTING: "splitting (chen:ABOBA)", **EULERS}
FRICTIONS = (10.0, 20.0, 30.0)
SIZES: tuple[float, ...] = (0.001, 0.002, 0.003, 0.005, 0.007, 0.009, 0.012, 0.018, 0.028, 0.038, 0.05, 0.06, 0.085)
SGLD_SIZES: tuple[float, ...] = (0.0002, 0.0005, 0.001, 0.0015, 0.0019)
SGNHT_SIZES = SIZES[:9]
CURVE = tuple(np.geomspace(0.0005, 0.1, 60).tolist())
SGLD_STEP = 0.001  # half of its stability limit
MIN_EXCESS = 0.05  # by which a bias counts as larger
SMALL = 0.005  # the step size at which biases are compared, well inside every stability limit but SGLD's


def parts(effort: Effort) -> list[Part]:
    """One part for each integrator and friction, then SGLD and SGNHT, then the exact curves between the points."""
    grids = [(f"{word}, D = {d:g}", ["sghmc", word], SIZES, d) for word, d in product(LABELS, FRICTIONS)]
    grids += [("SGLD", ["sgld", "euler"], SGLD_SIZES, 10.0), ("SGNHT", ["sgnht", SPLITTING], SGNHT_SIZES, 10.0)]
    work = []
    for label, scheme, sizes, friction in grids:
        cells = {"scheme": scheme, "scales": list(sizes), "frictions": [friction] * len(sizes)}
        work.append(Part(label, measure.errors, {**cells, "stops": [effort.steps], "runs": effort.runs}))
    return [*work, Part("exact curves", curves, {"steps": effort.steps, "sizes": list(CURVE)})]


def curves(*, steps: int, sizes: list[float]) -> dict[str, Any]:
    """Stability limits, and exact biases below them, of every integrator at every friction."""
    by_scheme: dict[str, Any] = {}
    for word, friction in [*product(LABELS, FRICTIONS), ("sgld", 1.0)]:
        scheme = measure.Scheme("sgld", "euler") if word == "sgld" else measure.Scheme("sghmc", word)
        dynamics = scheme.make_dynamics(friction)
        limit = linear.stability_limit(spell(dynamics, scheme.integrator), dynamics, measure.PRECISION)
        stable = [h for h in sizes if h < 0.999 * limit]
        biases = [measure.exact_errors(scheme, h, friction, [steps])["bias"][0] for h in stable]
        by_scheme[f"{word} {friction:g}"] = {"limit": limit, "sizes": stable, "bias": biases}
    return by_scheme


def points(cells: list[list[Point]], sizes, curve: dict[str, Any]) -> list[Point]:
    """The simulated points and the exact ones between them, by step size; nothing exact where the step diverges."""
    nothing = {"value": None, "se": None, "exact": None}
    simulated = [{**cell[0], "x": h} for h, cell in zip(sizes, cells, strict=True)]
    simulated = [point | nothing if point["x"] >= curve["limit"] else point for point in simulated]
    return measure.with_curve(simulated, curve["sizes"], curve["bias"])


def figure(effort: Effort, results: list[Any]) -> Figure:
    *cells, exact = results
    names = list(product(LABELS, FRICTIONS))
    biases = {name: result["bias"] for name, result in zip(names, cells, strict=False)}
    sgld, sgnht = (result["bias"] for result in cells[len(names) :])
    panels = []
    for friction in FRICTIONS:
        curve = {word: exact[f"{word} {friction:g}"] for word in LABELS}
        series = [
            Series(label, points(biases[word, friction], SIZES, curve[word]), word == SPLITTING)
            for word, label in LABELS.items()
        ]
        if friction == FRICTIONS[0]:
            no_curve = {"limit": np.inf, "sizes": [], "bias": []}
            series.append(Series("SGLD", points(sgld, SGLD_SIZES, exact["sgld 1"])))
            series.append(Series("SGNHT (chen:ABOBA)", points(sgnht, SGNHT_SIZES, no_curve)))
        marks = [curve[word]["limit"] for word in LABELS]
        panels.append(Panel(f"D = {friction:g}", "step size h", measure.QUANTITIES["bias"], series, marks))
    limits = [[label, *(exact[f"{word} {d:g}"]["limit"] for d in FRICTIONS)] for word, label in LABELS.items()]
    limits.append(["SGLD", *[exact["sgld 1"]["limit"]] * len(FRICTIONS)])
    lost = [[LABELS[word], f"{d:g}", *(cell[0]["diverged"] for cell in cells)] for (word, d), cells in biases.items()]
    tables = [
        Table("First unstable step size (exact)", ["scheme", *(f"D = {d:g}" for d in FRICTIONS)], limits),
        Table(f"Runs of {effort.runs} that exploded", ["scheme", "D", *(f"h = {h:g}" for h in SIZES)], lost),
    ]
    by_word = {word: [relative_bias(word, d, SMALL) for d in FRICTIONS] for word in LABELS}
    ratios = {word: (np.array(by_word[word]) / by_word[SPLITTING]).tolist() for word in EULERS}
    sgld_bias, steps = relative_bias("euler", 1.0, SGLD_STEP), (SGLD_STEP, (2 * SGLD_STEP) ** 0.5)
    splitting = [{d: relative_bias(SPLITTING, d, h) for d in FRICTIONS} for h in steps]
    return Figure(
        "fig1",
        "Figure 1: bias of the invariant measure",
        "“The Euler integrator has larger biases in the invariant measure, and quickly explodes when the step size "
        "becomes large, which does not happen for the splitting integrator.” (L = 10⁶, 200 runs; SGLD is omitted as "
        "not competitive.)",
        "Points are simulated, curves exact, dotted lines the step size beyond which each scheme explodes. The paper's "
        "Euler is three different updates: only that of appendix I leaves the splitting early. All curves of one "
        "friction share the straight lower part, bias ∝ h: that is the minibatch noise, not the integrator.",
        {**measure.SETTINGS, "runs per point": effort.runs, "L": effort.steps, "SGNHT": "ξ0 = D + hV/2, D = 10"},
        panels,
        tables,
        [larger_bias(ratios), explosion(exact, biases, effort), sgld_behind(sgld_bias, *splitting)],
    )


def relative_bias(word: str, friction: float, h: float) -> float:
    """K times the exact bias of θ² in the invariant measure."""
    dynamics = SGLD() if word == "euler" else SGHMC(friction=friction)
    ratio = linear.variance_ratio(spell(dynamics, word), dynamics, measure.PRECISION, h, measure.NOISE)
    return float(ratio) - 1


def larger_bias(ratios: dict[str, list[float]]) -> Verdict:
    """Which Eulers have a bias larger than the splitting's by 5 % or more at h = 0.005, at every friction."""
    holds = [label for word, label in EULERS.items() if min(ratios[word]) > 1 + MIN_EXCESS]
    least = ", ".join(f"{word} {min(values):.3g}" for word, values in ratios.items())
    made = f"The bias over the splitting's at h = {SMALL:g}, at the friction where it is least: {least}; more than "
    made += f"{1 + MIN_EXCESS:g} counts."
    conjugate = (
        " The others are conjugate to a symmetric splitting, so that their errors in θ are of second order, and "
    )
    conjugate += "both biases are those of the minibatch noise."
    return decide(
        "Euler has larger biases in the invariant measure than the splitting",
        "Section 5, Figure 1",
        {f"{w}: bias over the splitting's at h = {SMALL:g}, D = 10, 20, 30": values for w, values in ratios.items()},
        reproduced(len(holds) == len(EULERS), "all three Eulers", made),
        partly(holds, f"Euler is: {'; '.join(holds)}", made + conjugate),
        otherwise("none of the three Eulers", made),
    )


def explosion(exact: dict[str, Any], biases: dict[Any, list[list[Point]]], effort: Effort) -> Verdict:
    """Whether every Euler explodes at a smaller step than the splitting, in theory and in the runs."""
    limits = {word: [exact[f"{word} {d:g}"]["limit"] for d in FRICTIONS] for word in LABELS}
    split = limits[SPLITTING]
    late = [word for word in EULERS if any(euler >= own for euler, own in zip(limits[word], split, strict=True))]
    simulated_too = all(
        cell[0]["diverged"] == (effort.runs if h > exact[f"{word} {d:g}"]["limit"] else 0)
        for (word, d), cells in biases.items()
        for h, cell in zip(SIZES, cells, strict=True)
    )
    made = "The splitting's first unstable h over Euler's at D = 10: "
    made += ", ".join(f"{word} {split[0] / limits[word][0]:.2g}" for word in EULERS) + "."
    if not simulated_too:
        made += " The simulated runs do not explode where theory says."
    return decide(
        "Euler quickly explodes when the step size becomes large; the splitting does not",
        "Section 5, Figure 1",
        {f"{word}: first unstable h, D = 10, 20, 30": values for word, values in limits.items()}
        | {"every simulated run explodes exactly beyond these": simulated_too},
        reproduced(
            not late and simulated_too and min(split) > max(SIZES),
            f"step sizes up to {max(SIZES):g}",
            f"{made} The splitting is stable up to {min(split):.3g}.",
        ),
        partly(
            not late and simulated_too,
            f"step sizes below {split[0]:.4f} (D = 10), where the splitting explodes as well",
            f"{made} No explicit scheme is stable at every step size.",
        ),
        otherwise("theory and runs", f"{made} Not before the splitting: {listed(late)}."),
        basis=BOTH,
    )


def sgld_behind(sgld: float, same_step: dict[float, float], same_reach: dict[float, float]) -> Verdict:
    """SGLD's invariant bias against the splitting's, at the same step size, and at one that moves as far."""
    made = (
        f"SGLD's relative bias at h = {SGLD_STEP:g} is {number(sgld)}, the splitting's {number(same_step)} by D at the "
    )
    made += (
        f"same step and {number(same_reach)} at √(2h), with which it moves as far. The noise enters as hV/2 in SGLD "
    )
    made += "and as hV/(2D) in SGHMC; Figure 3 compares at equal numbers of steps."
    numbers: dict[str, Any] = {f"SGLD, relative bias at h = {SGLD_STEP:g}": sgld}
    numbers |= {f"splitting, D = {d:g}": bias for d, bias in same_step.items()}
    numbers |= {f"splitting at √(2h), D = {d:g}": bias for d, bias in same_reach.items()}
    behind = [sgld > max(biases.values()) for biases in (same_step, same_reach)]
    return decide(
        "SGLD is not as competitive in the invariant measure",
        "Section 5, Figure 1",
        numbers,
        reproduced(all(behind), "at the same step size, and at one that moves as far", made),
        partly(behind[0], "at the same step size and minibatch noise", made),
        otherwise("at the same step size and minibatch noise", made),
    )
