"""BlackJAX's SGHMC on a grid of settings:  python with_sghmc.py PROBLEM COORDINATES CELL_SECONDS FINAL_SECONDS

Reads {"mean": [...], "sd": [...]} from standard input. Each setting is a line of JSON: when it is first within 0.05 of
this reference, or how far it came; the last line is the best one. All cells of the grid get the same time, and the best
two run again for longer. The diffusion is called as in with_blackjax.py, and for its reasons. COORDINATES are `plain`,
the parameters as they are, or `scaled`, each divided by its standard deviation given all others, which is about what
standardised columns come to.

The grid is given what a user would not have, and for nothing: chains start at the mode, its step sizes come from the
curvature there, and a setting's seconds are its own and compilation only. It reaches from settings that are biased by
less than 0.05 to the edge of stability.
"""

import itertools
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
STEP_SIZES = (0.01, 0.03, 0.1, 0.3, 0.6)  # over the square root of the largest curvature
DAMPINGS = (0.001, 0.0056, 0.032, 0.18, 1.0)  # friction times step size; unstable below the square of the above

FINALISTS, ERROR = 2, 0.05

name, coordinates = sys.argv[1:3]
cell_seconds, final_seconds = map(float, sys.argv[3:5])
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
curvatures = np.linalg.eigvalsh(scale[:, None] * curvature * scale)


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
    """The largest error of a mean, that of a standard deviation, and the fraction of parameters with both small.

    The first half of the run is left out, as a user would do.
    """
    mean, second = np.mean(moments[len(moments) // 2 :], axis=0)
    sd = np.sqrt(np.maximum(second - mean**2, 0)) * scale
    off = np.abs(mode + scale * mean - reference["mean"]) / reference["sd"]
    wide = np.abs(sd / reference["sd"] - 1)
    return [float(off.max()), float(wide.max()), float(np.mean((off <= ERROR) & (wide <= ERROR)))]


class Race:
    """Runs settings against one reference with one compiled program."""

    def __init__(self, reference: dict):
        started, key, number = time.perf_counter(), jax.random.key(0), jnp.float32(1)
        self.advance = advance.lower(start(key), key, number, number).compile()
        self.compilation = time.perf_counter() - started
        self.reference = {name: np.array(value) for name, value in reference.items()}

    def run(self, relative: float, damping: float, budget: float) -> dict:
        """One setting until its time is over or a chain has diverged; the seconds told include compilation."""
        step_size = relative / np.sqrt(curvatures.max())
        settings = jnp.float32(step_size), jnp.float32(damping / step_size)
        key, started, moments, curve = jax.random.key(0), time.perf_counter(), [], []
        state = start(key)
        while not curve or (curve[-1][0] < self.compilation + budget and np.isfinite(curve[-1]).all()):
            state, block = self.advance(state, jax.random.fold_in(key, len(moments)), *settings)
            moments.append(np.asarray(block, float))
            seconds = self.compilation + time.perf_counter() - started
            curve.append([seconds, *errors(np.array(moments), self.reference)])
        return summary(curve) | {"relative": relative, "damping": damping, "steps": BLOCK * len(moments)}


def summary(curve: list) -> dict:
    """When both errors are first small, be it by luck; the least that the larger was at any time; and the last look."""
    larger = np.array([np.maximum(off, wide) for _, off, wide, _ in curve])
    seconds, off, wide, within = curve[-1]
    return {
        "reached": next((look[0] for look, error in zip(curve, larger, strict=True) if error <= ERROR), None),
        "least": float(np.nanmin(larger)), "last": float(np.nan_to_num(larger[-1], nan=np.inf)), "seconds": seconds,
        "mean_error": off, "sd_error": wide, "within": within,
    }  # fmt: skip


def main() -> None:
    race = Race(json.load(sys.stdin))
    grid = [race.run(*setting, cell_seconds) for setting in itertools.product(STEP_SIZES, DAMPINGS)]
    first = sorted(grid, key=lambda each: (each["reached"] or np.inf, each["last"]))[:FINALISTS]
    finals = [race.run(each["relative"], each["damping"], final_seconds) for each in first]
    best = min(finals, key=lambda each: (each["reached"] or np.inf, each["least"]))
    for each in grid + finals:
        print(json.dumps(each))
    condition = float(curvatures.max() / curvatures.min())
    print(json.dumps(best | {"settings": len(grid), "chains": CHAINS, "condition": condition}))


if __name__ == "__main__":
    main()
