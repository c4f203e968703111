"""The claims that need no figure: the theorems, lemmas and printed formulas, each computed without sampling.

Theorems, lemmas, corollaries and remarks are numbered as in the paper's source, where they share one counter. Relative
biases are K0 times those of θ² on the paper's Gaussian model, MSEs K0² times.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from strang.integrators.schemes import palindromes
from strang.paper import measure, proofs
from strang.paper import verdicts as printed
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
from strang.paper.proofs import CLOSE, FRICTION, ORDER, WORD

WORDS = [f"{prefix}:{word}" for prefix in ("chen", "leimkuhler") for word in palindromes("ABO")]
SYMMETRIC: dict[str, dict[str, list[str]]] = {
    "chen": {"SGHMC": WORDS[:6]},
    "leimkuhler": {"SGHMC": WORDS[6:]},
    "ubu": {"SGHMC": ["ubu:UBU", "ubu:BUB"]},
    "other dynamics": {"SGNHT": [WORD], "SGRHMC": [WORD]},
}
EULERS = {"SGLD": ["euler"], "SGHMC": ["euler-old", "euler-new", "euler-position-first"]}
AVERAGED = {"SGLD": ["averaged-noise"]}
BATCHES = {
    "full": "full gradients",
    "iid": "independent minibatches",
    "reshuffled": "reshuffled minibatches",
    "symmetric": "symmetric sweeps",
}
# The paper's model, and one on which nothing is stiff: (name, K, D, radius of the circle of complex step sizes).
MODELS = [("K = 1, D = 1", 1.0, 1.0, 0.2), ("K = 1001, D = 10", measure.PRECISION, FRICTION, 0.01)]
SIZES = [1.6e-5 * 2**k for k in range(11)]  # the smallest: R h √K0 = 0.05, yet no bias lost in rounding
# The MSE is at its floor, the squared bias, only after a number of steps that no run makes.
FLOORS = {
    "full": ([0.01, 0.02], 10**14),
    "iid": ([1e-5, 2e-5], 10**14),
    "reshuffled": ([1.6e-5, 3.2e-5], 10**18),
    "symmetric": ([3.2e-5, 6.4e-5], 10**18),
}
LENGTHS = [10**k for k in range(2, 10)]
FIXED_SIZE = 0.001
SCALE, ALPHAS = 0.045, (0.1, 0.2, 1 / 3, 0.5, 2 / 3, 0.8, 0.9)
DECADES = [100, 1000, 10_000, 100_000]


def parts(effort: Effort) -> list[Part]:
    """None of it depends on the effort."""
    floors = {order: {"sizes": sizes, "steps": steps} for order, (sizes, steps) in FLOORS.items()}
    return [
        *(
            Part(f"orders of splittings, {name}", proofs.orders, {"schemes": schemes})
            for name, schemes in SYMMETRIC.items()
        ),
        Part("orders of Eulers", proofs.orders, {"schemes": EULERS}),
        Part("order of averaged noise", proofs.orders, {"schemes": AVERAGED}),
        Part("orders with minibatches", proofs.batch_orders, {"word": WORD, "batches": list(BATCHES)}),
        Part("leading constants", proofs.constants, {"models": [list(model) for model in MODELS], "words": WORDS}),
        Part("bias by step size", proofs.biases, {"sizes": SIZES, "orders": list(BATCHES)}),
        Part("floor of the MSE", proofs.mse_floors, {"floors": floors}),
        Part(
            "bias and variance by length",
            proofs.lengths,
            {"h": FIXED_SIZE, "stops": LENGTHS, "orders": ["full", "iid"]},
        ),
        Part("decreasing steps", proofs.decreasing, {"scale": SCALE, "alphas": list(ALPHAS), "stops": DECADES}),
        Part("sums of powers", proofs.sums, {"steps": 10**7, "alphas": [0.2, 1 / 3, 0.5]}),
        Part("printed generators", proofs.temperatures, {"sizes": {"SGHMC": 1e-4, "SGLD": 1e-8}}),
        Part("printed densities", proofs.densities, {"degree": 4}),
        Part("printed commutator", proofs.commutator, {}),
    ]


def figure(effort: Effort, results: list[Any]) -> Figure:
    symmetric = [certified for result in results[: len(SYMMETRIC)] for certified in result]
    eulers, averaged, batched, leading, by_size, floors, *others = results[len(SYMMETRIC) :]
    by_length, falling, summed, temperature, stationary, bracket = others
    return Figure(
        "theorems",
        "The theorems, one by one",
        "Bias O(1/(Lh) + h^K), MSE O(1/(Lh) + h^2K) and an invariant measure within O(h^K), whatever the minibatches; "
        "consistency of decreasing steps h_l ∝ l^−α for 0 < α < 1; the splitting of order 2, the Euler of order 1.",
        "Everything here is computed, nothing sampled. In the first panel the bias with independent minibatches is a "
        "straight line of slope 1: it does not see the order of the splitting. Sweeps through the data bring the bias "
        "down by powers of h once an epoch is short, R h √K0 < 3.",
        {
            **{name: measure.SETTINGS[name] for name in ("data", "prior", "batch", "start", "iid batches")},
            "dynamics": f"SGHMC, {WORD}, D = {FRICTION:g}, unless it says otherwise",
            "relative bias, MSE, variance": "K0 times the bias of θ²; K0² times the MSE and the variance",
        },
        [size_panel(by_size), length_panel(by_length), falling_panel(falling)],
        [orders_table([*symmetric, *eulers, *averaged]), constants_table(leading)],
        [
            bias_bound(by_size, by_length),
            mse_bound(floors),
            invariant_measure(by_size, batched),
            noise_matters(by_size),
            vanishing_variance(by_length),
            decreasing_bound(falling),
            consistency(falling),
            extra_logarithm(summed),
            printed.integral_bound(summed),
            printed.second_order(symmetric),
            printed.equivalence(symmetric, leading),
            printed.first_order(eulers),
            printed.splitting_sgld(averaged),
            printed.generator(temperature),
            printed.densities(stationary),
            printed.curvature_force(stationary),
            printed.commutator(bracket),
        ],
    )  # fmt: skip


def curve(xs: Sequence[float], values: Sequence[float]) -> list[Point]:
    return [{"x": float(x), "value": None, "se": None, "exact": value} for x, value in zip(xs, values, strict=True)]


def size_panel(by_size: dict[str, list[float]]) -> Panel:
    series = [Series(label, curve(SIZES, by_size[order])) for order, label in BATCHES.items()]
    return Panel("Bias of the invariant measure", "step size h", "relative bias of θ²", series)


def length_panel(by_length: dict[str, dict[str, list[float]]]) -> Panel:
    series = []
    for order, found in by_length.items():
        series.append(Series(f"{BATCHES[order]}: bias²", curve(LENGTHS, [bias**2 for bias in found["bias"]])))
        series.append(Series(f"{BATCHES[order]}: variance", curve(LENGTHS, found["variance"])))
    return Panel(f"Squared bias and variance, h = {FIXED_SIZE:g}", "steps L", "relative", series)


def falling_panel(falling: list[dict[str, Any]]) -> Panel:
    series = [Series(f"α = {each['alpha']:.2g}", curve(DECADES, each["iid mse"])) for each in falling]
    return Panel(f"Decreasing steps, h = {SCALE:g} l^−α, independent", "steps L", "relative MSE", series)


def orders_table(certified: list[dict[str, Any]]) -> Table:
    columns = ("dynamics", "word", "gradients", "weak", "invariant")
    rows = [["—" if each[column] is None else each[column] for column in columns] for each in certified]
    return Table(
        "Certified orders with full gradients (invariant: of Var θ on a Gaussian)",
        ["dynamics", "scheme", "gradients a step", "weak order", "invariant order"],
        rows,
    )


def constants_table(leading: dict[str, dict[str, float]]) -> Table:
    rows = [[word, *(found[word] for found in leading.values())] for word in WORDS]
    return Table("c in Var_h(θ)/Var(θ) = 1 + c h² + …, full gradients", ["scheme", *leading], rows)


def power(xs: Sequence[float], values: Sequence[float]) -> float:
    """The power that two magnitudes follow."""
    return float(np.log(abs(values[1] / values[0])) / np.log(xs[1] / xs[0]))


def bias_powers(by_size: dict[str, list[float]]) -> dict[str, float]:
    """Powers of h in the asymptotic bias at the smallest step sizes."""
    return {order: power(SIZES, found) for order, found in by_size.items()}


def by_reading(holds: dict[str, bool]) -> tuple[str, str]:
    """The verdict on a claim about all minibatches, and for which of them it holds."""
    where = [label for order, label in BATCHES.items() if holds[order]]
    if len(where) == len(holds):
        return REPRODUCED, "any minibatches"
    if holds["reshuffled"] or holds["symmetric"]:
        where[-1] += ", where an epoch is short, R h √K0 < 3"
    return (UNDER_READING, ", ".join(where)) if where else (NOT_REPRODUCED, "for no minibatches")


def labelled(numbers: dict[str, Any], what: str) -> dict[str, Any]:
    return {f"{what}, {BATCHES[order]}": number for order, number in numbers.items()}


NOISE = (
    "Independent minibatches of variance V add hV/(2D) to the relative bias of every scheme: E ΔV_l = 0 takes away the "
    "mean of the noise, not its square, which the proof drops."
)


def bias_bound(by_size: dict[str, list[float]], by_length: dict[str, dict[str, list[float]]]) -> Verdict:
    """The power of h that is left as L → ∞, and whether the rest is C/(Lh)."""
    powers = bias_powers(by_size)
    kind, reading = by_reading({order: found > ORDER - CLOSE for order, found in powers.items()})
    numbers = labelled(powers, "power of h in the asymptotic bias")
    for order, found in by_length.items():
        rest = [(bias - found["stays"][0]) * L * FIXED_SIZE for bias, L in zip(found["bias"], LENGTHS, strict=True)]
        numbers[f"(bias − its limit) L h at L = 10⁴, 10⁶, {BATCHES[order]}"] = [rest[2], rest[4]]
    return Verdict(
        "The bias is O(1/(Lh) + h^K) with unbiased gradients, K = 2 for the splitting",
        "Theorem 1, Remark 8",
        kind,
        reading,
        numbers,
        f"The transient is C/(Lh) always. {NOISE}" if kind != REPRODUCED else "All asymptotic biases are O(h²).",
    )


def mse_bound(floors: dict[str, dict[str, list[float]]]) -> Verdict:
    """The power of h in the MSE when L is so large that the squared bias is all of it."""
    powers = {order: power(FLOORS[order][0], found["mse"]) for order, found in floors.items()}
    kind, reading = by_reading({order: found > 2 * ORDER - 2 * CLOSE for order, found in powers.items()})
    shares = {order: found["bias"][0] ** 2 / found["mse"][0] for order, found in floors.items()}
    return Verdict(
        "The MSE is O(1/L + 1/(Lh) + h^2K), K = 2 for the splitting",
        "Theorem 2, Remark 8",
        kind,
        reading,
        labelled(powers, "power of h in the MSE as L → ∞") | labelled(shares, "share of the squared bias in it"),
        f"What is left of the MSE is the squared bias. {NOISE}" if kind != REPRODUCED else "All floors are O(h⁴).",
    )


def invariant_measure(by_size: dict[str, list[float]], batched: dict[str, Any]) -> Verdict:
    """Measured powers on the paper's model, and the certificates for any target."""
    powers = bias_powers(by_size)
    holds = {
        order: powers[order] > ORDER - CLOSE and min(batched[order]["weak"], batched[order]["invariant"]) >= ORDER
        for order in BATCHES
    }
    kind, reading = by_reading(holds)
    last = {order: by_size[order][-1] / by_size["iid"][-1] for order in ("reshuffled", "symmetric")}
    return Verdict(
        "The invariant measure of an SG-MCMC with a K-th order integrator is within O(h^K)",
        "Theorem 3",
        kind,
        reading,
        labelled(powers, "power of h in the bias")
        | labelled({order: batched[order]["weak"] for order in BATCHES}, "certified weak order over a period")
        | labelled(last, f"bias over that of independent minibatches at h = {SIZES[-1]:.2g}"),
        f"{NOISE} Sweeps through the data cancel it over an epoch: what is left of it here falls even faster than h²."
        if kind != REPRODUCED
        else "All powers are at least K.",
    )


