"""Verdicts on the integrators and on formulas as the paper prints them: lemmas, generators, densities, a bound."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from strang.paper.figure import NOT_REPRODUCED, REPRODUCED, UNDER_READING, Verdict
from strang.paper.proofs import CLOSE, ORDER, ROUNDING
from strang.report.panels import Point

AGREES = "The numbers agree with the claim."


def outcome(holds: Any, partly: Any = False) -> str:
    """The kind of verdict for a claim that holds, holds in part (under one reading of it), or fails."""
    return REPRODUCED if holds else UNDER_READING if partly else NOT_REPRODUCED


def verdict(
    claim: str, where: str, kind: str, reading: str, numbers: dict[str, Any], why_not: str, agrees: str = AGREES
) -> Verdict:
    """A verdict explained by `agrees` if the claim is reproduced as it stands, else by `why_not`."""
    return Verdict(claim, where, kind, reading, numbers, agrees if kind == REPRODUCED else why_not)


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
    # Paper: 1 + ∫ up to L − 1. We: up to L, because of this counterexample (erratum A17).
    return verdict(
        "Σ_{l≤L} l^−α < 1 + ∫_1^{L−1} x^−α dx",
        "Appendix H, proof of Corollary 5",
        outcome(summed["sum"] < summed["printed"]),
        "α = 1/2, L = 10",
        {"sum": summed["sum"], "printed bound": summed["printed"], "with the integral up to L": summed["corrected"]},
        "This is a small counterexample. The corollary does not need the bound: the integral up to L "
        + ("bounds the sum." if summed["sum"] < summed["corrected"] else "was to bound the sum, but does not either."),
    )


def second_order(symmetric: list[dict[str, Any]]) -> Verdict:
    """The certified weak order of every palindrome."""
    failing = [f"{each['dynamics']} {each['word']}" for each in symmetric if each["weak"] != ORDER]
    return verdict(
        "The symmetric splitting is a 2nd-order local integrator",
        "Lemma 7, Lemma 11",
        outcome(not failing),
        "SGHMC with every arrangement of the letters of three alphabets, SGNHT and SGRHMC with ABOBA",
        {"schemes": len(symmetric), "of weak order 2": len(symmetric) - len(failing)},
        f"Not of order 2: {', '.join(failing)}.",
        "Certified on the shipped code for random potentials.",
    )


def equivalence(symmetric: list[dict[str, Any]], leading: dict[str, dict[str, float]]) -> Verdict:
    """Whether the palindromes have one order, and one leading constant."""
    same_order = len({each["weak"] for each in symmetric if each["dynamics"] == "SGHMC"}) == 1
    numbers: dict[str, Any] = {"all of the same weak order": same_order}
    same_constant, ratio = True, 1.0
    for model, constants in leading.items():
        magnitudes = [abs(c) for c in constants.values() if c]
        counts = [sum(int(np.sign(c) == sign) for c in constants.values()) for sign in (0, 1, -1)]
        ratio = max(magnitudes) / min(magnitudes)
        numbers[f"{model}: largest over smallest |c| other than 0"] = ratio
        numbers[f"{model}: schemes with c = 0, c > 0, c < 0"] = counts
        same_constant &= ratio < 1.5 and max(counts) == len(constants)
    reading = "equivalent means: of the same order" if same_order else "not even of the same order"
    return verdict(
        "All symmetric splittings, with different orders of A, B and O, are equivalent",
        "Section 4",
        outcome(same_order and same_constant, same_order),
        "in every respect" if same_order and same_constant else reading,
        numbers,
        f"The errors c h² differ by a factor of up to {ratio:.0f} on the paper's model, some schemes have none on a "
        "Gaussian, and the signs differ.",
    )


def first_order(eulers: list[dict[str, Any]]) -> Verdict:
    """The certified orders of SGLD's Euler and of the three updates that the paper calls the Euler of SGHMC."""
    orders = {f"{each['dynamics']} {each['word']}": [each["weak"], each["invariant"]] for each in eulers}
    better = [name for name, (_, invariant) in orders.items() if invariant != 1]
    return Verdict(
        "The Euler integrator is a 1st-order local integrator",
        "Section 4, Lemma 10",
        outcome(all(weak == 1 for weak, _ in orders.values())),
        "weak order, of each of the paper's Eulers",
        {f"{name}: weak order, invariant order": pair for name, pair in orders.items()},
        f"But the invariant measure of {' and '.join(better)} is of order 2 in θ: local order does not decide it."
        if better
        else "Their invariant measures are of order 1 as well.",
    )


