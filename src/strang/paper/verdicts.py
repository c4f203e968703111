"""Verdicts on the integrators and on formulas as the paper prints them: lemmas, generators, densities, a bound."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from strang.paper.figure import EXACT, NOT_REPRODUCED, REPRODUCED, UNDER_READING, Verdict
from strang.paper.proofs import CLOSE, ORDER, ROUNDING
from strang.report.figures import number
from strang.report.panels import Point


class Case(NamedTuple):
    """One of the ways in which a claim may come out, if `holds`: the verdict, the reading, and why in numbers."""

    holds: Any
    verdict: str
    reading: str
    why: str


def reproduced(holds: Any, reading: str, why: str) -> Case:
    return Case(holds, REPRODUCED, reading, why)


def partly(holds: Any, reading: str, why: str) -> Case:
    return Case(holds, UNDER_READING, reading, why)


def otherwise(reading: str, why: str) -> Case:
    return Case(True, NOT_REPRODUCED, reading, why)


def decide(claim: str, where: str, numbers: dict[str, Any], *cases: Case, basis: str = EXACT) -> Verdict:
    """The verdict of the first case that holds."""
    case = next(case for case in cases if case.holds)
    return Verdict(claim, where, case.verdict, case.reading, numbers, case.why, basis)


def listed(names: Sequence[str], none: str = "none") -> str:
    return " and ".join(names) or none


def power(xs: Sequence[float], values: Sequence[float]) -> float:
    """The power of x that the first two values follow."""
    return float(np.log(abs(values[1] / values[0])) / np.log(xs[1] / xs[0]))


def exponent(points: list[Point], accuracy: float = 0.0) -> float | None:
    """The power of h at the smallest step sizes where the exact value is well above the accuracy of its computation."""
    exact = [(point["x"], point["exact"]) for point in points if point["exact"] is not None]
    exact = sorted((x, value) for x, value in exact if abs(value) > 10 * accuracy)
    return power(*zip(*exact[:2], strict=True)) if len(exact) > 1 else None


def integral_bound(summed: dict[str, Any]) -> Verdict:
    """The printed upper bound on Σ l^−α at α = 1/2, L = 10."""
    total, printed, corrected = (summed[name] for name in ("sum", "printed", "corrected"))
    bounds = "bounds" if total < corrected else "does not bound"
    # Paper: 1 + ∫ up to L − 1. We: up to L, because of this counterexample (erratum A17).
    return decide(
        "Σ_{l≤L} l^−α < 1 + ∫_1^{L−1} x^−α dx",
        "Appendix H, proof of Corollary 5",
        {"sum": total, "printed bound": printed, "with the integral up to L": corrected},
        reproduced(total < printed, "α = 1/2, L = 10", f"The sum {total:.4g} is below {printed:.4g}."),
        otherwise(
            "α = 1/2, L = 10",
            f"A counterexample: the sum is {total:.4g} and the printed bound {printed:.4g}. The corollary does not "
            "need "
            f"it: the integral up to L gives {corrected:.4g}, which {bounds} the sum.",
        ),
    )


def second_order(symmetric: list[dict[str, Any]]) -> Verdict:
    """The certified weak order of every palindrome."""
    failing = [f"{each['dynamics']} {each['word']}" for each in symmetric if each["weak"] != ORDER]
    right = len(symmetric) - len(failing)
    reading = "SGHMC with every arrangement of the letters of three alphabets, SGNHT and SGRHMC with ABOBA"
    why = f"Of order 2: {right} of {len(symmetric)}, certified on the shipped code for random potentials."
    return decide(
        "The symmetric splitting is a 2nd-order local integrator",
        "Lemma 7, Lemma 11",
        {"schemes": len(symmetric), "of weak order 2": right},
        reproduced(not failing, reading, why),
        otherwise(f"not {', '.join(failing)}", why),
    )


def equivalence(symmetric: list[dict[str, Any]], leading: dict[str, dict[str, float]]) -> Verdict:
    """Whether the palindromes have one order, and one leading constant."""
    orders = sorted({each["weak"] for each in symmetric if each["dynamics"] == "SGHMC"})
    numbers: dict[str, Any] = {"all of the same weak order": len(orders) == 1}
    same_constant, largest = True, 1.0
    for model, constants in leading.items():
        magnitudes = [abs(c) for c in constants.values() if c]
        counts = [sum(int(np.sign(c) == sign) for c in constants.values()) for sign in (0, 1, -1)]
        ratio = max(magnitudes) / min(magnitudes)
        numbers[f"{model}: largest over smallest |c| other than 0"] = ratio
        numbers[f"{model}: schemes with c = 0, c > 0, c < 0"] = counts
        same_constant, largest = same_constant and ratio < 1.5 and max(counts) == len(constants), max(largest, ratio)
    return decide(
        "All symmetric splittings, with different orders of A, B and O, are equivalent",
        "Section 4",
        numbers,
        reproduced(
            len(orders) == 1 and same_constant,
            "in every respect",
            f"All are of order {orders[0]}, with constants that differ by a factor of {largest:.2g} at most.",
        ),
        partly(
            len(orders) == 1,
            "equivalent means: of the same order",
            f"All are of order {orders[0]}, but the errors c h² differ by a factor of up to {largest:.0f}, or in sign.",
        ),
        otherwise("not even of the same order", f"There are weak orders {', '.join(map(str, orders))}."),
    )


def first_order(eulers: list[dict[str, Any]]) -> Verdict:
    """The certified orders of SGLD's Euler and of the three updates that the paper calls the Euler of SGHMC."""
    orders = {f"{each['dynamics']} {each['word']}": [each["weak"], each["invariant"]] for each in eulers}
    failing = [f"{name} of order {weak}" for name, (weak, _) in orders.items() if weak != 1]
    better = [f"{name} of order {invariant}" for name, (_, invariant) in orders.items() if invariant != 1]
    why = f"Not of weak order 1: {listed(failing)}. In the invariant measure of θ, not of order 1: {listed(better)}."
    return decide(
        "The Euler integrator is a 1st-order local integrator",
        "Section 4, Lemma 10",
        {f"{name}: weak order, invariant order": pair for name, pair in orders.items()},
        reproduced(not failing, "weak order, of each of the paper's Eulers", why),
        otherwise(f"not {listed(failing)}", why),
    )