def noise_matters(by_size: dict[str, list[float]]) -> Verdict:
    """Whether any minibatches leave the invariant measure as full gradients have it."""
    noisy = {order: abs(found[0] / by_size["full"][0]) for order, found in by_size.items() if order != "full"}
    affected = [order for order, ratio in noisy.items() if ratio > 2]
    return Verdict(
        "Only the order of the numerical approximation, not the stochastic gradient, affects the invariant measure",
        "Section 3.2, after Theorem 3",
        NOT_REPRODUCED if len(affected) == len(noisy) else UNDER_READING if affected else REPRODUCED,
        f"at h = {SIZES[0]:.2g}, where R h √K0 is 0.05" if affected else "any minibatches",
        labelled(noisy, "bias over that of full gradients")
        | {"relative bias, independent minibatches": by_size["iid"][0]},
        "Nearly all of the bias is that of the stochastic gradient, in every order of the minibatches; the order in "
        "which they come decides by which power of h it falls."
        if affected
        else "The biases are those of full gradients.",
    )


def vanishing_variance(by_length: dict[str, dict[str, list[float]]]) -> Verdict:
    """The power of L in the variance at a fixed step size."""
    powers = {order: power(LENGTHS[-2:], found["variance"][-2:]) for order, found in by_length.items()}
    vanishes = all(found < -1 + CLOSE for found in powers.values())
    bounded = all(found["variance"][-1] <= found["stays"][0] ** 2 for found in by_length.values())
    # Paper: variance O(h^2K). We: 0 in the limit, because h^2K bounds the squared bias within the MSE (erratum A15).
    return Verdict(
        "As L → ∞ the sample average is a random variable with variance O(h^2K)",
        "Section 3.2",
        UNDER_READING if vanishes else REPRODUCED if bounded else NOT_REPRODUCED,
        "as a bound, which is not sharp: the variance tends to 0" if vanishes else "variance against squared bias",
        labelled(powers, "power of L in the variance")
        | labelled({order: found["variance"][-1] for order, found in by_length.items()}, "variance at L = 10⁹"),
        "At a fixed step size the variance falls like 1/L. What stays in the MSE is the squared bias."
        if vanishes
        else "At a fixed step size the variance does not fall like 1/L.",
    )


