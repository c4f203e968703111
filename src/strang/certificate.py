"""Orders of accuracy, exact to rounding, of the very step functions that sample.

A step has weak order K if E f(step(x; h)) = (e^{hL} f)(x) + O(h^{K+1}), L the generator of the SDE. Both sides are
expanded in powers of h: evaluated on a circle of complex step sizes, and expectations over the normals by a cubature.
Normals enter a step with a factor √h, so degree 2K in them is all that reaches h^K; odd degrees vanish, and with them
the branch of √h. Coefficients agree to ~1e-13 or differ by more than 1e-4: there is no tolerance to tune.

The reference needs only the SDE's drift and diffusion. P(h) f = E f(x + h drift + √h diffusion ξ) is I + hL + O(h²), so
the coefficient of h^k in P(h/m)^m is a polynomial of degree k−1 in 1/m whose value at 1/m = 0 is L^k/k!: m = 1..k Euler
steps give it exactly.

Everything random is drawn once from a fixed seed. U is a sum of sixth powers of random affine functions, no derivative
of which vanishes. The coefficient of h^k is a differential operator of order 2k or less, which maps (1 + u·(y − x))^{2K}
at x to a polynomial in u; if it is not zero, neither is that polynomial at random u. So a few u do for all functions.
"""

from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from .algebra import PERIODS
from .cubature import circle, gaussian_cubature, limit_weights, taylor
from .errors import choose
from .integrator import Step, spell
from .linear import Linear, covariance, linearise

MATCH = 1e-8  # far from both: what agrees does so to 1e-11 or better, what does not differs by more than 1e-4
CHUNK = 512  # cubature nodes evaluated at once
SHARES = {"m": (0.5, 0.5), "a": (1.0, 0.0), "b": (0.0, 1.0)}  # of the two batches in the gradient; U is their mean


class Certificate(NamedTuple):
    """The weak order, and the relative mismatch of the coefficients of h, h², ... up to the first that differs."""

    order: int
    mismatch: tuple[float, ...]


class Problem(NamedTuple):
    """Two batches' potentials Σ strength (offset + slope·q)⁶, points x to start from, and test functions."""

    strength: np.ndarray
    offset: np.ndarray
    slope: np.ndarray
    points: np.ndarray
    tests: np.ndarray


def weak_order(step, dynamics, batches: str = "full", max_order: int = 4) -> Certificate:
    """The weak order of a step (or word) over one period of a minibatch policy, in one and in two dimensions.

    `dynamics` is an instance, or a class, of which one with ordinary numbers is made. Two batches have random potentials;
    'full' is their mean, 'iid' one step on either, 'reshuffled' two in random order, 'symmetric' four, forth and back in
    random order, and 'cyclic' two in fixed order. A fixed order is of weak order 1 only: its error at h² changes sign
    with the order, which nothing averages, but it is a conjugation and does not show in the invariant measure.

    >>> import strang
    >>> weak_order("chen:ABOBA", strang.SGHMC).order, weak_order("chen:ABOBA", strang.SGHMC, "iid").order
    (2, 1)
    """
    if batches not in PERIODS:
        raise choose("minibatch order", batches, PERIODS)
    step, dynamics = spell(dynamics, step), ordinary(dynamics)
    with jax.enable_x64(True):
        first = min(max_order, 3)  # beyond order 2 are few, and the cubature grows fast with the degree
        mismatch = mismatches(step, dynamics, batches, first, max_order)
        if max_order > first and max(mismatch) < MATCH:
            mismatch = mismatches(step, dynamics, batches, max_order, max_order)
    order = next((k for k, gap in enumerate(mismatch) if not gap < MATCH), len(mismatch))
    return Certificate(order, mismatch[: order + 1])


