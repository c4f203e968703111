"""Orders of accuracy, exact to rounding, of the step functions that sampling runs.

A step has weak order K if E f(step(x; h)) = (e^{hL} f)(x) + O(h^{K+1}), L the generator of the SDE. Both sides are
expanded in powers of h: evaluated on a circle of complex step sizes, and expectations over the normals by a cubature.
Normals enter a step with a factor √h, so degree 2K in them is all that reaches h^K; odd degrees vanish, and with them
the branch of √h. Coefficients agree to ~1e-13 or differ by 1e-5 and more: no tolerance to tune.

The reference needs only the SDE's drift and diffusion. P(h) f = E f(x + h drift + √h diffusion ξ) is I + hL + O(h²), so
the coefficient of h^k in P(h/m)^m is a polynomial of degree k−1 in 1/m whose value at 1/m = 0 is L^k/k!: m = 1..k Euler
steps give it exactly.

Everything random is drawn once from a fixed seed. U is a sum of sixth powers of random affine functions. The
coefficient of h^k is a differential operator of order 2k or less. At a point x it takes f(y) = (1 + u·(y − x))⁸ to a
polynomial in u, which is zero at random u only if the operator is: a few u stand for all polynomials f of degree 8.
"""

from functools import partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from strang.dynamics.fields import example
from strang.integrators.words import Step, spell
from strang.theory.certificate.algebra import periods
from strang.theory.cubature import circle, gaussian_cubature, limit_weights, taylor
from strang.theory.linear import UNOPTIMISED
from strang.util.errors import choose

MAX_MISMATCH = 1e-10  # what agrees does so to a few 1e-12; what does not differs by 1e-5 or more, unless D is huge
CHUNK = 512  # cubature nodes evaluated at once
BATCH_WEIGHTS = {"m": (0.5, 0.5), "a": (1.0, 0.0), "b": (0.0, 1.0)}  # of the two batches; U is their mean


class Certificate(NamedTuple):
    """What `weak_order` proves.

    Attributes:
        order: the weak order.
        mismatch: of the coefficients of h, h², ... up to the first that differs, relative.
    """

    order: int
    mismatch: tuple[float, ...]


class Problem(NamedTuple):
    """Two batches' potentials Σ strength (offset + slope·q)⁶, points x to start from, and test functions."""

    strength: np.ndarray
    offset: np.ndarray
    slope: np.ndarray
    points: np.ndarray
    tests: np.ndarray


def weak_order(
    step: Any, dynamics: Any, batch_order: str = "full", max_order: int = 4, dimensions: tuple[int, ...] = (1, 2)
) -> Certificate:
    """Certify the weak order of a step, on the shipped code, over one period of a minibatch order.

    Two batches have random potentials; 'full' is their mean, 'iid' one step on either, 'reshuffled' two in random
    order, 'symmetric' four, forth and back in random order, and 'cyclic' two in fixed order. A fixed order is of weak
    order 1 only: its error at h² changes sign with the order, which nothing averages; but it does not appear in the
    invariant measure.

    Args:
        step: a word, or a step from `strang.spell`.
        dynamics: an instance, or a class, of which one with ordinary numbers is made.
        batch_order: full, iid, reshuffled, symmetric or cyclic.
        max_order: where the search ends, from 1 to 4.
        dimensions: of the positions on which the step is tried.

    Returns:
        The order, and how well the Taylor coefficients agree.

    Raises:
        InputError: if the step, `batch_order` or `max_order` is unknown.

    Example:
        >>> import strang
        >>> weak_order("chen:ABOBA", strang.SGHMC).order, weak_order("chen:ABOBA", strang.SGHMC, "iid").order
        (2, 1)
    """
    outcomes = periods(batch_order)
    if max_order not in range(1, 5):
        raise choose("max_order", max_order, range(1, 5))
    step, dynamics = spell(dynamics, step), example(dynamics)
    with jax.enable_x64(True):
        first = min(max_order, 3)  # few go beyond, and the cubature grows fast with the degree
        mismatch = mismatches(step, dynamics, outcomes, first, dimensions)
        if max_order > first and max(mismatch) < MAX_MISMATCH:
            mismatch = mismatches(step, dynamics, outcomes, max_order, dimensions)
    order = next((k for k, gap in enumerate(mismatch) if not gap < MAX_MISMATCH), len(mismatch))
    return Certificate(order, mismatch[: order + 1])


