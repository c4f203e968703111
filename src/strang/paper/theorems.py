"""The theorems, lemmas and printed formulas of the paper, each checked by computation, without sampling.

Theorems, lemmas, corollaries and remarks are numbered as in the paper's source, where they share one counter. Relative
biases are K0 times those of θ² on the paper's Gaussian model, MSEs K0² times.
"""

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np

from strang.integrators.schemes import palindromes
from strang.paper import measure, proofs, verdicts
from strang.paper.figure import Effort, Figure, Part, Verdict
from strang.paper.proofs import CLOSE, FRICTION, ORDER, WORD
from strang.paper.verdicts import Case, decide, listed, otherwise, partly, power, reproduced
from strang.report.figures import number
from strang.report.panels import Panel, Series, Table

SCHEMES = [f"{alphabet}:{word}" for alphabet in ("chen", "leimkuhler") for word in palindromes("ABO")]
SYMMETRIC: dict[str, dict[str, list[str]]] = {
    "chen": {"SGHMC": SCHEMES[:6]},
    "leimkuhler": {"SGHMC": SCHEMES[6:]},
    "ubu": {"SGHMC": ["ubu:UBU", "ubu:BUB"]},
    "other dynamics": {"SGNHT": [WORD], "SGRHMC": [WORD]},
}
EULERS = {"SGLD": ["euler"], "SGHMC": ["euler-old", "euler-new", "euler-position-first"]}
BATCH_ORDERS = {
    "full": "full gradients",
    "iid": "independent minibatches",
    "reshuffled": "reshuffled minibatches",
    "symmetric": "symmetric sweeps",
}
# The paper's model, and one on which nothing is stiff: (name, K, D, radius of the circle of complex step sizes).
MODELS = [("K = 1, D = 1", 1.0, 1.0, 0.2), ("K = 1001, D = 10", measure.PRECISION, FRICTION, 0.01)]
STEP_SIZES = [1.6e-5 * 2**k for k in range(11)]  # the smallest: R h √K0 = 0.05, yet no bias lost in rounding
# The MSE is at its floor, the squared bias, only after a number of steps that no run makes.
FLOORS: dict[str, dict[str, Any]] = {
    "full": {"sizes": [0.01, 0.02], "steps": 10**14},
    "iid": {"sizes": [1e-5, 2e-5], "steps": 10**14},
    "reshuffled": {"sizes": [1.6e-5, 3.2e-5], "steps": 10**18},
    "symmetric": {"sizes": [3.2e-5, 6.4e-5], "steps": 10**18},
}
LENGTHS, FIXED_SIZE = [10**k for k in range(2, 10)], 0.001
# Decreasing steps h_l = SCALE l^−α.
SCALE, ALPHAS, STOPS = 0.045, [0.1, 0.2, 1 / 3, 0.5, 2 / 3, 0.8, 0.9], [100, 1000, 10_000, 100_000]
NOISE = (
    "Independent minibatches of variance V add hV/(2D) to the relative bias of every scheme: E ΔV_l = 0 takes away the "
    "mean of the noise, not its square, which the proof drops."
)


def parts(effort: Effort) -> list[Part]:
    """The computations, none of which depends on the effort."""
    batches = list(BATCH_ORDERS)
    lengths = {"h": FIXED_SIZE, "stops": LENGTHS, "orders": ["full", "iid"]}
    splittings = {f"orders of splittings, {name}": schemes for name, schemes in SYMMETRIC.items()}
    others = {"orders of Eulers": EULERS, "order of averaged noise": {"SGLD": ["averaged-noise"]}}
    return [
        *(Part(label, proofs.orders, {"schemes": schemes}) for label, schemes in (splittings | others).items()),
        Part("orders with minibatches", proofs.batch_orders, {"word": WORD, "batches": batches}),
        Part("leading constants", proofs.constants, {"models": [list(model) for model in MODELS], "words": SCHEMES}),
        Part("bias by step size", proofs.biases, {"sizes": STEP_SIZES, "orders": batches}),
        Part("floor of the MSE", proofs.mse_floors, {"floors": FLOORS}),
        Part("bias and variance by length", proofs.lengths, lengths),
        Part("decreasing steps", proofs.decreasing, {"scale": SCALE, "alphas": ALPHAS, "stops": STOPS}),
        Part("sums of powers", proofs.sums, {"steps": 10**7, "alphas": [0.2, 1 / 3, 0.5]}),
        Part("printed generators", proofs.temperatures, {"sizes": {"SGHMC": 1e-4, "SGLD": 1e-8}}),
        Part("printed densities", proofs.densities, {}),
        Part("printed commutator", proofs.commutator, {}),
    ]


