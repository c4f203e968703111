"""Orders of accuracy, exact to rounding, of the step functions that sampling runs.

A step has weak order K if E f(step(x; h)) = (e^{hL} f)(x) + O(h^{K+1}), L the generator of the SDE. Both sides are
expanded in powers of h: evaluated on a circle of complex step sizes, and expectations over the normals by a cubature.
Normals enter a step with a factor √h, so degree 2K in them is all that reaches h^K; odd degrees vanish, and with them
the branch of √h. Coefficients agree to ~1e-13 or differ by 1e-5 and more: no tolerance to tune.

The reference needs only the SDE's drift and diffusion. P(h) f = E f(x + h drift + √h diffusion ξ) is I + hL + O(h²), so
the coefficient of h^k in P(h/m)^m is a polynomial of degree k−1 in 1/m whose value at 1/m = 0 is L^k/k!: m = 1..k Euler
steps give it exactly.

The potential is that of `problem`. The coefficient of h^k is a differential operator of order 2k or less. At a point x
it takes f(y) = (1 + u·(y − x))⁸ to a polynomial in u, which is zero at random u only if the operator is: a few u stand
for all polynomials f of degree 8.

Two things are looked at beside the SDE's coordinates. The position of a state is what is averaged, and need not be one
of them: a step of order K has E f(position) = (e^{hL} f)(x) + O(h^K). And each normal must drive one coordinate alone:
orders are certified with up to three coordinates, the first with eight, so that normals that are shared show.
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
from strang.theory.certificate.problem import BATCH_WEIGHTS, TESTS, Problem, gradient, random_problem, state_at
from strang.theory.certificate.stationary import MAX_IMBALANCE, imbalance
from strang.theory.cubature import circle, gaussian_cubature, limit_weights, taylor
from strang.theory.linear import UNOPTIMISED
from strang.util.errors import choose

MAX_MISMATCH = 1e-10  # what agrees does so to a few 1e-12; what does not differs by 1e-5 or more, unless D is huge
CHUNK = 512  # cubature nodes evaluated at once
OFTEN = 64  # calls of a compiled step for which it is worth while to let LLVM make it fast
OPTIMISED = {"xla_backend_optimization_level": 3, "xla_llvm_disable_expensive_passes": False}  # whatever JAX is told
MAX_DIMENSION = 3  # of positions on which all orders are certified: on larger ones the first, since cubatures grow fast


class Certificate(NamedTuple):
    """What `weak_order` proves.

    Attributes:
        order: the weak order; 0 if the SDE itself does not keep the density that it should.
        mismatch: of the coefficients of h, h², ... up to the first that differs, relative.
        imbalance: how far the SDE is from keeping its density, see `imbalance`; None where that is not known.
    """

    order: int
    mismatch: tuple[float, ...]
    imbalance: float | None = None


def weak_order(
    step: Any, dynamics: Any, batch_order: str = "full", max_order: int = 4, dimensions: tuple[int, ...] = (1, 3, 8)
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
        dimensions: of the positions on which the step is tried; beyond three only the first order is.

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
            low = tuple(sorted({min(dimension, 2) for dimension in dimensions}))
            mismatch += mismatches(step, dynamics, outcomes, max_order, low)[first:]
    order = next((k for k, gap in enumerate(mismatch) if not gap < MAX_MISMATCH), len(mismatch))
    kept = imbalance(dynamics)
    return Certificate(0 if kept is not None and not kept < MAX_IMBALANCE else order, mismatch[: order + 1], kept)


def mismatches(
    step: Step, dynamics: Any, outcomes: tuple[str, ...], top: int, dimensions: tuple[int, ...]
) -> tuple[float, ...]:
    """Relative mismatch of the coefficients of h..h^top, the largest of all dimensions.

    What a step does at h = 0, where it should stand still, counts as a mismatch at h, and so on for the position.
    """
    gaps = np.zeros((len(dimensions), top + 1))
    for i, dimension in enumerate(dimensions):
        problem, highest = random_problem(dynamics, dimension), top if dimension <= MAX_DIMENSION else 1
        duration = len(outcomes[0])
        _, once, twice = np.abs(exact_coefficients(dynamics, problem, 1, 2, 1e-3)).max((0, 1))
        size = 0.15 * once / twice / duration  # small against |L f| / |L² f|: the Taylor series converge fast
        shipped = step_coefficients(step, dynamics, problem, outcomes, highest, size)
        exact = exact_coefficients(dynamics, problem, duration, highest, size)
        gap = np.abs(shipped - exact).max(0) / np.abs(exact).max((0, 1))
        gap, position = gap[:TESTS].max(0), gap[TESTS:].max(0)
        gap[1:] = np.maximum(gap[1:], position[:-1])
        gaps[i, : highest + 1] = gap
    still, first, *others = gaps.max(0).tolist()
    return (max(still, first), *others)


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
    calls = len(weights) // CHUNK * sum(map(len, periods))
    move = _move_fast if calls > OFTEN else _move
    total = 0
    for start in range(0, len(weights), CHUNK):
        chunk = slice(start, start + CHUNK)
        for period in periods:
            state = _starts(dynamics, problem, sizes[0], weights[chunk])
            for l, batch in enumerate(period):
                state, moved = move(step, dynamics, problem, state, sizes[l], BATCH_WEIGHTS[batch], nodes[chunk, l])
            square = (1 + np.asarray(moved) @ problem.tests.T) ** 2
            total = total + np.einsum("xhnf,n->xfh", (square * square) ** 2, weights[chunk])
    return total


@jax.jit
def _starts(dynamics, problem, sizes, weights):
    """The states at the problem's points, for every step size and node."""
    states = jax.vmap(partial(state_at, dynamics, problem))(problem.points)
    batch = (len(problem.points), len(sizes), len(weights))
    return jax.tree.map(lambda x: jnp.broadcast_to(x[:, None, None], batch + x.shape[1:]), states)


def _moved(step, dynamics, problem, state, sizes, batch_weights, nodes):
    """One step of every state, and how far its coordinates and its position are from its point."""

    def move(point, state, h, normals):
        state = step(dynamics, state, h, partial(gradient, problem, batch_weights), tuple(normals))
        coordinates = ravel_pytree(dynamics.coordinates(state))[0] - point
        position = ravel_pytree(state.position)[0] - ravel_pytree(state_at(dynamics, problem, point).position)[0]
        return state, jnp.concatenate([coordinates, position])

    over_nodes = jax.vmap(move, (None, 0, None, 0))
    over_sizes = jax.vmap(over_nodes, (None, 0, 0, None))
    return jax.vmap(over_sizes, (0, 0, None, None))(problem.points, state, sizes, nodes)


_move = jax.jit(_moved, static_argnums=0, compiler_options=UNOPTIMISED)
_move_fast = jax.jit(_moved, static_argnums=0, compiler_options=OPTIMISED)


def euler_maruyama(dynamics, state, h, gradient, noise):
    """x' = x + h drift + √h diffusion ξ, with one normal per coordinate."""
    flat, unravel = ravel_pytree(dynamics.coordinates(state))
    drift, amplitude = (ravel_pytree(part)[0] for part in (dynamics.drift(state, gradient), dynamics.diffusion(state)))
    return dynamics.at(*unravel(flat + h * drift + jnp.sqrt(h) * amplitude * noise[0]))


EULER = Step("euler-maruyama", euler_maruyama, order=1, gradients=1, noises=1, own_temperature=True)