def mismatches(step: Step, dynamics, batches: str, top: int, max_order: int) -> tuple[float, ...]:
    """Relative mismatch of the coefficients of h..h^top, the larger of one and two dimensions."""
    gaps = []
    for dimension in (1, 2):
        problem = random_problem(dynamics, dimension)
        duration = len(PERIODS[batches][0])
        size = radius(dynamics, problem, max_order) / duration
        shipped = step_coefficients(step, dynamics, problem, PERIODS[batches], top, size)
        exact = exact_coefficients(dynamics, problem, duration, max_order, size)[..., : top + 1]
        gaps.append(np.abs(shipped - exact).max((0, 1)) / np.abs(exact).max((0, 1)).clip(1e-300))
    return tuple(float(gap) for gap in np.maximum(*gaps)[1:])


def ordinary(dynamics, metric=None):
    """The dynamics itself, or an instance of a class with friction 1.3, gain 0.7 and a metric that bends."""
    if not isinstance(dynamics, type):
        return dynamics
    numbers: dict[str, Any] = {"friction": 1.3, "gain": 0.7, "metric": metric or bowl}
    return dynamics(**{field.name: numbers[field.name] for field in fields(dynamics) if field.name in numbers})


def bowl(position):
    """A smooth diagonal metric whose entries depend on all coordinates."""
    return jax.tree.map(lambda x: 1.2 + 0.4 * x * x + 0.2 * jnp.sum(x) ** 2, position)


def random_problem(dynamics, dimension: int) -> Problem:
    """A fixed random problem with as many coordinates as the dynamics has."""
    rng = np.random.default_rng(2015)
    start = dynamics.init(jnp.zeros(dimension), jnp.zeros(dimension))
    coordinates = ravel_pytree(dynamics.coordinates(start))[0].size
    ridges = (2, dimension + 1)
    return Problem(
        strength=rng.uniform(0.1, 0.3, ridges),
        offset=rng.uniform(0.8, 1.2, ridges),
        slope=rng.uniform(-0.8, 0.8, (*ridges, dimension)),
        points=rng.uniform(-0.8, 0.8, (2, coordinates)),
        tests=rng.uniform(-0.5, 0.5, (6, coordinates)),
    )


def step_coefficients(step: Step, dynamics, problem: Problem, periods, top: int, size: float) -> np.ndarray:
    """Taylor coefficients in h of E f after one period of production steps, averaged over the policy's outcomes."""
    dimension, duration = problem.slope.shape[-1], len(periods[0])
    nodes, weights = gaussian_cubature(duration * step.noises * dimension, 2 * top)
    nodes = nodes.reshape(-1, duration, step.noises, dimension)
    h = circle(size)
    shares = np.array([[SHARES[batch] for batch in period] for period in periods])
    return taylor(expectation(step, dynamics, problem, np.tile(h[:, None], duration), shares, nodes, weights), h, top)


def exact_coefficients(dynamics, problem: Problem, duration: int, top: int, size: float) -> np.ndarray:
    """(duration L)^k f / k! for k up to `top` by Euler steps, of which those of size 0 stand still."""
    noisy = np.flatnonzero(ravel_pytree(dynamics.diffusion(state_at(dynamics, problem, problem.points[0])))[0])
    few, weights = gaussian_cubature(top * len(noisy), 2 * top)
    nodes = np.zeros((len(few), top, 1, problem.points.shape[1]))
    nodes[..., 0, noisy] = few.reshape(-1, top, len(noisy))
    h = circle(size)
    counts = np.arange(1, top + 1)
    sizes = h[:, None] * duration * np.where(counts <= counts[:, None], 1 / counts[:, None], 0)[:, None, :]
    values = expectation(
        EULER, dynamics, problem, sizes.reshape(-1, top), np.array([[SHARES["m"]] * top]), nodes, weights
    )
    by_count = taylor(values.reshape(*values.shape[:-1], top, len(h)), h, top)
    for k in range(1, top + 1):
        by_count[..., 0, k] = sum(by_count[..., m, k] * weight for m, weight in enumerate(limit_weights(k)))
    return by_count[..., 0, :]


