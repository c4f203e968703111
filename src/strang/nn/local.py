"""Sampling about each start: coordinates in which the stiffest direction has unit curvature, friction, step size.

Coordinates are diagonal and each chain's own: a number is scaled by 1/√(Σ of squared gradients of rows + curvature of
the prior), which would be its posterior's width if numbers were independent, and all of them by one factor that makes
the largest eigenvalue of the Hessian 1. Chains settle from the start in these, and once more in coordinates of where
they then are, while temperatures are measured layer by layer: where a layer is hot, the step is made smaller. All of it
is frozen before the averaged part.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from strang.coordinates import Diagonal
from strang.data.batches import Data
from strang.gradients.full import log_likelihood
from strang.models.base import log_likelihoods
from strang.nn.network import prior_scales
from strang.util.trees import Tree, dot, multiply, scale

ROWS = 4096  # from which second moments and curvature are measured
TOGETHER = 1 << 22  # numbers of rows' gradients that are computed together
ITERATIONS = 40  # of the power method


class Frame(NamedTuple):
    """Coordinates of each chain, and the width of the prior in them.

    Attributes:
        coordinates: leading with chains.
        width: the median over numbers of the prior's scale in these coordinates, for each chain: how long it takes at
            unit speed to cross it.
    """

    coordinates: Diagonal
    width: np.ndarray


def frame(model, data: Data, positions: Tree, seed: int) -> Frame:
    """The coordinates of chains at these positions."""
    numbers = np.arange(data.size)
    if data.size > ROWS:
        numbers = np.sort(np.random.default_rng(seed).choice(data.size, ROWS, replace=False))
    rows = jax.jit(data.take)(jnp.asarray(numbers, jnp.uint32))
    data.check()
    scales, width = jax.block_until_ready(measured(model, rows, data.size / len(numbers), positions))
    return Frame(Diagonal(positions, scales), np.asarray(width, float))


@partial(jax.jit, static_argnums=0)
def measured(model, rows: Tree, factor, positions: Tree) -> tuple[Tree, Any]:
    """The scale of each number, and the width of the prior, chain by chain."""

    def one(position):
        prior = prior_scales(model, position)
        squares = scale(factor, squared_gradients(model, rows, position))
        first = jax.tree.map(lambda s, p: jax.lax.rsqrt(s + p**-2), squares, prior)
        scales = scale(jax.lax.rsqrt(largest_curvature(model, rows, factor, position, first)), first)
        ratios = jax.tree.map(jnp.divide, prior, scales)
        return scales, jnp.median(jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(ratios)]))

    return jax.lax.map(one, positions)


def squared_gradients(model, rows: Tree, position: Tree) -> Tree:
    """The sum over rows of the squared gradient of one row's log likelihood."""
    count, size = jax.tree.leaves(rows)[0].shape[0], sum(x.size for x in jax.tree.leaves(position))
    length = max(1, min(count, TOGETHER // size))
    chunks = jax.tree.map(lambda x: filled(x, length), rows)
    real = filled(jnp.ones(count), length)

    def gradient(row, weight):
        one = jax.tree.map(lambda x: x[None], row)
        return scale(weight, jax.grad(lambda theta: log_likelihoods(model, theta, one)[0])(position))

    def add(total, chunk):
        found = jax.vmap(gradient)(*chunk)
        return jax.tree.map(lambda t, g: t + jnp.sum(g**2, 0), total, found), None

    return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, position), (chunks, real))[0]


def filled(x, length: int):
    """Rows in chunks of this length, the last one filled up with zeros."""
    padded = jnp.pad(x, ((0, -len(x) % length), *((0, 0),) * (x.ndim - 1)))
    return padded.reshape(-1, length, *x.shape[1:])


def largest_curvature(model, rows: Tree, factor, position: Tree, scales: Tree):
    """The largest eigenvalue, by size, of the Hessian of U in coordinates of these scales, by the power method."""

    def potential(theta):
        return -model.log_prior(theta) - factor * log_likelihood(model, theta, rows, None)

    def times(vector):
        along = jax.jvp(jax.grad(potential), (position,), (multiply(scales, vector),))[1]
        return multiply(scales, along)

    def step(_, carry):
        vector, _ = carry
        found = times(vector)
        length = jnp.sqrt(dot(found, found))
        return scale(1 / jnp.maximum(length, 1e-30), found), length

    leaves, structure = jax.tree.flatten(position)
    keys = jax.random.split(jax.random.key(0), len(leaves))
    first = jax.tree.unflatten(
        structure, [jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
    )
    start = scale(1 / jnp.sqrt(dot(first, first)), first), jnp.ones(())
    return jnp.maximum(jax.lax.fori_loop(0, ITERATIONS, step, start)[1], 1.0)
