"""Where the posterior is: its mode, the curvature there, whether it falls off in every direction, and other modes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from strang.coordinates import MAX_DENSE, Dense, Diagonal, from_curvature, main_names
from strang.data.batches import Data
from strang.data.orders import make_order
from strang.gradients.full import full_gradient, full_potential, rows_with_finite_gradients
from strang.gradients.mode import Curved, Newton, find_mode
from strang.models.base import log_likelihoods
from strang.util import random
from strang.util.errors import InputError
from strang.util.trees import Tree, flat_vector, on_device, size

FULL_NUMBERS = 3e7  # rows times squared coordinates up to which second derivatives are those of all rows
ROWS_PER_COORDINATE, LEAST_ROWS = 100, 4000  # of the sample of rows that they are taken from otherwise
POLISH_STEPS, POLISHED = 30, 0.02  # for the mode over all rows, to so many standard deviations
MIN_RISE, MAX_RISE = 0.1, 3.0  # nats by which U rises one standard deviation from the mode: 1/2 on a parabola
LEAST_CURVATURE = 1e-8  # that is believed, relative to the largest; a direction that is flatter is scaled by U itself
SPREADS = (4.0, 10.0, 30.0, 100.0)  # standard deviations at which searches for other modes begin, on both sides
# Rows times squared coordinates for which there are four times as many such searches, half as many, or none.
CHEAP, DEAR, TOO_DEAR = 1e6, 1e7, 1e8
APART, NEGLIGIBLE = 1.0, 1e-3  # standard deviations between two modes, and the fraction of the mass of a mode
PROBES = 64  # of the diagonal of second derivatives, where there are too many for a matrix


@dataclass(frozen=True)
class Landscape:
    """What is known of a posterior before it is sampled.

    Attributes:
        mode: a position.
        coordinates: of unit curvature there.
        rows: how many rows the curvature is that of.
        others: other modes that hold a part of the mass.
        notes: what is worth knowing of them.
        problems: what was found that no chain can be trusted with.
    """

    mode: Tree
    coordinates: Dense | Diagonal
    rows: int
    others: tuple[Tree, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scaled:
    """A model of which some rows stand for all."""

    model: Any
    factor: float

    def log_prior(self, position: Tree):
        return self.model.log_prior(position)

    def log_likelihood(self, position: Tree, datum: Tree):
        return self.factor * self.model.log_likelihood(position, datum)

    def batch_log_likelihood(self, position: Tree, rows: Tree):
        return self.factor * log_likelihoods(self.model, position, rows)


def explore(model, data: Data, starts: list[Tree], seed: int, *, dense: bool, progress: bool | None) -> Landscape:
    """Finds the mode from the first start that leads to one, and looks for others.

    Raises:
        InputError: there is no mode, or a direction in which the posterior does not fall off.
    """
    check_gradients(model, data, starts[0])
    dimension = size(starts[0])
    if dimension > MAX_DENSE:
        return explore_large(model, data, starts[0], seed, progress)
    few, rows = model, all_of(data)
    if data.size * dimension**2 > FULL_NUMBERS:
        count = min(data.size, max(LEAST_ROWS, ROWS_PER_COORDINATE * dimension))
        if count < data.size:
            few, rows = Scaled(model, data.size / count), some_rows(data, count, seed)
    newton, start, dear = Newton(few, rows, starts[0]), starts[0], rows.size * dimension**2 > TOO_DEAR
    if dear:  # gradients are far cheaper than a matrix of second derivatives, and lead near the mode
        settings: dict[str, Any] = {"iterations": 200, "tolerance": 1e-4, "progress": progress, "what": "the mode"}
        start = find_mode(few, rows, jax.tree.map(on_device, start), **settings)
    best = newton.search(start, progress=progress)
    found = [best, *([] if dear else other_modes(newton, best, starts[1:], seed))]
    best = min(found, key=lambda each: each.value)
    coordinates: Dense | Diagonal = from_curvature(best.position, best.hessian, dense=dense, least=LEAST_CURVATURE)
    coordinates = scaled_by_rise(newton, best, coordinates)
    if rows.size < data.size:
        coordinates = polish(model, data, coordinates)
    others, notes = distinct_modes(best, found, coordinates)
    if dear:
        notes = ("other modes were not sought: with so many parameters that would take long",)
    return Landscape(coordinates.centre, coordinates, rows.size, others, notes)


def all_of(data: Data) -> Data:
    """The same rows, all at once."""
    return replace(data, batch_order=make_order(data.size, None, "full"))


def some_rows(data: Data, count: int, seed: int) -> Data:
    """So many rows, drawn without replacement."""

    @jax.jit
    def take(key):
        places = jnp.arange(count, dtype=jnp.uint32)
        return data.take(random.permute(random.salts(key, data.size), places, data.size))

    rows = take(random.chain_keys(seed, 1).probe[0])
    data.check()
    return Data(rows, make_order(count, None, "full"))


def check_gradients(model, data: Data, start: Tree) -> None:
    """The gradient must be finite at the start, row by row."""
    total = jax.jit(full_gradient, static_argnums=0)(model, data, start, np.zeros(2, np.uint32))
    data.check()
    if all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(total)):
        return
    finite = rows_with_finite_gradients(model, data, start)
    bad = np.flatnonzero(~finite)
    if len(bad):
        raise InputError(
            f"the gradient of log_likelihood is not finite at the start for row {bad[0]:,} and {len(bad) - 1:,} more; "
            "look for a division by 0 or a root of 0 in it, or remove such rows."
        )
    raise InputError("the gradient of log_prior is not finite at the start; give another (init), or look for a root.")


def other_modes(newton: Newton, best: Curved, starts: list[Tree], seed: int) -> list[Curved]:
    """The modes that are found from elsewhere; searches that lead nowhere are left out."""
    vector = flat_vector(best.position)
    curvature = np.abs(np.diag(best.hessian))
    scale = np.where(curvature > 0, curvature, 1.0) ** -0.5
    rng, work = np.random.default_rng(seed), newton.data.size * len(vector) ** 2
    rounds = 4 if work < CHEAP else 1
    away = [spread * scale * rng.normal(size=len(vector)) for _ in range(rounds) for spread in SPREADS]
    away = away if work < DEAR else away[1::2]
    far = [newton.as_position(vector + side * each) for each in away for side in (1, -1)]
    found = []
    for start in (*starts, *far):
        try:
            found.append(newton.search(start, steps=30, progress=False))
        except InputError:
            continue
    return [each for each in found if np.linalg.eigvalsh(each.hessian * scale * scale[:, None]).min() > 0]


def distinct_modes(
    best: Curved, found: list[Curved], coordinates: Dense | Diagonal
) -> tuple[tuple[Tree, ...], tuple[str, ...]]:
    """The modes beside the best that hold a part of the posterior's mass, by Laplace's approximation of each, and a
    sentence on the heaviest."""

    def log_mass(each: Curved) -> float:
        return -each.value - np.linalg.slogdet(each.hessian)[1] / 2

    inverse = jax.jit(coordinates.inverse)

    def place(each: Curved) -> np.ndarray:
        return flat_vector(inverse(each.position))

    kept: list[tuple[float, np.ndarray, Curved]] = []
    for each in found:
        ratio, z = float(np.exp(min(log_mass(each) - log_mass(best), 0.0))), place(each)
        if ratio > NEGLIGIBLE and all(
            np.abs(z - other).max() > APART for other in (place(best), *(k[1] for k in kept))
        ):
            kept.append((ratio, z, each))
    if not kept:
        return (), ()
    ratio, z, _ = max(kept, key=lambda each: each[0])
    mass = ratio / (1 + sum(each[0] for each in kept))
    note = (
        f"there is another mode, {np.abs(z).max():.2g} standard deviations away, with about {mass:.2g} of the mass: "
        "if only one of them is meant, say so in the model"
    )
    return tuple(each.position for *_, each in kept), (note,)


def scaled_by_rise(newton: Newton, best: Curved, coordinates: Dense | Diagonal) -> Dense | Diagonal:
    """With the scale of the flattest directions such that U rises by about 1/2, as curvature at a point does not tell
    where a posterior is far from normal.

    Raises:
        InputError: U does not rise, so that the posterior is not proper.
    """
    count = min(size(best.position), 64)
    if isinstance(coordinates, Dense):
        steps = np.asarray(coordinates.factor, float)[:, :count].T  # its columns begin with the flattest directions
        places = np.arange(count)
    else:
        scales = flat_vector(coordinates.scale)
        places = np.argsort(-scales)[:count]
        steps = np.diag(scales)[places]
    with jax.enable_x64():
        centre = flat_vector(best.position)
        lowest = float(newton.potential(centre, newton.data))

        def rise(step: np.ndarray) -> float:
            value = float(newton.potential(centre + step, newton.data)) - lowest
            return value if np.isfinite(value) else np.inf  # a wall

        lengths = np.array([np.sqrt(length(rise, step) * length(rise, -step)) for step in steps])
    if not np.isfinite(lengths).all():
        which = main_names(best.position, steps[int(np.argmax(np.isinf(lengths)))])
        raise InputError(
            f"the posterior does not fall off along {which}: far from the mode that was found U is hardly higher than "
            "there. Classes may be separated perfectly, or a prior be missing: give these parameters a proper prior. "
            "Or U falls without bound as the spread of a group's effects goes to 0: write them in units of the spread."
        )
    factors = np.ones(size(best.position))
    factors[places] = lengths
    if (factors == 1).all():
        return coordinates
    if isinstance(coordinates, Dense):
        dtype = coordinates.factor.dtype
        factor = jnp.asarray(np.asarray(coordinates.factor, float) * factors, dtype)
        inverse = jnp.asarray(np.asarray(coordinates.inverse_factor, float) / factors[:, None], dtype)
        return replace(coordinates, factor=factor, inverse_factor=inverse)
    flat, unravel = ravel_pytree(coordinates.scale)
    return replace(coordinates, scale=unravel(jnp.asarray(np.asarray(flat, float) * factors, flat.dtype)))


def length(rise: Callable[[np.ndarray], float], step: np.ndarray) -> float:
    """How many times the step U rises by about 1/2; 1 where it does so roughly after one, and infinity where it does
    not within a thousand."""
    if MIN_RISE < rise(step) < MAX_RISE:
        return 1.0
    low, high = (1e-9, 1.0) if rise(step) >= MAX_RISE else (1.0, 1e3)
    if rise(high * step) < 0.5:
        return np.inf
    for _ in range(40):
        middle = np.sqrt(low * high)
        low, high = (low, middle) if rise(middle * step) > 0.5 else (middle, high)
    return float(np.sqrt(low * high))


def polish(model, data: Data, coordinates: Dense | Diagonal) -> Dense | Diagonal:
    """The mode over all rows, from that over some, whose curvature makes Newton's steps nearly right."""
    key = jnp.zeros(2, jnp.uint32)

    @jax.jit
    def newton_step(centre, coordinates, data):
        move = coordinates.pull_back(centre, full_gradient(model, data, centre, key))
        flat = ravel_pytree(move)[0]
        return replace(coordinates, centre=centre)(jax.tree.map(jnp.negative, move)), jnp.abs(flat).max()

    centre, before, count = coordinates.centre, np.inf, 0
    while before >= POLISHED and count < POLISH_STEPS:
        moved, length = newton_step(centre, coordinates, data)
        data.check()
        if not np.isfinite(length) or length > 4 * before + 1:
            raise InputError(
                "the mode of some rows does not lead to that of all: a few rows decide it; write coordinates='dense'."
            )
        centre, before, count = moved, float(length), count + 1
    return replace(coordinates, centre=jax.tree.map(np.asarray, centre))


