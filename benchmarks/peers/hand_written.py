"""The fastest loop for one problem that was found to be written in JAX by hand: SGHMC by chen:ABOBA on logistic
regression with independent batches, its gradient written out, plain sums of positions and squares, no checks. It draws
as Strang does, since JAX's own generator is several times slower here."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from strang.util import random

BLOCK = 64  # steps whose draws are made together


def logistic_loop(problem, steps: int):
    """A function that makes so many steps."""
    rows, chains, features = len(problem.x), problem.chains, problem.x.shape[1]
    h, friction = problem.step_size, problem.friction
    keys, like = random.chain_keys(0, chains), jax.ShapeDtypeStruct((features,), jnp.float32)
    decay, amplitude = np.float32(np.exp(-friction * h / 2)), np.float32(np.sqrt(2 * friction * h))

    def kept(first, function, instead=None):
        empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(function))
        return lax.cond(first < jnp.uint32(1 << 30), function, lambda: empty)

    @jax.jit
    def run(position, x, y):
        def block(number, carry):
            first = number.astype(jnp.uint32) * jnp.uint32(BLOCK)
            steps = first + jnp.arange(BLOCK, dtype=jnp.uint32)
            bits = kept(first, lambda: random.index_bits(keys.batch, steps[:, None, None], problem.batch, rows))
            numbers = kept(first, lambda: jnp.swapaxes(random.as_indices(bits, problem.batch, rows), 1, 2))
            drawn = random.normals(keys.noise, steps[:, None], like, 1, partial(kept, first))
            normals = kept(first, lambda: drawn)[0]

            def step(i, carry):
                position, momentum, total, squares = carry
                position = position + h / 2 * momentum
                seen, y_seen = (
                    x.at[numbers[i]].get(mode="promise_in_bounds"),
                    y.at[numbers[i]].get(mode="promise_in_bounds"),
                )
                residual = jax.nn.sigmoid(jnp.einsum("cnd,cd->cn", seen, position)) - y_seen
                gradient = position + rows / problem.batch * jnp.einsum("cnd,cn->cd", seen, residual)
                momentum = decay * (decay * momentum - h * gradient + amplitude * normals[i])
                position = position + h / 2 * momentum
                return position, momentum, total + position, squares + position**2

            return lax.fori_loop(0, BLOCK, step, carry)

        return lax.fori_loop(0, steps // BLOCK, block, (position,) * 4)

    start, x, y = jnp.zeros((chains, features)), jnp.asarray(problem.x), jnp.asarray(problem.y)
    return lambda: jax.block_until_ready(run(start, x, y))