def figure(effort: Effort, results: list[Any]) -> Figure:
    symmetric = [certified for result in results[: len(SYMMETRIC)] for certified in result]
    eulers, averaged, batched, leading, by_size, floors, *others = results[len(SYMMETRIC) :]
    by_length, decreasing, summed, temperature, stationary, bracket = others
    return Figure(
        "theorems",
        "The theorems, one by one",
        "Bias O(1/(Lh) + h^K), MSE O(1/(Lh) + h^2K) and an invariant measure within O(h^K), whatever the minibatches; "
        "consistency of decreasing steps h_l ∝ l^−α for 0 < α < 1; the splitting of order 2, the Euler of order 1.",
        "Everything here is computed, nothing sampled. In the first panel the bias with independent minibatches is a "
        "straight line of slope 1: it does not depend on the order of the splitting. With sweeps through the data the "
        "bias falls by higher powers of h once an epoch is short, R h √K0 < 3.",
        {
            **{name: measure.SETTINGS[name] for name in ("data", "prior", "batch", "start", "iid batches")},
            "dynamics": f"SGHMC, {WORD}, D = {FRICTION:g}, unless it says otherwise",
            "relative bias, MSE, variance": "K0 times the bias of θ²; K0² times the MSE and the variance",
        },
        panels(by_size, by_length, decreasing),
        tables([*symmetric, *eulers, *averaged], leading),
        [
            bias_bound(by_size, by_length),
            mse_bound(floors),
            invariant_measure(by_size, batched),
            noise_matters(by_size),
            vanishing_variance(by_length),
            decreasing_bound(decreasing),
            consistency(decreasing),
            extra_logarithm(summed),
            verdicts.integral_bound(summed),
            verdicts.second_order(symmetric),
            verdicts.equivalence(symmetric, leading),
            verdicts.first_order(eulers),
            verdicts.splitting_sgld(averaged),
            verdicts.generator(temperature),
            verdicts.densities(stationary),
            verdicts.curvature_force(stationary),
            verdicts.commutator(bracket),
        ],
    )


def curve(label: str, xs: Sequence[float], values: Sequence[float]) -> Series:
    return Series(label, measure.with_curve([], [float(x) for x in xs], values))


def panels(by_size: dict[str, list[float]], by_length: dict[str, Any], decreasing: list[dict[str, Any]]) -> list[Panel]:
    """Bias by step size; bias and variance by length; MSE of decreasing steps by length."""
    sizes = [curve(label, STEP_SIZES, by_size[order]) for order, label in BATCH_ORDERS.items()]
    lengths = []
    for order, errors in by_length.items():
        drawn = {"bias²": [bias**2 for bias in errors["bias"]], "variance": errors["variance"]}
        lengths += [curve(f"{BATCH_ORDERS[order]}: {what}", LENGTHS, values) for what, values in drawn.items()]
    falling = [curve(f"α = {each['alpha']:.2g}", STOPS, each["iid mse"]) for each in decreasing]
    return [
        Panel("Bias of the invariant measure", "step size h", "relative bias of θ²", sizes),
        Panel(f"Squared bias and variance, h = {FIXED_SIZE:g}", "steps L", "relative", lengths),
        Panel(f"Decreasing steps, h = {SCALE:g} l^−α, independent", "steps L", "relative MSE", falling),
    ]


