"""The bias of a run by chains that follow others with steps of twice the size, on the same Brownian paths.

Every `stride`-th chain has a companion, which makes one step where the chain makes two. Its normals are combined from
the chain's (`strang.integrators.coupling`) and its minibatches are independent and of the right law: the chain's every
second one, or in sweeps those of a permutation of its own. So its averages are exactly those of a run at twice the step
size, while most of their noise is that of the chain's: the difference of the two shows the bias with an error that is
far below that of either. The chains themselves are not touched.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from strang.data.batches import Data
from strang.integrators.coupling import combine
from strang.sampling import averages
from strang.sampling.draws import Draws, draw_axes, draw_batches, materialise
from strang.sampling.record import Chain, Companion, Inputs, Program, averaging_weight, inputs_at
from strang.sampling.step import make_step
from strang.util import random
from strang.util.trees import Tree, subtract


class CoarseDraws(NamedTuple):
    """What companions need beside the draws of their chains."""

    before: Any  # the chains' normals of the step before the block
    batches: Draws | None  # for sweeps: batch first, then companion


def some(program: Program, tree: Tree, axis: int = 0) -> Tree:
    """Of arrays of all chains, those that have a companion."""
    return jax.tree.map(lambda x: lax.slice_in_dim(x, 0, None, program.stride, axis), tree)


def begin(program: Program, inputs: Inputs, chain: Chain) -> Chain:
    """With companions where their chains are."""
    values = some(program, compared(chain.average.total))
    difference = jax.vmap(averages.start)(values)
    state, carried, alive = some(program, (chain.state, chain.carried, chain.alive))
    return chain._replace(companion=Companion(state, carried, difference, alive))


def compared(values: Tree) -> Tree:
    """What is averaged of the differences."""
    return {name: value for name, value in values.items() if name in ("average", "square", "weight")}


def draw(program: Program, data: Data, chain: Chain, count) -> CoarseDraws:
    """What companions need in a block of steps."""
    position = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), chain.state.position)
    keys, last = some(program, chain.keys), chain.step - 1

    keep = partial(materialise, count)  # as those of the chains, whose bits these must have
    before = random.normals(keys.noise, last, position, program.step.noises, keep)
    order, batches = data.batch_order, None
    if not (order.full or order.independent):
        numbers = chain.step // 2 + jnp.arange(program.draw_block // 2 + 1, dtype=jnp.uint32)
        batches = draw_batches(program, data, random.fold(keys.batch, 0, 1), numbers, count)
    return CoarseDraws(keep(lambda: before), batches)


def follow(
    program: Program, inputs: Inputs, l, i, draws: Draws, coarse: CoarseDraws, values: Tree, companion: Companion
) -> Companion:
    """The companions after the chains' step l, number i of its block: every second time they make a step."""
    return lax.cond(
        l % 2 == 0,
        lambda: take_step(program, inputs, l, i, draws, coarse, values, companion),
        lambda: companion,
    )


def take_step(
    program: Program, inputs: Inputs, l, i, draws: Draws, coarse: CoarseDraws, values: Tree, companion: Companion
) -> Companion:
    """One step of the companions. What is averaged of the chains is `values`."""
    given, inputs = inputs, inputs_at(inputs, l)
    data, place = inputs.data, 0 if program.draw_block == 1 else i
    axes = draw_axes(program, data)
    h = inputs.schedule(l.astype(float)) + inputs.schedule(l.astype(float) - 1)
    h = some(program, program.exchange.own(h)) if h.ndim else h
    if program.grid:
        inputs = inputs._replace(dynamics=some(program, inputs.dynamics))
    if program.own_coordinates:
        inputs = inputs._replace(coordinates=some(program, inputs.coordinates))
    second = some(program, jax.tree.map(lambda x: x[place], draws.normals))
    earlier = some(program, jax.tree.map(lambda x: x[jnp.maximum(place, 1) - 1], draws.normals))
    first = jax.tree.map(lambda x, y: jnp.where(place == 0, x, y), coarse.before, earlier)
    normals = jax.vmap(
        lambda *given: combine(program.step, *given), (0 if program.grid else None, 0 if h.ndim else None, 0, 0)
    )(inputs.dynamics, h, first, second)
    if coarse.batches is None:
        drawn = jax.tree.map(lambda x: x[place], draws)
        drawn = Draws(*(sliced(program, part, axis) for part, axis in zip(drawn, axes, strict=True)))
    else:
        slot = (l // 2 - 1 - (l - 1 - i.astype(jnp.uint32)) // 2).astype(jnp.int32)
        drawn = jax.tree.map(lambda x: x[slot], coarse.batches)
        drawn = drawn._replace(keys=None if draws.keys is None else some(program, draws.keys[place]))
    state, carried, finite, own = make_step(
        program, inputs, l // 2, h, companion.state, companion.carried, drawn._replace(normals=normals)
    )
    weight = averaging_weight(given, l, h)
    difference = subtract(compared(own), some(program, compared(values))) | {"weight": own["weight"]}
    average = companion.difference
    average = averages.put_back(average, averages.accumulate(averages.open_block(average), weight, difference))
    return Companion(state, carried, average, companion.alive & finite)


def sliced(program: Program, part: Tree, axis: int | None) -> Tree:
    """Of one kind of draws, those of the chains with companions."""
    return part if axis is None or part is None else some(program, part, axis)


def close_sums(chain: Chain, complete) -> Chain:
    """With the block of sums closed where it is complete."""
    companion: Any = chain.companion
    close = jax.vmap(averages.close_block)
    average = lax.cond(complete, close, lambda average: average, companion.difference)
    return chain._replace(companion=companion._replace(difference=average))
