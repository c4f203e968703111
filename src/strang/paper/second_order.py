"""Bias against step size for every way to deal with gradient noise: which of them restore order 2 under minibatches.

Exact values come from the moments of the paper's Gaussian model, and from a Galerkin method for the other targets.
"""

from itertools import pairwise, product
from typing import Any

import jax.numpy as jnp
import numpy as np

from strang import data, gradients
from strang.dynamics import SGHMC, SGNHT
from strang.integrators.words import spell
from strang.paper import measure
from strang.paper.figure import Effort, Figure, Part, Verdict
from strang.paper.targets import PLACES, PRECISIONS, PROBLEMS, Problem
from strang.paper.verdicts import decide, exponent, otherwise, partly, reproduced
from strang.report.figures import number
from strang.report.panels import Panel, Point, Series, Table
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
NOISE_KNOWN = ("known noise", "nogin")  # the policies that use the gradient's variance
RISING = ("euler-old", "chen:ABOBA", "opsi4o-mclachlan")  # integrators of orders 1, 2 and 4 in the invariant measure


def parts(effort: Effort) -> list[Part]:
    common = {"steps": effort.steps, "runs": effort.runs}
    work = [Part("orders of invariant measures", invariant_orders, {"words": list(RISING)})]
    for seed, (name, policy) in enumerate(product(PROBLEMS, POLICIES)):
        settings = {"problem": name, "policy": policy, "seed": seed, **common}
        work.append(Part(f"{name}, {POLICIES[policy]}", biases, settings))
    return work


def invariant_orders(*, words: list[str]) -> dict[str, list[int | str | None]]:
    """The certified orders of SGHMC's invariant measure, by minibatches."""
    return {batches: [invariant_order(word, SGHMC, batches) for word in words] for batches in ("full", "iid", *SWEEPS)}


def biases(*, problem: str, policy: str, steps: int, runs: int, seed: int) -> list[Point]:
    """Bias of the mean of θ² at every step size, simulated and exact. Full gradients on 1000 rows are exact only."""
    target = PROBLEMS[problem]()
    sizes = [h for h in sorted(target.exact) if policy not in NOISE_KNOWN or h * target.noise < 2 * target.friction]
    simulated = [h for h in target.simulated if h in sizes and (problem, policy) != ("paper", "full")]
    points = simulate(target, policy, simulated, steps, runs, seed) if simulated else []
    by_size = dict(zip(simulated, points, strict=True))
    return [
        {"x": h, **by_size.get(h, {"value": None, "se": None}), "exact": exact_bias(target, policy, h, steps)}
        for h in sizes
    ]


def method(target: Problem, policy: str, h: Any) -> tuple[SGHMC | SGNHT, str, str]:
    """Dynamics, integrator and minibatch order. The thermostat starts where it ends up, at D + hV/2."""
    batch_order = policy if policy in ("full", *SWEEPS) else "iid"
    if policy == "thermostat":
        start = target.friction + h * target.noise / 2
        return SGNHT(friction=target.friction + 0 * h, start=start), "chen:ABOBA", batch_order
    dynamics = SGHMC(target.friction, target.noise if policy in NOISE_KNOWN else 0.0)
    return dynamics, "nogin" if policy == "nogin" else "chen:ABOBA", batch_order