def splitting_sgld(averaged: list[dict[str, Any]]) -> Verdict:
    """Whether an SGLD step with one gradient has an invariant measure better than of order 1."""
    (certified,) = averaged
    better = certified["invariant"] == "exact" or certified["invariant"] >= ORDER
    return verdict(
        "One cannot easily apply a splitting scheme with SGLD",
        "Section 4",
        outcome(not better or certified["gradients"] != 1),
        "that SGLD cannot do better than an invariant measure of order 1",
        {"averaged noise: weak order": certified["weak"], "invariant order on a Gaussian": certified["invariant"]}
        | {"gradients per step": certified["gradients"]},
        "SGLD with averaged noise (Leimkuhler & Matthews 2013) has a better invariant measure at the price of one "
        "gradient, with full gradients.",
        "Averaged noise does not help.",
    )


def generator(temperature: dict[str, float]) -> Verdict:
    """The temperature at which a generator with 2D (SGLD: 2) samples, beside that of the printed updates."""
    by_generator = [temperature[f"{dynamics} generator"] for dynamics in ("SGHMC", "SGLD")]
    by_update = [temperature[f"{dynamics} update"] for dynamics in ("SGHMC", "SGLD")]
    right = [all(abs(ratio - 1) < CLOSE for ratio in ratios) for ratios in (by_generator, by_update)]
    return verdict(
        "The generators are L_O = −∇U·∇_p + 2D I : ∇_p∇_pᵀ, and with 2 I : ∇∇ᵀ for SGLD",
        "Section 4, appendix I",
        outcome(right[0]),
        f"as printed; the printed updates are {'right' if right[1] else 'wrong too'}",
        {"Var θ over the true one, generator as printed (SGHMC, SGLD)": by_generator}
        | {"the same, printed updates": by_update},
        f"With the noise of the printed generators the temperature is {by_generator[0]:.3g}. Half of σσᵀ with the "
        "printed σ = √(2D) is D.",
    )


def densities(stationary: dict[str, float]) -> Verdict:
    """Whether the printed densities of SGHMC and SGNHT are kept, even formally."""
    printed, corrected = (
        all(stationary[f"{dynamics} {which}"] < ROUNDING for dynamics in ("SGHMC", "SGNHT"))
        for which in ("printed", "corrected")
    )
    return verdict(
        "SGHMC keeps exp(−U + p·p/2), SGNHT exp(−U − p·p/2 + (ξ−D)²/2)",
        "Appendix A",
        outcome(printed),
        "as printed; with minus signs they are kept" if corrected else "as printed; nor with minus signs",
        {
            f"{name}: largest |L*ρ/ρ|, relative to its terms": stationary[name]
            for name in stationary
            if "SGRHMC" not in name
        },
        "The printed densities have no integral, and their L*ρ is not 0. With −p·p/2 and −n (ξ−D)²/2 it is"
        + (", to rounding." if corrected else " to be, but is not."),
    )


def curvature_force(stationary: dict[str, float]) -> Verdict:
    """Whether SGRHMC keeps the posterior, with ν as it must be and without."""
    names = ("SGRHMC with ν", "SGRHMC without ν")
    right, without = (stationary[name] < ROUNDING for name in names)
    effect = "it makes no difference here" if without else "without it, it is not"
    return Verdict(
        "SGRHMC with a force ν(θ, p), which is not defined",
        "Appendix J",
        outcome(False, right),
        "ν_i = ½ p·G⁻¹ (∂_i G) G⁻¹ p" + (", or none" if without else ""),
        {f"{name}: largest |L*ρ/ρ|, relative to its terms": stationary[name] for name in names},
        f"With this ν the posterior is kept exactly; {effect}." if right else "The posterior is not kept.",
    )


def commutator(bracket: dict[str, float]) -> Verdict:
    """The coefficient in the proof of the splitting's order, and what the printed one would leave at the end."""
    computed, printed = bracket["found"], bracket["printed"]
    # Paper: h²/2 [O,B]. We: h²/4 [O,B], because then [B,O] h²/4 of the next line cancels it (erratum A10).
    return verdict(
        "e^{hA/2} e^{hO} e^{hA/2} e^{hB/2} has h²/2 [O,B] in its exponent",
        "Appendix I, proof of Lemma 11",
        outcome(computed == printed),
        "exact fractions in the free algebra",
        {"coefficient of h² [O,B]": computed, "printed": printed}
        | {"left at the end of the proof, as printed": printed - 0.25, "as computed": computed - 0.25},
        "A misprint: with the right coefficient the commutators cancel, as the lemma says."
        if computed == 0.25
        else "The commutators do not cancel with either coefficient.",
    )
