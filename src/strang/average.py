"""Streaming averages, weighted by the step size, with their Monte Carlo error, in memory that no run length changes.

A value is summed within a granule (a fixed stretch of steps that ends at a multiple of its length), and each granule's
sum is added to a total and to one of 32 batches; when these are full, neighbours are merged and batches become twice as
long. Totals are compensated, and sums within granules too unless that takes a pass over much memory every step:
roundings of nearly equal terms have one sign, which no error bar would show. Granules do not know where blocks of a run
begin, so averages do not depend on blocks.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .tree import Tree, add, zeros

BATCHES = 32
MUCH = 1024  # numbers of a value, beyond which it is summed plainly within a granule, to a few parts in a million


class Average(NamedTuple):
    """Sums of weight times value. The values' leaf `weight` is 1, so its sums are those of the weights."""

    partial: Tree  # the granule under way
    slip: Tree  # what rounding took from it, or one 0 where that is not kept
    total: Tree
    lost: Tree  # what rounding took from the total
    batches: Tree  # leading axis 32
    granules: jax.Array  # complete ones so far
    length: jax.Array  # granules a batch


def start(values: Tree) -> Average:
    """Nothing averaged yet. The sums are at least single precision."""
    empty = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.promote_types(x.dtype, jnp.float32)), values)
    batches = jax.tree.map(lambda x: jnp.zeros((BATCHES, *x.shape), x.dtype), empty)
    slip = jax.tree.map(lambda x: x if x.size <= MUCH else x[(0,) * x.ndim], empty)
    return Average(empty, slip, empty, empty, batches, jnp.uint32(0), jnp.uint32(1))


def accumulate(partial: Tree, slip: Tree, weight, values: Tree) -> tuple[Tree, Tree]:
    """partial + weight * values, and what rounding took from it. Where the weight is 0 a value does not count, not even
    one that is no number."""

    def one(sum_, slip, x):
        share = jnp.asarray(weight, sum_.dtype)
        term = jnp.where(share > 0, share * x.astype(sum_.dtype), 0)
        if slip.shape != sum_.shape:
            return sum_ + term, slip
        total = sum_ + (term + slip)
        return total, (term + slip) - (total - sum_)

    return _unzip(partial, jax.tree.map(one, partial, slip, values))


def close_granule(average: Average) -> Average:
    """Book the granule under way in the total and in its batch."""
    partial, slip = average.partial, average.slip
    pairs = jax.tree.map(_add_to_pair, average.total, add(average.lost, slip), partial)
    total, lost = _unzip(partial, pairs)
    batches, length = lax.cond(
        average.granules == BATCHES * average.length,
        lambda: (jax.tree.map(_merge, average.batches), 2 * average.length),
        lambda: (average.batches, average.length),
    )
    slot = average.granules // length
    batches = jax.tree.map(lambda rows, x: rows.at[slot].add(x), batches, add(partial, slip))
    return Average(zeros(partial), zeros(slip), total, lost, batches, average.granules + 1, length)


def _unzip(like: Tree, pairs: Tree) -> tuple[Tree, Tree]:
    """A tree of pairs as a pair of trees."""
    first, second = (jax.tree.map(lambda _, pair, part=part: pair[part], like, pairs) for part in (0, 1))
    return first, second


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


def pooled(average: Average, living: np.ndarray) -> Average:
    """The mean of the living chains as one chain, for chains whose noise is common: its batches show that too."""

    def mean(x):
        return np.asarray(x, np.float64)[living].mean(0, keepdims=True)

    sums = {name: jax.tree.map(mean, getattr(average, name)) for name in Average._fields[:-2]}
    return average._replace(**sums)


class Summary(NamedTuple):
    """Per chain: the weighted means, and the batch-means estimate of their Monte Carlo standard error."""

    mean: Tree
    error: Tree


def summarise(average: Average) -> Summary:
    """Means and errors of many chains (leading axis of every sum), in double precision on the host."""

    def wide(x):
        return np.asarray(x, np.float64)

    sums = jax.tree.map(
        lambda total, lost, partial, slip: wide(total) + wide(lost) + wide(partial) + _fit(wide(slip), total),
        *(average.total, average.lost, average.partial, average.slip),
    )
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