def explore_large(model, data: Data, start: Tree, seed: int, progress: bool | None) -> Landscape:
    """For many coordinates: a mode by L-BFGS, and the diagonal of second derivatives from random probes."""
    iterations = 300
    mode = find_mode(
        model, all_of(data), start, iterations=iterations, tolerance=1e-4, progress=progress, what="the mode"
    )

    @jax.jit
    def probe(key, mode, data):
        signs = jax.tree.map(
            lambda x, k: jax.random.rademacher(k, x.shape, x.dtype), mode, unravel_keys(random.jax_key(key), mode)
        )
        slope = jax.grad(lambda theta: full_potential(model, data, theta))
        return jax.tree.map(jnp.multiply, signs, jax.jvp(slope, (mode,), (signs,))[1])

    total, rows = None, all_of(data)
    for key in np.asarray(random.chain_keys(seed, PROBES).probe):
        found = probe(key, mode, rows)
        data.check()
        total = found if total is None else jax.tree.map(jnp.add, total, found)
    flat = np.asarray(ravel_pytree(total)[0], float) / PROBES
    floor = 1e-3 * np.abs(flat).mean()
    scale = np.maximum(flat, floor) ** -0.5
    unravel = ravel_pytree(mode)[1]
    coordinates = Diagonal(mode, unravel(jnp.asarray(scale, ravel_pytree(mode)[0].dtype)))
    note = "the posterior has too many coordinates for its curvature to be known but roughly, one by one"
    return Landscape(mode, coordinates, data.size, problems=(note,))


def unravel_keys(key, like: Tree) -> Tree:
    """One key for each leaf."""
    leaves, structure = jax.tree.flatten(like)
    return jax.tree.unflatten(structure, list(jax.random.split(key, len(leaves))))
