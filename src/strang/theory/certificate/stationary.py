"""Whether the coded drift and diffusion keep the density they are meant to keep.

The weak order compares a step with the coded SDE, so it cannot see an SDE that is wrong itself. A density ρ = e^−H is
kept if the adjoint of the generator takes it to 0: L*ρ = −Σ ∂_i(b_i ρ) + ½ Σ ∂_i²(s_i ρ) with drift b and diffusion
√s. Here L*ρ/ρ is computed by differentiating the shipped code, with a random potential, at random points.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from strang.dynamics.fields import example
from strang.theory.certificate.problem import BATCH_WEIGHTS, Problem, flatten, potential, random_problem
from strang.theory.linear import UNOPTIMISED

POINTS = 3
MAX_IMBALANCE = 1e-9  # what is kept is so to a few 1e-15; what is not misses by 1e-4 and more


def imbalance(dynamics: Any, energy: Callable | None = None, dimension: int = 2) -> float | None:
    """Compute how far a dynamics is from keeping its density e^−H.

    Args:
        dynamics: an instance, or a class, of which one with ordinary numbers is made.
        energy: H, a function of the state and of the potential U; by default the dynamics' own `energy`.
        dimension: of the position.

    Returns:
        The largest |L*ρ/ρ| over random points, relative to the sum of the sizes of its terms: rounding if the density
        is kept; None if the dynamics does not say what it keeps.

    Raises:
        InputError: the class needs settings that it has no example for.

    Example:
        >>> import strang
        >>> imbalance(strang.SGHMC) < MAX_IMBALANCE
        True
        >>> round(imbalance(strang.SGHMC, lambda state, potential: potential(state.position)), 1) > 0
        True
    """
    dynamics = example(dynamics)
    if energy is None and getattr(dynamics, "energy", None) is None:
        return None
    with jax.enable_x64(True):
        problem = random_problem(dynamics, dimension)
        # Positive coordinates, because some dynamics are for positive parameters only.
        points = jnp.asarray(0.3 + np.abs(np.random.default_rng(7).normal(size=(POINTS, problem.points.shape[1]))))
        terms = np.asarray(terms_at(energy, dynamics, problem, points))
    return float((np.abs(terms.sum(1)) / np.abs(terms).sum(1)).max())


@partial(jax.jit, static_argnums=0, compiler_options=UNOPTIMISED)
def terms_at(energy: Callable | None, dynamics: Any, problem: Problem, points: jax.Array) -> jax.Array:
    """The terms of L*ρ/ρ at each point; compiled once for all numbers of a dynamics."""
    return jax.vmap(partial(adjoint_terms, dynamics, energy or dynamics.energy, problem))(points)


def adjoint_terms(dynamics: Any, energy: Callable, problem: Problem, point: jax.Array) -> jax.Array:
    """The terms of L*ρ/ρ at a point: −∂b + b ∂H, and ½ (∂²s − 2 ∂s ∂H + s (∂H)² − s ∂²H), by coordinate."""
    _, unravel = flatten(dynamics, jnp.zeros(problem.slope.shape[-1]))
    mean = partial(potential, problem, BATCH_WEIGHTS["m"])

    def drift(x):
        return ravel_pytree(dynamics.drift(dynamics.at(*unravel(x)), jax.grad(mean)))[0]

    def variance(x):
        return ravel_pytree(dynamics.diffusion(dynamics.at(*unravel(x))))[0] ** 2

    def density(x):
        return energy(dynamics.at(*unravel(x)), mean)

    slope, curvature = jax.grad(density)(point), jnp.diag(jax.hessian(density)(point))
    bend = jnp.einsum("iii->i", jax.hessian(variance)(point))
    s, ds, b = variance(point), jnp.diag(jax.jacfwd(variance)(point)), drift(point)
    moved = [-jnp.diag(jax.jacfwd(drift)(point)), b * slope]
    return jnp.concatenate([*moved, bend / 2, -ds * slope, s * slope**2 / 2, -s * curvature / 2])
