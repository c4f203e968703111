"""`tune`: what `strang.sample` does with nothing but a model and data, before it samples."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.coordinates import Coordinates
from strang.coordinates import make as make_coordinates
from strang.data.batches import Data, as_data
from strang.data.orders import Undecided, make_order
from strang.dynamics.base import Dynamics
from strang.dynamics.sghmc import SGHMC
from strang.gradients.estimators import ControlVariate, Minibatch, control_variate
from strang.models.base import Posterior, natural_now
from strang.sampling.checks import check_average, check_data_and_gradient, check_model, check_model_and_dynamics
from strang.sampling.job import position_itself
from strang.sampling.request import MAX_SQUARED, opened, prepare
from strang.sampling.starts import chains_in, check_starts, finite_densities, first_positions, first_rows, scattered
from strang.tuning.choice import FRICTION, LONGEST_STEP, Noise, Option, measure_noise, options
from strang.tuning.choice import describe as describe_options
from strang.tuning.landscape import Landscape, explore
from strang.tuning.pilot import Pilot, Trial
from strang.util import random
from strang.util.errors import InputError, choose, whole
from strang.util.front_door import front_door
from strang.util.progress import bar
from strang.util.trees import Tree, on_device, size

CHAINS, COUPLED = 16, 4
ERROR = 0.01  # posterior standard deviations
WORD = "leimkuhler:BAOA"  # one gradient per step, normal posteriors as they are, and a temperature of 1 on them
BURN_IN = 10.0  # time, in units of the posterior's scale
LEAST_TIME = 128.0  # of a run in these units, for its errors to be known
KNOWN_TIME = 512.0  # in which the bias of most quantities is known to a few hundredths
PATIENCE = 16  # times the steps that a normal posterior needs for the error that is asked for
DRAWS = 1000  # of each chain that are kept, about
SCATTER = 1.5  # standard deviations that chains start apart: farther than the posterior itself


@dataclass(frozen=True)
class Tuning:
    """What was chosen for a model and its data, why, and what is to be expected of it.

    `print(tuning)` tells all of it; `strang.sample(model, data, tuning=tuning)` uses it. A copy with other settings is
    `dataclasses.replace(tuning, step_size=0.1)`.

    Attributes:
        dynamics, integrator, step_size, gradient: as for `strang.sample`.
        batch_order, batch_size: of the data.
        coordinates: in which the posterior has about unit scale in every direction.
        starts: of some chains, from pilot runs; numbers without constraints.
        burn_in: steps that are not averaged.
        chains, coupled: how many chains, and how many of them are followed at twice the step size.
        error: the error that it is meant for, in posterior standard deviations.
        options: what was chosen from, the chosen one first.
        noise: the measured variance of the gradient of one row, if it was.
        trials: the pilot runs.
        notes: what is worth knowing, such as other modes, about all of which chains are started.
        problems: what was found that makes any answer doubtful; empty where nothing was.
        mode: of the posterior.
        rows: how many rows the curvature at the mode was taken from.
        seconds: how long it took.
    """

    dynamics: Dynamics
    integrator: Any
    step_size: float
    gradient: Minibatch
    batch_order: str
    batch_size: int
    coordinates: Any
    starts: Tree
    burn_in: int
    chains: int
    coupled: int
    error: float
    options: tuple[Option, ...] = ()
    noise: Noise | None = None
    trials: tuple[Trial, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    mode: Tree = None
    rows: int = 0
    seconds: float = field(default=0.0, compare=False)

    def data(self, data: Data) -> Data:
        """The data in the order that was chosen, unless they have one already."""
        if not isinstance(data.batch_order, Undecided):
            return data
        return replace(data, batch_order=make_order(data.size, self.batch_size, self.batch_order))

    def settings(self) -> dict[str, Any]:
        """What was chosen, as arguments of `strang.sample`."""
        names = ("dynamics", "integrator", "step_size", "gradient", "coordinates", "burn_in", "chains", "coupled")
        return {name: getattr(self, name) for name in names}

    def steps_for(self, error: float) -> int:
        """Steps of each chain that a normal posterior would need for this error of every mean, and for its errors to be
        known."""
        friction = float(np.max(getattr(self.dynamics, "friction", FRICTION)))
        time = max(2 * max(friction, 0.5) / (self.chains * error**2), LEAST_TIME)
        return self.burn_in + round(time / self.step_size)

    def patience(self, error: float) -> int:
        """Steps after which it is given up; for a large error too, the bias must come to be known."""
        return PATIENCE * max(self.steps_for(error), round(KNOWN_TIME / self.step_size))

    def __str__(self) -> str:
        return "\n".join(describe(self))


def describe(tuning: Tuning) -> list[str]:
    """What was chosen, and why, for people."""
    kind, word = type(tuning.dynamics).__name__, tuning.integrator
    friction = getattr(tuning.dynamics, "friction", None)
    number = "" if friction is None else f" with friction {float(np.max(friction)):.3g}"
    batches = (
        "full gradients"
        if tuning.batch_order == "full"
        else f"{tuning.batch_order} batches of {tuning.batch_size:,}, "
        + ("with a control variate" if isinstance(tuning.gradient, ControlVariate) else "plain gradients")
    )
    where = type(tuning.coordinates).__name__.lower()
    scales = f"by the curvature of {tuning.rows:,} rows at the mode" if tuning.rows else "as they were given"
    lines = [
        f"{kind} {word}{number}, step size {tuning.step_size:.3g} in {where} coordinates, {batches}; {tuning.chains} "
        f"chains, {tuning.coupled} of them coupled; chosen in {tuning.seconds:.1f} s for errors of {tuning.error:g} "
        "posterior standard deviations",
        f"coordinates: {scales}, corrected by pilot runs where need be",
    ]
    if tuning.noise is not None:
        lines.append(
            f"gradient noise of one row, times the number of rows, in the worst coordinate: variance "
            f"{tuning.noise.plain:.3g}, with a control variate {tuning.noise.reduced:.3g}"
        )
    table = describe_options(list(tuning.options))
    lines += ["chosen from, the one that was taken first:", *("  " + line for line in table)]
    for trial in tuning.trials:
        found = (
            f"{trial.diverged} chains or companions diverged"
            if trial.diverged
            else f"largest bias {trial.bias:.2g} ± {trial.bias_error:.1g} posterior standard deviations"
        )
        lines.append(f"pilot run at step size {trial.step_size:.3g}, {trial.steps:,} steps: {found}")
    return [*lines, *tuning.notes, *(f"could not: {problem}" for problem in tuning.problems)]


@front_door
def tune(
    model: Posterior,
    data: Any,
    dynamics: Dynamics | None = None,
    *,
    step_size: float | None = None,
    integrator: Any = None,
    average: Callable[[Tree], Tree] | None = position_itself,
    gradient: Minibatch | None = None,
    coordinates: Coordinates | str | None = None,
    init: Any = None,
    chains: int = CHAINS,
    coupled: int | None = None,
    error: float = ERROR,
    seed: int = 0,
    progress: bool | None = None,
) -> Tuning:
    """Choose everything that a model and its data leave open, and say why.

    Finds the mode and the scales of the posterior, measures gradient noise, compares what each kind of gradient and
    batch would cost, and settles step size and coordinates by pilot runs, in which companions measure the bias. What is
    given is taken as it is.

    Args:
        model: as for `strang.sample`.
        data: arrays with a common leading axis, such as `(X, y)`; or `strang.data.arrays` or `files`, whose order and
            batch size are taken as they are if they were given.
        dynamics: by default SGHMC, with friction 1 in the coordinates that are chosen.
        step_size: by default the largest whose bias is below the error.
        integrator: by default `"leimkuhler:BAOA"`.
        average: the function of the position whose average is wanted: its bias is what pilot runs look at.
        gradient: by default the cheapest.
        coordinates: `"dense"`, `"diagonal"`, or an object; by default dense for up to 2000 coordinates.
        init: a start, or a function from a `jax.random` key to one, for the search of the mode; by default the model's.
        chains: how many chains.
        coupled: how many of them are followed at twice the step size; by default a quarter.
        error: what both errors of every mean and standard deviation should be below, in posterior standard deviations.
        seed: of everything random.
        progress: whether to show progress; None: on a terminal.

    Returns:
        A `Tuning`. `tuning.problems` says what could not be had.

    Raises:
        InputError: something given is not what is expected, or the posterior has no mode, or does not fall off.

    Example:
        >>> import strang, numpy as np
        >>> x = np.random.default_rng(0).normal(1.0, 1.0, 200)
        >>> tuning = strang.tune(strang.models.Gaussian(), x)
        >>> tuning.integrator, tuning.problems
        ('leimkuhler:BAOA', ())
    """
    started = time.perf_counter()
    data, chains = as_data(data), whole("chains", chains)
    model = opened(model, data)
    seed, error = whole("seed", seed, 0, 2**64 - 1), positive("error", error)
    coupled = -(-chains // 4) if coupled is None else whole("coupled", coupled, 1, chains)
    chosen = SGHMC(FRICTION) if dynamics is None else dynamics
    check_model_and_dynamics(model, chosen)
    check_tunable(model, data, chosen, gradient)
    starts = starts_of(model, init, seed)
    check_model(model, data, starts[0])
    check_starts(model, data, jax.tree.map(lambda x: on_device(np.asarray(x)[None]), starts[0]))
    word = integrator or (WORD if isinstance(chosen, SGHMC) else chosen.default_integrator)
    if coordinates in (None, "dense", "diagonal"):
        place = explore(model, data, starts, seed, dense=coordinates != "diagonal", progress=progress)
    else:
        place = given_coordinates(model, data, coordinates, starts[0])
    mode = jax.tree.map(on_device, place.mode)
    seen = natural_now(model, mode) if hasattr(model, "constrain") else mode
    noise, table = choose_gradient(model, data, place, gradient, error, step_size, seed)
    best = table[0]
    reduced = control_variate(seen) if best.gradient == "control variate" else Minibatch()
    estimator = gradient if gradient is not None else reduced
    ordered = replace(data, batch_order=make_order(data.size, best.batch_size, best.batch_order))
    ordered = ordered if isinstance(data.batch_order, Undecided) else data
    keys, few = random.chain_keys(seed, chains), size(starts[0]) <= MAX_SQUARED
    check_average(average, seen)
    looked_at = average if average is not None and few else position_itself
    positions = finite_starts(model, data, place, keys)

    def make(h: float, coordinates: Any, positions: Tree):
        positions = only_finite(model, data, positions)
        return prepare(
            model, ordered, chosen, integrator=word, step_size=h, steps=2**30, chains=chains, seed=seed,
            average=looked_at, burn_in=round(16 / h), gradient=estimator, starts=positions,
            coordinates=coordinates, coupled=coupled, progress=False,
        )  # fmt: skip

    with bar(1, "pilot runs", progress) as show:
        order = 2 if best.batch_order != "iid" and dynamics is None else 1
        pilot = Pilot(make, order=order, target=error / 2, show=partial(show, 0))
        h, change, positions = pilot.settle(best.step_size, place.coordinates, positions)
        h, positions, found = pilot.find_step(h, change, positions, fixed=step_size is not None)
        show(1)
    problems = list(place.problems)
    if not found:
        last = pilot.trials[-1]
        bias = f"the bias is {last.bias:.2g} posterior standard deviations, and {error / 2:g} was wanted,"
        what = "chains diverge" if np.isinf(last.bias) else bias
        problems.append(
            f"{what} at step size {h:.3g}: the posterior is far from normal in these coordinates; write it in other "
            "parameters, or accept a larger error="
        )
    return Tuning(
        dynamics=chosen, integrator=word, step_size=h, gradient=estimator, batch_order=ordered.batch_order.name,
        batch_size=ordered.batch_size, coordinates=change, starts=jax.tree.map(np.asarray, positions),
        burn_in=round(BURN_IN / h), chains=chains, coupled=coupled, error=error, options=tuple(table), noise=noise,
        trials=tuple(pilot.trials), notes=place.notes, problems=tuple(problems), mode=jax.tree.map(np.asarray, seen),
        rows=place.rows, seconds=time.perf_counter() - started,
    )  # fmt: skip


def positive(name: str, value: Any) -> float:
    """A positive number."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not (np.isfinite(number) and number > 0):
        raise InputError(f"{name} is {value!r}; write a positive number.")
    return number


