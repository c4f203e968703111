"""A mode of the posterior, sought by L-BFGS over all data."""

import jax
import numpy as np
import optax

from strang.data.batches import Data
from strang.gradients.full import full_potential
from strang.util.errors import InputError
from strang.util.progress import track
from strang.util.trees import Tree


def find_mode(
    model, data: Data, start: Tree, *, iterations: int, tolerance: float, progress: bool | None, what: str
) -> Tree:
    """A position where the full gradient is `tolerance` of what it was, or after `iterations` of L-BFGS, for `what`."""
    solver = optax.lbfgs()

    @jax.jit
    def iterate(point, state, data):
        value, slope = jax.value_and_grad(lambda theta: full_potential(model, data, theta))(point)
        updates, state = solver.update(
            slope, state, point, value=value, grad=slope, value_fn=lambda theta: full_potential(model, data, theta)
        )
        return optax.apply_updates(point, updates), state, optax.tree.norm(slope)

    point, state, first = start, solver.init(start), None
    for _ in track(range(iterations), f"seeking {what}", progress):
        moved, state, norm = jax.block_until_ready(iterate(point, state, data))
        data.check()
        first = norm if first is None else first
        if not np.isfinite(norm):
            raise InputError(f"the search for {what} left the finite numbers; give it, or another start.")
        if norm <= tolerance * first or norm == 0:
            break
        point = moved
    return point