def mismatches(
    step: Step, dynamics: Any, outcomes: tuple[str, ...], top: int, dimensions: tuple[int, ...]
) -> tuple[float, ...]:
    """Relative mismatch of the coefficients of h..h^top, the largest of all dimensions.

    What a step does at h = 0, where it should stand still, counts as a mismatch at h.
    """
    gaps = []
    for dimension in dimensions:
        problem = random_problem(dynamics, dimension)
        duration = len(outcomes[0])
        _, once, twice = np.abs(exact_coefficients(dynamics, problem, 1, 2, 1e-3)).max((0, 1))
        size = 0.15 * once / twice / duration  # small against |L f| / |L² f|: the Taylor series converge fast
        shipped = step_coefficients(step, dynamics, problem, outcomes, top, size)
        exact = exact_coefficients(dynamics, problem, duration, top, size)
        gaps.append(np.abs(shipped - exact).max((0, 1)) / np.abs(exact).max((0, 1)))
    still, first, *others = np.max(gaps, axis=0).tolist()
    return (max(still, first), *others)


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
        tests=rng.uniform(-0.5, 0.5, (6, coordinates)),
    )


def step_coefficients(step: Step, dynamics: Any, problem: Problem, periods: Any, top: int, size: float) -> np.ndarray:
    """Taylor coefficients in h of E f after one period of production steps, averaged over the order's outcomes."""
    shape = (len(periods[0]), step.noises, problem.slope.shape[-1])
    nodes, weights = gaussian_cubature(prod(shape), 2 * top)
    h, nodes = circle(size), nodes.reshape(len(weights), *shape)
    return taylor(expectation(step, dynamics, problem, np.tile(h, (shape[0], 1)), periods, nodes, weights), h, top)


def exact_coefficients(dynamics: Any, problem: Problem, duration: int, top: int, size: float) -> np.ndarray:
    """(duration L)^k f / k! for k up to `top` from 1..top Euler steps; one of size 0 stands still."""
    noisy = np.flatnonzero(ravel_pytree(dynamics.diffusion(state_at(dynamics, problem, problem.points[0])))[0])
    normals, weights = gaussian_cubature(top * len(noisy), 2 * top)
    nodes = np.zeros((len(weights), top, 1, problem.points.shape[1]))
    nodes[..., 0, noisy] = normals.reshape(len(weights), top, len(noisy))
    h, coefficients = circle(size), []
    for count in range(1, top + 1):
        sizes = np.outer(np.arange(top) < count, h * duration / count)
        coefficients.append(taylor(expectation(EULER, dynamics, problem, sizes, ["m" * top], nodes, weights), h, top))
    exact = coefficients[0]
    for k in range(2, top + 1):
        exact[..., k] = sum(weight * c[..., k] for weight, c in zip(limit_weights(k), coefficients, strict=False))
    return exact


def expectation(step, dynamics, problem, sizes, periods, nodes, weights):
    """E f after steps of these sizes (steps x rows): points x tests x rows, averaged over the order's outcomes."""
    padding = -len(weights) % CHUNK  # one shape, one compilation
    nodes = np.concatenate([nodes, np.zeros((padding, *nodes.shape[1:]))]).astype(complex)
    weights = np.concatenate([weights, np.zeros(padding)]) / len(periods)
    total = 0
    for start in range(0, len(weights), CHUNK):
        chunk = slice(start, start + CHUNK)
        for period in periods:
            state = _starts(dynamics, problem, sizes[0], weights[chunk])
            for l, batch in enumerate(period):
                state, moved = _move(step, dynamics, problem, state, sizes[l], BATCH_WEIGHTS[batch], nodes[chunk, l])
            square = (1 + np.asarray(moved) @ problem.tests.T) ** 2
            total = total + np.einsum("xhnf,n->xfh", (square * square) ** 2, weights[chunk])
    return total


@jax.jit
def _starts(dynamics, problem, sizes, weights):
    """The states at the problem's points, for every step size and node."""
    states = jax.vmap(partial(state_at, dynamics, problem))(problem.points)
    batch = (len(problem.points), len(sizes), len(weights))
    return jax.tree.map(lambda x: jnp.broadcast_to(x[:, None, None], batch + x.shape[1:]), states)


@partial(jax.jit, static_argnums=0, compiler_options=UNOPTIMISED)
def _move(step, dynamics, problem, state, sizes, batch_weights, nodes):
    """One step of every state, and how far it is from its point in the SDE's coordinates."""

    def move(point, state, h, normals):
        state = step(dynamics, state, h, partial(gradient, problem, batch_weights), tuple(normals))
        return state, ravel_pytree(dynamics.coordinates(state))[0] - point

    over_nodes = jax.vmap(move, (None, 0, None, 0))
    over_sizes = jax.vmap(over_nodes, (None, 0, 0, None))
    return jax.vmap(over_sizes, (0, 0, None, None))(problem.points, state, sizes, nodes)


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


def euler_maruyama(dynamics, state, h, gradient, noise):
    """x' = x + h drift + √h diffusion ξ, with one normal per coordinate."""
    flat, unravel = ravel_pytree(dynamics.coordinates(state))
    drift, amplitude = (ravel_pytree(part)[0] for part in (dynamics.drift(state, gradient), dynamics.diffusion(state)))
    return dynamics.at(*unravel(flat + h * drift + jnp.sqrt(h) * amplitude * noise[0]))


EULER = Step("euler-maruyama", euler_maruyama, order=1, gradients=1, noises=1)