def check_tunable(model, data: Data, dynamics, gradient) -> None:
    """Refuses what cannot be tuned."""
    if hasattr(model, "likelihood_gradient"):
        raise InputError(
            f"{type(model).__name__} has a gradient of its own, and is not tuned; write dynamics, step_size and steps."
        )
    if data.batch_order.shared and not data.batch_order.full:
        raise InputError(
            "a loader's data cannot be gone through at will, so they cannot be tuned; write dynamics, step_size and "
            "steps, or use strang.data.files."
        )
    if getattr(dynamics, "positive", False):
        raise InputError(
            f"{type(dynamics).__name__} moves positive numbers, and is not tuned; write step_size and steps."
        )
    if gradient is not None and not isinstance(gradient, Minibatch):
        check_data_and_gradient(replace(data, batch_order=make_order(data.size, 1, "iid")), gradient)


def starts_of(model, init, seed: int) -> list[Tree]:
    """Positions from which the mode is sought: several, where they are drawn at random."""
    count = chains_in(init, model) or 4
    positions = jax.tree.map(np.asarray, first_positions(model, init, random.chain_keys(seed, count)))
    starts = [jax.tree.map(lambda x, k=k: x[k], positions) for k in range(min(count, 4))]
    first = jax.tree.leaves(starts[0])
    return [
        starts[0],
        *(s for s in starts[1:] if any((a != b).any() for a, b in zip(first, jax.tree.leaves(s), strict=True))),
    ]


