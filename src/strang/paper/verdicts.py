"""Verdicts on the integrators and on what the paper prints: lemmas, generators, densities, commutators, a bound."""

from typing import Any

import numpy as np

from strang.paper.figure import NOT_REPRODUCED, REPRODUCED, UNDER_READING, Verdict
from strang.paper.proofs import CLOSE, ORDER, ROUNDING


def integral_bound(summed: dict[str, Any]) -> Verdict:
    """The printed upper bound on Σ l^−α at α = 1/2, L = 10."""
    # Paper: 1 + ∫ up to L − 1. We: up to L, because of this counterexample (erratum A17).
    holds, mended = summed["sum"] < summed["printed"], summed["sum"] < summed["corrected"]
    return Verdict(
        "Σ_{l≤L} l^−α < 1 + ∫_1^{L−1} x^−α dx",
        "Appendix H, proof of Corollary 5",
        REPRODUCED if holds else NOT_REPRODUCED,
        "α = 1/2, L = 10",
        {"sum": summed["sum"], "printed bound": summed["printed"], "with the integral up to L": summed["corrected"]},
        "The counterexample is small, and the corollary does not need it: the integral up to L bounds the sum."
        if mended and not holds
        else "The bound holds here."
        if holds
        else "Neither bound holds here.",
    )


def second_order(symmetric: list[dict[str, Any]]) -> Verdict:
    """The certified weak order of every palindrome."""
    found = {f"{each['dynamics']} {each['word']}": each["weak"] for each in symmetric}
    failing = [name for name, order in found.items() if order != ORDER]
    return Verdict(
        "The symmetric splitting is a 2nd-order local integrator",
        "Lemma 7, Lemma 11",
        NOT_REPRODUCED if failing else REPRODUCED,
        "SGHMC in every order of the letters of three alphabets, SGNHT and SGRHMC in ABOBA",
        {"schemes": len(found), "of weak order 2": len(found) - len(failing)},
        f"Not of order 2: {', '.join(failing)}." if failing else "Certified on the shipped code for random potentials.",
    )


def equivalence(symmetric: list[dict[str, Any]], leading: dict[str, dict[str, float]]) -> Verdict:
    """Whether the palindromes share their order, and their leading constants."""
    same = len({each["weak"] for each in symmetric if each["dynamics"] == "SGHMC"}) == 1
    numbers: dict[str, Any] = {"all of the same weak order": same}
    alike = same
    for model, found in leading.items():
        sizes = [abs(c) for c in found.values() if c]
        signs = {"exact": 0.0, "positive": 1.0, "negative": -1.0}
        counts = [sum(np.sign(c) == sign for c in found.values()) for sign in signs.values()]
        numbers[f"{model}: largest over smallest |c| but 0"] = max(sizes) / min(sizes)
        numbers[f"{model}: schemes with c = 0, c > 0, c < 0"] = [int(count) for count in counts]
        alike = alike and max(sizes) / min(sizes) < 1.5 and max(counts) == len(found)
    stiff = list(leading)[-1]
    return Verdict(
        "All symmetric splittings, with different orders of A, B and O, are equivalent",
        "Section 4",
        REPRODUCED if alike else UNDER_READING if same else NOT_REPRODUCED,
        "in every respect"
        if alike
        else "equivalent means: of the same order"
        if same
        else "not even of the same order",
        numbers,
        f"The errors c h² differ by a factor of up to {numbers[f'{stiff}: largest over smallest |c| but 0']:.0f} on "
        "the paper's model, some schemes have none on a Gaussian, and the signs differ."
        if not alike
        else "The constants agree.",
    )


def first_order(eulers: list[dict[str, Any]]) -> Verdict:
    """The certified orders of SGLD's Euler and of the three updates that the paper calls the Euler of SGHMC."""
    found = {f"{each['dynamics']} {each['word']}": each for each in eulers}
    holds = all(each["weak"] == 1 for each in eulers)
    better = [name for name, each in found.items() if each["invariant"] != 1]
    return Verdict(
        "The Euler integrator is a 1st-order local integrator",
        "Section 4, Lemma 10",
        REPRODUCED if holds else NOT_REPRODUCED,
        "weak order, of each of the paper's Eulers",
        {f"{name}: weak order, invariant order": [each["weak"], each["invariant"]] for name, each in found.items()},
        f"But the invariant measure of {' and '.join(better)} is of order 2 in θ: local order does not decide it."
        if better
        else "Their invariant measures are of order 1 as well.",
    )


