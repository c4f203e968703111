"""The invariant measure and the stability of a step on a Gaussian target, where a step is a linear map.

The target is U = K q²/2 in one coordinate, the minibatch gradient K q + δ with E δ = 0, Var δ = V. The maps are the
derivatives of the shipped step function: x' = A x + B δ + N ξ, where x are all numbers of the state and x[0] is the
position. The step size may be complex. Everything is in double precision.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from strang.util.errors import InputError

CHUNK = 256  # step sizes per call of the compiled function: one shape, one compilation
MIN_UNSTABLE_EXCESS = 1e-12  # how far above 1 a growth factor must be to count; an overdamped step comes as close to 1
MIN_CONTRACTION = 1e-12  # how much a step must forget for its invariant covariance to be resolved in double precision
UNOPTIMISED = {"xla_backend_optimization_level": 0}  # for what takes longer to compile than to run


class NotLinear(InputError):
    """Raised for a dynamics whose steps are not linear maps on a Gaussian."""


class Linear(NamedTuple):
    """x' = transition x + push δ + noise ξ."""

    transition: np.ndarray
    push: np.ndarray
    noise: np.ndarray


def linearise(step: Any, dynamics: Any, precision: float, h: Any) -> Linear:
    """Differentiate a step on a Gaussian target: the linear map that it is.

    Args:
        step, dynamics: a step from `strang.spell`, and its dynamics with its numbers.
        precision: K of the target N(0, T/K).
        h: a step size or an array of them, real or complex.

    Returns:
        The maps A, B and N, after the axes of `h`.

    Raises:
        InputError: if the dynamics is not linear on a Gaussian.

    Example:
        >>> import strang
        >>> linearise(strang.spell(strang.SGLD, "euler"), strang.SGLD(), 2.0, 0.25).transition[0, 1]  # 1 - hK
        np.float64(0.5)
    """
    with jax.enable_x64(True):
        h = np.asarray(h, complex if np.iscomplexobj(h) else float)
        chunks = np.resize(h, (max(1, -(-h.size // CHUNK)), CHUNK))  # the last one filled up
        maps = [_maps(step, dynamics, np.asarray(precision, h.dtype), chunk) for chunk in chunks]
        joined = (np.concatenate(parts)[: h.size] for parts in zip(*maps, strict=True))
        return Linear(*(part.reshape(h.shape + part.shape[1:]) for part in joined))


@partial(jax.jit, static_argnums=0, compiler_options=UNOPTIMISED)
def _maps(step, dynamics, precision, sizes):
    start = dynamics.init(jnp.zeros((), sizes.dtype), jnp.zeros((), sizes.dtype))
    if "thermostat" in start._fields:
        raise NotLinear("a thermostat's step is not linear, so SGNHT has no exact law on a Gaussian.")
    if hasattr(dynamics, "inverse_metric"):
        raise NotLinear("SGRLD's noise depends on its position, so it has no exact law on a Gaussian.")

    def move(x, delta, normals, h):
        state = type(start)(*x)
        return jnp.stack(tuple(step(dynamics, state, h, lambda q: precision * q + delta, tuple(normals))))

    def maps(h):
        zero = (jnp.zeros(len(start), h.dtype), jnp.zeros((), h.dtype), jnp.zeros(step.noises, h.dtype))
        return jax.jacfwd(move, argnums=(0, 1, 2), holomorphic=jnp.iscomplexobj(h))(*zero, h)

    return jax.vmap(maps)(sizes)


def covariance(linear: Linear, gradient_noise: float = 0.0) -> np.ndarray:
    """Solve Σ = A Σ Aᵀ + N Nᵀ + V B Bᵀ: the invariant covariance under independent minibatches.

    Args:
        linear: the maps of a step. Transposes are not conjugated, so that a complex step size gives the analytic
            continuation.
        gradient_noise: the variance V of a minibatch gradient.

    Returns:
        Σ, along the leading axes of the maps.

    Raises:
        InputError: if double precision cannot resolve Σ.

    Example:
        >>> covariance(Linear(np.array([[0.5]]), np.array([1.0]), np.array([[3.0]])))  # 9/(1 - 1/4)
        array([[12.]])
    """
    _, push, noise = linear
    with np.errstate(over="ignore", invalid="ignore"):
        drive = noise @ np.swapaxes(noise, -1, -2) + gradient_noise * push[..., :, None] * push[..., None, :]
    return solve_lyapunov(linear.transition, drive)


def solve_lyapunov(transition: np.ndarray, drive: np.ndarray) -> np.ndarray:
    """Σ = A Σ Aᵀ + drive."""
    n, rates = transition.shape[-1], eigenvalues(transition)
    with np.errstate(over="ignore", invalid="ignore"):
        pairs = np.einsum("...ij,...kl->...ikjl", transition, transition).reshape(*transition.shape[:-2], n * n, n * n)
        try:
            if (np.abs(1 - rates[..., :, None] * rates[..., None, :]) < MIN_CONTRACTION).any():
                raise np.linalg.LinAlgError
            flat = np.linalg.solve(np.eye(n * n) - pairs, drive.reshape(*drive.shape[:-2], n * n, 1))
        except np.linalg.LinAlgError:
            raise InputError(
                "double precision cannot resolve the invariant covariance: the step is at its stability limit, or "
                "moves the state too little; write a step size, friction and precision of more similar magnitude."
            ) from None
    return flat.reshape(drive.shape)


def eigenvalues(transition: np.ndarray) -> np.ndarray:
    """The eigenvalues of each map; NaN where a noise correction is impossible, so that the map is not finite."""
    finite = np.isfinite(transition).all((-2, -1))
    values = np.linalg.eigvals(np.where(finite[..., None, None], transition, 0.0))
    return np.where(finite[..., None], values, np.nan)


def variance_ratio(step: Any, dynamics: Any, precision: float, h: Any, gradient_noise: float = 0.0) -> Any:
    """Compute Var_h(θ)/Var(θ): the invariant variance of the position over the true one, for any step.

    Args:
        step, dynamics, precision, h: as for `linearise`.
        gradient_noise: the variance V of independent minibatch gradients.

    Returns:
        The ratio for each step size; it has a meaning below the stability limit.

    Raises:
        InputError: if the dynamics is not linear on a Gaussian, or double precision cannot resolve the ratio.

    Example:
        >>> import strang
        >>> ratio = variance_ratio(strang.spell(strang.SGLD, "euler"), strang.SGLD(), 1.0, 0.5)
        >>> round(float(ratio), 12)  # 1/(1 - hK/2)
        1.333333333333
    """
    found = covariance(linearise(step, dynamics, precision, h), gradient_noise)[..., 0, 0]
    return precision * found / getattr(dynamics, "temperature", 1.0)


def spectral_radius(step: Any, dynamics: Any, precision: float, h: Any) -> np.ndarray:
    """The growth factor of a step, unstable above 1; infinite where a noise correction is impossible."""
    return np.nan_to_num(np.abs(eigenvalues(linearise(step, dynamics, precision, h).transition)).max(-1), nan=np.inf)


def stability_limit(step: Any, dynamics: Any, precision: float, largest: float | None = None) -> float:
    """Find the first step size at which a step is no longer stable, to 12 digits, by refining a fine grid.

    Args:
        step, dynamics, precision: as for `linearise`.
        largest: where the search ends; by default the larger of 100/√K and 100/K.

    Returns:
        The limit, or infinity if there is none up to `largest`.

    Raises:
        InputError: if the dynamics is not linear on a Gaussian.

    Example:
        >>> import strang
        >>> round(stability_limit(strang.spell(strang.SGLD, "euler"), strang.SGLD(), 4.0), 9)  # 2/K
        0.5
    """
    if largest is None:
        largest = min(100 / min(precision, np.sqrt(precision)), 1e300)
    grid = np.geomspace(largest * 1e-7, largest, 8 * CHUNK)
    while True:
        unstable = spectral_radius(step, dynamics, precision, grid) > 1 + MIN_UNSTABLE_EXCESS
        if not unstable.any():
            return float("inf")
        first = int(unstable.argmax())
        low, high = grid[first - 1] if first else grid[0] * 1e-7, grid[first]
        if high - low <= 1e-12 * high or high < 1e-280:
            return float(high)
        grid = np.linspace(low, high, CHUNK) if first else np.geomspace(low, high, CHUNK)
