"""The door: a request is checked, and becomes a job."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.coordinates import make as make_coordinates
from strang.data.batches import Data
from strang.dynamics.base import Dynamics
from strang.dynamics.fields import PER_CHAIN, PER_COORDINATE, numbers, schedules
from strang.gradients.estimators import Minibatch
from strang.integrators.words import spell
from strang.models.base import Posterior, natural, natural_now
from strang.sampling.chain import begin
from strang.sampling.checks import (
    check_average,
    check_coupled,
    check_data_and_gradient,
    check_estimator,
    check_known_noise,
    check_memory,
    check_model,
    check_model_and_dynamics,
    check_parts,
)
from strang.sampling.draws import draw_block_length
from strang.sampling.job import Job, position_itself
from strang.sampling.record import Inputs, Program
from strang.sampling.starts import check_starts, first_positions, looked_through, scattered
from strang.schedule import as_schedule, probe
from strang.util import random
from strang.util.errors import InputError, whole
from strang.util.trees import Tree, on_device, size, zeros

MAX_STEPS = 2**32 - 1  # their numbers are 32-bit integers
MAX_SQUARED = 4096  # numbers of an average of which variances are kept too


def prepare(
    model: Posterior,
    data: Data,
    dynamics: Dynamics,
    *,
    integrator: Any = None,
    step_size: Any,
    steps: int,
    chains: int = 1,
    seed: int = 0,
    average: Callable | None = position_itself,
    burn_in: int = 0,
    gradient: Minibatch | None = None,
    init: Any = None,
    starts: Tree = None,
    coordinates: Any = None,
    coupled: int = 0,
    thin: int | None = None,
    parts: int | None = None,
    mesh: tuple[int, int] = (1, 1),
    progress: bool | None = None,
) -> Job:
    """Everything that `sample` checks before it starts. `starts`, where given, is for each chain what it moves, before
    any coordinates: numbers without constraints."""
    check_data_and_gradient(data, gradient)
    model = opened(model, data)
    check_model_and_dynamics(model, dynamics)
    steps, chains, burn_in = whole("steps", steps, 1, MAX_STEPS), whole("chains", chains), whole("burn_in", burn_in, 0)
    seed, thin = whole("seed", seed, 0, 2**64 - 1), None if thin is None else whole("thin", thin)
    if burn_in >= steps:
        raise InputError(f"burn_in is {burn_in} of {steps} steps, which leaves nothing to average.")
    if thin is not None and thin > steps:
        raise InputError(
            f"thin is {thin}, but there are {steps} steps: no position would be kept; write a smaller one."
        )
    estimator = Minibatch() if gradient is None else gradient
    check_estimator(model, data, estimator)
    parts = check_parts(data, estimator, chains, parts, mesh)
    stride = check_coupled(estimator, chains, coupled, mesh[0])
    step = spell(dynamics, dynamics.default_integrator if integrator is None else integrator)
    schedule = as_schedule(step_size, steps, chains)
    dynamics, grid = spread_over_chains(dynamics, chains, steps)
    check_memory(model, init, chains)
    keys = random.chain_keys(seed, chains)
    positions = first_positions(model, init, keys) if starts is None else jax.tree.map(on_device, starts)
    position = jax.tree.map(lambda x: on_device(np.asarray(x)[0]), positions)
    if hasattr(dynamics, "check"):
        dynamics.check(step, float(probe(schedule, steps).max()))
    check_known_noise(dynamics, data, position, grid)
    if hasattr(dynamics, "check_start"):
        dynamics.check_start(position)
    check_model(model, data, position)
    seen = natural_now(model, position) if hasattr(model, "constrain") else position
    check_average(average, seen)
    block = draw_block_length(step, data, position, chains)
    check_starts(model, data, positions)
    if coordinates not in (None, "none") and getattr(dynamics, "positive", False):
        raise InputError(f"{type(dynamics).__name__} moves positive numbers; leave out coordinates=.")
    change, own = make_coordinates(coordinates, model, data, positions, progress)
    function, bound = unbound(average)
    program = Program(model, step, estimator, function, chains, block, grid, stride, own, parts)
    if isinstance(coordinates, str) and change is not None and init is None and starts is None:
        position, positions = change.centre, scattered(change, position, keys)
        check_starts(model, data, positions)
    shared = estimator.prepare(model, data, position, progress)
    reference = reference_of(average, natural_now(model, position) if hasattr(model, "constrain") else position)
    centre = position if change is None else zeros(position)
    counts = on_device(np.uint32(burn_in)), on_device(np.int32(parts))
    inputs = Inputs(data, dynamics, schedule, shared, counts[0], change, centre, reference, counts[1], bound)
    chain = jax.block_until_ready(begin(program, inputs, keys, positions))
    data.check()
    fixed = fixed_numbers(model, average, position) if reference is not None and hasattr(model, "constrain") else None
    return Job(program, inputs, chain, steps, thin, mesh, fixed=fixed)


def opened(model, data: Data) -> Any:
    """The model as it is sampled: over numbers without constraints, and for these data."""
    if isinstance(model, type) or not hasattr(model, "unconstrained"):
        return model
    return model.unconstrained(lambda: looked_through(data), data.size)


def spread_over_chains(dynamics, chains: int, steps: int = MAX_STEPS):
    """The dynamics with one number per chain everywhere if any of its numbers differs between chains; numbers that are
    functions of the step are schedules."""
    changing = {name: as_schedule(value, steps, 1, name) for name, value in schedules(dynamics).items()}
    dynamics = replace(dynamics, **changing)
    single = {name: value for name, value in numbers(dynamics, PER_CHAIN).items() if value is not None}
    single = {name: value for name, value in single.items() if name not in changing}
    positive = {f.name for f in fields(dynamics) if f.metadata.get("positive")}
    for name in positive - set(single) - set(changing):
        raise InputError(f"{name} is None; it must be a positive number.")
    for name, value in single.items():
        kind = np.asarray(value).dtype.kind
        if kind not in "fiu":
            raise InputError(f"{name} is {value!r}; it must be a number, or one for each chain.")
        if np.shape(value) not in ((), (chains,)):
            raise InputError(
                f"{name} has shape {np.shape(value)}; it must be one number or one for each of {chains} chains."
            )
        if name in positive and not ((np.asarray(value) > 0) & np.isfinite(value)).all():
            raise InputError(f"{name} is {np.min(value)}; it must be a positive number.")
    for name, value in numbers(dynamics, PER_COORDINATE).items():
        if any(np.asarray(leaf).dtype.kind not in "fiu" for leaf in jax.tree.leaves(value)):
            raise InputError(f"{name} is {value!r}; it must be a number, or one for each coordinate.")
    grid = any(np.ndim(value) for value in single.values())
    dynamics = jax.tree.map(lambda x: on_device(np.asarray(x, jnp.result_type(float))), dynamics)
    if grid:
        each = {name: jnp.broadcast_to(jnp.asarray(value, float), (chains,)) for name, value in single.items()}
        for name, value in numbers(dynamics, PER_COORDINATE).items():
            each[name] = jax.tree.map(lambda x: jnp.broadcast_to(x, (chains, *x.shape)), value)
        dynamics = replace(dynamics, **each)
    return dynamics, grid


def reference_of(average: Callable | None, position: Tree) -> Tree:
    """What is averaged, at one position: deviations from it are squared, for standard deviations, and few digits are
    lost. None where it is many numbers, which would cost every step another pass over them."""
    if average is None:
        return None
    shapes = jax.eval_shape(lambda theta: jax.tree.map(jnp.asarray, average(theta)), position)
    if size(shapes) > MAX_SQUARED:
        return None
    return averaged_at(*unbound(average), position)


def unbound(average: Any) -> tuple[Any, tuple]:
    """A function that is averaged, and the arrays that it is given before the position. Those of a
    `jax.tree_util.Partial` are numbers of a run: other ones need no other compilation. What is no array stays code."""
    arrays = isinstance(average, jax.tree_util.Partial) and not average.keywords
    if not arrays or not all(isinstance(x, np.ndarray | jax.Array) for x in jax.tree.leaves(average.args)):
        return average, ()
    return average.func, jax.tree.map(on_device, average.args)


@partial(jax.jit, static_argnums=0)
def averaged_at(average: Callable, bound: tuple, position: Tree) -> Tree:
    """What is averaged, at one position, in floating point."""
    return jax.tree.map(lambda x: jnp.asarray(x, float), average(*bound, position))


def fixed_numbers(model, average: Any, position: Tree) -> np.ndarray:
    """Which numbers of an average are the same wherever a chain is."""
    found = np.asarray(averaged_about(model, *unbound(average), position))
    return (found == found[:1]).all(0)


@partial(jax.jit, static_argnums=(0, 1))
def averaged_about(model, average: Callable, bound: tuple, position: Tree) -> jax.Array:
    """All numbers of an average at some positions about this one."""

    def one(key):
        leaves, structure = jax.tree.flatten(position)
        keys = jax.random.split(key, len(leaves))
        moved = [x + 0.3 * jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
        found = average(*bound, natural(model, jax.tree.unflatten(structure, moved)))
        return jnp.concatenate([jnp.ravel(leaf).astype(float) for leaf in jax.tree.leaves(found)])

    return jax.vmap(one)(jax.random.split(jax.random.key(0), 3))
