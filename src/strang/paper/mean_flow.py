"""Appendix J: the distance between the mean of (θ, p) under minibatches and under full gradients.

Given its minibatches, the mean of a step on the Gaussian model moves by x' = A x + B δ_l, where δ_l is the error of the
gradient of batch l. So after L steps the two mean flows differ by Σ_l A^(L−l) B δ_l, whatever the start, and the mean
square of that needs only the covariance of the δ_l. Started at the posterior mean with p = 0, the flow with full
gradients and the exact flow e^{TL} both stand still: it is the distance from either.

The operator of batch l is L + ΔV_l. Paper: ΔV_l = +δ_l ∂_p, composed last-first, and a term h([L,ΔV_1] + [L,ΔV_L]) T.
We: ΔV_l = −δ_l ∂_p, the first step leftmost, and (h²/2) Σ_l (2l−L−1) [L,ΔV_l], because log(e^{hX_1} ... e^{hX_L}) is
h ΣX_l + (h²/2) Σ_{i<j} [X_i,X_j] + O(h³) (errata A5, A7, A12). On θ and on p the commutator [L,ΔV_l] is δ_l and −D δ_l.
"""

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang import data
from strang.data.orders import make_order
from strang.dynamics import SGHMC
from strang.integrators.words import spell
from strang.paper import measure
from strang.paper.figure import Effort, Figure, Part, Verdict
from strang.paper.proofs import FRICTION, WORD
from strang.paper.verdicts import decide, exponent, otherwise, partly, reproduced
from strang.report.figures import number
from strang.report.panels import Panel, Point, Series, Table
from strang.theory.linear import linearise
from strang.theory.population import covariances, independent_period, sweep_period
from strang.util import random

TIME, EPOCH = 1.0, measure.SIZE // measure.BATCH
ORDERS = {"iid": "independent", "reshuffled": "reshuffled", "symmetric": "symmetric sweeps", "cyclic": "cyclic"}
COORDINATES = {"theta": "θ", "p": "p"}
STEP_SIZES = np.geomspace(1e-6, 3e-2, 19).tolist()
LENGTHS = [2 * EPOCH * 2**k for k in range(11)]  # of time 1: all whole periods of every order
SIMULATED = 4 * 2 * EPOCH  # the longest of them with drawn batches
DRAW_BLOCK = 50  # steps whose batches are drawn together
FORMULAS = {
    "corrected": "(h²/2) Σ (2l−L−1) [L,ΔV_l]",
    "printed": "h ([L,ΔV_1] + [L,ΔV_L]) T, as printed",
    "mended": "h ([L,ΔV_L] − [L,ΔV_1]) T, with the sign corrected",
}
MAX_MISSED = 0.02  # of the difference at the smallest step size, by a formula that holds as h → 0
MIN_DISTANCE = 0.1  # in posterior standard deviations, of flows that are not close


def parts(effort: Effort) -> list[Part]:
    """Each order of minibatches over two epochs and over time 1, then the formulas on reshuffled epochs."""
    drawn = {"sizes": STEP_SIZES, "epochs": 40 * effort.runs, "seed": 0}
    lengths = {"lengths": LENGTHS, "simulated": SIMULATED}
    return [
        *(Part(f"mean flow, {order}", differences, {"order": order, **lengths, **drawn}) for order in ORDERS),
        Part("mean flow, formulas", formulas, drawn),
    ]


def responses(h: float | np.ndarray, steps: int) -> np.ndarray:
    """What an error of the gradient at each of the steps adds to (θ, p) at the end: A^(L−l) B, shape (..., 2, L)."""
    dynamics = SGHMC(friction=FRICTION)
    maps = linearise(spell(dynamics, WORD), dynamics, measure.PRECISION, h)
    power, columns = maps.transition, maps.push[..., None]
    while columns.shape[-1] < steps:  # columns A^0 B ... A^(k−1) B, doubled by A^k
        columns = np.concatenate([columns, power @ columns], axis=-1)
        power = power @ power
    return columns[..., steps - 1 :: -1]


def second_moments(rows: np.ndarray, order: str) -> np.ndarray:
    """E[(Σ_l f_l δ_l)(Σ_l g_l δ_l)] for all pairs of rows f, g over a whole number of periods; exact."""
    x = np.asarray(measure.PAPER_DATA, float)
    if order == "iid":
        period = independent_period(x, measure.BATCH, True, 1.0, 1.0, 1)
    else:
        period = sweep_period(x, make_order(len(x), measure.BATCH, order), 1.0, 1.0)
    blocks = rows.reshape(len(rows), -1, len(period.offset)).swapaxes(0, 1)
    means = (blocks @ period.offset).sum(0)
    return covariances(blocks @ period.draw, period.moments).sum(0) + np.outer(means, means)