def splitting_sgld(averaged: list[dict[str, Any]]) -> Verdict:
    """Whether an SGLD step with one gradient has an invariant measure better than of order 1."""
    (certified,) = averaged
    invariant, gradients = certified["invariant"], certified["gradients"]
    better = invariant == "exact" or invariant >= ORDER
    reading = "that SGLD cannot do better than an invariant measure of order 1"
    made = (
        f"SGLD with averaged noise (Leimkuhler & Matthews 2013) has invariant order {invariant} with full gradients, "
    )
    made += f"for {gradients} gradient{'s' * (gradients != 1)} per step."
    return decide(
        "One cannot easily apply a splitting scheme with SGLD",
        "Section 4",
        {"averaged noise: weak order": certified["weak"], "invariant order on a Gaussian": invariant}
        | {"gradients per step": gradients},
        reproduced(not better, reading, made),
        partly(gradients != 1, "at the price of one gradient", made),
        otherwise(reading, made),
    )


def generator(temperature: dict[str, float]) -> Verdict:
    """The temperature at which a generator with 2D (SGLD: 2) samples, beside that of the printed updates."""
    by_generator = [temperature[f"{dynamics} generator"] for dynamics in ("SGHMC", "SGLD")]
    by_update = [temperature[f"{dynamics} update"] for dynamics in ("SGHMC", "SGLD")]
    right = [abs(ratio - 1) < CLOSE for ratio in by_generator]
    updates = "right" if all(abs(ratio - 1) < CLOSE for ratio in by_update) else "wrong too"
    made = f"With the noise of the printed generators the temperatures of SGHMC and SGLD are {number(by_generator)}, "
    made += f"with the printed updates {number(by_update)}. Half of σσᵀ with the printed σ = √(2D) is D."
    return decide(
        "The generators are L_O = −∇U·∇_p + 2D I : ∇_p∇_pᵀ, and with 2 I : ∇∇ᵀ for SGLD",
        "Section 4, appendix I",
        {"Var θ over the true one, generator as printed (SGHMC, SGLD)": by_generator}
        | {"the same, printed updates": by_update},
        reproduced(all(right), "as printed", made),
        partly(any(right), "SGHMC alone" if right[0] else "SGLD alone", made),
        otherwise(f"as printed; the printed updates are {updates}", made),
    )


