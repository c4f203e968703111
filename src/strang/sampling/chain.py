"""`advance`: any number of steps of all chains in one compiled call.

Everything random at step l is a function of (chain key, l), and sums are closed at multiples of a fixed number of
steps; so 1000 steps are 311 + 689 steps bit for bit. All normals and batches of a block of steps are drawn together as
plain array code, which is what makes small models fast: the loop over steps then only computes.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from strang.data.batches import Batch
from strang.data.orders import Stream
from strang.gradients.variance import Measured, noise_variance, split_variance
from strang.sampling import averages, companion
from strang.sampling.draws import draw
from strang.sampling.record import (
    Chain,
    Inputs,
    Program,
    averaging_weight,
    estimator_of,
    input_axes,
    inputs_at,
    observe,
    positions_of,
)
from strang.sampling.step import make_step
from strang.util import random
from strang.util.trees import Tree, multiply, subtract, zeros

SUM_BLOCK = averages.LONGEST_BLOCK  # steps after which the gradient's variance is measured; the longest draw block


@partial(jax.jit, static_argnums=0)
def begin(program: Program, inputs: Inputs, keys, positions: Tree) -> Chain:
    """Chains at step 0, their positions along the leading axis."""
    axis = 0 if program.grid else None
    inputs = inputs_at(inputs, jnp.uint32(1))

    def one(inputs, dynamics, key, position):
        normals = random.normals(key, jnp.uint32(0), position, 1)[0]
        state = dynamics.init(position if inputs.coordinates is None else inputs.coordinates.inverse(position), normals)
        carried = program.estimator.start(program.model, inputs.data, position)
        return state, carried, averages.start(observe(program, inputs, dynamics, state))

    out_axes = (0, 0, averages.CHAIN_AXES)
    axes = input_axes(program), axis, 0, 0
    state, carried, average = jax.vmap(one, axes, out_axes)(inputs, inputs.dynamics, keys.start, positions)
    none = jnp.zeros(program.chains, jnp.uint32)
    variance = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.promote_types(x.dtype, jnp.float32)), positions)
    chain = Chain(jnp.uint32(0), keys, state, carried, average, variance, (variance, variance), none, none == 0, none)
    return companion.begin(program, inputs, chain) if program.stride else chain


def advance(program: Program, inputs: Inputs, chain: Chain, stop, trace: Tree = None, thin=1):
    """The chains after step `stop`, and in `trace` (if given) the positions after every `thin` steps of this call."""
    if program.grid:
        own = jax.tree.map(lambda x: program.exchange.own(x) if x.ndim else x, inputs.dynamics)  # but for schedules
        inputs = inputs._replace(dynamics=own)
    if program.own_coordinates:
        inputs = inputs._replace(coordinates=jax.tree.map(program.exchange.own, inputs.coordinates))
    thinning = chain.step, jnp.uint32(thin)

    def to_pause(carry):
        """To the end of the block of sums or draws, whichever is longer, or of the run."""
        chain, trace = carry
        chain = measure(program, inputs, chain)
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
    chain = chain._replace(average=lax.cond(complete, close, lambda average: average, chain.average))
    return companion.close_sums(chain, complete) if chain.companion else chain


def closes_within(program: Program) -> bool:
    """Whether blocks of sums end within blocks of draws. Those of a large model do not: its sums stay out of the loop
    over steps."""
    return program.draw_block > averages.SHORTEST_BLOCK


advance_alone = partial(jax.jit, static_argnums=0)(advance)  # on one device


def run_steps(program: Program, inputs: Inputs, chain: Chain, count, trace, thinning):
    """`count` steps within one draw block."""
    first = chain.step
    draws = draw(program, inputs.data, chain, count)
    coarse: Any = companion.draw(program, inputs.data, chain, count) if program.stride else None
    begin, thin = thinning

    def body(i, carry):
        state, carried, diverged_at, sums, other, trace = carry
        l = first + i.astype(jnp.uint32) + 1
        drawn = jax.tree.map(lambda x: x[0 if program.draw_block == 1 else i], draws)
        h = inputs.schedule(l.astype(float))
        h = program.exchange.own(h) if h.ndim else h
        state, carried, finite, values = make_step(program, inputs_at(inputs, l), l, h, state, carried, drawn)
        diverged_at = jnp.where(finite | (diverged_at > 0), diverged_at, l)
        weight = averaging_weight(inputs, l, h)
        sums = averages.accumulate(sums, weight, values)
        if trace is not None:
            slot = (l - begin - 1) // thin
            positions = positions_of(program, inputs, state)
            trace = jax.tree.map(lambda kept, x: kept.at[slot].set(x), trace, positions)
        if program.stride:
            other = companion.follow(program, inputs, l, i, draws, coarse, values, other)
        return state, carried, diverged_at, sums, other, trace

    def run(chain, stop, trace):
        """To step `stop`, within the block of draws."""
        sums = averages.open_block(chain.average)
        carry = (chain.state, chain.carried, chain.diverged_at, sums, chain.companion, trace)
        if program.draw_block == 1:  # a large model: no inner loop to carry its arrays through
            carry = body(jnp.int32(0), carry)
        else:
            begin, end = ((step - first).astype(jnp.int32) for step in (chain.step, stop))
            carry = lax.fori_loop(begin, end, body, carry)
        state, carried, diverged_at, sums, other, trace = carry
        average = averages.put_back(chain.average, sums)
        chain = chain._replace(
            step=stop,
            state=state,
            carried=carried,
            alive=diverged_at == 0,
            diverged_at=diverged_at,
            average=average,
            companion=other,
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


def measure(program: Program, inputs: Inputs, chain: Chain) -> Chain:
    """From the last sum block of the burn-in on, add a measurement of the gradient's variance and of (z − centre) ∂U/∂z
    at the start of each."""
    data = inputs.data
    order = data.batch_order
    if isinstance(order, Stream) and data.batch_size == 1:
        return chain

    def measured():
        def one(inputs, key, carried, position):
            key, estimator = random.fold(key, chain.step), estimator_of(program, inputs)
            carried = estimator.refresh(program.model, data, carried, position, chain.step + 1)
            given = estimator, program.model, data, inputs.shared, carried, position
            if order.full:
                return Measured(zeros(position), estimator(*given[1:], Batch(None, None, 1.0), key))
            if isinstance(order, Stream):
                return split_variance(*given, chain.step, key)
            return noise_variance(*given, key)

        axes = input_axes(program), 0, 0, 0
        found = jax.vmap(one, axes)(inputs, chain.keys.probe, chain.carried, chain.state.position)
        away = jax.vmap(lambda position: subtract(position, inputs.centre))(chain.state.position)
        add = jax.vmap(lambda alive, total, value: jax.tree.map(lambda t, v: t + jnp.where(alive, v, 0), total, value))
        virial = multiply(away, found.gradient)
        totals, values = (chain.gradient_variance, chain.virial), (found.variance, (virial, multiply(virial, virial)))
        return *add(chain.alive, totals, values), chain.measured + chain.alive.astype(jnp.uint32)

    settled = inputs.burn_in - jnp.minimum(inputs.burn_in, jnp.uint32(SUM_BLOCK - 1)) <= chain.step
    due = (chain.step % SUM_BLOCK == 0) & settled
    kept = chain.gradient_variance, chain.virial, chain.measured
    variance, virial, count = lax.cond(due, measured, lambda: kept)
    return chain._replace(gradient_variance=variance, virial=virial, measured=count)