def drawn_errors(order: str, steps: int, epochs: int, seed: int) -> np.ndarray:
    """The errors δ_l of the gradients of batches drawn by the code that samples: steps x epochs."""
    x = measure.PAPER_DATA
    source = data.arrays(x, batch_size=measure.BATCH, batch_order=order)
    keys, batches = random.chain_keys(seed, epochs).batch, source.batch_order
    deviations = source.scale * (x.mean(dtype=float) - x.astype(float))
    draw = jax.jit(jax.vmap(lambda l: batches.indices(batches.salt(keys, l), l)))
    blocks = np.split(np.arange(steps, dtype=np.uint32), range(DRAW_BLOCK, steps, DRAW_BLOCK))
    errors = [deviations[np.asarray(draw(jnp.asarray(block)))].sum(1) for block in blocks]
    return np.broadcast_to(np.concatenate(errors), (steps, epochs))


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
    points: dict[str, list[Point]] = {"theta": [], "p": [], "distance": []}
    for h, rows in zip(sizes, responses(np.array(sizes), 2 * EPOCH), strict=True):
        exact = np.diag(second_moments(rows, order))
        for name, row, square in zip(COORDINATES, rows, exact, strict=True):
            points[name].append({"x": h, **root_mean_square((row @ drawn[: 2 * EPOCH]) ** 2, square)})
    for length in lengths:
        rows = responses(TIME / length, length) * np.array([[measure.PRECISION**0.5], [1.0]])
        exact = np.trace(second_moments(rows, order))
        point = {"value": None, "se": None, "exact": float(np.sqrt(exact))}
        if length <= simulated:
            point = root_mean_square(((rows @ drawn[:length]) ** 2).sum(0), exact)
        points["distance"].append({"x": TIME / length, **point})
    return points


def predicted(h: float, steps: int) -> dict[str, np.ndarray]:
    """The formulas as rows on the δ_l, for θ and for p: the leading term, that of first order, and the commutators."""
    l = np.arange(1.0, steps + 1)
    on_coordinates = np.array([[1.0], [-FRICTION]])  # [L,ΔV_l] θ = δ_l and [L,ΔV_l] p = −D δ_l
    ends = steps * h * h * on_coordinates * np.isin(l, (1, steps))
    return {
        "first": np.array([[0.0], [-h]]) * np.ones(steps),  # ΣΔV_l h: ΔV_l θ = 0 and ΔV_l p = −δ_l
        "corrected": h * h / 2 * on_coordinates * (2 * l - steps - 1),
        "printed": ends,
        "mended": ends * np.sign(2 * l - steps - 1),
    }


def formulas(*, sizes: list[float], epochs: int, seed: int) -> dict[str, Any]:
    """The formulas against the difference itself, epoch by epoch: over one reshuffled epoch, where ΣΔV_l = 0, for the
    commutators, and over one of independent batches for the term of first order in p."""
    drawn = {order: drawn_errors(order, EPOCH, epochs, seed) for order in ("reshuffled", "iid")}
    points: dict[str, list[Point]] = {"first": []}
    points |= {f"{formula} {name}": [] for formula in FORMULAS for name in COORDINATES}
    for h, rows in zip(sizes, responses(np.array(sizes), EPOCH), strict=True):
        terms = predicted(h, EPOCH)
        points["first"].append({"x": h, **compare(rows[1], terms["first"][1], "iid", drawn["iid"])})
        for formula in FORMULAS:
            for name, row, term in zip(COORDINATES, rows, terms[formula], strict=True):
                compared = compare(row, term, "reshuffled", drawn["reshuffled"])
                points[f"{formula} {name}"].append({"x": h, **compared})
    return points


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


def smallest(points: list[Point]) -> Point:
    """The point at the smallest step size."""
    return min(points, key=lambda point: point["x"])


def figure(effort: Effort, results: list[Any]) -> Figure:
    by_order, by_formula = dict(zip(ORDERS, results, strict=False)), results[-1]
    columns = {"theta": "θ, two epochs", "p": "p, two epochs", "distance": "distance, time 1"}
    labels = [(f"{q} after two epochs ({2 * EPOCH} steps)", f"RMS difference of the mean of {q}") for q in "θp"]
    labels.append(("After time T = 1 (1/h steps)", "RMS distance of the means, √(K Δθ² + Δp²)"))
    panels = [
        Panel(title, "step size h", y_label, [Series(ORDERS[order], by_order[order][name]) for order in ORDERS])
        for name, (title, y_label) in zip(columns, labels, strict=True)
    ]
    missed = [Series(label, by_formula[f"{name} theta"], name == "corrected") for name, label in FORMULAS.items()]
    y_label = "RMS of difference − formula, over that of the difference"
    panels.append(Panel("What the formulas miss (θ, one reshuffled epoch)", "step size h", y_label, missed))
    powers = [[label, *(exponent(by_order[order][name]) for name in columns)] for order, label in ORDERS.items()]
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
        [Table("Power of h in the RMS difference as h → 0 (exact)", ["minibatches", *columns.values()], powers)],
        [first_order(by_formula), commutators(by_formula, by_order), sample_wise(by_order)],
    )


