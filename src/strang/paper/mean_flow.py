"""Appendix J: how far minibatches carry the mean of (θ, p) from where full gradients carry it.

Given its minibatches, the mean of a step on the Gaussian model moves by x' = A x + B δ_l, where δ_l is the error of the
gradient of batch l. So after L steps the two mean flows differ by Σ_l A^(L−l) B δ_l, whatever the start, and the mean
square of that needs only the covariance of the δ_l. Started at the posterior mean with p = 0, the flow with full
gradients and the exact flow e^{TL} both stand still: it is the distance from either.

The operator of batch l is L + ΔV_l. Paper: ΔV_l = +δ_l ∂_p, composed last-first, and a term h([L,ΔV_1] + [L,ΔV_L]) T.
We: ΔV_l = −δ_l ∂_p, the first step leftmost, and (h²/2) Σ_l (2l−L−1) [L,ΔV_l], because log(e^{hX_1} ... e^{hX_L}) is
h ΣX_l + (h²/2) Σ_{i<j} [X_i,X_j] + O(h³) (errata A5, A7, A12). On θ and on p the commutator [L,ΔV_l] is δ_l and −D δ_l.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang import data
from strang.data.orders import make_order
from strang.dynamics import SGHMC
from strang.integrators.words import spell
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
    Table,
    Verdict,
)
from strang.theory.linear import linearise
from strang.theory.population import Period, covariances, independent_period, sweep_period
from strang.util import random

WORD, FRICTION, TIME = "chen:ABOBA", 10.0, 1.0
EPOCH = measure.SIZE // measure.BATCH
ORDERS = {"iid": "independent", "reshuffled": "reshuffled", "symmetric": "symmetric sweeps", "cyclic": "cyclic"}
PLACES = {"theta": 0, "p": 1}
NAMES = {"theta": "θ", "p": "p"}
SIZES = tuple(np.geomspace(1e-6, 3e-2, 19).tolist())
LENGTHS = tuple(2 * EPOCH * 2**k for k in range(11))  # of time 1: all whole periods of every order
SIMULATED = 4 * 2 * EPOCH  # the longest of them with drawn batches
BLOCK = 50  # steps drawn at once
FORMULAS = {
    "corrected": "(h²/2) Σ (2l−L−1) [L,ΔV_l]",
    "printed": "h ([L,ΔV_1] + [L,ΔV_L]) T, as printed",
    "mended": "h ([L,ΔV_L] − [L,ΔV_1]) T, its sign mended",
}
SETTLED = 0.02  # how close to its limit a ratio has to be at the smallest step size
CLOSE = 0.1  # posterior standard deviations


def parts(effort: Effort) -> list[Part]:
    """Each order of minibatches over two epochs and over time 1, then the formulas on reshuffled epochs."""
    common = {"epochs": 40 * effort.runs, "seed": 0}
    found = [
        Part(f"mean flow, {order}", differences, {
            "order": order, "sizes": list(SIZES), "lengths": list(LENGTHS), "simulated": SIMULATED, **common
        })
        for order in ORDERS
    ]  # fmt: skip
    return [*found, Part("mean flow, formulas", formulas, {"sizes": list(SIZES), **common})]


def responses(h: float | np.ndarray, steps: int) -> np.ndarray:
    """What an error of the gradient at each of the steps adds to (θ, p) at the end: A^(L−l) B, shape (..., 2, L)."""
    dynamics = SGHMC(friction=FRICTION)
    maps = linearise(spell(dynamics, WORD), dynamics, measure.PRECISION, h)
    power, found = maps.transition, maps.push[..., None]
    while found.shape[-1] < steps:  # columns A^0 B ... A^(k−1) B, doubled by A^k
        found = np.concatenate([found, power @ found], axis=-1)
        power = power @ power
    return found[..., steps - 1 :: -1]


def period_of(order: str) -> Period:
    """One period of the minibatch order, whose deviations are drawn afresh after it."""
    x = np.asarray(measure.paper_data(), float)
    if order == "iid":
        return independent_period(x, measure.BATCH, True, 1.0, 1.0, 1)
    return sweep_period(x, make_order(len(x), measure.BATCH, order), 1.0, 1.0)


def second_moments(rows: np.ndarray, order: str) -> np.ndarray:
    """E[(Σ_l f_l δ_l)(Σ_l g_l δ_l)] for all pairs of rows f, g over a whole number of periods; exact."""
    period = period_of(order)
    blocks = rows.reshape(len(rows), -1, len(period.offset)).swapaxes(0, 1)
    means = (blocks @ period.offset).sum(0)
    return covariances(blocks @ period.draw, period.moments).sum(0) + np.outer(means, means)


def drawn_errors(order: str, steps: int, epochs: int, seed: int) -> np.ndarray:
    """The errors δ_l of the gradients of batches drawn by the code that samples: steps x epochs."""
    x = measure.paper_data()
    source = data.arrays(x, batch_size=measure.BATCH, batch_order=order)
    keys = random.chain_keys(seed, epochs).batch
    deviations = source.scale * (x.mean(dtype=float) - x.astype(float))
    batches = source.batch_order
    draw = jax.jit(jax.vmap(lambda l: batches.indices(batches.salt(keys, l), l)))
    blocks = (np.arange(first, min(first + BLOCK, steps), dtype=np.uint32) for first in range(0, steps, BLOCK))
    found = [deviations[np.asarray(draw(jnp.asarray(block)))].sum(1) for block in blocks]
    return np.broadcast_to(np.concatenate(found), (steps, epochs))


def root_mean_square(squares: np.ndarray, exact: float) -> Point:
    """Of the drawn epochs with its standard error (that of the mean square over twice the root), beside the exact."""
    root = float(np.sqrt(squares.mean()))
    error = float(squares.std(ddof=1) / np.sqrt(len(squares)) / (2 * root))
    return {"value": root, "se": error if np.ptp(squares) > 0 else 0.0, "exact": float(np.sqrt(exact))}


def differences(
    *, order: str, sizes: list[float], lengths: list[int], simulated: int, epochs: int, seed: int
) -> dict[str, Any]:
    """Root mean squares: of the differences in θ and p over two epochs by step size, and of their distance over time 1.

    The distance √(K Δθ² + Δp²) is in standard deviations of the posterior and of p. θ alone would not do: where a fixed
    order pushes in the same way every epoch, what it does to θ swings through zero.
    """
    drawn = drawn_errors(order, simulated, epochs, seed)
    found: dict[str, Any] = {"theta": [], "p": [], "distance": []}
    for h, rows in zip(sizes, responses(np.array(sizes), 2 * EPOCH), strict=True):
        exact = np.diag(second_moments(rows, order))
        for name, place in PLACES.items():
            point = root_mean_square((rows[place] @ drawn[: 2 * EPOCH]) ** 2, exact[place])
            found[name].append({"x": h, **point})
    for length in lengths:
        rows = responses(TIME / length, length) * np.array([[measure.PRECISION**0.5], [1.0]])
        exact = np.trace(second_moments(rows, order))
        point = {"value": None, "se": None, "exact": float(np.sqrt(exact))}
        if length <= simulated:
            point = root_mean_square(((rows @ drawn[:length]) ** 2).sum(0), exact)
        found["distance"].append({"x": TIME / length, **point})
    return found


def predicted(h: float, steps: int) -> dict[str, np.ndarray]:
    """The formulas as rows on the δ_l, for θ and for p: the leading term, that of first order, and the commutators."""
    l = np.arange(1.0, steps + 1)
    on_coordinates = np.array([[1.0], [-FRICTION]])  # [L,ΔV_l] θ = δ_l and [L,ΔV_l] p = −D δ_l
    ends = (np.isin(l, (1, steps))).astype(float)
    return {
        "first": np.array([[0.0], [-h]]) * np.ones(steps),  # ΣΔV_l h: ΔV_l θ = 0 and ΔV_l p = −δ_l
        "corrected": h * h / 2 * on_coordinates * (2 * l - steps - 1),
        "printed": steps * h * h * on_coordinates * ends,
        "mended": steps * h * h * on_coordinates * ends * np.sign(2 * l - steps - 1),
    }


def formulas(*, sizes: list[float], epochs: int, seed: int) -> dict[str, Any]:
    """The formulas against the difference itself, epoch by epoch: over one reshuffled epoch, where ΣΔV_l = 0, for the
    commutators, and over one of independent batches for the term of first order in p."""
    drawn = {order: drawn_errors(order, EPOCH, epochs, seed) for order in ("reshuffled", "iid")}
    found: dict[str, Any] = {"first": []}
    found |= {f"{formula} {name}": [] for formula in FORMULAS for name in PLACES}
    for h, rows in zip(sizes, responses(np.array(sizes), EPOCH), strict=True):
        terms = predicted(h, EPOCH)
        found["first"].append({"x": h, **compare(rows[1], terms["first"][1], "iid", drawn["iid"])})
        for formula in FORMULAS:
            for name, place in PLACES.items():
                compared = compare(rows[place], terms[formula][place], "reshuffled", drawn["reshuffled"])
                found[f"{formula} {name}"].append({"x": h, **compared})
    return found


def compare(row: np.ndarray, term: np.ndarray, order: str, drawn: np.ndarray) -> Point:
    """How much of the difference a formula misses: the root mean square of what is left over that of the difference,
    drawn and exact; the exact ratio of their sizes; and their exact correlation, 0 if no constant C would help."""
    moments = second_moments(np.array([row, term, row - term]), order)
    size = np.sqrt(moments[0, 0])
    return {
        **root_mean_square(((row - term) @ drawn / size) ** 2, moments[2, 2] / moments[0, 0]),
        "ratio": float(size / np.sqrt(moments[1, 1])),
        "correlation": float(moments[0, 1] / np.sqrt(moments[0, 0] * moments[1, 1])),
    }


def exponent(points: list[Point]) -> float:
    """The power of h that the exact values follow at the smallest step sizes."""
    low, high = sorted(points, key=lambda point: point["x"])[:2]
    return float(np.log(high["exact"] / low["exact"]) / np.log(high["x"] / low["x"]))


def smallest(points: list[Point]) -> Point:
    return min(points, key=lambda point: point["x"])


def figure(effort: Effort, results: list[Any]) -> Figure:
    by_order, tested = dict(zip(ORDERS, results, strict=False)), results[-1]
    panels = [
        Panel(
            f"{NAMES[name]} after two epochs ({2 * EPOCH} steps)",
            "step size h",
            f"RMS difference of the mean of {NAMES[name]}",
            [Series(label, by_order[order][name]) for order, label in ORDERS.items()],
        )
        for name in PLACES
    ]
    panels.append(
        Panel(
            "After time T = 1 (1/h steps)",
            "step size h",
            "RMS distance of the means, √(K Δθ² + Δp²)",
            [Series(label, by_order[order]["distance"]) for order, label in ORDERS.items()],
        )
    )
    panels.append(
        Panel(
            "What the formulas miss (θ, one reshuffled epoch)",
            "step size h",
            "RMS of difference − formula, over that of the difference",
            [Series(label, tested[f"{formula} theta"], formula == "corrected") for formula, label in FORMULAS.items()],
        )
    )
    return Figure(
        "meanflow",
        "Appendix J: the mean flow with minibatches",
        "“The difference between the stochastic mean flow operator and the exact flow operator is C ‖(1/L) Σ ΔV_l + "
        "h ([L,ΔV_1] + [L,ΔV_L])‖ T + O(h²) … thus SG-MCMCs are not sample-wise convergent.”",
        "Points are epochs of batches drawn by the sampling code, curves exact. Sweeps through the data make the "
        "difference smaller by a power of h. The last panel: the corrected commutator term accounts for all of the "
        "difference as h → 0, the printed one for none of it.",
        {
            **{name: measure.SETTINGS[name] for name in ("data", "prior", "batch", "iid batches", "seed")},
            "dynamics": f"SGHMC, {WORD}, D = {FRICTION:g}",
            "epochs drawn": 40 * effort.runs,
            "start": "any: the difference does not depend on it",
        },
        panels,
        [exponents_table(by_order)],
        [first_order(tested), commutators(tested, by_order), sample_wise(by_order)],
    )


def exponents_table(by_order: dict[str, Any]) -> Table:
    """Powers of h at the smallest step sizes."""
    columns = {"theta": "θ, two epochs", "p": "p, two epochs", "distance": "distance, time 1"}
    rows = [[label, *(exponent(by_order[order][name]) for name in columns)] for order, label in ORDERS.items()]
    return Table(
        "Power of h in the RMS difference as h → 0 (exact)",
        ["minibatches", *columns.values()],
        rows,
    )


def first_order(tested: dict[str, Any]) -> Verdict:
    """Whether (1/L) Σ ΔV_l T is all of the p-difference of independent batches in the limit."""
    last = smallest(tested["first"])
    holds = last["exact"] < SETTLED
    return Verdict(
        "The flows differ by T (1/L) Σ ΔV_l to first order",
        "Theorem 12 (appendix J, mean flow)",
        REPRODUCED if holds else NOT_REPRODUCED,
        "independent minibatches over one epoch, p, h → 0",
        {f"share of the difference left out at h = {last['x']:.2g}": last["exact"], "correlation": last["correlation"]},
        "The sum of the gradient errors is the leading term where it is not zero; a sweep through the data makes it "
        "zero, and then the next term decides.",
    )


def commutators(tested: dict[str, Any], by_order: dict[str, Any]) -> Verdict:
    """Which of the commutator terms accounts for the difference of a reshuffled epoch in the limit."""
    last = {key: smallest(points) for key, points in tested.items()}

    def settled(formula: str) -> bool:
        return all(last[f"{formula} {name}"]["exact"] < SETTLED for name in PLACES)

    numbers: dict[str, Any] = {
        f"{formula}, {NAMES[name]}: {what}": last[f"{formula} {name}"][key]
        for formula in FORMULAS
        for name in PLACES
        for key, what in (
            ("ratio", "exact RMS over the formula's"),
            ("exact", "share missed"),
            ("correlation", "correlation"),
        )
    }
    numbers["step size"] = last["first"]["x"]
    numbers["power of h at fixed T, reshuffled (that of the printed term is 1)"] = exponent(
        by_order["reshuffled"]["distance"]
    )
    printed, corrected = settled("printed"), settled("corrected")
    best = last["printed theta"]["correlation"]
    return Verdict(
        "The next term is h ([L,ΔV_1] + [L,ΔV_L]) T",
        "Theorem 12 (appendix J, mean flow)",
        REPRODUCED if printed else NOT_REPRODUCED,
        "as printed"
        if printed
        else "as printed; "
        + ("(h²/2) Σ (2l−L−1) [L,ΔV_l] holds instead" if corrected else "nor does (h²/2) Σ (2l−L−1) [L,ΔV_l] hold"),
        numbers,
        "The printed term accounts for the difference of a reshuffled epoch."
        if printed
        else f"The printed term has correlation {best:.2g} with the difference of a reshuffled epoch, so no constant C "
        f"makes up for it; the sum over all batches misses {last['corrected theta']['exact']:.1g} of it. Each pair of "
        "batches contributes a commutator, not only the first and the last.",
    )


def sample_wise(by_order: dict[str, Any]) -> Verdict:
    """Whether the difference at a fixed time stays away from zero: at the step size of Figure 1, and as h → 0."""
    powers = {order: exponent(by_order[order]["distance"]) for order in ORDERS}
    points = by_order["iid"]["distance"]
    at, last = min(points, key=lambda point: abs(np.log(point["x"] / 1e-3))), smallest(points)
    apart, converges = at["exact"] > CLOSE, powers["iid"] > 0.1
    numbers: dict[str, Any] = {f"{label}: power of h at T = 1": powers[order] for order, label in ORDERS.items()}
    numbers |= {f"independent: distance at h = {point['x']:.2g}": point["exact"] for point in (at, last)}
    return Verdict(
        "The flow with minibatches is not close to the exact one: SG-MCMCs are not sample-wise convergent",
        "Theorem 12 and after (appendix J)",
        NOT_REPRODUCED if not apart else UNDER_READING if converges else REPRODUCED,
        "at a fixed step size" if converges else "also as h → 0",
        numbers,
        f"At h = {at['x']:.2g} the mean flows are {at['exact']:.1f} standard deviations apart. But at a fixed time the "
        f"difference goes to zero in mean square, like h^{powers['iid']:.2f} with independent batches, "
        f"h^{powers['reshuffled']:.2f} reshuffled and h^{powers['symmetric']:.2f} in symmetric sweeps: errors of mean "
        "zero average out."
        if apart and converges
        else "The difference at a fixed time does not go to zero with h."
        if apart
        else f"The mean flows are close at h = {at['x']:.2g} already.",
    )