def decreasing_bound(falling: list[dict[str, Any]]) -> Verdict:
    """How much the bias gains on the bound over the last decade: by more than 5 %, and there is no constant."""

    def gain(each: dict[str, Any], order: str) -> float:
        before, after = (abs(each[f"{order} bias"][i]) / each["bound"][i] for i in (-2, -1))
        return after / before

    gains = {order: [gain(each, order) for each in falling] for order in ("full", "iid")}
    broken = {
        order: [each["alpha"] for each, gained in zip(falling, found, strict=True) if gained > 1 + CLOSE / 2]
        for order, found in gains.items()
    }
    exceptions = f"; not with independent minibatches at α up to {max(broken['iid'], default=0.0):.2g}"
    return Verdict(
        "With decreasing steps the bias is O(1/S_L + Σ h_l^(K+1)/S_L), K = 2",
        "Theorem 4",
        NOT_REPRODUCED if broken["full"] else UNDER_READING if broken["iid"] else REPRODUCED,
        f"full gradients{exceptions}" if broken["iid"] else "any minibatches",
        {"α": [each["alpha"] for each in falling]} | labelled(gains, "bias over bound, growth from L = 10⁴ to 10⁵"),
        "With independent minibatches the effective K is 1, so that the bias follows 1/S_L + Σ h_l²/S_L. At large α, "
        "where 1/S_L is by far the larger term all the same, the bound holds."
        if broken["iid"]
        else "The bias stays within a constant of the bound.",
    )


