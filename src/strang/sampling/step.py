"""One step of all chains."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from strang.data.batches import Batch, CutBatch
from strang.sampling.draws import Draws, draw_axes, take_late
from strang.sampling.record import Inputs, Program, estimator_of, input_axes, observe
from strang.util.trees import dot


def make_step(program: Program, inputs: Inputs, l, h, state, carried, drawn: Draws):
    """Step number l of all chains: their states, what estimators carry, whether they are finite, and what is averaged.

    A chain that has left the finite numbers cannot come back, so nothing need be done to keep it where it is; its sums
    are not used. Undoing its last step would cost every step of a large model another pass over memory.
    """
    data, exchange = inputs.data, program.exchange

    def one(inputs, dynamics, state, carried, h, drawn: Draws):
        estimator = estimator_of(program, inputs)
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

    if program.parts == 1 and drawn.rows is not None:
        drawn = drawn._replace(rows=take_late(data, drawn.rows))
    axes = (input_axes(program), 0 if program.grid else None, 0, 0, 0 if h.ndim else None, draw_axes(program, data))
    return jax.vmap(one, axes)(inputs, inputs.dynamics, state, carried, h, drawn)


def is_finite(state, values) -> jax.Array:
    """Whether one chain has not diverged. Where there is a temperature it shows at once: a position that is not finite
    makes the momentum so with the next kick."""
    if "temperature" in values:
        return jnp.isfinite(values["temperature"])
    return jnp.isfinite(dot(state.position, state.position))
