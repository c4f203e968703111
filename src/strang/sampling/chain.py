"""The Chain record, and `advance`: any number of steps of all chains in one compiled call.

Everything random at step l is a function of (chain key, l), and sums are closed at multiples of a fixed number of
steps; so 1000 steps are 311 + 689 steps bit for bit. All normals and batches of a block of steps are drawn together as
plain array code, which is what makes small models fast: the loop over steps then only computes.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from strang.coordinates import InCoordinates
from strang.data.batches import Batch, CutBatch, Data, cut
from strang.data.orders import Stream
from strang.gradients.variance import noise_variance, split_variance
from strang.integrators.words import Step
from strang.sampling import averages
from strang.sampling.averages import Average
from strang.sampling.exchange import Exchange
from strang.util import random
from strang.util.trees import Tree, dot

DRAW_BYTES = 1 << 22  # what the draws of one block of steps may take
SUM_BLOCK = averages.LONGEST_BLOCK  # steps after which the gradient's variance is measured; the longest draw block


class Chain(NamedTuple):
    """The complete resumable record of all chains; `step` counts the steps done, the other leaves lead with chains."""

    step: jax.Array
    keys: random.Keys
    state: Any
    carried: Any  # what the gradient estimator carries along
    average: Average
    gradient_variance: Tree  # sums of measurements, and their number
    measured: jax.Array
    alive: jax.Array
    diverged_at: jax.Array  # the step at which a chain left the finite numbers, where it stays; 0: never


# The axis of chains in every array of a chain; what has none is common to all.
CHAIN_AXES: Any = Chain(None, 0, 0, 0, averages.CHAIN_AXES, 0, 0, 0, 0)  # type: ignore[arg-type]
TRACE_AXIS = 1  # of chains in thinned positions


class Inputs(NamedTuple):
    """The numbers of a run: data, dynamics, step sizes and what its chains share. Changing them recompiles nothing."""

    data: Data
    dynamics: Any
    schedule: Any
    shared: Any
    burn_in: jax.Array
    coordinates: Any  # None where chains move what the model sees
    parts: jax.Array  # as the program has it, but known at run time only; see `Exchange.reduce`


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
    parts: int = 1  # that each minibatch is cut in
    exchange: Exchange = Exchange()


def draw_block_length(step: Step, data: Data, position: Tree, chains: int) -> int:
    """The longest power of two of steps whose draws fit the budget."""
    normals = step.noises * sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(position))
    rows = data.batch_size * (sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(data.datum)) + 4)
    per_step = chains * normals + (0 if data.batch_order.full else rows if data.batch_order.shared else chains * rows)
    length = 1
    while 2 * length <= SUM_BLOCK and 2 * length * per_step <= DRAW_BYTES:
        length *= 2
    return length


def position_of(inputs: Inputs, state) -> Tree:
    """What the model sees of one chain."""
    return state.position if inputs.coordinates is None else inputs.coordinates(state.position)


def estimator_of(program: Program, inputs: Inputs):
    """The gradient as a function of what the chains move."""
    return program.estimator if inputs.coordinates is None else InCoordinates(program.estimator, inputs.coordinates)


def observe(program: Program, inputs: Inputs, dynamics, state) -> Tree:
    """The values that are averaged, of one chain."""
    values = {}
    if program.average is not None:
        values["average"] = jax.tree.map(jnp.asarray, program.average(position_of(inputs, state)))
    if hasattr(dynamics, "temperature"):
        values["temperature"] = dynamics.temperature(state)
    widest = jnp.result_type(jnp.float32, *jax.tree.leaves(values))  # which the weights' sum must not be behind
    return {**values, "weight": jnp.ones((), widest)}


@partial(jax.jit, static_argnums=0)
def begin(program: Program, inputs: Inputs, keys, positions: Tree) -> Chain:
    """Chains at step 0, their positions along the leading axis."""
    axis = 0 if program.grid else None

    def one(dynamics, key, position):
        normals = random.normals(key, jnp.uint32(0), position, 1)[0]
        state = dynamics.init(position if inputs.coordinates is None else inputs.coordinates.inverse(position), normals)
        carried = program.estimator.start(program.model, inputs.data, position)
        return state, carried, averages.start(observe(program, inputs, dynamics, state))

    out_axes = (0, 0, averages.CHAIN_AXES)
    state, carried, average = jax.vmap(one, (axis, 0, 0), out_axes)(inputs.dynamics, keys.start, positions)
    none = jnp.zeros(program.chains, jnp.uint32)
    variance = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.promote_types(x.dtype, jnp.float32)), positions)
    return Chain(jnp.uint32(0), keys, state, carried, average, variance, none, none == 0, none)


def advance(program: Program, inputs: Inputs, chain: Chain, stop, trace: Tree = None, thin=1):
    """The chains after step `stop`, and in `trace` (if given) the positions after every `thin` steps of this call."""
    if program.grid:
        inputs = inputs._replace(dynamics=jax.tree.map(program.exchange.own, inputs.dynamics))
    thinning = chain.step, jnp.uint32(thin)

    def to_pause(carry):
        """To the end of the block of sums or draws, whichever is longer, or of the run."""
        chain, trace = carry
        chain = measure_variance(program, inputs, chain)
        length = jnp.maximum(sum_block(chain, inputs), program.draw_block)
        pause = chain.step + jnp.minimum(stop - chain.step, length - chain.step % length)  # which cannot overflow

        def to_draw_block(carry):
            chain, trace = carry
            count = jnp.minimum(pause - chain.step, program.draw_block - chain.step % program.draw_block)
            return run_steps(program, inputs, chain, count, trace, thinning)

        chain, trace = lax.while_loop(lambda carry: carry[0].step < pause, to_draw_block, (chain, trace))
        return (chain if closes_within(program) else close_sums(chain, inputs)), trace

    return lax.while_loop(lambda carry: carry[0].step < stop, to_pause, (chain, trace))


def sum_block(chain: Chain, inputs: Inputs):
    """Steps of the block of sums under way; long ones during the burn-in, when nothing is summed."""
    burning = chain.step // SUM_BLOCK < inputs.burn_in // SUM_BLOCK
    return jnp.where(burning, SUM_BLOCK, averages.block_length(chain.average))


def close_sums(chain: Chain, inputs: Inputs) -> Chain:
    """With the block of sums closed, if this is its end."""
    complete = (chain.step % averages.block_length(chain.average) == 0) & (chain.step > inputs.burn_in)
    close = jax.vmap(averages.close_block, (averages.CHAIN_AXES,), averages.CHAIN_AXES)
    return chain._replace(average=lax.cond(complete, close, lambda average: average, chain.average))


def closes_within(program: Program) -> bool:
    """Whether blocks of sums end within blocks of draws. Those of a large model do not: its sums stay out of the loop
    over steps."""
    return program.draw_block > averages.SHORTEST_BLOCK


advance_alone = partial(jax.jit, static_argnums=0)(advance)  # on one device


def run_steps(program: Program, inputs: Inputs, chain: Chain, count, trace, thinning):
    """`count` steps within one draw block."""
    first = chain.step
    draws = draw(program, inputs.data, chain, count)
    begin, thin = thinning

    def body(i, carry):
        state, carried, alive, diverged_at, sums, trace = carry
        l = first + i.astype(jnp.uint32) + 1
        drawn = jax.tree.map(lambda x: x[0 if program.draw_block == 1 else i], draws)
        h = inputs.schedule(l.astype(float))
        h = program.exchange.own(h) if h.ndim else h
        state, carried, finite, values = make_step(program, inputs, l, h, state, carried, drawn)
        died = alive & ~finite
        weight = jnp.where(l > inputs.burn_in, h, 0.0)
        sums = jax.vmap(averages.accumulate, (0, 0, 0 if h.ndim else None, 0))(sums[0], sums[1], weight, values)
        if trace is not None:
            slot = (l - begin - 1) // thin
            positions = jax.vmap(partial(position_of, inputs))(state)
            trace = jax.tree.map(lambda kept, x: kept.at[slot].set(x), trace, positions)
        return state, carried, alive & finite, jnp.where(died, l, diverged_at), sums, trace

    def run(chain, stop, trace):
        """To step `stop`, within the block of draws."""
        sums = chain.average.partial, chain.average.partial_compensation
        carry = (chain.state, chain.carried, chain.alive, chain.diverged_at, sums, trace)
        if program.draw_block == 1:  # a large model: no inner loop to carry its arrays through
            carry = body(jnp.int32(0), carry)
        else:
            begin, end = ((step - first).astype(jnp.int32) for step in (chain.step, stop))
            carry = lax.fori_loop(begin, end, body, carry)
        state, carried, alive, diverged_at, (partial_sum, compensation), trace = carry
        average = chain.average._replace(partial=partial_sum, partial_compensation=compensation)
        chain = chain._replace(
            step=stop, state=state, carried=carried, alive=alive, diverged_at=diverged_at, average=average
        )
        return chain, trace

    last = first + count
    if not closes_within(program):
        return run(chain, last, trace)

    def to_sum_block(carry):
        chain, trace = carry
        length = sum_block(chain, inputs)
        chain, trace = run(chain, chain.step + jnp.minimum(last - chain.step, length - chain.step % length), trace)
        return close_sums(chain, inputs), trace

    return lax.while_loop(lambda carry: carry[0].step < last, to_sum_block, (chain, trace))


class Draws(NamedTuple):
    """What is random in a step, and the rows of its batch; where a batch is cut in parts only the rows' numbers."""

    normals: Any
    rows: Any
    weights: Any
    numbers: Any
    following: Any  # the numbers of the next batch, for rows that are not in memory and read part by part
    keys: Any  # of the model's own gradient