def simulate(target: Problem, policy: str, sizes: list[float], steps: int, runs: int, seed: int) -> list[Point]:
    """All step sizes as one grid of chains; the first quarter of the steps is burn-in."""
    h = np.repeat(sizes, runs)
    dynamics, integrator, batch_order = method(target, policy, h)
    settings = {"integrator": integrator, "step_size": h, "burn_in": steps // 4, "chains": len(h), "seed": seed}
    if policy == "control variate":
        settings["gradient"] = gradients.control_variate(jnp.asarray(target.anchor, jnp.float32))
    batch_size = None if policy == "full" else target.batch
    source = data.arrays(target.rows, batch_size=batch_size, batch_order=batch_order)
    errors = measure.simulated_errors(target.model, source, target.truth, dynamics, [steps], **settings)
    return [measure.point(cell) for cell in errors.reshape(len(sizes), runs)]


def exact_bias(target: Problem, policy: str, h: float, steps: int) -> float | None:
    """The bias by theory, which has none for a thermostat's step. Simulated step sizes have the simulation's length;
    for smaller ones it is whole periods, until e^-50 is left of the start."""
    if policy == "thermostat":
        return None
    dynamics, integrator, batch_order = method(target, policy, h)
    if target.gradients:
        slopes = target.corrected() if policy == "control variate" else target.gradients
        settings: dict[str, Any] = {"step_size": h, "batch_order": batch_order, **target.galerkin}
        return measure.finite(galerkin.invariant_average(integrator, dynamics, slopes, **settings) - target.truth)[0]
    batch_order = "full" if policy == "control variate" else batch_order  # which removes all noise on this model
    settings = {"batch_size": target.batch, "batch_order": batch_order, "steps": steps, "burn_in": steps // 4}
    settings |= {"init_mean": target.model.start_mean, "init_var": target.model.start_var}
    if h not in target.simulated:
        period = 2 * len(target.rows) // target.batch
        burn_in = period * int(np.ceil(100 / (target.friction * h * period)))
        settings |= {"steps": 2 * burn_in, "burn_in": burn_in}
    step, rows = spell(dynamics, integrator), np.asarray(target.rows, float)
    return measure.finite(finite_time(step, dynamics, data=rows, step_size=h, **settings).bias)[0]


def figure(effort: Effort, results: list[Any]) -> Figure:
    orders, *points = results
    by_policy = iter(points)
    by_problem = {name: {policy: next(by_policy) for policy in POLICIES} for name in PROBLEMS}
    titles = {name: make().title for name, make in PROBLEMS.items()}
    y_label, panels = measure.QUANTITIES["bias"], []
    for name, by_label in by_problem.items():
        series = [Series(label, by_label[policy], policy == "iid") for policy, label in POLICIES.items()]
        panels.append(Panel(titles[name], "step size h", y_label, series))
    for name in ("precisions", "well"):
        full, iid = by_problem[name]["full"], by_problem[name]["iid"]
        series = [
            Series("full gradients", full),
            Series("full gradients, (4 b(h/2) − b(h))/3", extrapolated(full, 2), True),
            Series("independent batches", iid),
            Series("independent batches, 2 b(h/2) − b(h)", extrapolated(iid, 1), True),
        ]
        panels.append(Panel(f"Richardson extrapolation. {titles[name]}", "step size h (with h/2)", y_label, series))
    rows = [[label, *powers(by_problem, policy).values()] for policy, label in POLICIES.items()]
    table = Table("Power of h in the exact bias at the smallest step sizes", ["gradients", *titles.values()], rows)
    return Figure(
        "order2",
        "Beyond the paper: how to restore order 2",
        "“Only orders of numerical approximations but not the stochastic gradient approximation affect the asymptotic "
        "invariant measure.” With the splitting, K = 2, the bias should fall like h² under any unbiased minibatches.",
        "Thick: independent batches, bias ∝ h on every model. Sweeps through the data (reshuffled, symmetric, cyclic) "
        "fall like h² once an epoch is short, R h √K < 3. Known noise, NOGIN and the thermostat restore the second "
        "order where the noise is the same everywhere; on the double well they only lower the constant, as "
        "control variates do. Last panels: Richardson extrapolation over h and h/2 gains two orders with full "
        "gradients and one with noise.",
        {
            "integrator": "chen:ABOBA; NOGIN has its own",
            "runs per point": effort.runs,
            "steps of a run": effort.steps,
            "start": "a quarter of the steps is burn-in; the paper's model starts from its posterior",
            "D": "10, 3, 2",
            "unequal precisions": f"w = {PRECISIONS.tolist()}, x = {PLACES.tolist()}, batches of one row",
            "double well": "U = θ²/2 + 4 exp(−θ²/2), batches U/2 ± (0.9 θ − 0.4 cos θ)",
            "known noise": "V averaged over the posterior, also where it depends on θ",
        },
        panels,
        [table],
        [second_order(by_problem), higher_orders(orders, by_problem)],
    )


def powers(by_problem: dict[str, Any], policy: str, order: int = 0) -> dict[str, float | None]:
    """The power of h in a policy's exact bias by problem; after Richardson extrapolation if an order is given."""
    by_name = {}
    for name, by_policy in by_problem.items():
        points = extrapolated(by_policy[policy], order) if order else by_policy[policy]
        by_name[name] = exponent(points, PROBLEMS[name]().accuracy)
    return by_name


def extrapolated(points: list[Point], order: int) -> list[Point]:
    """Richardson's combination of each point with that at half its step size."""
    by_size, combined = {point["x"]: point for point in points}, []
    for h in (h for h in by_size if h / 2 in by_size):
        coarse, fine = by_size[h], by_size[h / 2]
        point: Point = {"x": h, "value": None, "se": None, "exact": None}
        for key in ("value", "exact"):
            if coarse[key] is not None and fine[key] is not None:
                point[key] = richardson(coarse[key], fine[key], order)
        if point["value"] is not None:
            point["se"] = float(np.hypot(2**order * fine["se"], coarse["se"]) / (2**order - 1))
        combined.append(point)
    return combined


def second_order(by_problem: dict[str, Any]) -> Verdict:
    """Which minibatches leave the splitting its order 2 on all three models."""
    by_policy = {policy: list(powers(by_problem, policy).values()) for policy in POLICIES}
    orders = ("full", "iid", *SWEEPS)
    holds = [policy for policy in orders if all(p is not None and p > 1.8 for p in by_policy[policy])]
    names = ", ".join(POLICIES[policy] for policy in holds)
    made = f"The powers of h with independent batches are {number(by_policy['iid'])}, reshuffled "
    made += f"{number(by_policy['reshuffled'])}. Independent batches add a bias h V/(2D) of their own; over a sweep "
    made += "through "
    made += "the data the errors of the gradients add to zero, and the next order decides."
    return decide(
        "With the symmetric splitting the bias is O(1/(Lh) + h²) under unbiased stochastic gradients",
        "Remark 8",
        {f"{POLICIES[policy]}: power of h on the three models": by_policy[policy] for policy in orders}
        | {f"{POLICIES[policy]}: power of h": by_policy[policy] for policy in ("control variate", *NOISE_KNOWN)},
        reproduced("iid" in holds, names, made),
        partly(holds, f"with {names}; not with independent batches", made),
        otherwise("no batches tried", made),
    )


def higher_orders(orders: dict[str, list[Any]], by_problem: dict[str, Any]) -> Verdict:
    """Integrators of rising order: in which minibatches the order of the invariant measure rises with them."""
    rises = [batches for batches, certified in orders.items() if all(a < b for a, b in pairwise(certified))]
    names = ", ".join(POLICIES[batches] for batches in rises)
    numbers: dict[str, Any] = {
        f"{POLICIES[batches]}: orders of {', '.join(RISING)}": certified for batches, certified in orders.items()
    }
    gained = {}
    for policy, order in (("full", 2), ("iid", 1)):
        power = powers(by_problem, policy, order)
        gained[policy] = [power["precisions"], power["well"]]
        key = f"{POLICIES[policy]}, extrapolated: power of h (unequal precisions, double well)"
        numbers[key] = gained[policy]
    made = f"With independent batches the orders of {', '.join(RISING)} are {number(orders['iid'])}: the batches add "
    made += "a bias "
    made += f"in h whatever the integrator. With full gradients they are {number(orders['full'])}. Beyond the paper, "
    made += f"Richardson extrapolation leaves powers {number(gained['full'])} with full gradients and "
    made += f"{number(gained['iid'])} with independent batches."
    return decide(
        "Higher-order integrators have more accurate invariant measures",
        "Abstract",
        numbers,
        reproduced("iid" in rises, names, made),
        partly(rises, f"with {names}; with independent batches all have order 1", made),
        otherwise("in no minibatches", made),
    )