def radius(dynamics, problem: Problem, top: int) -> float:
    """A step size small against the time scale |L f| / |L² f|, so that Taylor series converge fast on its circle."""
    _, first, second = np.abs(exact_coefficients(dynamics, problem, 1, top, 1e-3)).max((0, 1))[:3]
    return float(0.2 * first / second)


def expectation(step: Step, dynamics, problem: Problem, sizes, shares, nodes, weights) -> np.ndarray:
    """E f after steps of the given sizes: points x tests x rows of `sizes`, averaged over the rows of `shares`."""
    padding = -len(weights) % CHUNK  # one shape, one compilation
    nodes = np.concatenate([nodes, np.zeros((padding, *nodes.shape[1:]))])
    weights = np.concatenate([weights, np.zeros(padding)])
    chunks = (slice(start, start + CHUNK) for start in range(0, len(weights), CHUNK))
    return np.sum(
        [_expectation(step, dynamics, problem, sizes, shares, nodes[chunk], weights[chunk]) for chunk in chunks], axis=0
    )


@partial(jax.jit, static_argnums=0)
def _expectation(step, dynamics, problem, sizes, shares, nodes, weights):
    def tests_after(point, sizes, shares, normals):
        def move(state, now):
            h, share, noise = now
            return step(dynamics, state, h, partial(gradient, problem, share), tuple(noise)), None

        start = state_at(dynamics, problem, point)
        if len(sizes) == 1:  # a loop of one costs compilation
            end, _ = move(start, (sizes[0], shares[0], normals[0].astype(complex)))
        else:
            end, _ = jax.lax.scan(move, start, (sizes, shares, normals.astype(complex)))
        moved = ravel_pytree(dynamics.coordinates(end))[0] - point
        return (1 + jnp.sum(problem.tests * moved, axis=-1)) ** 8

    over_nodes = jax.vmap(tests_after, (None, None, None, 0))
    over_shares = jax.vmap(over_nodes, (None, None, 0, None))
    over_sizes = jax.vmap(over_shares, (None, 0, None, None))
    over_points = jax.vmap(over_sizes, (0, None, None, None))
    return jnp.einsum("xhsnf,n->xfh", over_points(problem.points, sizes, shares, nodes), weights) / len(shares)


def gradient(problem: Problem, share, position):
    """∇U of the two batches in the given shares."""
    ridge = problem.offset + jnp.sum(problem.slope * position, axis=-1)
    pull = share[:, None] * problem.strength * 6 * ridge**5
    return jnp.sum(pull[..., None] * problem.slope, axis=(0, 1))


def state_at(dynamics, problem: Problem, point):
    """The state at a point of the SDE's coordinates, in complex numbers."""
    zero = jnp.zeros(problem.slope.shape[-1], complex)
    _, unravel = ravel_pytree(dynamics.coordinates(dynamics.init(zero, zero)))
    return dynamics.at(*unravel(jnp.asarray(point, complex)))


def euler_maruyama(dynamics, state, h, gradient, noise):
    """x' = x + h drift + √h diffusion ξ, with one normal a coordinate."""
    flat, unravel = ravel_pytree(dynamics.coordinates(state))
    drift, amplitude = (ravel_pytree(part)[0] for part in (dynamics.drift(state, gradient), dynamics.diffusion(state)))
    return dynamics.at(*unravel(flat + h * drift + jnp.sqrt(h) * amplitude * noise[0]))


EULER = Step("euler-maruyama", euler_maruyama, order=1, gradients=1, noises=1)