def first_order(by_formula: dict[str, Any]) -> Verdict:
    """Whether (1/L) Σ ΔV_l T is all of the p-difference of independent batches in the limit."""
    last = smallest(by_formula["first"])
    reading = "independent minibatches over one epoch, p, h → 0"
    made = f"At h = {last['x']:.2g} the formula misses {number(last['exact'])} of the difference, with which it has "
    made += f"correlation {last['correlation']:.4g}."
    return decide(
        "The flows differ by T (1/L) Σ ΔV_l to first order",
        "Theorem 12 (appendix J, mean flow)",
        {f"fraction of the difference missed at h = {last['x']:.2g}": last["exact"]}
        | {"correlation": last["correlation"]},
        reproduced(
            last["exact"] < MAX_MISSED,
            reading,
            f"{made} A sweep through the data makes it zero, and then the next term decides.",
        ),
        partly(abs(last["correlation"]) > 1 - MAX_MISSED, f"{reading}, up to a constant factor", made),
        otherwise(reading, made),
    )


def commutators(by_formula: dict[str, Any], by_order: dict[str, Any]) -> Verdict:
    """Which of the commutator terms accounts for the difference of a reshuffled epoch in the limit."""
    last = {key: smallest(points) for key, points in by_formula.items()}
    missed, correlation = (
        {formula: [last[f"{formula} {name}"][key] for name in COORDINATES] for formula in FORMULAS}
        for key in ("exact", "correlation")
    )
    keys = {"ratio": "exact RMS over the formula's", "exact": "fraction missed", "correlation": "correlation"}
    numbers: dict[str, Any] = {
        f"{formula}, {symbol}: {what}": last[f"{formula} {name}"][key]
        for formula, (name, symbol), (key, what) in product(FORMULAS, COORDINATES.items(), keys.items())
    }
    numbers["step size"], power = last["first"]["x"], exponent(by_order["reshuffled"]["distance"])
    numbers["power of h at fixed T, reshuffled (that of the printed term is 1)"] = power
    corrected = max(missed["corrected"]) < MAX_MISSED
    instead = f"(h²/2) Σ (2l−L−1) [L,ΔV_l] {'holds instead' if corrected else 'does not hold either'}"
    made = (
        f"The printed term has correlation {number(correlation['printed'])} with the difference of a reshuffled epoch "
    )
    made += f"(θ, p) and misses {number(missed['printed'])} of it; the sum over all batches misses "
    made += f"{number(missed['corrected'])}. Each pair of batches contributes a commutator, not only the first and "
    made += "the last."
    return decide(
        "The next term is h ([L,ΔV_1] + [L,ΔV_L]) T",
        "Theorem 12 (appendix J, mean flow)",
        numbers,
        reproduced(max(missed["printed"]) < MAX_MISSED, "as printed", made),
        partly(min(map(abs, correlation["printed"])) > 1 - MAX_MISSED, "as printed, up to a constant factor C", made),
        otherwise(f"as printed; {instead}", made),
    )


def sample_wise(by_order: dict[str, Any]) -> Verdict:
    """Whether the difference at a fixed time stays away from zero: at the step size of Figure 1, and as h → 0."""
    powers: dict[str, Any] = {order: exponent(by_order[order]["distance"]) for order in ORDERS}
    points = by_order["iid"]["distance"]
    at, last = min(points, key=lambda point: abs(np.log(point["x"] / 1e-3))), smallest(points)
    apart, converges = at["exact"] > MIN_DISTANCE, powers["iid"] > 0.1
    made = f"At h = {at['x']:.2g} the mean flows are {at['exact']:.2g} standard deviations apart. At a fixed time the "
    made += (
        f"difference goes like h^{powers['iid']:.2f} with independent batches, h^{powers['reshuffled']:.2f} reshuffled "
    )
    made += f"and h^{powers['symmetric']:.2f} in symmetric sweeps: errors of mean zero average out where it falls."
    return decide(
        "The flow with minibatches is not close to the exact one: SG-MCMCs are not sample-wise convergent",
        "Theorem 12 and after (appendix J)",
        {f"{label}: power of h at T = 1": powers[order] for order, label in ORDERS.items()}
        | {f"independent: distance at h = {point['x']:.2g}": point["exact"] for point in (at, last)},
        reproduced(apart and not converges, "also as h → 0", made),
        partly(apart, "at a fixed step size", made),
        otherwise("the flows are close", made),
    )
