"""How order 2 comes back under minibatches: bias against step size for every way to deal with gradient noise.

Three models, one coordinate each, all with one batch a row or ten: the paper's Gaussian, whose gradient noise is the
same everywhere; data of unequal precisions, whose noise grows with the distance from the mean; a double well. Exact
values come from the moments of the Gaussian model, and from a Galerkin method for the others.
"""

import warnings
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np

from strang import data, gradients, run
from strang.dynamics import SGHMC, SGNHT
from strang.integrators.words import spell
from strang.paper import gaussian as experiment
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
from strang.paper.targets import PLACES, PRECISIONS, PROBLEMS, Problem
from strang.theory import finite_time, galerkin, richardson
from strang.theory.certificate import invariant_order

POLICIES = {
    "full": "full gradients",
    "iid": "independent batches",
    "reshuffled": "reshuffled",
    "symmetric": "symmetric sweeps",
    "cyclic": "cyclic",
    "control variate": "independent, control variates",
    "known noise": "independent, known noise (B̂)",
    "nogin": "independent, NOGIN",
    "thermostat": "independent, SGNHT",
}
SWEEPS = ("reshuffled", "symmetric", "cyclic")
RISING = ("euler-old", "chen:ABOBA", "opsi4o-mclachlan")  # integrators of orders 1, 2 and 4 in the invariant measure


def parts(effort: Effort) -> list[Part]:
    found = [
        Part(f"{name}, {label}", biases, {
            "problem": name, "policy": policy, "steps": effort.steps, "runs": effort.runs, "seed": len(POLICIES) * i + j
        })
        for i, name in enumerate(PROBLEMS)
        for j, (policy, label) in enumerate(POLICIES.items())
    ]  # fmt: skip
    return [*found, Part("orders of invariant measures", invariant_orders, {"words": list(RISING)})]


def invariant_orders(*, words: list[str]) -> dict[str, list[int | str | None]]:
    """The certified orders of SGHMC's invariant measure, by minibatches."""
    return {batches: [invariant_order(word, SGHMC, batches) for word in words] for batches in ("full", "iid", *SWEEPS)}


def biases(*, problem: str, policy: str, steps: int, runs: int, seed: int) -> list[Point]:
    """Bias of the mean of θ² at every step size, simulated and exact. Full gradients on 1000 rows are exact only."""
    chosen = PROBLEMS[problem]()
    allowed = [
        h for h in chosen.exact if policy not in ("known noise", "nogin") or h * chosen.noise < 2 * chosen.friction
    ]
    shown = [h for h in allowed if h in chosen.simulated and (problem, policy) != ("paper", "full")]
    points = dict(zip(shown, simulate(chosen, policy, shown, steps, runs, seed), strict=True)) if shown else {}
    found = []
    for h in allowed:
        point = points.get(h, {"value": None, "se": None})
        found.append({"x": h, **point, "exact": exact_bias(chosen, policy, h, steps)})
    return sorted(found, key=lambda point: point["x"])


def make_dynamics(problem: Problem, policy: str, h: Any):
    """SGHMC, or the one that deals with the noise; the thermostat starts where it ends up, D + hV/2."""
    if policy == "thermostat":
        return SGNHT(friction=problem.friction + 0 * h, start=problem.friction + h * problem.noise / 2)
    return SGHMC(problem.friction, problem.noise if policy in ("known noise", "nogin") else 0.0)


