"""Streaming averages, weighted by the step size, with their Monte Carlo error, in memory that no run length changes.

A value is summed plainly within a granule (a fixed stretch of steps that ends at a multiple of its length), and each
granule's sum is added to a compensated total and to one of 32 batches; when these are full, neighbours are merged and
batches become twice as long. Granules do not know where blocks of a run begin, so averages do not depend on blocks.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .tree import Tree, zeros

BATCHES = 32


class Average(NamedTuple):
    """Sums of weight times value. The values' leaf `weight` is 1, so its sums are those of the weights."""

    partial: Tree  # the granule under way
    total: Tree
    lost: Tree  # what rounding took from the total
    batches: Tree  # leading axis 32
    granules: jax.Array  # complete ones so far
    length: jax.Array  # granules a batch


def start(values: Tree) -> Average:
    """Nothing averaged yet. The sums are at least single precision."""
    empty = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.promote_types(x.dtype, jnp.float32)), values)
    batches = jax.tree.map(lambda x: jnp.zeros((BATCHES, *x.shape), x.dtype), empty)
    return Average(empty, empty, empty, batches, jnp.uint32(0), jnp.uint32(1))


def accumulate(partial: Tree, weight, values: Tree) -> Tree:
    """partial + weight * values."""
    return jax.tree.map(lambda sum_, x: sum_ + jnp.asarray(weight, sum_.dtype) * x.astype(sum_.dtype), partial, values)


def close_granule(average: Average) -> Average:
    """Book the granule under way in the total and in its batch."""
    partial = average.partial
    pairs = jax.tree.map(_add_to_pair, average.total, average.lost, partial)
    total, lost = (jax.tree.map(lambda _, pair, part=part: pair[part], partial, pairs) for part in (0, 1))
    batches, length = lax.cond(
        average.granules == BATCHES * average.length,
        lambda: (jax.tree.map(_merge, average.batches), 2 * average.length),
        lambda: (average.batches, average.length),
    )
    slot = average.granules // length
    batches = jax.tree.map(lambda rows, x: rows.at[slot].add(x), batches, partial)
    return Average(zeros(partial), total, lost, batches, average.granules + 1, length)


def _add_to_pair(high, low, x):
    """(high + low) + x as a new pair whose low part is below the rounding of the high one: twice the digits.

    Knuth's exact error of a sum, then Dekker's renormalisation. XLA does not reassociate, so both survive compilation.
    """
    total = high + x
    shift = total - high
    low = low + ((high - (total - shift)) + (x - shift))
    return total + low, low - ((total + low) - total)


def _merge(rows):
    return jnp.concatenate([rows[0::2] + rows[1::2], jnp.zeros_like(rows[: BATCHES // 2])])


class Summary(NamedTuple):
    """Per chain: the weighted means, and the batch-means estimate of their Monte Carlo standard error."""

    mean: Tree
    error: Tree


def summarise(average: Average) -> Summary:
    """Means and errors of many chains (leading axis of every sum), in double precision on the host."""

    def wide(x):
        return np.asarray(x, np.float64)

    sums = jax.tree.map(lambda a, b, c: wide(a) + wide(b) + wide(c), average.total, average.lost, average.partial)
    weight = sums["weight"]
    batches = jax.tree.map(wide, average.batches)
    shares = batches["weight"]  # (chains, 32)
    used = np.maximum((shares > 0).sum(1), 1)

    def mean(total):
        return total / _fit(np.where(weight > 0, weight, np.nan), total)

    def error(total, rows):
        centre = mean(total)[:, None]
        residual = rows - _fit(shares, rows) * centre  # of each batch's weighted sum
        scatter = (residual**2).sum(1) * _fit(used / np.maximum(used - 1, 0.5), total)
        return np.where(
            _fit(used, total) > 1, np.sqrt(scatter) / _fit(np.where(weight > 0, weight, np.nan), total), np.nan
        )

    with np.errstate(invalid="ignore", over="ignore"):  # the sums of a diverged chain
        return Summary(jax.tree.map(mean, sums), jax.tree.map(error, sums, batches))


def _fit(x, like):
    """x with trailing axes added so that it multiplies `like` along their common leading axes."""
    return x.reshape(x.shape + (1,) * (like.ndim - x.ndim))
