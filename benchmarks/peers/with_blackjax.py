"""BlackJAX's own gradient estimator and SGHMC diffusion with persistent momentum, in a compiled scan over all chains.

Its `blackjax.sghmc` draws a new momentum at every call and moves several steps on one batch; with one step a call the
gradient is never used at all. So the diffusion underneath is what does the same work.
"""

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.sgmcmc import diffusions, gradients
from problem import chosen, report, timed

problem = chosen()
size = len(problem.x)
if problem.y is None:
    rows, start = jnp.asarray(problem.x), jnp.zeros(())
    estimate = gradients.grad_estimator(lambda t: -(t**2) / 2, lambda t, x: -((x - t) ** 2) / 2, size)
else:
    rows, start = (jnp.asarray(problem.x), jnp.asarray(problem.y)), jnp.zeros(problem.x.shape[1])
    estimate = gradients.grad_estimator(
        lambda w: -jnp.sum(w**2) / 2, lambda w, row: row[1] * (row[0] @ w) - jax.nn.softplus(row[0] @ w), size
    )
move = diffusions.sghmc(problem.friction, 0.0)
STEPS = 20_000 if problem.y is None else 10_000
BURN_IN = STEPS // 10


@jax.jit
@jax.vmap
def run(key):
    def body(carry, l):
        position, momentum, mean, second = carry
        batch_key, noise_key = jax.random.split(jax.random.fold_in(key, l))
        chosen_rows = jax.random.randint(batch_key, (problem.batch,), 0, size)
        batch = jax.tree.map(lambda x: x[chosen_rows], rows)
        position, momentum = move(noise_key, position, momentum, estimate(position, batch), problem.step_size)
        counted = jnp.where(l >= BURN_IN, 1.0 / (STEPS - BURN_IN), 0.0)
        return (position, momentum, mean + counted * position, second + counted * position**2), None

    zero = jnp.zeros_like(start)
    momentum = jax.random.normal(key, start.shape)
    return jax.lax.scan(body, (start, momentum, zero, zero), jnp.arange(STEPS))[0][2:]


keys = jax.random.split(jax.random.key(0), problem.chains)
(mean, second), seconds = timed(lambda: jax.block_until_ready(run(keys)))
shape = (problem.chains, -1)
report(problem, "blackjax sghmc", STEPS, seconds, np.reshape(mean, shape), np.reshape(second, shape))