def invariant_order(step, dynamics, batches: str = "full") -> int | str | None:
    """The order in h of the position's invariant variance on a Gaussian, 'exact', or None if the step is not linear there.

    Minibatches deviate by δ with mean 0 and variance V: that which the dynamics corrects for, if any, else 1. Beyond
    'iid' there are four batches, whose deviations add up to 0, and the second moment is averaged over a period.

    >>> import strang
    >>> [invariant_order(word, strang.SGHMC) for word in ("euler-old", "chen:ABOBA", "leimkuhler:BAOAB")]
    [1, 2, 'exact']
    """
    if batches not in PERIODS:
        raise choose("minibatch order", batches, PERIODS)
    step, dynamics = spell(dynamics, step), ordinary(dynamics, metric=flat)
    if not is_linear(step, dynamics):
        return None
    size = 0.3 / max(1.0, float(getattr(dynamics, "friction", 1.0)))
    h = circle(size, 32)
    variance = float(getattr(dynamics, "gradient_noise", 0.0)) or 1.0
    error = second_moment(linearise(step, dynamics, 1.0, h), deviations(batches, variance), batches == "cyclic") - 1
    if np.abs(error).max() < 1e-10:
        return "exact"
    parts = np.abs(taylor(error, h, 12)) * size ** np.arange(13)
    return int(np.argmax(parts > 1e-10))


def flat(position):
    """A constant metric."""
    return jax.tree.map(lambda x: jnp.full_like(x, 1.7), position)


def is_linear(step: Step, dynamics) -> bool:
    """Whether a step on a Gaussian is the linear map that its derivative at 0 says."""
    with jax.enable_x64(True):
        start = dynamics.init(jnp.asarray(0.0), jnp.asarray(0.0))
        if "thermostat" in start._fields:
            return False
        x, normals = np.linspace(0.6, -0.5, len(start)), np.linspace(0.7, -0.4, step.noises)
        state = type(start)(*map(jnp.asarray, x))
        moved = np.stack(step(dynamics, state, 0.1, lambda q: q, tuple(map(jnp.asarray, normals))))
        maps = linearise(step, dynamics, 1.0, 0.1)
    return bool(np.allclose(moved, maps.transition @ x + maps.noise @ normals, rtol=0, atol=1e-10))


def deviations(batches: str, variance: float) -> np.ndarray:
    """Row l: the deviation of the batch of step l of a period, in uncorrelated numbers of variance 1."""
    if batches == "full":
        return np.zeros((1, 1))
    if batches == "iid":
        return np.full((1, 1), np.sqrt(variance))
    count = 4
    rows = np.sqrt(variance * count / (count - 1)) * (np.eye(count) - 1 / count)  # zero-sum, exchangeable
    return np.concatenate([rows, rows[::-1]]) if batches == "symmetric" else rows


def second_moment(linear: Linear, deviations: np.ndarray, forever: bool) -> np.ndarray:
    """The invariant E θ², averaged over a period; its deviations are drawn anew each period or once `forever`.

    After l steps the state is powers[l] x0 + pushes[l] (deviations) + noises[l] (normals), where x0 began the period.
    """
    transition, push, noise = linear
    width = noise.shape[-1]
    power = np.broadcast_to(np.eye(len(push[0])), transition.shape)
    pushed = np.zeros((*push.shape, deviations.shape[1]))
    shaken = np.zeros((*push.shape, width * len(deviations)))
    path = []
    for l, row in enumerate(deviations):
        power, pushed, shaken = transition @ power, transition @ pushed + push[..., None] * row, transition @ shaken
        shaken[..., l * width : (l + 1) * width] += noise
        path.append((power, pushed, shaken))
    settled = np.zeros_like(pushed)
    if forever:  # the deviations act as a periodic force: its response repeats
        settled = np.linalg.solve(np.eye(power.shape[-1]) - power, pushed)
    fresh = shaken if forever else np.concatenate([shaken, pushed], axis=-1)
    start = covariance(Linear(power, np.zeros_like(push), fresh))
    total = 0
    for power, pushed, shaken in path:
        response = (power @ settled + pushed)[..., 0, :]
        kept = (power @ start @ np.swapaxes(power, -1, -2))[..., 0, 0]
        total = total + kept + (shaken[..., 0, :] ** 2).sum(-1) + (response**2).sum(-1)
    return total / len(path)
