"""Bias and MSE on the paper's Gaussian model, simulated as one grid of chains, each with its exact value beside it."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from strang import data, models, run, schedule
from strang.dynamics import SGHMC, SGLD, SGNHT
from strang.integrators.words import spell
from strang.paper import gaussian as experiment
from strang.paper.figure import Effort, Point
from strang.theory import finite_time

# Paper: D, the data's mean, starts and replacement are not stated. We: these, because one has to choose (erratum A23).
SETTINGS = {
    "data": "N = 1000 standard normal draws, standardised to mean 0.5 and variance 1",
    "prior": "θ ~ N(0, 1)",
    "batch": 10,
    "start": "θ0 ~ N(0, 1), p0 ~ N(0, 1), no burn-in",
    "test function": "θ²",
    "iid batches": "drawn with replacement",
    "precision": "float32; averages compensated",
    "seed": 0,
}
NAMES = {"bias": "bias", "mse": "MSE"}
PRECISION = 1001.0  # of the posterior
NOISE = 1e5  # V = N² Var(x) / n
SIZE, BATCH, MEAN = 1000, 10, 0.5
CHAINS = 10_000  # of a grid at once: more do not fit into the cache, and run slower


def paper_data() -> np.ndarray:
    return experiment.standardised(SIZE, MEAN, seed=0).astype(np.float32)


def make_dynamics(name: str, friction: Any, step_size: Any = None):
    """The dynamics with one friction a chain. SGNHT starts where its thermostat ends up, at D + hV/2, because it would
    need 1e5 steps to climb there at h = 1e-3."""
    if name == "sgld":
        return SGLD()
    if name == "sghmc":
        return SGHMC(friction=friction)
    return SGNHT(friction=friction, start=None if step_size is None else friction + step_size * NOISE / 2)


def errors(
    *,
    dynamics: str,
    integrator: str,
    sizes: Sequence[float],
    frictions: Sequence[float],
    alphas: Sequence[float] | None = None,
    stops: Sequence[int],
    runs: int,
    order: str = "iid",
    gradient: str = "minibatch",
    thermostat: bool = True,
    seed: int = 0,
) -> dict[str, list[list[Point]]]:
    """Bias and MSE of the average of θ² by each of the step numbers `stops`, cell by cell of a grid.

    A cell is a step size, or the factor C of h_l = C l^-alpha, with its friction and alpha; it has `runs` chains.
    `thermostat` says that SGNHT starts where its thermostat ends up.
    """
    cells = list(zip(sizes, frictions, [None] * len(sizes) if alphas is None else alphas, strict=True))
    groups = -(-len(cells) // max(1, CHAINS // runs))
    many = -(-len(cells) // groups)  # of equal sizes where possible, to share a compilation
    found: dict[str, list[list[Point]]] = {"bias": [], "mse": []}
    for start in range(0, len(cells), many):
        group = cells[start : start + many]
        own = 1000 * seed + start // many
        traces = simulate(dynamics, integrator, group, stops, runs, order, gradient, thermostat, own)
        for name, power in (("bias", 1), ("mse", 2)):
            by_stop = [[point(cell**power) for cell in wrong] for wrong in traces]
            found[name] += [list(cell) for cell in zip(*by_stop, strict=True)]
    for i, cell in enumerate(cells):
        exact = exact_errors(dynamics, integrator, *cell, stops, order, gradient)
        for name, points in found.items():
            for j, stop in enumerate(stops):
                points[i][j] |= {"steps": stop, "exact": exact[name][j]}
    return found


def simulate(dynamics, integrator, cells, stops, runs, order, gradient, thermostat, seed) -> list[np.ndarray]:
    """The errors of the averages at each of the stops: a row a cell, a column a run; NaN where it diverged."""
    x, model = paper_data(), models.Gaussian()
    sizes, frictions, alphas = (np.repeat(np.asarray(numbers), runs) for numbers in zip(*cells, strict=True))
    fixed = alphas[0] is None
    outcome, found = None, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", run.DivergenceWarning)  # a result here
        for stop in stops:
            if outcome is None:
                outcome = run.sample(
                    model,
                    data.arrays(x, batch_size=None if order == "full" else BATCH, batch_order=order),
                    make_dynamics(dynamics, frictions, sizes if thermostat and fixed else None),
                    integrator=integrator,
                    step_size=sizes if fixed else schedule.decreasing(sizes, alphas.astype(float)),
                    steps=stop,
                    chains=len(sizes),
                    seed=seed,
                    average=experiment.square,
                    gradient=experiment.GRADIENTS[gradient](),
                    progress=False,
                )
            else:
                outcome = outcome.more(stop - outcome.steps, progress=False)
            wrong = np.where(outcome.alive, outcome.each.mean["average"] - experiment.truth(model, x), np.nan)
            found.append(wrong.reshape(len(cells), runs))
    return found


def point(values: np.ndarray) -> Point:
    """Mean and standard error over the runs, or how many of them diverged: then the mean has no meaning."""
    diverged = int((~np.isfinite(values)).sum())
    if diverged:
        return {"value": None, "se": None, "diverged": diverged}
    return {"value": float(values.mean()), "se": float(values.std(ddof=1) / np.sqrt(len(values))), "diverged": 0}


def exact_errors(
    dynamics: str,
    integrator: str,
    size: float,
    friction: float,
    alpha: float | None,
    stops: Sequence[int],
    order: str = "iid",
    gradient: str = "minibatch",
) -> dict[str, list[float | None]]:
    """The same by theory, without sampling. On this model variance reduction leaves the full gradient; a thermostat's
    step is not linear, so SGNHT has none."""
    if dynamics == "sgnht":
        return {"bias": [None] * len(stops), "mse": [None] * len(stops)}
    chosen = make_dynamics(dynamics, friction)
    found = finite_time(
        spell(chosen, integrator),
        chosen,
        data=np.asarray(paper_data(), float),
        batch_size=BATCH,
        batch_order=order if gradient == "minibatch" else "full",
        step_size=size if alpha is None else (lambda l: size * l**-alpha),
        steps=stops[-1],
        at=list(stops),
    )
    return {"bias": finite(found.bias), "mse": finite(found.mse)}


def finite(values) -> list[float | None]:
    """Numbers that JSON can hold: None for infinity."""
    return [float(value) if np.isfinite(value) else None for value in np.atleast_1d(values)]


def lengths(effort: Effort) -> dict[str, int]:
    """What a trace's settings say of its runs."""
    return {"runs a point": effort.trace_runs, "longest run": effort.longest}
