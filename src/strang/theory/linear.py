"""On a Gaussian target a step is a linear map, so its invariant measure and its stability are linear algebra.

The target is U = K q²/2 in one coordinate, the minibatch gradient K q + δ with E δ = 0, Var δ = V. The maps are read
off the shipped step function by differentiation: x' = A x + B δ + N ξ, where x are all numbers of the state and x[0]
is the position. The step size may be complex. Everything is in double precision.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from strang.util.errors import InputError

TOGETHER = 256  # step sizes: always as many, so that one compilation serves all
ROUNDING = 1e-12  # how far above 1 a growth factor must be to count; an overdamped step comes as close from below


class Linear(NamedTuple):
    """x' = transition x + push δ + noise ξ."""

    transition: np.ndarray
    push: np.ndarray
    noise: np.ndarray


def linearise(step, dynamics, precision, h) -> Linear:
    """The maps of one step on precision K, or of many along the axes of an array `h`."""
    with jax.enable_x64(True):
        h = np.asarray(h, complex if np.iscomplexobj(h) else float)
        rows = np.resize(h, (max(1, -(-h.size // TOGETHER)), TOGETHER))  # the last one filled up
        found = [_maps(step, dynamics, jnp.asarray(precision, h.dtype), jnp.asarray(row)) for row in rows]
        maps = (np.concatenate(parts)[: h.size] for parts in zip(*found, strict=True))
        return Linear(*(each.reshape(h.shape + each.shape[1:]) for each in maps))


# Compiling takes longer than running here, so it is told not to optimise.
@partial(jax.jit, static_argnums=0, compiler_options={"xla_backend_optimization_level": 0})
def _maps(step, dynamics, precision, sizes):
    start = dynamics.init(jnp.zeros((), sizes.dtype), jnp.zeros((), sizes.dtype))
    if "thermostat" in start._fields:
        raise InputError("a thermostat's step is not linear, so SGNHT has no exact law on a Gaussian.")
    if hasattr(dynamics, "inverse_metric"):
        raise InputError("SGRLD's noise depends on its position, so it has no exact law on a Gaussian.")

    def move(x, delta, normals, h):
        state = type(start)(*x)
        return jnp.stack(tuple(step(dynamics, state, h, lambda q: precision * q + delta, tuple(normals))))

    def maps(h):
        zero = (jnp.zeros(len(start), h.dtype), jnp.zeros((), h.dtype), jnp.zeros(step.noises, h.dtype))
        return jax.jacfwd(move, argnums=(0, 1, 2), holomorphic=jnp.iscomplexobj(h))(*zero, h)

    return jax.vmap(maps)(sizes)


def covariance(linear: Linear, gradient_noise=0.0) -> np.ndarray:
    """Σ = A Σ Aᵀ + N Nᵀ + V B Bᵀ: the invariant covariance under independent minibatches. Transposes are not
    conjugated, so that a complex step size gives the analytic continuation."""
    transition, push, noise = linear
    n = transition.shape[-1]
    square = noise @ np.swapaxes(noise, -1, -2) + gradient_noise * push[..., :, None] * push[..., None, :]
    pairs = np.einsum("...ij,...kl->...ikjl", transition, transition).reshape(*transition.shape[:-2], n * n, n * n)
    flat = np.linalg.solve(np.eye(n * n) - pairs, square.reshape(*square.shape[:-2], n * n, 1))
    return flat.reshape(square.shape)


def variance_ratio(step, dynamics, precision, h, gradient_noise=0.0):
    """Var_h(θ)/Var(θ): the invariant variance of the position over the true one.

    >>> import strang
    >>> round(float(variance_ratio(strang.spell(strang.SGLD, "euler"), strang.SGLD(), 1.0, 0.5)), 12)  # 1/(1 - hK/2)
    1.333333333333
    """
    return precision * covariance(linearise(step, dynamics, precision, h), gradient_noise)[..., 0, 0]


def spectral_radius(step, dynamics, precision, h):
    """The growth factor of a step; above 1 it explodes. Infinite where a noise correction is impossible."""
    transition = linearise(step, dynamics, precision, h).transition
    possible = np.isfinite(transition).all((-2, -1))
    growth = np.abs(np.linalg.eigvals(np.where(possible[..., None, None], transition, 0.0))).max(-1)
    return np.where(possible, growth, np.inf)


def stability_limit(step, dynamics, precision, largest: float | None = None) -> float:
    """The first step size at which the step is no longer stable, or infinity if none is up to `largest`.

    By default `largest` is 100/√K. The limit is found on a fine grid, and that cell's refinements, to 12 digits.

    >>> import strang
    >>> round(stability_limit(strang.spell(strang.SGLD, "euler"), strang.SGLD(), 4.0), 9)  # 2/K
    0.5
    """
    largest = 100 / np.sqrt(precision) if largest is None else largest
    grid = np.geomspace(largest * 1e-7, largest, 2000)
    while True:
        unstable = spectral_radius(step, dynamics, precision, grid) > 1 + ROUNDING
        if not unstable.any():
            return float("inf")
        first = int(unstable.argmax())
        low, high = grid[max(first - 1, 0)], grid[first]
        if first == 0 or high - low <= 1e-12 * high:
            return float(high)
        grid = np.linspace(low, high, len(grid))
