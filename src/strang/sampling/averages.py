"""Streaming averages, weighted by the step size, with their Monte Carlo error, in memory that no run length changes.

Steps are summed in blocks that end at multiples of their length. Each block's sum is added to a total and to one of 32
batches; when these are full, neighbours are merged and batches become twice as long, and so do blocks up to 256 steps.
Totals are compensated for rounding, and so are sums within a block unless that takes a pass over much memory every
step: roundings of nearly equal terms have one sign, which no error bar would show. Where a run is stopped and resumed
does not matter to blocks, so averages do not depend on it.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from strang.util.trees import Tree, add, zeros

BATCHES = 32
SHORTEST_BLOCK, LONGEST_BLOCK = 16, 256  # steps
MAX_COMPENSATED_SIZE = 1024  # numbers of a value up to which sums within a block are compensated


Packed = tuple[jax.Array, ...]  # values as `pack` makes it


class Average(NamedTuple):
    """Sums of weight times value. The values' leaf `weight` is 1, so its sums are those of the weights."""

    partial: Packed  # of the block under way
    partial_compensation: Packed  # what rounding took from it, or one 0 where that is not kept
    total: Tree
    total_compensation: Tree  # what rounding took from the total
    batches: Tree  # leading axis 32
    blocks: jax.Array  # complete ones so far, counted as shortest ones
    length: jax.Array  # of a batch, in shortest blocks


# The axis of chains in the sums of many chains; the counters are common to all.
CHAIN_AXES: Any = Average(0, 0, 0, 0, 0, None, None)  # type: ignore[arg-type]


def start(values: Tree) -> Average:
    """Nothing averaged yet. The sums are at least single precision."""
    empty = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.promote_types(x.dtype, jnp.float32)), values)
    batches = jax.tree.map(lambda x: jnp.zeros((BATCHES, *x.shape), x.dtype), empty)
    few, *many = partial = pack(empty)
    kept = few, *(x[(0,) * x.ndim] for x in many)
    return Average(partial, kept, empty, empty, batches, jnp.uint32(0), jnp.uint32(1))


def pack(values: Tree) -> Packed:
    """All small values side by side in one vector, which takes the fewest operations per step, then the large ones."""
    leaves = jax.tree.leaves(values)
    small = [x for x in leaves if x.size <= MAX_COMPENSATED_SIZE]
    dtype = jnp.result_type(jnp.float32, *small)
    vector = jnp.concatenate([jnp.ravel(x).astype(dtype) for x in small])
    return vector, *(x for x in leaves if x.size > MAX_COMPENSATED_SIZE)


def unpack(packed: Packed, like: Tree, lead: int = 0) -> Tree:
    """The values in the structure of `like`, behind so many axes; of a compensation that is not kept, a single 0."""
    (vector, *large), leaves = packed, []
    for x in jax.tree.leaves(like):
        count = math.prod(x.shape[lead:])
        if count > MAX_COMPENSATED_SIZE:
            leaves.append(large.pop(0))
        else:
            part, vector = vector[..., :count], vector[..., count:]
            leaves.append(part.reshape(x.shape).astype(x.dtype))
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def open_block(average: Average) -> tuple[Packed, Packed]:
    """The sums of the block under way of many chains, for `accumulate`: of small values the last axis is the chains',
    along which steps of small models are computed."""
    return tuple((few.T, *many) for few, *many in (average.partial, average.partial_compensation))  # type: ignore


def put_back(average: Average, sums: tuple[Packed, Packed]) -> Average:
    """With the sums that `open_block` gave out."""
    partial, compensation = ((few.T, *many) for few, *many in sums)
    return average._replace(partial=partial, partial_compensation=compensation)


def accumulate(sums: tuple[Packed, Packed], weight, values: Tree) -> tuple[Packed, Packed]:
    """partial + weight * values, and what rounding took from it; the values of many chains, which lead, and one weight
    or one for each. Where the weight is 0 a value does not count, not even one that is no number."""

    few, *many = jax.vmap(pack)(values)
    (partial, *others), (lost, *nothing) = sums

    def term(sum_, factor, x):
        return jnp.where(factor > 0, factor * x.astype(sum_.dtype), 0)

    new = term(partial, jnp.asarray(weight, partial.dtype), few.T) + lost
    total = partial + new
    added = (x + term(x, _align(jnp.asarray(weight, x.dtype), x), y) for x, y in zip(others, many, strict=True))
    return (total, *added), (new - (total - partial), *nothing)