def tables(certified: list[dict[str, Any]], leading: dict[str, dict[str, float]]) -> list[Table]:
    """The certified orders of all schemes, and the leading constants of the symmetric ones."""
    keys = ("dynamics", "word", "gradients", "weak", "invariant")
    columns = ["dynamics", "scheme", "gradients per step", "weak order", "invariant order"]
    orders = [["—" if each[key] is None else each[key] for key in keys] for each in certified]
    constants = [[scheme, *(by_scheme[scheme] for by_scheme in leading.values())] for scheme in SCHEMES]
    return [
        Table("Certified orders with full gradients (invariant: of Var θ on a Gaussian)", columns, orders),
        Table("c in Var_h(θ)/Var(θ) = 1 + c h² + …, full gradients", ["scheme", *leading], constants),
    ]


def bias_powers(by_size: dict[str, list[float]]) -> dict[str, float]:
    """Powers of h in the asymptotic bias at the smallest step sizes."""
    return {order: power(STEP_SIZES, biases) for order, biases in by_size.items()}


def by_reading(holds: dict[str, bool], why: str) -> tuple[Case, ...]:
    """The cases of a claim about all minibatches: for which of them it holds."""
    where = [label for order, label in BATCH_ORDERS.items() if holds[order]]
    if where and len(where) < len(holds) and (holds["reshuffled"] or holds["symmetric"]):
        where[-1] += ", where an epoch is short, R h √K0 < 3"
    return (
        reproduced(all(holds.values()), "any minibatches", why),
        partly(where, ", ".join(where), why),
        otherwise("for no minibatches", why),
    )


def labelled(numbers: dict[str, Any], what: str) -> dict[str, Any]:
    return {f"{what}, {BATCH_ORDERS[order]}": value for order, value in numbers.items()}


def quoted(powers: dict[str, float]) -> str:
    """The powers by minibatches, in a sentence."""
    return ", ".join(f"{power:.2f} with {BATCH_ORDERS[order]}" for order, power in powers.items())


def bias_bound(by_size: dict[str, list[float]], by_length: dict[str, dict[str, list[float]]]) -> Verdict:
    """The power of h that is left as L → ∞, and whether the rest is C/(Lh)."""
    powers = bias_powers(by_size)
    numbers = labelled(powers, "power of h in the asymptotic bias")
    for order, errors in by_length.items():
        rest = [(bias - errors["stays"][0]) * L * FIXED_SIZE for bias, L in zip(errors["bias"], LENGTHS, strict=True)]
        numbers[f"(bias − its limit) L h at L = 10⁴, 10⁶, {BATCH_ORDERS[order]}"] = [rest[2], rest[4]]
    why = f"The bias that stays goes with h to the power {quoted(powers)}. {NOISE}"
    return decide(
        "The bias is O(1/(Lh) + h^K) with unbiased gradients, K = 2 for the splitting",
        "Theorem 1, Remark 8",
        numbers,
        *by_reading({order: p > ORDER - CLOSE for order, p in powers.items()}, why),
    )


def mse_bound(floors: dict[str, dict[str, list[float]]]) -> Verdict:
    """The power of h in the MSE when L is so large that the squared bias is all of it."""
    powers = {order: power(FLOORS[order]["sizes"], errors["mse"]) for order, errors in floors.items()}
    fractions = {order: errors["bias"][0] ** 2 / errors["mse"][0] for order, errors in floors.items()}
    why = f"The MSE that is left goes with h to the power {quoted(powers)}; it is the squared bias. {NOISE}"
    return decide(
        "The MSE is O(1/L + 1/(Lh) + h^2K), K = 2 for the splitting",
        "Theorem 2, Remark 8",
        labelled(powers, "power of h in the MSE as L → ∞") | labelled(fractions, "fraction that is squared bias"),
        *by_reading({order: p > 2 * ORDER - 2 * CLOSE for order, p in powers.items()}, why),
    )


