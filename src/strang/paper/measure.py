"""Bias and MSE on the paper's Gaussian model, simulated as one grid of chains, each with its exact value beside it."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from strang import data, models, run, schedule
from strang.dynamics import SGHMC, SGLD, SGNHT
from strang.integrators.words import spell
from strang.paper import gaussian as experiment
from strang.paper.figure import Effort
from strang.report.panels import Panel, Point, Series
from strang.theory import finite_time
from strang.util import numbers

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
QUANTITIES = {"bias": "bias of the mean of θ²", "mse": "MSE of the mean of θ²"}
POWERS = {"bias": 1, "mse": 2}  # of the error whose mean it is
PRECISION = 1001.0  # of the posterior
NOISE = 1e5  # V = N² Var(x) / n
SIZE, BATCH, MEAN = 1000, 10, 0.5
STOPS = tuple(round(10 ** (k / 2)) for k in range(2, 13))  # 10 ... 10^6 by half decades
MAX_CHAINS = 10_000  # in one grid: more do not fit into the cache, and run slower


class Target(NamedTuple):
    """A Gaussian model with its data. The data of "unit" are the one datum 0, so that U = θ²/2; "noisy unit" has the
    same U from twenty data, and gradient noise V = 0.4."""

    model: models.Gaussian
    rows: np.ndarray


TARGETS = {
    "paper": Target(models.Gaussian(), experiment.standardised(SIZE, MEAN, seed=0).astype(np.float32)),
    "unit": Target(models.Gaussian(prior_var=2.0, noise_var=2.0, start_var=4.0), np.zeros(1, np.float32)),
    "noisy unit": Target(models.Gaussian(2.0, 40.0, start_var=4.0), np.repeat(np.array([-4, 4], np.float32), 10)),
}
PAPER_DATA = TARGETS["paper"].rows


class Scheme(NamedTuple):
    """What is run. Fixed step sizes are h = C L^-alpha in a run of L steps, decreasing ones h_l = C l^-alpha."""

    dynamics: str
    integrator: str
    kind: str = "fixed"
    alpha: float = 0.0

    def step_size(self, scale: Any, length: int):
        """The step size, or schedule, of a run of this length with the factor C."""
        if self.kind == "fixed":
            return scale * length**-self.alpha
        return schedule.decreasing(scale, np.full_like(scale, self.alpha))

    def runs(self, stops: Sequence[int]) -> list[list[int]]:
        """The stops of each run: a fixed step size depends on the run's length, so each stop needs its own run."""
        return [[stop] for stop in stops] if self.kind == "fixed" else [list(stops)]

    def make_dynamics(self, friction: Any, step_size: Any = None):
        """The dynamics with one friction per chain. With a step size SGNHT starts where its thermostat ends up, at
        D + hV/2, because it would need 1e5 steps to climb there at h = 1e-3."""
        if self.dynamics == "sgld":
            return SGLD()
        if self.dynamics == "sghmc":
            return SGHMC(friction=friction)
        return SGNHT(friction=friction, start=None if step_size is None else friction + step_size * NOISE / 2)


