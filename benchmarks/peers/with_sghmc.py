"""BlackJAX's SGHMC on a grid of step sizes and frictions:  python with_sghmc.py PROBLEM COORDINATES SECONDS

Reads {"mean": [...], "sd": [...]} from standard input and prints one line of JSON per cell of the grid: its error
against this reference as time goes on. The work is that of with_blackjax.py, and for its reasons. COORDINATES are
`plain`, the parameters as they are, or `scaled`, each divided by its standard deviation given all others, which is what
standardised columns come to.

All that a user would not have is a gift: chains start at the mode; the grid is laid around the largest step that is
stable, which the curvature at the mode gives; and nobody is charged for the other cells of the grid.
"""

import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.sgmcmc import diffusions, gradients
from jax.flatten_util import ravel_pytree
from posterior_models import problem

CHAINS, BATCH, BLOCK = 16, 1000, 250
STEP_SIZES = (0.003, 0.01, 0.03, 0.1, 0.3)  # times the square root of the largest curvature; 2 is unstable
DAMPINGS = (0.001, 0.0056, 0.032, 0.18, 1.0)  # friction times step size: the part of the momentum lost in a step

name, coordinates, budget = sys.argv[1], sys.argv[2], float(sys.argv[3])
posterior = problem(name)
rows = jax.tree.map(jnp.asarray, posterior.rows)
size = len(jax.tree.leaves(rows)[0])
init, unravel = ravel_pytree(posterior.init)


def mode_and_curvature(newton_steps: int = 12):
    """By Newton's method in double precision, because curvatures of unequally scaled columns are far apart."""
    with jax.enable_x64(True):
        data = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), posterior.rows)

        def potential(flat):
            q = {key: value.astype(jnp.float64) for key, value in unravel(flat).items()}
            return -posterior.log_prior(q) - jnp.sum(jax.vmap(lambda row: posterior.log_likelihood(q, row))(data))

        gradient, curvature = jax.jit(jax.grad(potential)), jax.jit(jax.hessian(potential))
        mode = jnp.zeros(len(init), jnp.float64)
        for _ in range(newton_steps):
            mode -= jnp.linalg.solve(curvature(mode), gradient(mode))
        return np.asarray(mode), np.asarray(curvature(mode))


mode, curvature = mode_and_curvature()
scale = 1 / np.sqrt(np.diag(curvature)) if coordinates == "scaled" else np.ones(len(mode))
stiffest = np.linalg.eigvalsh(scale[:, None] * curvature * scale).max()


def parameters(offset):
    """From the coordinates that are sampled, which are 0 at the mode."""
    return unravel(jnp.asarray(mode, jnp.float32) + jnp.asarray(scale, jnp.float32) * offset)


estimate = gradients.grad_estimator(
    lambda offset: posterior.log_prior(parameters(offset)),
    lambda offset, row: posterior.log_likelihood(parameters(offset), row),
    size,
)


@jax.jit
def advance(state, key, step_size, friction):
    """A block of steps of all chains, and the sums of positions and of their squares over it."""
    move = diffusions.sghmc(friction, 0.0)

    def chain(position, momentum, key):
        def body(carry, key):
            position, momentum, first, second = carry
            batch_key, noise_key = jax.random.split(key)
            taken = jax.random.randint(batch_key, (BATCH,), 0, size)
            batch = jax.tree.map(lambda x: x[taken], rows)
            position, momentum = move(noise_key, position, momentum, estimate(position, batch), step_size)
            return (position, momentum, first + position, second + position**2), None

        zero = jnp.zeros_like(position)
        return jax.lax.scan(body, (position, momentum, zero, zero), jax.random.split(key, BLOCK))[0]

    position, momentum, first, second = jax.vmap(chain)(*state, jax.random.split(key, CHAINS))
    return (position, momentum), jnp.stack([first.mean(0), second.mean(0)]) / BLOCK


def start(key):
    return jnp.zeros((CHAINS, len(mode))), jax.random.normal(key, (CHAINS, len(mode)))


def errors(moments, reference) -> list[float]:
    """The largest error of a mean, that of a standard deviation, and the fraction of parameters with both within 0.05.

    The first half of the run is left out, as a user would do.
    """
    mean, second = np.mean(moments[len(moments) // 2 :], axis=0)
    sd = np.sqrt(np.maximum(second - mean**2, 0)) * scale
    off = np.abs(mode + scale * mean - reference["mean"]) / reference["sd"]
    wide = np.abs(sd / reference["sd"] - 1)
    return [float(off.max()), float(wide.max()), float(np.mean((off <= 0.05) & (wide <= 0.05)))]


def cell(step_size: float, friction: float, reference, compiled, compilation: float) -> dict:
    """One setting for the budget; seconds include compilation. A chain that has diverged ends it."""
    key = jax.random.key(0)
    state, moments, curve, started = start(key), [], [], time.perf_counter()
    while not curve or curve[-1][0] < budget:
        state, sums = compiled(state, jax.random.fold_in(key, len(moments)), step_size, friction)
        moments.append(np.asarray(sums, float))
        seconds = compilation + time.perf_counter() - started
        if not np.isfinite(moments[-1]).all():
            break
        curve.append([seconds, *errors(np.array(moments), reference)])
    told = {"step_size": step_size, "friction": friction, "steps": BLOCK * len(moments), "curve": curve}
    return told | {"diverged": bool(not np.isfinite(moments[-1]).all())}


def main() -> None:
    reference = {key: np.array(value) for key, value in json.load(sys.stdin).items()}
    key, number = jax.random.key(0), jnp.float32(1)
    started = time.perf_counter()
    compiled = advance.lower(start(key), key, number, number).compile()
    compilation = time.perf_counter() - started
    for relative in STEP_SIZES:
        for damping in DAMPINGS:
            step_size = relative / np.sqrt(stiffest)
            friction = damping / step_size
            result = cell(jnp.float32(step_size), jnp.float32(friction), reference, compiled, compilation)
            result |= {"step_size": float(step_size), "friction": float(friction), "relative": relative}
            result |= {"damping": damping, "condition": condition(), "compilation": compilation}
            print(json.dumps(result), flush=True)


def condition() -> float:
    """The ratio of the largest to the smallest curvature in the coordinates that are sampled."""
    values = np.linalg.eigvalsh(scale[:, None] * curvature * scale)
    return float(values.max() / values.min())


if __name__ == "__main__":
    main()