def invariant_measure(by_size: dict[str, list[float]], batched: dict[str, Any]) -> Verdict:
    """Measured powers on the paper's model, and the certificates for any target."""
    powers = bias_powers(by_size)
    holds = {
        order: powers[order] > ORDER - CLOSE and min(batched[order]["weak"], batched[order]["invariant"]) >= ORDER
        for order in BATCH_ORDERS
    }
    last = {order: by_size[order][-1] / by_size["iid"][-1] for order in ("reshuffled", "symmetric")}
    weak = {order: batched[order]["weak"] for order in BATCH_ORDERS}
    why = f"The bias goes with h to the power {quoted(powers)}; the certified weak orders over a period are "
    why += f"{number(list(weak.values()))}. {NOISE} Sweeps through the data cancel it over an epoch."
    return decide(
        "The invariant measure of an SG-MCMC with a K-th order integrator is within O(h^K)",
        "Theorem 3",
        labelled(powers, "power of h in the bias")
        | labelled(weak, "certified weak order over a period")
        | labelled(last, f"bias over that of independent minibatches at h = {STEP_SIZES[-1]:.2g}"),
        *by_reading(holds, why),
    )


def noise_matters(by_size: dict[str, list[float]]) -> Verdict:
    """Whether any minibatches leave the invariant measure as full gradients have it."""
    ratios = {order: abs(biases[0] / by_size["full"][0]) for order, biases in by_size.items() if order != "full"}
    affected = [order for order, ratio in ratios.items() if ratio > 2]
    at = f"at h = {STEP_SIZES[0]:.2g}, where R h √K0 is 0.05"
    why = f"The bias over that of full gradients {at}: {quoted(ratios)}; more than 2 counts as affected. The order in "
    why += "which minibatches come decides by which power of h their bias falls."
    return decide(
        "Only the order of the numerical approximation, not the stochastic gradient, affects the invariant measure",
        "Section 3.2, after Theorem 3",
        labelled(ratios, "bias over that of full gradients")
        | {"relative bias, independent minibatches": by_size["iid"][0]},
        reproduced(not affected, "any minibatches", why),
        partly(len(affected) < len(ratios), f"not with {listed([BATCH_ORDERS[o] for o in affected])}, {at}", why),
        otherwise(at, why),
    )


def vanishing_variance(by_length: dict[str, dict[str, list[float]]]) -> Verdict:
    """The power of L in the variance at a fixed step size."""
    powers = {order: power(LENGTHS[-2:], errors["variance"][-2:]) for order, errors in by_length.items()}
    vanishes = all(p < -1 + CLOSE for p in powers.values())
    bounded = all(errors["variance"][-1] <= errors["stays"][0] ** 2 for errors in by_length.values())
    # Paper: variance O(h^2K). We: 0 in the limit, because h^2K bounds the squared bias within the MSE (erratum A15).
    left = {order: errors["variance"][-1] for order, errors in by_length.items()}
    why = f"At h = {FIXED_SIZE:g} the variance goes with L to the power {quoted(powers)}, and is "
    why += f"{number(list(left.values()))} "
    why += f"at L = 10⁹; the squared bias {number([each['stays'][0] ** 2 for each in by_length.values()])} stays in "
    why += "the MSE."
    return decide(
        "As L → ∞ the sample average is a random variable with variance O(h^2K)",
        "Section 3.2",
        labelled(powers, "power of L in the variance") | labelled(left, "variance at L = 10⁹"),
        reproduced(bounded and not vanishes, "variance against squared bias", why),
        partly(vanishes, "as a bound, which is not sharp: the variance tends to 0", why),
        otherwise("variance against squared bias", why),
    )