def consistency(falling: list[dict[str, Any]]) -> Verdict:
    """Whether the conditions hold, and bias and MSE with independent minibatches fall in every decade."""
    conditions = all(each["consistent"] for each in falling)
    falls = {
        f"α = {each['alpha']:.3g}": [
            max(abs(b / a) for a, b in pairwise(each[f"iid {name}"])) for name in ("bias", "mse")
        ]
        for each in falling
    }
    holds = conditions and all(max(ratios) < 0.9 for ratios in falls.values())
    slowest = max(falls, key=lambda name: falls[name][0])
    return Verdict(
        "Steps h_l ∝ l^−α with 0 < α < 1 give consistent averages: bias and MSE approach zero",
        "Theorem 4, Corollary 5",
        REPRODUCED if holds else NOT_REPRODUCED,
        f"also with independent minibatches; h_l = {SCALE:g} l^−α, L = 10² … 10⁵",
        {"the conditions on the step sizes hold for all α": conditions}
        | {f"{name}: least fall of bias and MSE in a decade, to": ratios for name, ratios in falls.items()},
        "As h_l → 0 the bias of the minibatch noise goes as well. Both errors fall in every decade at every α, slowest "
        f"at {slowest}, where a decade takes the bias to {falls[slowest][0]:.2f} of it: the limit is out of sight."
        if holds
        else "Some error does not fall, or a condition does not hold.",
    )


def extra_logarithm(summed: dict[str, Any]) -> Verdict:
    """Whether (Σ h^(K+1)/S_L) L^(Kα) stays bounded: its growth from decade to decade."""
    scaled = summed["scaled"]
    growth = {alpha: [after - before for before, after in pairwise(values)] for alpha, values in scaled.items()}
    bounded = {alpha: steps[-1] < 0.5 * steps[-2] for alpha, steps in growth.items()}
    # Paper: O(L^−Kα) for every α. We: only if (K+1) α < 1, because at α = 1/(K+1) the sum is Σ 1/l (erratum A16).
    return Verdict(
        "Σ h_l^(K+1)/S_L decreases as O(L^−Kα)",
        "Remark 6",
        REPRODUCED if all(bounded.values()) else UNDER_READING if bounded["0.2"] else NOT_REPRODUCED,
        "all α" if all(bounded.values()) else "(K+1) α < 1",
        {f"α = {alpha}: Σ h³/S_L · L^2α at L = 10 … 10⁷": values for alpha, values in scaled.items()},
        f"At α = 1/3, which the paper calls optimal for the bias, each decade adds {growth['0.333'][-1]:.2f} to the "
        "constant: a factor log L. Beyond, the constant grows as a power of L."
        if not all(bounded.values())
        else "The constant is bounded at every α.",
    )