def splitting_sgld(averaged: list[dict[str, Any]]) -> Verdict:
    """Whether an SGLD step with one gradient has an invariant measure better than of order 1."""
    (found,) = averaged
    better = found["invariant"] == "exact" or found["invariant"] >= ORDER
    return Verdict(
        "One cannot easily apply a splitting scheme with SGLD",
        "Section 4",
        NOT_REPRODUCED if better and found["gradients"] == 1 else REPRODUCED,
        "that SGLD is left with an invariant measure of order 1",
        {"averaged noise: weak order": found["weak"], "invariant order on a Gaussian": found["invariant"]}
        | {"gradients a step": found["gradients"]},
        "SGLD with averaged noise (Leimkuhler & Matthews 2013) has a better invariant measure at the price of one "
        "gradient, with full gradients."
        if better
        else "Averaged noise does not help.",
    )


def generator(temperature: dict[str, float]) -> Verdict:
    """The temperature at which a generator with 2D (SGLD: 2) samples, beside that of the printed updates."""
    by_generator = [temperature[f"{kind} generator"] for kind in ("SGHMC", "SGLD")]
    by_update = [temperature[f"{kind} update"] for kind in ("SGHMC", "SGLD")]
    holds = all(abs(ratio - 1) < CLOSE for ratio in by_generator)
    updates = all(abs(ratio - 1) < CLOSE for ratio in by_update)
    return Verdict(
        "The generators are L_O = −∇U·∇_p + 2D I : ∇_p∇_pᵀ, and with 2 I : ∇∇ᵀ for SGLD",
        "Section 4, appendix I",
        REPRODUCED if holds else NOT_REPRODUCED,
        "as printed; the printed updates are right" if updates else "as printed; nor are the printed updates right",
        {"Var θ over the true one, generator as printed (SGHMC, SGLD)": by_generator}
        | {"the same, printed updates": by_update},
        f"Noise as the generators print it samples at temperature {by_generator[0]:.3g}. Half of σσᵀ with the printed "
        "σ = √(2D) is D.",
    )


def densities(stationary: dict[str, float]) -> Verdict:
    """Whether the printed densities of SGHMC and SGNHT are stationary, even formally."""
    holds = all(stationary[f"{kind} printed"] < ROUNDING for kind in ("SGHMC", "SGNHT"))
    mended = all(stationary[f"{kind} corrected"] < ROUNDING for kind in ("SGHMC", "SGNHT"))
    return Verdict(
        "SGHMC keeps exp(−U + p·p/2), SGNHT exp(−U − p·p/2 + (ξ−D)²/2)",
        "Appendix A",
        REPRODUCED if holds else NOT_REPRODUCED,
        "as printed; with minus signs they are kept" if mended else "as printed; nor with minus signs",
        {f"{name}: largest drift of a moment": stationary[name] for name in stationary if "SGRHMC" not in name},
        "The printed densities have no integral, and their formal moments are not stationary. With −p·p/2 and "
        "−n (ξ−D)²/2 every moment up to degree 4 is, to rounding."
        if mended and not holds
        else "All moments are stationary."
        if holds
        else "Neither density is stationary.",
    )


def curvature_force(stationary: dict[str, float]) -> Verdict:
    """Whether SGRHMC keeps the posterior, with ν as it must be and without."""
    right, without = stationary["SGRHMC with ν"] < ROUNDING, stationary["SGRHMC without ν"] < ROUNDING
    return Verdict(
        "SGRHMC with a force ν(θ, p), which is not defined",
        "Appendix J",
        UNDER_READING if right else NOT_REPRODUCED,
        "ν_i = ½ p·G⁻¹ (∂_i G) G⁻¹ p" + (", or none" if without else ""),
        {f"{name}: largest drift of a moment": stationary[name] for name in ("SGRHMC with ν", "SGRHMC without ν")},
        "With this ν the posterior is kept exactly; without it, it is not."
        if right and not without
        else "ν makes no difference here."
        if right
        else "The posterior is not kept.",
    )


def commutator(bracket: dict[str, float]) -> Verdict:
    """The coefficient in the proof of the splitting's order, and what the printed one would leave at the end."""
    holds = bracket["found"] == bracket["printed"]
    # Paper: h²/2 [O,B]. We: h²/4 [O,B], because then [B,O] h²/4 of the next line cancels it (erratum A10).
    return Verdict(
        "e^{hA/2} e^{hO} e^{hA/2} e^{hB/2} has h²/2 [O,B] in its exponent",
        "Appendix I, proof of Lemma 11",
        REPRODUCED if holds else NOT_REPRODUCED,
        "exact fractions in the free algebra",
        {"coefficient of h² [O,B]": bracket["found"], "printed": bracket["printed"]}
        | {"left at the end of the proof, as printed": bracket["printed"] - 0.25, "as found": bracket["found"] - 0.25},
        "A slip of the pen: with the right coefficient the commutators cancel, as the lemma says."
        if not holds and bracket["found"] == 0.25
        else "The printed coefficient is right."
        if holds
        else "The commutators do not cancel with either coefficient.",
    )