def make_step(program: Program, inputs: Inputs, l, h, state, carried, drawn: Draws):
    """Step number l of all chains: their states, what estimators carry, whether they are finite, and what is averaged.

    A chain that has left the finite numbers cannot come back, so nothing need be done to keep it where it is; its sums
    are not used. Undoing its last step would cost every step of a large model another pass over memory.
    """
    data, exchange, estimator = inputs.data, program.exchange, estimator_of(program, inputs)

    def one(dynamics, state, carried, h, drawn: Draws):
        carried = estimator.refresh(program.model, data, carried, state.position, l)
        if program.parts > 1:
            reduce = partial(exchange.reduce, program.parts, inputs.parts)
            batch: Any = CutBatch(data, drawn.numbers, drawn.following, reduce)
        else:
            batch = Batch(drawn.rows, drawn.weights, data.scale, drawn.numbers)
        carried = estimator.visit(program.model, carried, state.position, batch, drawn.keys)

        def gradient(position):
            return estimator(program.model, data, inputs.shared, carried, position, batch, drawn.keys)

        state = program.step(dynamics, state, h, gradient, drawn.normals)
        values = observe(program, inputs, dynamics, state)
        return state, carried, is_finite(state, values), values

    axes = (0 if program.grid else None, 0, 0, 0 if h.ndim else None, draw_axes(program, data))
    return jax.vmap(one, axes)(inputs.dynamics, state, carried, h, drawn)