def densities(stationary: dict[str, float]) -> Verdict:
    """Whether the printed densities of SGHMC and SGNHT are kept, even formally."""
    printed = {name: stationary[f"{name} printed"] for name in ("SGHMC", "SGNHT")}
    kept = [name for name, drift in printed.items() if drift < ROUNDING]
    corrected = max(stationary[f"{name} corrected"] for name in printed)
    signs = "with minus signs they are kept" if corrected < ROUNDING else "nor with minus signs"
    made = f"|L*ρ/ρ| of the printed densities is {number(list(printed.values()))} of its terms (SGHMC, SGNHT), with "
    made += f"−p·p/2 and −n (ξ−D)²/2 at most {number(corrected)}. The printed ones have no integral either."
    return decide(
        "SGHMC keeps exp(−U + p·p/2), SGNHT exp(−U − p·p/2 + (ξ−D)²/2)",
        "Appendix A",
        {
            f"{name}: largest |L*ρ/ρ|, relative to its terms": drift
            for name, drift in stationary.items()
            if "SGRHMC" not in name
        },
        reproduced(len(kept) == 2, "as printed", made),
        partly(kept, f"{listed(kept)} alone", made),
        otherwise(f"as printed; {signs}", made),
    )


def curvature_force(stationary: dict[str, float]) -> Verdict:
    """Whether SGRHMC keeps the posterior, with ν as it must be and without."""
    drifts = {name: stationary[name] for name in ("SGRHMC with ν", "SGRHMC without ν")}
    right, without = (drift < ROUNDING for drift in drifts.values())
    reading = "ν_i = ½ p·G⁻¹ (∂_i G) G⁻¹ p"
    made = "|L*ρ/ρ| over its terms is {} with this ν and {} without.".format(*map(number, drifts.values()))
    return decide(
        "SGRHMC with a force ν(θ, p), which is not defined",
        "Appendix J",
        {f"{name}: largest |L*ρ/ρ|, relative to its terms": drift for name, drift in drifts.items()},
        reproduced(right and without, f"{reading}, or none: it makes no difference", made),
        partly(right, reading, f"{made} So the posterior is kept with it alone."),
        otherwise(reading, f"{made} The posterior is not kept."),
    )


def commutator(bracket: dict[str, float]) -> Verdict:
    """The coefficient in the proof of the splitting's order, and what the printed one would leave at the end."""
    computed, printed = bracket["found"], bracket["printed"]
    made = f"The coefficient is {computed:.4g}; {printed:.4g} is printed."
    # Paper: h²/2 [O,B]. We: h²/4 [O,B], because then [B,O] h²/4 of the next line cancels it (erratum A10).
    return decide(
        "e^{hA/2} e^{hO} e^{hA/2} e^{hB/2} has h²/2 [O,B] in its exponent",
        "Appendix I, proof of Lemma 11",
        {"coefficient of h² [O,B]": computed, "printed": printed}
        | {"left at the end of the proof, as printed": printed - 0.25, "as computed": computed - 0.25},
        reproduced(computed == printed, "exact fractions in the free algebra", made),
        otherwise(
            "exact fractions in the free algebra",
            f"{made} A misprint: with 0.25 the commutators cancel, as the lemma says."
            if computed == 0.25
            else f"{made} The commutators do not cancel with either.",
        ),
    )