def given_coordinates(model, data: Data, coordinates: Any, start: Tree) -> Landscape:
    """With coordinates that the user made."""
    if coordinates == "none":
        raise InputError("a step size belongs to coordinates: write step_size and steps too, or another coordinates=.")
    if isinstance(coordinates, str):
        raise choose("coordinates", coordinates, ("dense", "diagonal", "none"))
    start = jax.tree.map(on_device, start)
    change, own = make_coordinates(coordinates, model, data, jax.tree.map(lambda x: x[None], start), None)
    if own:
        raise InputError("each chain has coordinates of its own: write dynamics, step_size and steps too.")
    centre = change(jax.tree.map(jnp.zeros_like, start))
    return Landscape(centre, change, 0)


def choose_gradient(
    model, data: Data, place: Landscape, gradient, error: float, step_size: float | None, seed: int
) -> tuple[Noise | None, list[Option]]:
    """The options, the one to take first; what the user gave is kept."""
    longest = LONGEST_STEP if step_size is None else float(step_size)
    order = data.batch_order
    if order.full and not isinstance(order, Undecided):
        return None, [Option("full", "full", data.size, longest, 0.0, 2 * FRICTION * data.size / longest)]
    noise = measure_noise(model, data, place.coordinates, place.mode, seed, gradient)
    target = error / 4  # half of what the bias may be, which is half of the error
    table = options(noise, data.size, target, longest)
    if place.others and gradient is None:  # the noise of a control variate is small about one mode only
        table = [option for option in table if option.gradient != "control variate"]
    reduces = isinstance(gradient, ControlVariate)
    wanted = "control variate" if reduces else "minibatch" if type(gradient) is Minibatch else None
    if not isinstance(order, Undecided):
        n = order.batch_size
        rows = [("minibatch", noise.plain, 1), ("control variate", noise.reduced, 2)]
        table = []
        for name, variance, each in rows:
            h = longest if step_size is not None or not order.independent else min(longest, 4 * target * n / variance)
            bias = h * variance / n / 4 if order.independent else None
            table.append(Option(name, order.name, n, h, bias, each * n * 2 * FRICTION / h))
        table.sort(key=lambda option: option.cost)
    kept = [option for option in table if wanted in (None, option.gradient)] if gradient is not None else table
    return noise, kept or table


