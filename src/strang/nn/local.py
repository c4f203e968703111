"""Sampling about each start: coordinates in which the stiffest direction has unit curvature, friction, step size.

Coordinates are each chain's own. Within a layer they are turned to the axes along which rows' gradients are largest,
of inputs and of outputs apart (the eigenvectors of Σ g gᵀ and of Σ gᵀ g, after Gupta et al. 2018, "Shampoo"); each
turned number is scaled by 1/√(Σ of squared gradients of rows + curvature of the prior), which would be its posterior's
width if turned numbers were independent, and all of them by one factor that makes the largest eigenvalue of the Hessian
1. Chains settle from the start in these, and once more in coordinates of where they then are, while temperatures are
measured layer by layer: where a layer is hot, the step is made smaller. All of it is frozen before the averaged part.
"""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from strang.coordinates import Turned, block_matrix
from strang.data.batches import Data
from strang.gradients.full import log_likelihood
from strang.models.base import log_likelihoods
from strang.nn.network import layer_name, prior_scales
from strang.util.trees import Tree, add, dot, scale

FEWEST_ROWS, MOST_ROWS = 512, 4096  # from which second moments and curvature are measured at a place
ENOUGH = 1 << 24  # numbers of their gradients beyond which there are not more rows than that
TOGETHER = 1 << 22  # numbers of rows' gradients that are computed together
ITERATIONS, FURTHER_ITERATIONS = 40, 8  # of the power method at the first place, and at each other one
MOST_PLACES = 8  # of each chain at which coordinates are measured
LONGEST_TURNED = 256  # rows or columns of a matrix that are turned


class Frame(NamedTuple):
    """Coordinates of each chain, and the width of the prior in them.

    Attributes:
        coordinates: leading with chains.
        width: the median over numbers of the prior's scale in these coordinates, for each chain: how long it takes at
            unit speed to cross it.
    """

    coordinates: Turned
    width: np.ndarray