def simulate(problem: Problem, policy: str, sizes: list[float], steps: int, runs: int, seed: int) -> list[Point]:
    """All step sizes as one grid of chains; a quarter of the steps is left for the start to be forgotten."""
    h = np.repeat(sizes, runs)
    order = policy if policy in ("full", *SWEEPS) else "iid"
    anchor = jnp.asarray(problem.anchor, jnp.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", run.DivergenceWarning)  # a result here
        outcome = run.sample(
            problem.model,
            data.arrays(problem.rows, batch_size=None if order == "full" else problem.batch, batch_order=order),
            make_dynamics(problem, policy, h),
            integrator="nogin" if policy == "nogin" else "chen:ABOBA",
            step_size=h,
            steps=steps,
            burn_in=steps // 4,
            chains=len(h),
            seed=seed,
            average=experiment.square,
            gradient=gradients.control_variate(anchor) if policy == "control variate" else gradients.minibatch(),
            progress=False,
        )
    wrong = np.where(outcome.alive, outcome.each.mean["average"] - problem.truth, np.nan)
    return [measure.point(cell) for cell in wrong.reshape(len(sizes), runs)]


def exact_length(problem: Problem, h: float, steps: int) -> tuple[int, int]:
    """Steps and burn-in of the simulation; for smaller step sizes whole periods, until e^-50 is left of the start."""
    if h in problem.simulated:
        return steps, steps // 4
    period = 2 * len(problem.rows) // problem.batch
    half = period * int(np.ceil(100 / (problem.friction * h * period)))
    return 2 * half, half


def exact_bias(problem: Problem, policy: str, h: float, steps: int) -> float | None:
    """By theory; a thermostat's step has none here."""
    if policy == "thermostat":
        return None
    dynamics, word = make_dynamics(problem, policy, h), "nogin" if policy == "nogin" else "chen:ABOBA"
    order = policy if policy in ("full", *SWEEPS) else "iid"
    if not problem.gradients:
        length, burn_in = exact_length(problem, h, steps)
        found = finite_time(
            spell(dynamics, word),
            dynamics,
            data=np.asarray(problem.rows, float),
            batch_size=problem.batch,
            batch_order="full" if policy == "control variate" else order,  # which removes all noise on this model
            step_size=h,
            steps=length,
            burn_in=burn_in,
            init_mean=problem.model.start_mean,
            init_var=problem.model.start_var,
        )
        return measure.finite(found.bias)[0]
    gradients = problem.corrected if policy == "control variate" else problem.gradients
    average = galerkin.invariant_average(word, dynamics, gradients, step_size=h, batch_order=order, **problem.galerkin)
    return measure.finite(average - problem.truth)[0]


def figure(effort: Effort, results: list[Any]) -> Figure:
    *results, orders = results
    count = len(POLICIES)
    by_problem = {
        name: dict(zip(POLICIES, results[count * i : count * (i + 1)], strict=True)) for i, name in enumerate(PROBLEMS)
    }
    titles = {name: make().title for name, make in PROBLEMS.items()}
    panels = [
        Panel(
            titles[name],
            "step size h",
            "bias of the mean of θ²",
            [Series(POLICIES[policy], points, policy == "iid") for policy, points in found.items()],
        )
        for name, found in by_problem.items()
    ]
    panels += [extrapolation(titles[name], by_problem[name]) for name in ("precisions", "well")]
    settings = {
        "integrator": "chen:ABOBA, but NOGIN its own",
        "runs a point": effort.runs,
        "steps of a run": effort.steps,
        "start": "a quarter of the steps is left out; the paper's model starts from its posterior",
        "D": "10, 3, 2",
        "unequal precisions": f"w = {PRECISIONS.tolist()}, x = {PLACES.tolist()}, batches of one row",
        "double well": "U = θ²/2 + 4 exp(−θ²/2), batches U/2 ± (0.9 θ − 0.4 cos θ)",
        "known noise": "V averaged over the posterior, also where it depends on θ",
    }
    return Figure(
        "order2",
        "Beyond the paper: how order 2 comes back",
        "“Only orders of numerical approximations but not the stochastic gradient approximation affect the asymptotic "
        "invariant measure.” With the splitting, K = 2, the bias should fall like h² under any unbiased minibatches.",
        "Thick: independent batches, bias ∝ h on every model. Sweeps through the data (reshuffled, symmetric, cyclic) "
        "fall like h² once an epoch is short, R h √K < 3. Known noise, NOGIN and the thermostat bring the second "
        "order back where the noise is the same everywhere; on the double well they only lower the constant, as "
        "control variates do. Last panels: Richardson extrapolation over h and h/2 gains two orders with full "
        "gradients and one with noise.",
        settings,
        panels,
        [slopes_table(by_problem, titles)],
        [second_order(by_problem, titles), higher_orders(orders, by_problem)],
    )


def accuracy(problem: str) -> float:
    return PROBLEMS[problem]().accuracy


def exponent(points: list[Point], accuracy: float) -> float | None:
    """The power of h at the smallest step sizes where the exact bias is well above the accuracy of its computation."""
    exact = [(point["x"], abs(point["exact"])) for point in points if point["exact"] is not None]
    exact = [(x, bias) for x, bias in exact if bias > 10 * accuracy]
    if len(exact) < 2:
        return None
    (low, small), (high, large) = exact[:2]
    return float(np.log(large / small) / np.log(high / low))


def slopes_table(by_problem: dict[str, Any], titles: dict[str, str]) -> Table:
    rows = [
        [label, *(exponent(by_problem[name][policy], accuracy(name)) for name in titles)]
        for policy, label in POLICIES.items()
    ]
    return Table("Power of h in the exact bias at the smallest step sizes", ["gradients", *titles.values()], rows)


def second_order(by_problem: dict[str, Any], titles: dict[str, str]) -> Verdict:
    """Which minibatches leave the splitting its order 2 on all three models."""
    powers = {
        policy: [exponent(found[policy], accuracy(name)) for name, found in by_problem.items()] for policy in POLICIES
    }
    holds = [policy for policy in ("full", "iid", *SWEEPS) if all(p is not None and p > 1.8 for p in powers[policy])]
    names = ", ".join(POLICIES[policy] for policy in holds)
    return Verdict(
        "With the symmetric splitting the bias is O(1/(Lh) + h²) under unbiased stochastic gradients",
        "Remark 8",
        REPRODUCED if "iid" in holds else UNDER_READING if holds else NOT_REPRODUCED,
        f"with {names}; not with independent batches" if holds and "iid" not in holds else names or "no batches tried",
        {f"{POLICIES[policy]}: power of h on the three models": powers[policy] for policy in ("full", "iid", *SWEEPS)}
        | {f"{POLICIES[policy]}: power of h": powers[policy] for policy in ("control variate", "known noise", "nogin")},
        "Independent batches add a bias h V/(2D) of their own. Over a sweep through the data the errors of the "
        "gradients add to zero, and the next order decides.",
    )


def extrapolated(points: list[Point], order: int) -> list[Point]:
    """Richardson's combination of each point with that at half its step size."""
    known = {point["x"]: point for point in points}
    found = []
    for x, coarse in known.items():
        fine = known.get(x / 2)
        if fine is None:
            continue
        point: Point = {"x": x, "value": None, "se": None, "exact": None}
        if coarse["exact"] is not None and fine["exact"] is not None:
            point["exact"] = richardson(coarse["exact"], fine["exact"], order)
        if coarse["value"] is not None and fine["value"] is not None:
            point["value"] = richardson(coarse["value"], fine["value"], order)
            point["se"] = float(np.hypot(2**order * fine["se"], coarse["se"]) / (2**order - 1))
        found.append(point)
    return found


def extrapolation(title: str, found: dict[str, Any]) -> Panel:
    return Panel(
        f"Richardson extrapolation. {title}",
        "step size h (with h/2)",
        "bias of the mean of θ²",
        [
            Series("full gradients", found["full"]),
            Series("full gradients, (4 b(h/2) − b(h))/3", extrapolated(found["full"], 2), True),
            Series("independent batches", found["iid"]),
            Series("independent batches, 2 b(h/2) − b(h)", extrapolated(found["iid"], 1), True),
        ],
    )


def higher_orders(orders: dict[str, list[Any]], by_problem: dict[str, Any]) -> Verdict:
    """Integrators of rising order: in which minibatches the order of the invariant measure rises with them."""
    rises = [batches for batches, found in orders.items() if all(a < b for a, b in pairwise(found))]
    names = ", ".join(POLICIES[batches] for batches in rises)
    powers = {
        policy: [exponent(extrapolated(by_problem[name][policy], k), accuracy(name)) for name in ("precisions", "well")]
        for policy, k in (("full", 2), ("iid", 1))
    }
    return Verdict(
        "Higher-order integrators have more accurate invariant measures",
        "Abstract",
        REPRODUCED if "iid" in rises else UNDER_READING if rises else NOT_REPRODUCED,
        f"with {names}; with independent batches all have order 1" if rises and "iid" not in rises else names,
        {f"{POLICIES[batches]}: orders of {', '.join(RISING)}": found for batches, found in orders.items()}
        | {
            f"{POLICIES[policy]}, extrapolated: power of h (unequal precisions, double well)": found
            for policy, found in powers.items()
        },
        "Independent batches add a bias in h whatever the integrator. Beyond the paper, Richardson extrapolation "
        "raises the order: a symmetric scheme's bias is even in h with full gradients, so that one combination leaves "
        "h⁴; under independent batches another one removes the term in h.",
    )
