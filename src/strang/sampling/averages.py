"""Streaming averages, weighted by the step size, with their Monte Carlo error, in memory that no run length changes.

Steps are summed in blocks of a fixed length that end at its multiples. Each block's sum is added to a total and to one
of 32 batches; when these are full, neighbours are merged and batches become twice as long. Totals are compensated for
rounding, and so are sums within a block unless that takes a pass over much memory every step: roundings of nearly equal
terms have one sign, which no error bar would show. Where a run is stopped and resumed does not matter to blocks, so
averages do not depend on it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from strang.util.trees import Tree, add, zeros

BATCHES = 32
MAX_COMPENSATED_SIZE = 1024  # numbers of a value up to which sums within a block are compensated


class Average(NamedTuple):
    """Sums of weight times value. The values' leaf `weight` is 1, so its sums are those of the weights."""

    partial: Tree  # of the block under way
    partial_compensation: Tree  # what rounding took from it, or one 0 where that is not kept
    total: Tree
    total_compensation: Tree  # what rounding took from the total
    batches: Tree  # leading axis 32
    blocks: jax.Array  # complete ones so far
    length: jax.Array  # blocks per batch


# The axis of chains in the sums of many chains; the counters are common to all.
CHAIN_AXES: Any = Average(0, 0, 0, 0, 0, None, None)  # type: ignore[arg-type]


def start(values: Tree) -> Average:
    """Nothing averaged yet. The sums are at least single precision."""
    empty = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.promote_types(x.dtype, jnp.float32)), values)
    batches = jax.tree.map(lambda x: jnp.zeros((BATCHES, *x.shape), x.dtype), empty)
    kept = jax.tree.map(lambda x: x if x.size <= MAX_COMPENSATED_SIZE else x[(0,) * x.ndim], empty)
    return Average(empty, kept, empty, empty, batches, jnp.uint32(0), jnp.uint32(1))


def accumulate(partial: Tree, compensation: Tree, weight, values: Tree) -> tuple[Tree, Tree]:
    """partial + weight * values, and what rounding took from it. Where the weight is 0 a value does not count, not even
    one that is no number."""

    def one(sum_, lost, x):
        factor = jnp.asarray(weight, sum_.dtype)
        term = jnp.where(factor > 0, factor * x.astype(sum_.dtype), 0)
        if lost.shape != sum_.shape:
            return sum_ + term, lost
        total = sum_ + (term + lost)
        return total, (term + lost) - (total - sum_)

    return _unzip(partial, jax.tree.map(one, partial, compensation, values))


def close_block(average: Average) -> Average:
    """Add the block under way to the total and to its batch."""
    partial, compensation = average.partial, average.partial_compensation
    pairs = jax.tree.map(_add_to_pair, average.total, add(average.total_compensation, compensation), partial)
    total, total_compensation = _unzip(partial, pairs)
    batches, length = lax.cond(
        average.blocks == BATCHES * average.length,
        lambda: (jax.tree.map(_merge, average.batches), 2 * average.length),
        lambda: (average.batches, average.length),
    )
    slot = average.blocks // length
    batches = jax.tree.map(lambda rows, x: rows.at[slot].add(x), batches, add(partial, compensation))
    return Average(zeros(partial), zeros(compensation), total, total_compensation, batches, average.blocks + 1, length)


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


def pooled(average: Average, alive: np.ndarray) -> Average:
    """The mean of the chains that are alive as one chain, for chains whose noise is common: its batches show that."""

    def mean(x):
        return np.asarray(x, np.float64)[alive].mean(0, keepdims=True)

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
        lambda total, lost, partial, compensation: (
            wide(total) + wide(lost) + wide(partial) + _align(wide(compensation), total)
        ),
        *(average.total, average.total_compensation, average.partial, average.partial_compensation),
    )
    weight = sums["weight"]
    batches = jax.tree.map(wide, average.batches)
    weights = batches["weight"]  # (chains, 32)
    used = np.maximum((weights > 0).sum(1), 1)

    def mean(total):
        return total / _align(np.where(weight > 0, weight, np.nan), total)

    def error(total, rows):
        centre = mean(total)[:, None]
        residual = rows - _align(weights, rows) * centre  # of each batch's weighted sum
        scatter = (residual**2).sum(1) * _align(used / np.maximum(used - 1, 0.5), total)
        return np.where(
            _align(used, total) > 1, np.sqrt(scatter) / _align(np.where(weight > 0, weight, np.nan), total), np.nan
        )

    with np.errstate(invalid="ignore", over="ignore"):  # the sums of a diverged chain
        return Summary(jax.tree.map(mean, sums), jax.tree.map(error, sums, batches))


def _align(x, like):
    """x with trailing axes added so that it multiplies `like` along their common leading axes."""
    return x.reshape(x.shape + (1,) * (like.ndim - x.ndim))