def frame(model, data: Data, positions: Tree, seed: int, visited: Tree = None) -> Frame:
    """The coordinates of chains at these positions, from what they `visited`: further ones, chain first, then number.
    Where chains have been, coordinates are from there too: a chain that comes to where it is stiffer gets hot."""
    size = sum(x[0].size for x in jax.tree.leaves(positions))
    count = min(data.size, max(FEWEST_ROWS, min(MOST_ROWS, ENOUGH // size)))
    numbers = np.sort(np.random.default_rng(seed).choice(data.size, count, replace=False))
    rows = taken(data, jnp.asarray(numbers, jnp.uint32))
    data.check()
    visited = jax.tree.map(lambda x: x[:, None], positions) if visited is None else visited
    places = jax.tree.leaves(visited)[0].shape[1]
    visited = jax.tree.map(with_room, visited)
    found = measured(model, rows, data.size / len(numbers), positions, visited, places)
    coordinates, width = jax.block_until_ready(found)
    return Frame(coordinates, np.asarray(width, float))


def with_room(visited):
    """Places that chains visited, with room for the most that there can be: one compilation serves all numbers."""
    return np.concatenate([visited, np.repeat(visited[:, -1:], MOST_PLACES - visited.shape[1], axis=1)], axis=1)


@jax.jit
def taken(data: Data, numbers) -> Tree:
    return data.take(numbers)


def blank(positions: Tree) -> Turned:
    """Coordinates of chains at these positions, with no numbers yet."""
    one = jax.tree.map(lambda x: x[0], positions)
    blocks = layer_blocks(one)
    shapes = [block_matrix(jax.tree.leaves(one), block).shape for block in blocks]
    chains = len(jax.tree.leaves(positions)[0])
    left, right = (
        tuple(
            np.empty((chains, shape[axis], shape[axis])) if shape[axis] <= LONGEST_TURNED else None for shape in shapes
        )
        for axis in (0, 1)
    )
    return Turned(positions, positions, positions, left, right, blocks)


@partial(jax.jit, static_argnums=0)
def measured(model, rows: Tree, factor, positions: Tree, visited: Tree, count) -> tuple[Turned, Any]:
    """The coordinates of each chain, and the width of the prior in them, from the first `count` places it visited."""

    def one(chain):
        position, places = chain
        unit, blocks = prior_scales(model, position), layer_blocks(position)

        def at(number):
            return jax.tree.map(lambda x: x[number], places)

        def mean(function):
            """Over the places that the chain visited."""
            found = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(function, at(0)))
            total = jax.lax.fori_loop(0, count, lambda number, sums: add(sums, function(at(number))), found)
            return scale(1 / count, total)

        upright = Turned(position, unit, jax.tree.map(jnp.ones_like, unit), (), (), ())
        products = mean(lambda place: over_rows(model, rows, place, upright, partial(outer_products, blocks)))
        left, right = jax.tree.map(lambda product: jnp.linalg.eigh(product)[1], products)
        turned = Turned(position, unit, upright.scale, left, right, blocks)
        squares = mean(lambda place: over_rows(model, rows, place, turned, sum_of_squares))
        first = jax.tree.map(lambda s: jax.lax.rsqrt(factor * s + 1), squares)

        def curvature(place, vector, iterations):
            return largest_curvature(
                model, rows, factor, replace(turned, centre=place, scale=first), vector, iterations
            )

        def at_another(number, found):
            vector, most = found
            vector, here = curvature(at(number), vector, FURTHER_ITERATIONS)
            return vector, jnp.maximum(most, here)

        # The stiffest directions of places that one chain visited are much the same.
        first_place = curvature(at(0), random_direction(position), ITERATIONS)
        _, most = jax.lax.fori_loop(1, count, at_another, first_place)
        scales = scale(jax.lax.rsqrt(most), first)
        wide = jnp.median(jnp.concatenate([jnp.ravel(1 / x) for x in jax.tree.leaves(scales)]))
        return replace(turned, scale=scales), wide

    return jax.lax.map(one, (positions, visited))


def layer_blocks(position: Tree) -> tuple[tuple[int, ...], ...]:
    """For each layer the numbers of its leaves: its weights, and below them its biases."""
    layers: dict[str, list[tuple[int, Any]]] = {}
    for number, (path, leaf) in enumerate(jax.tree_util.tree_leaves_with_path(position)):
        layers.setdefault(layer_name(path), []).append((number, leaf))
    found = []
    for leaves in layers.values():
        for number, leaf in leaves:
            if leaf.ndim > 1:
                below = [other for other, bias in leaves if bias.shape == leaf.shape[-1:]]
                alone = sum(leaf.ndim > 1 for _, leaf in leaves) == 1
                found.append((number, *below[:1]) if alone else (number,))
    return tuple(found)


def outer_products(blocks: tuple[tuple[int, ...], ...], gradients: Tree) -> tuple[tuple, tuple]:
    """Of gradients, which lead with rows, the sums Σ g gᵀ and Σ gᵀ g of each block; None where they would be large."""
    matrices = jax.vmap(lambda g: [block_matrix(jax.tree.leaves(g), block) for block in blocks])(gradients)

    def product(formula: str, axis: int):
        return tuple(jnp.einsum(formula, m, m) if m.shape[axis] <= LONGEST_TURNED else None for m in matrices)

    return product("rio,rjo->ij", 1), product("rio,rip->op", 2)


def sum_of_squares(gradients: Tree) -> Tree:
    """Of gradients, which lead with rows."""
    return jax.tree.map(lambda x: jnp.sum(x**2, 0), gradients)


def over_rows(model, rows: Tree, position: Tree, coordinates: Turned, function) -> Tree:
    """The sum over chunks of rows of a function of the gradients of their log likelihoods at a position in these
    coordinates; they lead with rows."""
    count, size = jax.tree.leaves(rows)[0].shape[0], sum(x.size for x in jax.tree.leaves(position))
    length = max(1, min(count, TOGETHER // size))
    chunks = jax.tree.map(lambda x: filled(x, length), rows)
    real = filled(jnp.ones(count), length)

    def gradient(row, weight):
        one = jax.tree.map(lambda x: x[None], row)
        found = jax.grad(lambda theta: log_likelihoods(model, theta, one)[0])(position)
        return coordinates.pull_back(position, scale(weight, found))

    def summed(chunk):
        return function(jax.vmap(gradient)(*chunk))

    first = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(summed, first_of((chunks, real))))
    return jax.lax.scan(lambda total, chunk: (add(total, summed(chunk)), None), first, (chunks, real))[0]


def first_of(tree: Tree) -> Tree:
    return jax.tree.map(lambda x: x[0], tree)


def filled(x, length: int):
    """Rows in chunks of this length, the last one filled up with zeros."""
    padded = jnp.pad(x, ((0, -len(x) % length), *((0, 0),) * (x.ndim - 1)))
    return padded.reshape(-1, length, *x.shape[1:])


def random_direction(like: Tree) -> Tree:
    """A unit vector, always the same."""
    leaves, structure = jax.tree.flatten(like)
    keys = jax.random.split(jax.random.key(0), len(leaves))
    drawn = [jax.random.normal(key, x.shape, x.dtype) for key, x in zip(keys, leaves, strict=True)]
    vector = jax.tree.unflatten(structure, drawn)
    return scale(1 / jnp.sqrt(dot(vector, vector)), vector)


def largest_curvature(
    model, rows: Tree, factor, coordinates: Turned, vector: Tree, iterations: int
) -> tuple[Tree, Any]:
    """The largest eigenvalue, by size, of the Hessian of U in these coordinates, or 1, by the power method from a unit
    vector; and the vector that it came to."""

    def potential(z):
        theta = coordinates(z)
        return -model.log_prior(theta) - factor * log_likelihood(model, theta, rows, None)

    centre = jax.tree.map(jnp.zeros_like, coordinates.centre)

    def step(_, carry):
        vector, _ = carry
        found = jax.jvp(jax.grad(potential), (centre,), (vector,))[1]
        length = jnp.sqrt(dot(found, found))
        return scale(1 / jnp.maximum(length, 1e-30), found), length

    vector, length = jax.lax.fori_loop(0, iterations, step, (vector, jnp.ones(())))
    return vector, jnp.maximum(length, 1.0)
