"""The records of a run: its chains, its numbers, and its code."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from strang.coordinates import InCoordinates
from strang.data.batches import Data
from strang.dynamics.fields import at_step, schedules
from strang.integrators.words import Step
from strang.models.base import natural
from strang.sampling import averages
from strang.sampling.averages import Average
from strang.sampling.exchange import Exchange
from strang.schedule import counted
from strang.util import random
from strang.util.trees import Tree, size

MAX_COORDINATES = 4096  # of which temperatures are measured one by one; of more, array by array


class Companion(NamedTuple):
    """Chains with steps of twice the size, driven by the Brownian paths of some of a run's chains; see `companion`."""

    state: Any
    carried: Any
    difference: Average  # of what is averaged: the companion's less the chain's; its counters lead with chains too
    alive: jax.Array


class Chain(NamedTuple):
    """The complete resumable record of all chains; `step` counts the steps done, the other leaves lead with chains."""

    step: jax.Array
    keys: random.Keys
    state: Any
    carried: Any  # what the gradient estimator carries along
    average: Average
    gradient_variance: Tree  # sums of measurements
    virial: tuple[Tree, Tree]  # sums of (z − centre) ∂U/∂z, whose mean is 1, and of their squares
    measured: jax.Array  # how many measurements were summed
    alive: jax.Array
    diverged_at: jax.Array  # the step at which a chain left the finite numbers, where it stays; 0: never
    companion: Companion | tuple = ()  # leads with the chains that have one


# The axis of chains in every array of a chain; what has none is common to all.
CHAIN_AXES: Any = Chain(None, 0, 0, 0, averages.CHAIN_AXES, 0, 0, 0, 0, 0, 0)  # type: ignore[arg-type]
TRACE_AXIS = 1  # of chains in thinned positions


class Inputs(NamedTuple):
    """The numbers of a run: data, dynamics, step sizes and what its chains share. Changing them recompiles nothing."""

    data: Data
    dynamics: Any
    schedule: Any
    shared: Any
    burn_in: jax.Array
    coordinates: Any  # None where chains move what the model sees; its arrays lead with chains where each has its own
    centre: Tree  # of what the chains move, any point near the posterior's middle
    reference: Tree  # from which the deviations are squared of what is averaged; None: they are not
    parts: jax.Array  # as the program has it, but known at run time only; see `Exchange.reduce`
    bound: tuple = ()  # what the average is given before the position


@dataclass(frozen=True)
class Program:
    """The code of a run: what is compiled. Equal programs share one compilation."""

    model: Any
    step: Step
    estimator: Any
    average: Any
    chains: int
    draw_block: int  # steps whose normals and batches are drawn together
    grid: bool  # whether the dynamics' numbers differ between chains
    stride: int = 0  # every so many chains one has a companion; 0: none
    own_coordinates: bool = False  # whether each chain has coordinates of its own
    parts: int = 1  # that each minibatch is cut in
    exchange: Exchange = Exchange()


def input_axes(program: Program) -> Any:
    """The axis of chains in the inputs, for `vmap`: that of coordinates where each chain has its own."""
    common: Any = Inputs(*[None] * len(Inputs._fields))  # type: ignore[arg-type]
    return common._replace(coordinates=0) if program.own_coordinates else common


def positions_of(program: Program, inputs: Inputs, states) -> Tree:
    """What a user sees of all chains, which lead."""
    return jax.vmap(partial(position_of, program), (input_axes(program), 0))(inputs, states)


def inputs_at(inputs: Inputs, l) -> Inputs:
    """The inputs with the numbers that the dynamics has at step l."""
    return inputs._replace(dynamics=at_step(inputs.dynamics, l.astype(float)))


def averaging_weight(inputs: Inputs, l, h) -> jax.Array:
    """The weight of step l in averages: h after burn-in, where the schedules say that it counts."""
    counts = counted((inputs.schedule, *schedules(inputs.dynamics).values()), l.astype(float))
    after = l > inputs.burn_in
    return jnp.where(after if counts is None else after & counts, h, 0.0)


def position_of(program: Program, inputs: Inputs, state) -> Tree:
    """What a user sees of one chain."""
    position = state.position if inputs.coordinates is None else inputs.coordinates(state.position)
    return natural(program.model, position)


def estimator_of(program: Program, inputs: Inputs):
    """The gradient as a function of what the chains move."""
    return program.estimator if inputs.coordinates is None else InCoordinates(program.estimator, inputs.coordinates)


def averaging(program: Program, inputs: Inputs):
    """What is averaged, as a function of the position alone; None: nothing."""
    return partial(program.average, *inputs.bound) if inputs.bound else program.average


def observe(program: Program, inputs: Inputs, dynamics, state) -> Tree:
    """The values that are averaged, of one chain."""
    values = {}
    if program.average is not None:
        values["average"] = jax.tree.map(jnp.asarray, averaging(program, inputs)(position_of(program, inputs, state)))
    if inputs.reference is not None:
        values["square"] = jax.tree.map(lambda x, r: (x - r) ** 2, values["average"], inputs.reference)
    if hasattr(dynamics, "kinetic_temperature"):
        values["temperature"] = dynamics.kinetic_temperature(state)
    if inputs.reference is not None and hasattr(dynamics, "heat") and size(state.position) > 1:
        heat = dynamics.heat(state)
        few = size(state.position) <= MAX_COORDINATES
        values |= {"heat": heat} if few else {"leaf_heat": jax.tree.map(jnp.mean, heat)}
    widest = jnp.result_type(jnp.float32, *jax.tree.leaves(values))  # which the weights' sum must not be behind
    return {**values, "weight": jnp.ones((), widest)}
