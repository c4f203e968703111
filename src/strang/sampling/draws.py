"""What is random in a block of steps, drawn together as plain array code, and the rows of its batches."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from strang.data.batches import Data, cut
from strang.data.orders import BatchOrder, Stream
from strang.integrators.words import Step
from strang.sampling import averages
from strang.sampling.record import Chain, Program
from strang.util import random
from strang.util.trees import Tree

DRAW_BYTES = 1 << 22  # what the draws of one block of steps may take
LONGEST = averages.LONGEST_BLOCK  # steps of a block of draws


def draw_block_length(step: Step, data: Data, position: Tree, chains: int) -> int:
    """The longest power of two of steps whose draws fit the budget."""
    normals = step.noises * sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(position))
    number = 4  # bytes
    kept = [number if taken_late(data, x) else x.size * x.dtype.itemsize for x in jax.tree.leaves(data.datum)]
    rows = data.batch_size * (sum(kept) + number)
    per_step = chains * normals + (0 if data.batch_order.full else rows if data.batch_order.shared else chains * rows)
    length = 1
    while 2 * length <= LONGEST and 2 * length * per_step <= DRAW_BYTES:
        length *= 2
    return length


def taken_late(data: Data, row) -> bool:
    """Whether this leaf of the rows is taken step by step rather than for a block of steps: arrays in memory are, for
    to write them for later steps and to read them again would take longer than to take them."""
    return data.source is None and row.ndim > 0


def take_late(data: Data, rows: Tree) -> Tree:
    """The rows of a step, of which `rows` has numbers only for what is taken late."""
    if data.source is not None:
        return rows
    return jax.tree.map(
        lambda row, given, table: data.look_up(table, given) if taken_late(data, row) else given,
        data.datum,
        rows,
        data.rows,
    )


class Draws(NamedTuple):
    """What is random in a step, and the rows of its batch; where a batch is cut in parts only the rows' numbers."""

    normals: Any
    rows: Any  # of what is taken late, their numbers
    weights: Any
    numbers: Any
    following: Any  # the numbers of the next batch, for rows that are not in memory and read part by part
    keys: Any  # of the model's own gradient


def draw(program: Program, data: Data, chain: Chain, count) -> Draws:
    """The draws of a block of steps: step first, then chain."""
    block = program.draw_block
    steps = chain.step + jnp.arange(block, dtype=jnp.uint32)

    def many(function, keys):
        return jax.vmap(jax.vmap(function, (0, None)), (None, 0))(keys, steps)

    position = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), chain.state.position)
    keep = partial(materialise, count)
    normals = random.normals(chain.keys.noise, steps[:, None], position, program.step.noises, keep)
    normals = keep(lambda: normals)
    keys = many(random.fold, chain.keys.model) if hasattr(program.model, "likelihood_gradient") else None
    ahead = None if data.source is None else steps + count  # the next block's, whose rows can be brought meanwhile
    return draw_batches(program, data, chain.keys.batch, steps, count, ahead)._replace(normals=normals, keys=keys)


def draw_batches(program: Program, data: Data, keys, steps, count, ahead=None) -> Draws:
    """The batches with the numbers `steps`, of which `count` are used: step first, then chain."""
    block, order, drawn = len(steps), data.batch_order, Draws(None, None, None, None, None, None)
    if order.full:
        return drawn
    if ahead is not None:
        steps = jnp.concatenate([steps, ahead])
    # Step, row, chain: with chains last, the draws run along contiguous memory.
    l = steps[:, None, None]
    salt = draw_salts(order, keys, steps, count)
    numbers = materialise(count, lambda: order.indices(salt, l))
    numbers, ahead = numbers[:block], None if ahead is None else numbers[block:]
    if program.parts > 1:  # rows are read part by part, by whoever needs them, who is told the next step's too
        following = None if ahead is None else jnp.roll(numbers, -1, axis=0).at[count - 1].set(ahead[0])
        numbers, following = (x if x is None else cut(x, program.parts, data.size) for x in (numbers, following))
        return drawn._replace(numbers=numbers, following=following)
    if isinstance(order, Stream):
        needed = jnp.minimum(steps[:block], steps[0] + count - 1)  # a loader may end with the run
        rows = materialise(count, lambda: data.deliver(needed, steps[block:]))
        numbers = numbers[..., 0]
        return drawn._replace(rows=rows, weights=data.weights(numbers), numbers=numbers)

    def places(numbers):
        return jax.tree.map(lambda _: numbers if chains_last(data) else jnp.swapaxes(numbers, 1, 2), data.datum)

    def take():
        if data.source is not None:
            return data.take(places(numbers), None if ahead is None else places(ahead))
        return jax.tree.map(
            lambda row, place, table: place if taken_late(data, row) else data.look_up(table, place),
            data.datum,
            places(numbers),
            data.rows,
        )

    rows = materialise(count, take)
    return drawn._replace(rows=rows, weights=data.weights(numbers), numbers=numbers)


def draw_salts(order: BatchOrder, keys, steps, count) -> Any:
    """The random bits of the batches with these numbers: step first. Those of a permutation are drawn once."""
    periods = len(steps) // order.period + 2  # that so many steps may touch
    if not order.permuted or periods >= len(steps):
        return materialise(count, lambda: order.salt(keys, steps[:, None, None]))
    first = steps[0] // jnp.uint32(order.period)
    begins = (first + jnp.arange(periods, dtype=jnp.uint32)) * jnp.uint32(order.period)
    salts = materialise(count, lambda: order.salt(keys, begins[:, None, None]))
    which = steps // jnp.uint32(order.period) - first
    return materialise(count, lambda: jax.tree.map(lambda x: x[..., which, :, :], salts))  # step, row, chain come last


def draw_axes(program: Program, data: Data) -> Draws:
    """Where `draw` put the chains, behind the axis of steps."""
    if program.parts > 1:
        return Draws(0, None, None, 2, 2, 0)
    if data.batch_order.shared:
        return Draws(0, None, None, None, None, 0)
    return Draws(0, 1 if chains_last(data) else 0, 1, 1, None, 0)


def chains_last(data: Data) -> bool:
    """Whether chains are the last axis of the rows of a step: sums over single numbers then run along contiguous
    memory."""
    return all(row.ndim == 0 for row in jax.tree.leaves(data.datum))


def materialise(count, function, instead: Tree = None):
    """function(), kept in memory: a branch that is always taken but that XLA must not look through, since it would
    otherwise compute all random bits anew, one at a time, inside the gathering loop that uses them. The branch that is
    never taken gives zeros, or what is there `instead` with the same shapes, which takes less to compile."""
    function = jax.jit(function, inline=True)  # traced once for both its shapes and its branch
    if instead is None:
        instead = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(function))
    return lax.cond(count > 0, function, lambda: instead)