def is_finite(state, values) -> jax.Array:
    """Whether one chain has not diverged. Where there is a temperature it shows at once: a position that is not finite
    makes the momentum so with the next kick."""
    if "temperature" in values:
        return jnp.isfinite(values["temperature"])
    return jnp.isfinite(dot(state.position, state.position))


def draw(program: Program, data: Data, chain: Chain, count) -> Draws:
    """The draws of a block of steps: step first, then chain."""
    block, order = program.draw_block, data.batch_order
    steps = chain.step + jnp.arange(block, dtype=jnp.uint32)

    # A large model's normals are made where they are used, which saves writing and reading them.
    keep = materialise if block > 1 else lambda function, _: function()

    def many(function, keys):
        return jax.vmap(jax.vmap(function, (0, None)), (None, 0))(keys, steps)

    position = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), chain.state.position)
    bits = materialise(
        lambda: many(lambda key, l: random.bits(key, l, position, program.step.noises), chain.keys.noise), count
    )
    normals = keep(lambda: jax.vmap(jax.vmap(lambda own: random.as_normals(own, position)))(bits), count)
    keys = many(random.fold, chain.keys.model) if hasattr(program.model, "likelihood_gradient") else None
    drawn = Draws(normals, None, None, None, None, keys)
    if order.full:
        return drawn
    if data.source is not None:  # the next block's batches too, so that their rows can be brought meanwhile
        steps = jnp.concatenate([steps, steps + count])
    # Step, row, chain: with chains last, the draws and the sums over single-number rows run along contiguous memory.
    l = steps[:, None, None]
    salt = materialise(lambda: order.salt(chain.keys.batch, l), count)
    numbers = materialise(lambda: order.indices(salt, l), count)
    numbers, ahead = (numbers, None) if data.source is None else (numbers[:block], numbers[block:])
    if program.parts > 1:  # rows are read part by part, by whoever needs them, who is told the next step's too
        following = None if ahead is None else jnp.roll(numbers, -1, axis=0).at[count - 1].set(ahead[0])
        numbers, following = (x if x is None else cut(x, program.parts, data.size) for x in (numbers, following))
        return drawn._replace(numbers=numbers, following=following)
    if isinstance(order, Stream):
        needed = jnp.minimum(steps[:block], chain.step + count - 1)  # a loader may end with the run
        rows = materialise(lambda: data.deliver(needed, steps[block:]), count)
        numbers = numbers[..., 0]
        return drawn._replace(rows=rows, weights=data.weights(numbers), numbers=numbers)

    def places(numbers):
        return jax.tree.map(lambda row: numbers if row.ndim == 0 else jnp.swapaxes(numbers, 1, 2), data.datum)

    rows = materialise(lambda: data.take(places(numbers), None if ahead is None else places(ahead)), count)
    return drawn._replace(rows=rows, weights=data.weights(numbers), numbers=numbers)


