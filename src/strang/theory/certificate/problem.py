"""The random problem on which steps and dynamics are certified: a potential, points to start from, test functions.

Everything random is drawn once from a fixed seed. U is a sum of sixth powers of random affine functions.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.linalg import block_diag

BATCH_WEIGHTS = {"m": (0.5, 0.5), "a": (1.0, 0.0), "b": (0.0, 1.0)}  # of the two batches; U is their mean
TESTS = 6  # random test functions of the coordinates, and as many of the position


class Problem(NamedTuple):
    """Two batches' potentials Σ strength (offset + slope·q)⁶, points x to start from, and test functions."""

    strength: np.ndarray
    offset: np.ndarray
    slope: np.ndarray
    points: np.ndarray
    tests: np.ndarray  # rows u: first those of the coordinates, then those of the position


def random_problem(dynamics: Any, dimension: int) -> Problem:
    """A fixed random problem with as many coordinates as the dynamics has."""
    rng = np.random.default_rng(2015)
    coordinates = jax.eval_shape(lambda: flatten(dynamics, jnp.zeros(dimension))[0]).size
    ridges = (2, dimension + 1)
    return Problem(
        strength=rng.uniform(0.1, 0.3, ridges),
        offset=rng.uniform(0.8, 1.2, ridges),
        slope=rng.uniform(-0.8, 0.8, (*ridges, dimension)),
        points=rng.uniform(-0.8, 0.8, (2, coordinates)),
        tests=block_diag(rng.uniform(-0.5, 0.5, (TESTS, coordinates)), rng.uniform(-0.5, 0.5, (TESTS, dimension))),
    )


def potential(problem, batch_weights, position):
    """U, the two batches weighted."""
    ridge = problem.offset + jnp.sum(problem.slope * position, axis=-1)
    return jnp.sum(jnp.asarray(batch_weights)[:, None] * problem.strength * ridge**6)


def gradient(problem, batch_weights, position):
    """∇U, the two batches weighted."""
    ridge = problem.offset + jnp.sum(problem.slope * position, axis=-1)
    pull = jnp.asarray(batch_weights)[:, None] * problem.strength * 6 * ridge**5
    return jnp.sum(pull[..., None] * problem.slope, axis=(0, 1))


def state_at(dynamics, problem, point):
    """The state at a point of the SDE's coordinates, in complex numbers."""
    _, unravel = flatten(dynamics, jnp.zeros(problem.slope.shape[-1], complex))
    return dynamics.at(*unravel(point.astype(complex)))


def flatten(dynamics, position):
    """The SDE's coordinates as one vector, and the way back."""
    return ravel_pytree(dynamics.coordinates(dynamics.init(position, position)))