def finite_starts(model, data: Data, place: Landscape, keys) -> Tree:
    """Starts about the mode, scattered more widely than a normal posterior would be, as far as U is finite there."""
    like = jax.tree.map(on_device, place.mode)
    rows = first_rows(data)
    positions = about(place, scattered(place.coordinates, like, keys, SCATTER))
    for scatter in (SCATTER / 2, SCATTER / 4, SCATTER / 8, 0.0):
        right = np.all([np.asarray(x) for x in finite_densities(model, positions, rows)], axis=0)
        if right.all():
            break
        nearer = about(place, scattered(place.coordinates, like, keys, scatter))
        positions = jax.tree.map(partial(either, right), positions, nearer)
    return positions


def only_finite(model, data: Data, positions: Tree) -> Tree:
    """Positions of chains, with those of others in place of any at which U is not finite, as in a far tail."""
    right = np.all([np.asarray(x) for x in finite_densities(model, positions, first_rows(data))], axis=0)
    if right.all() or not right.any():
        return positions
    good = np.flatnonzero(right)
    which = np.where(right, np.arange(len(right)), good[np.arange(len(right)) % len(good)])
    return jax.tree.map(lambda x: x[which], positions)


def about(place: Landscape, positions: Tree) -> Tree:
    """Every so many of the chains moved to another mode."""
    if not place.others:
        return positions
    modes = jax.tree.map(lambda *leaves: np.stack(leaves), place.mode, *place.others)
    which = np.arange(len(jax.tree.leaves(positions)[0])) % (1 + len(place.others))
    return jax.tree.map(lambda x, mode: x + jnp.asarray(mode[which] - mode[:1], x.dtype), positions, modes)


def either(right: np.ndarray, one: jax.Array, other: jax.Array) -> jax.Array:
    """Of two arrays that lead with chains, the one where it is right."""
    return jnp.where(right.reshape(-1, *[1] * (one.ndim - 1)), one, other)
