"""The variance V of a gradient estimate, measured coordinate by coordinate from two independent estimates."""

from functools import partial

import jax
import jax.numpy as jnp

from . import random
from .data import Batch, Data
from .tree import Tree


def difference(estimate, batches: tuple[Batch, Batch], key) -> Tree:
    """(g1 − g2)² of two batches, whose model keys differ."""
    first, second = (estimate(batch, random.fold(key, number)) for number, batch in enumerate(batches, start=1))

    def squared(a, b):  # in single precision at least
        return (a - b).astype(jnp.promote_types(a.dtype, jnp.float32)) ** 2

    return jax.tree.map(squared, first, second)


def noise_variance(estimator, model, data: Data, shared, carried, position: Tree, key) -> Tree:
    """An unbiased estimate of V from rows drawn for it alone.

    Two independent estimates g1, g2 from m rows each, drawn with replacement, have E (g1 − g2)² / 2 = V n / m; without
    replacement a batch varies less, by the finite-population factor (N − n)/(N − 1).
    """
    half, n, size = max(1, data.batch // 2), data.batch, data.size
    rows = data.take(random.indices(key[None], jnp.uint32(0), 2 * half, size)[:, 0])
    first, second = (
        Batch(jax.tree.map(lambda rows: rows[part], rows), None, size / half)  # noqa: B023
        for part in (slice(0, half), slice(half, 2 * half))
    )
    found = difference(partial(estimator, model, data, shared, carried, position), (first, second), key)
    factor = half / (2 * n)
    if data.order != "iid" or not data.replacement:
        factor *= (size - n) / max(size - 1, 1)
    return jax.tree.map(lambda square: factor * square, found)


def split_variance(estimator, model, data: Data, shared, carried, position: Tree, l, key) -> Tree:
    """The same from the halves of a loader's batch number l, whose rows are taken to be independent.

    With m1 and m2 rows in them E (g1 − g2)² = V n (1/m1 + 1/m2).
    """
    place = jnp.arange(data.batch, dtype=jnp.uint32)
    weights = data.weights(l % jnp.uint32(data.epoch) * jnp.uint32(data.batch) + place)
    rows, weights = data.deliver(l), jnp.ones(data.batch) if weights is None else weights
    halves = [jnp.where(place % 2 == part, weights, 0) for part in (0, 1)]
    counts = [half.sum() for half in halves]
    first, second = (
        Batch(rows, half, data.size / jnp.maximum(count, 1))  # type: ignore[arg-type]
        for half, count in zip(halves, counts, strict=True)
    )
    found = difference(partial(estimator, model, data, shared, carried, position), (first, second), key)
    factor = counts[0] * counts[1] / (data.batch * (counts[0] + counts[1]))
    return jax.tree.map(lambda square: (factor * square).astype(square.dtype), found)