def decreasing_bound(decreasing: list[dict[str, Any]]) -> Verdict:
    """How much bias over bound grows in the last decade: if by more than 5 %, no constant makes the bound hold."""
    growth, broken = ({"full": list[float](), "iid": list[float]()} for _ in range(2))
    for order, each in product(growth, decreasing):
        before, after = (abs(each[f"{order} bias"][i]) / each["bound"][i] for i in (-2, -1))
        growth[order].append(after / before)
        if after / before > 1 + CLOSE / 2:
            broken[order].append(each["alpha"])
    why = f"From L = 10⁴ to 10⁵ bias over bound grows by up to {max(growth['full']):.2f} with full gradients and "
    why += f"{max(growth['iid']):.2f} with independent minibatches, whose effective K is 1: the bias follows "
    why += f"1/S_L + Σ h_l²/S_L. It grows by more than 5 % at α = {number(broken['full']) or 'none'} and "
    why += f"{number(broken['iid']) or 'none'}."
    return decide(
        "With decreasing steps the bias is O(1/S_L + Σ h_l^(K+1)/S_L), K = 2",
        "Theorem 4",
        {"α": [each["alpha"] for each in decreasing]} | labelled(growth, "bias over bound, growth from L = 10⁴ to 10⁵"),
        reproduced(not broken["full"] and not broken["iid"], "any minibatches", why),
        partly(
            not broken["full"],
            f"full gradients; not with independent minibatches at α up to {max(broken['iid'], default=0.0):.2g}",
            why,
        ),
        otherwise("not even with full gradients", why),
    )


def consistency(decreasing: list[dict[str, Any]]) -> Verdict:
    """Whether the conditions hold, and bias and MSE with independent minibatches fall in every decade."""
    conditions = all(each["consistent"] for each in decreasing)
    falls = {}
    for each in decreasing:
        worst = [max(abs(b / a) for a, b in pairwise(each[f"iid {name}"])) for name in ("bias", "mse")]
        falls[f"α = {each['alpha']:.3g}"] = worst
    slowest = max(falls, key=lambda name: falls[name][0])
    stuck = [name for name, ratios in falls.items() if max(ratios) >= 0.9]
    reading = f"also with independent minibatches; h_l = {SCALE:g} l^−α, L = 10² … 10⁵"
    why = f"The bias falls slowest at {slowest}, where a decade takes it to {falls[slowest][0]:.2f} of it: the limit "
    why += "is far "
    why += (
        f"off. Not falling by a tenth per decade: {listed(stuck)}; the conditions {'hold' if conditions else 'fail'}."
    )
    return decide(
        "Steps h_l ∝ l^−α with 0 < α < 1 give consistent averages: bias and MSE approach zero",
        "Theorem 4, Corollary 5",
        {"the conditions on the step sizes hold for all α": conditions}
        | {f"{name}: least fall of bias and MSE in a decade, to": ratios for name, ratios in falls.items()},
        reproduced(conditions and not stuck, reading, why),
        otherwise(reading, why),
    )


def extra_logarithm(summed: dict[str, Any]) -> Verdict:
    """Whether (Σ h^(K+1)/S_L) L^(Kα) stays bounded: its growth from decade to decade."""
    scaled = summed["scaled"]
    growth = {alpha: np.diff(values) for alpha, values in scaled.items()}
    bounded = {alpha: steps[-1] < 0.5 * steps[-2] for alpha, steps in growth.items()}
    # Paper: O(L^−Kα) for every α. We: only if (K+1) α < 1, because at α = 1/(K+1) the sum is Σ 1/l (erratum A16).
    adds = ", ".join(f"{steps[-1]:.2g} at α = {alpha}" for alpha, steps in growth.items())
    why = f"The last decade adds {adds} to the constant. At α = 1/3, which the paper calls optimal for the bias, "
    why += "that is a "
    why += "factor log L if it does not fall from decade to decade."
    return decide(
        "Σ h_l^(K+1)/S_L decreases as O(L^−Kα)",
        "Remark 6",
        {f"α = {alpha}: Σ h³/S_L · L^2α at L = 10 … 10⁷": values for alpha, values in scaled.items()},
        reproduced(all(bounded.values()), "all α", why),
        partly(bounded["0.2"], "(K+1) α < 1", why),
        otherwise("no α tried", why),
    )
