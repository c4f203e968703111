"""The variance V of a gradient estimate, measured coordinate by coordinate from two independent estimates, and the
estimates' mean."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from strang.data.batches import Batch, Data
from strang.util import random
from strang.util.trees import Tree


class Measured(NamedTuple):
    """The variance of a batch's gradient, and a gradient."""

    variance: Tree
    gradient: Tree


def difference(estimate, batches: tuple[Batch, Batch], key) -> tuple[Tree, Tree]:
    """(g1 − g2)² of two batches, whose model keys differ, and (g1 + g2)/2."""
    keys = random.fold(key, jnp.arange(1, 3, dtype=jnp.uint32))  # of the model's own gradient, where it has one
    first, second = (estimate(batch, own) for batch, own in zip(batches, keys, strict=True))

    def squared(a, b):  # in single precision at least
        return (a - b).astype(jnp.promote_types(a.dtype, jnp.float32)) ** 2

    return jax.tree.map(squared, first, second), jax.tree.map(lambda a, b: (a + b) / 2, first, second)


def noise_variance(estimator, model, data: Data, shared, carried, position: Tree, key) -> Measured:
    """An unbiased estimate of V from rows drawn for it alone.

    Two independent estimates g1, g2 from m rows each, drawn with replacement, have E (g1 − g2)² / 2 = V n / m; without
    replacement a batch varies less, by the finite-population factor (N − n)/(N − 1).
    """
    half, n, size = max(1, data.batch_size // 2), data.batch_size, data.size
    numbers = random.indices(key[None], jnp.uint32(0), 2 * half, size)[:, 0]
    rows = data.take(numbers)
    first, second = (
        Batch(jax.tree.map(lambda rows: rows[part], rows), None, size / half, numbers[part])  # noqa: B023
        for part in (slice(0, half), slice(half, 2 * half))
    )
    squares, mean = difference(partial(estimator, model, data, shared, carried, position), (first, second), key)
    factor = half / (2 * n) * data.batch_order.variance_factor
    return Measured(jax.tree.map(lambda square: factor * square, squares), mean)


def split_variance(estimator, model, data: Data, shared, carried, position: Tree, l, key) -> Measured:
    """The same from the halves of a loader's batch number l, whose rows are taken to be independent.

    With m1 and m2 rows in them E (g1 − g2)² = V n (1/m1 + 1/m2).
    """
    place = jnp.arange(data.batch_size, dtype=jnp.uint32)
    numbers = l % jnp.uint32(data.batch_order.epoch) * jnp.uint32(data.batch_size) + place
    weights = data.weights(numbers)
    rows, weights = data.deliver(l), jnp.ones(data.batch_size) if weights is None else weights
    halves = [jnp.where(place % 2 == part, weights, 0) for part in (0, 1)]
    counts = [half.sum() for half in halves]
    first, second = (
        Batch(rows, half, data.size / jnp.maximum(count, 1), numbers)  # type: ignore[arg-type]
        for half, count in zip(halves, counts, strict=True)
    )
    squares, mean = difference(partial(estimator, model, data, shared, carried, position), (first, second), key)
    factor = counts[0] * counts[1] / (data.batch_size * (counts[0] + counts[1]))
    return Measured(jax.tree.map(lambda square: (factor * square).astype(square.dtype), squares), mean)