def errors(
    *,
    scheme: Sequence[Any],
    scales: Sequence[float],
    frictions: Sequence[float],
    stops: Sequence[int],
    runs: int,
    warm_thermostat: bool = True,
    seed: int = 0,
    batch_order: str = "iid",
    target: str = "paper",
) -> dict[str, list[list[Point]]]:
    """Bias and MSE of the average of θ² after each number of steps in `stops`, for each cell of a grid.

    A cell is a factor C of the step size with its friction; it has `runs` chains. `scheme` has the fields of `Scheme`,
    `warm_thermostat` says that SGNHT starts where its thermostat ends up, `target` is a name in `TARGETS`.
    """
    scheme, cells = Scheme(*scheme), list(zip(scales, frictions, strict=True))
    model, rows = TARGETS[target]
    source = data.arrays(rows, batch_size=BATCH, batch_order=batch_order)
    groups = -(-len(cells) // max(1, MAX_CHAINS // runs))
    group_size = -(-len(cells) // groups)  # equal sizes where possible, to share a compilation
    simulated = np.empty((len(stops), len(cells), runs))
    for i, ends in enumerate(scheme.runs(stops)):
        for group, first in enumerate(range(0, len(cells), group_size)):
            scale, friction = np.repeat(cells[first : first + group_size], runs, axis=0).T
            h = scheme.step_size(scale, ends[0])
            dynamics = scheme.make_dynamics(friction, h if warm_thermostat else None)
            settings = {"step_size": h, "chains": len(scale), "seed": 1000 * (seed + i) + group}
            settings["integrator"] = scheme.integrator
            wrong = simulated_errors(model, source, experiment.truth(model, rows), dynamics, ends, **settings)
            simulated[i : i + len(ends), first : first + group_size] = wrong.reshape(len(ends), -1, runs)
    points: dict[str, list[list[Point]]] = {goal: [] for goal in POWERS}
    for j, cell in enumerate(cells):
        for goal, exact in exact_errors(scheme, *cell, stops, batch_order, target).items():
            trace = zip(stops, simulated[:, j] ** POWERS[goal], exact, strict=True)
            points[goal].append(
                [{"x": stop, "steps": stop, **point(each), "exact": value} for stop, each, value in trace]
            )
    return points


def simulated_errors(model, source: data.Data, truth: float, dynamics, stops: list[int], **settings) -> np.ndarray:
    """The errors of the chains' averages of θ²: a row per stop, a column per chain; NaN where it diverged."""
    errors = []
    settings |= {"average": experiment.square, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", run.RunWarning)  # a result here
        outcome = run.sample(model, source, dynamics, steps=stops[0], **settings)
        for stop in stops:
            if stop > outcome.steps:
                outcome = outcome.more(stop - outcome.steps, progress=False)
            errors.append(np.where(outcome.alive, outcome.each.mean["average"] - truth, np.nan))
    return np.array(errors)


def point(values: np.ndarray) -> Point:
    """Mean and standard error over the runs, or how many of them diverged: then the mean has no meaning."""
    diverged = int((~np.isfinite(values)).sum())
    if diverged:
        return {"value": None, "se": None, "diverged": diverged}
    return {"value": float(values.mean()), "se": float(values.std(ddof=1) / np.sqrt(len(values))), "diverged": 0}


def exact_errors(
    scheme: Scheme, scale: float, friction: float, stops: Sequence[int], batch_order: str = "iid", target: str = "paper"
) -> dict[str, list[float | None]]:
    """The same by theory, without sampling. A thermostat's step is not linear, so SGNHT has no exact values."""
    if scheme.dynamics == "sgnht":
        return {goal: [None] * len(stops) for goal in POWERS}
    exact: dict[str, list[float | None]] = {goal: [] for goal in POWERS}
    dynamics, (model, rows) = scheme.make_dynamics(friction), TARGETS[target]
    settings: dict[str, Any] = {"data": np.asarray(rows, float), "batch_size": BATCH, "batch_order": batch_order}
    settings |= {"init_var": model.start_var, "prior_var": model.prior_var, "noise_var": model.noise_var}
    step = spell(dynamics, scheme.integrator)
    for ends in scheme.runs(stops):
        decreasing = power_law(scale, scheme.alpha)
        h = decreasing if scheme.kind == "decreasing" else decreasing(ends[0])
        errors = finite_time(step, dynamics, step_size=h, steps=ends[-1], at=ends, **settings)
        for goal in POWERS:
            exact[goal] += finite(getattr(errors, goal))
    return exact


def power_law(scale: float, alpha: float) -> Callable[[Any], Any]:
    """The step sizes C l^−α."""
    return lambda l: scale * l**-alpha


def exact_curves(
    *, schemes: list[Any], scale: float, friction: float, steps: list[int], batch_order: str, target: str = "paper"
) -> dict[str, Any]:
    """Exact bias and MSE of each scheme at each number of steps."""
    curves = [exact_errors(Scheme(*scheme), scale, friction, steps, batch_order, target) for scheme in schemes]
    return {"steps": steps, **{goal: [curve[goal] for curve in curves] for goal in POWERS}}


def finite(values) -> list[float | None]:
    """Numbers that JSON can hold: None for infinity and NaN."""
    return numbers.finite(np.atleast_1d(values).tolist())


def lengths(effort: Effort) -> dict[str, int]:
    """The settings of a trace that describe its runs."""
    return {"runs per point": effort.trace_runs, "longest run": effort.longest}


def stops(effort: Effort, first: int = 100) -> list[int]:
    """The numbers of steps at which a trace is simulated."""
    return [stop for stop in STOPS if first <= stop <= effort.longest]


def dense(first: int, last: int, count: int) -> list[int]:
    """Numbers of steps at which exact curves are computed: evenly spaced on a log scale, and the simulated ones."""
    spaced = np.geomspace(first, last, count).round().astype(int).tolist()
    return sorted({*spaced, *(stop for stop in STOPS if first <= stop <= last)})


def with_curve(points: list[Point], xs: Sequence[float], exact: Sequence[float | None]) -> list[Point]:
    """The simulated points with their exact values, and points with only an exact value at all other x, sorted by x."""
    by_x: dict[float, Point] = {}
    for x, value in zip(xs, exact, strict=True):
        by_x[x] = {"x": x, "value": None, "se": None, "exact": value}
    for point in points:
        by_x[point["x"]] = by_x.get(point["x"], {}) | point
    return [by_x[x] for x in sorted(by_x)]


def rates_panel(
    title: str, goal: str, names: Sequence[str], points: list[list[Point]], curves: dict[str, Any], best: int
) -> Panel:
    """Error against the number of steps, a series per rate α; the one at place `best` is drawn thick."""
    series = [
        Series(f"α = {name}", with_curve(points[i], curves["steps"], curves[goal][i]), emphasis=i == best)
        for i, name in enumerate(names)
    ]
    return Panel(title, "steps L", QUANTITIES[goal], series)


def winners(curves: dict[str, Any], goal: str) -> list[int]:
    """The place of the curve with the least error at each number of steps."""
    return np.nan_to_num(np.abs(np.array(curves[goal], float)), nan=np.inf).argmin(0).tolist()


def last_decade_rate(curves: dict[str, Any], goal: str, place: int, last: int | None = None) -> float:
    """−d log error / d log L between a tenth of the last L and the last, by default that of the curve."""
    steps, values = np.array(curves["steps"]), curves[goal][place]
    end = int(np.abs(np.log(steps / (last or steps[-1]))).argmin())
    start = int(np.abs(np.log(steps * 10 / steps[end])).argmin())
    return float(-np.log(abs(values[end] / values[start])) / np.log(steps[end] / steps[start]))