def block_length(average: Average):
    """Steps of the block under way."""
    return SHORTEST_BLOCK * jnp.minimum(average.length, LONGEST_BLOCK // SHORTEST_BLOCK)


def close_block(average: Average) -> Average:
    """Add the block under way to the total and to its batch."""
    partial, compensation = (unpack(x, average.total) for x in (average.partial, average.partial_compensation))
    pairs = jax.tree.map(_add_to_pair, average.total, add(average.total_compensation, compensation), partial)
    total, total_compensation = _unzip(partial, pairs)
    batches, length = lax.cond(
        average.blocks >= BATCHES * average.length,
        lambda: (jax.tree.map(_merge, average.batches), 2 * average.length),
        lambda: (average.batches, average.length),
    )
    slot = average.blocks // length
    batches = jax.tree.map(lambda rows, x: rows.at[slot].add(x), batches, add(partial, compensation))
    blocks = average.blocks + block_length(average) // SHORTEST_BLOCK
    nothing = zeros(average.partial), zeros(average.partial_compensation)
    return Average(nothing[0], nothing[1], total, total_compensation, batches, blocks, length)


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


class Summary(NamedTuple):
    """Per chain: the weighted means and their Monte Carlo standard errors."""

    mean: Tree
    error: Tree


def summarise(average: Average) -> Summary:
    """Means and errors of many chains (leading axis of every sum), in double precision on the host."""
    pieces = _pieces(average)
    weights = pieces["weight"][:, None]
    return Summary(means(average), jax.tree.map(lambda rows: _error(rows[:, None], weights), pieces))


def means(average: Average) -> Tree:
    """The weighted mean of each chain."""
    sums = _sums(average)
    weight = np.where(sums["weight"] > 0, sums["weight"], np.nan)
    with np.errstate(invalid="ignore", over="ignore"):  # the sums of a diverged chain
        return jax.tree.map(lambda total: total / _align(weight, total), sums)


def error_over_chains(average: Average, alive: np.ndarray, *, shared: bool) -> Tree:
    """The Monte Carlo standard error of the mean over the chains that are alive, their disagreement included. Chains
    that share their noise are as good as one, their mean."""
    return error_of(pieces_of(average, alive, shared=shared))


def pieces_of(average: Average, alive: np.ndarray, *, shared: bool) -> Tree:
    """The sums of the chains that are alive, chain, then batch; of chains that share their noise, their mean's."""
    pieces = jax.tree.map(lambda rows: rows[alive], _pieces(average))
    return jax.tree.map(lambda rows: rows.mean(0, keepdims=True), pieces) if shared else pieces


def error_of(pieces: Tree) -> Tree:
    """The standard error of the mean of what has these sums."""
    return jax.tree.map(lambda rows: _error(rows[None], pieces["weight"][None])[0], pieces)


def disagreement(average: Average, alive: np.ndarray) -> tuple[Tree, Tree]:
    """R-hat of the chains' batch means, and the probability of a spread between them as large as it is, if they agree.

    R-hat is that of Gelman and Rubin (1992) with the mean of a batch in the place of a draw; the probability is that of
    an F statistic. Both are NaN where there is only one chain, or one batch.
    """
    from scipy.special import fdtrc  # late: it takes longer to import than all of Strang

    pieces = jax.tree.map(lambda rows: rows[alive][None], _pieces(average))
    weights = pieces["weight"]
    chains = weights.shape[1]

    def one(rows):
        sums, own = _merged(rows, weights, BATCHES)
        values = (sums / _align(own, sums))[0]
        count = values.shape[1]
        if min(chains, count) < 2:
            return np.full(rows.shape[3:], np.nan), np.full(rows.shape[3:], np.nan)
        ratio = values.mean(1).var(0, ddof=1) / np.maximum(values.var(1, ddof=1).mean(0), np.finfo(float).tiny)
        return np.sqrt((count - 1) / count + ratio), fdtrc(chains - 1, chains * (count - 1), count * ratio)

    return _unzip(pieces, jax.tree.map(one, pieces))


def _pieces(average: Average) -> Tree:
    """The sums of all batches and, last, of what is in none of them yet: chain, then batch; in double precision."""

    def one(batches, total):
        rows = np.asarray(batches, np.float64)
        with np.errstate(invalid="ignore"):  # the sums of a diverged chain
            return np.concatenate([rows, (total - rows.sum(1))[:, None]], axis=1)

    return jax.tree.map(one, average.batches, _sums(average))


def _sums(average: Average) -> Tree:
    """All that was summed, in double precision."""

    def one(*parts):
        total, *others = (np.asarray(part, np.float64) for part in parts)
        return total + sum(_align(other, total) for other in others)

    under_way = jax.tree.map(np.asarray, (average.partial, average.partial_compensation))
    parts = (unpack(part, average.total, lead=1) for part in under_way)
    return jax.tree.map(one, average.total, average.total_compensation, *parts)


def _error(rows, weights):
    """The standard error of the mean over independent chains, of which 1.96 are half of a 95 % interval; the axes are
    what is wanted, chain, batch.

    It is the larger of two, from at least 16 pieces and from at least 4, where a piece is a whole chain if there are so
    many, and else a part of one. Long pieces show that chains are slow or disagree; short ones are many. Student's
    quantile makes up for their number.
    """
    from scipy.special import stdtrit

    shape, chains = (len(rows), *rows.shape[3:]), rows.shape[1]
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):  # the sums of a diverged chain
        total = weights.sum((1, 2))
        centre = rows.sum((1, 2)) / _align(total, np.empty(shape))
        found = np.full(shape, np.nan)
        for least in (16, 4):
            sums, own = _merged(rows, weights, -(-least // chains))
            residual = sums - _align(own, sums) * centre[:, None, None]
            count = (own > 0).sum((1, 2))
            widening = np.where(count > 1, stdtrit(np.maximum(count - 1, 1), 0.975) / 1.96, np.nan)
            widening = widening * np.sqrt(count / np.maximum(count - 1, 1)) / total
            found = np.fmax(found, _align(widening, found) * np.sqrt((residual**2).sum((1, 2))))
        return found


def _merged(rows, weights, most: int):
    """Neighbouring batches of each chain added up to at most so many pieces of about equal weight."""
    weight = weights.sum((0, 1))
    filled = weight > 1e-6 * weight.sum()  # what is below is rounding
    rows, weights, weight = rows[:, :, filled], weights[:, :, filled], weight[filled]
    place = (most * (np.cumsum(weight) - weight / 2) / weight.sum()).astype(int)
    starts = np.flatnonzero(np.diff(place, prepend=-1))
    return np.add.reduceat(rows, starts, axis=2), np.add.reduceat(weights, starts, axis=2)


def _align(x, like):
    """x with trailing axes added so that it multiplies `like` along their common leading axes."""
    return x.reshape(x.shape + (1,) * (like.ndim - x.ndim))