def draw_axes(program: Program, data: Data) -> Draws:
    """Where `draw` put the chains, behind the axis of steps."""
    if program.parts > 1:
        return Draws(0, None, None, 2, 2, 0)
    if data.batch_order.shared:
        return Draws(0, None, None, None, None, 0)
    return Draws(0, jax.tree.map(lambda row: 1 if row.ndim == 0 else 0, data.datum), 1, 1, None, 0)


def materialise(function, count):
    """function(), kept in memory: a branch that is always taken but that XLA must not look through, since it would
    otherwise compute all random bits anew, one at a time, inside the gathering loop that uses them."""
    empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(function))
    return lax.cond(count > 0, function, lambda: empty)


def measure_variance(program: Program, inputs: Inputs, chain: Chain) -> Chain:
    """From the last sum block of the burn-in on, add a measurement of the gradient's variance at the start of each."""
    data, estimator = inputs.data, estimator_of(program, inputs)
    order = data.batch_order
    if order.full or (isinstance(order, Stream) and data.batch_size == 1):
        return chain

    def measured():
        def one(key, carried, position):
            key = random.fold(key, chain.step)
            given = estimator, program.model, data, inputs.shared, carried, position
            if isinstance(order, Stream):
                return split_variance(*given, chain.step, key)
            return noise_variance(*given, key)

        carried = jax.vmap(
            lambda carried, position: estimator.refresh(program.model, data, carried, position, chain.step + 1)
        )(chain.carried, chain.state.position)
        values = jax.vmap(one)(chain.keys.probe, carried, chain.state.position)
        add = jax.vmap(lambda alive, total, value: jax.tree.map(lambda t, v: t + jnp.where(alive, v, 0), total, value))
        kept = add(chain.alive, chain.gradient_variance, values)
        return kept, chain.measured + chain.alive.astype(jnp.uint32)

    settled = inputs.burn_in - jnp.minimum(inputs.burn_in, jnp.uint32(SUM_BLOCK - 1)) <= chain.step
    due = (chain.step % SUM_BLOCK == 0) & settled
    variance, count = lax.cond(due, measured, lambda: (chain.gradient_variance, chain.measured))
    return chain._replace(gradient_variance=variance, measured=count)
