"""One draw among many topics in a few vector instructions, for the Gibbs sweeps of `gibbs.py`.

Topics lie in blocks of 16 lanes, topic 16 b + l being lane l of block b. One pass adds up the products lane by lane and
stores every lane's sum after each block; a draw then finds the lane first and its block afterwards, which inverts the
distribution function of the topics in another order. Nothing is reassociated: the sums have the same bits on every
machine. There are no branches and no stores to single topics either, both of which would make a processor wait for one
document's draw before it begins with another's.
"""

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types

from strang.util import simd
from strang.util.host_random import uniform
from strang.util.simd import INLINE, LANES, in_llvm, load, place

NO_TOPIC = -1


@in_llvm
def add_up(typing, weights, rows, j, running):
    """running[b, l] = Σ_{b' ≤ b} weights[b', l] rows[j, b', l], and in its last row the sum of all lanes before l.

    `weights` and each of `rows` are one block after the other, `running` has a row more than there are blocks; all are
    contiguous in single precision. (The row is passed by its number: slicing would count references for each token.)
    """

    def generate(context, builder, signature, arguments):
        weights, rows, running = simd.open_arrays(context, builder, signature.args, arguments)
        sum_products(builder, lambda block: load(builder, weights, block), rows, arguments[2], running)
        return context.get_dummy_value()

    return types.void(weights, rows, types.intp, running), generate


@in_llvm
def move_and_add_up(typing, counts, base, rows, j, running, added, removed):
    """counts[added] += 1 and counts[removed] −= 1 unless NO_TOPIC, then `add_up` with the weights base + counts."""

    def generate(context, builder, signature, arguments):
        counts, base, rows, running = simd.open_arrays(context, builder, signature.args, arguments)
        added, removed = (simd.spread(builder, topic, simd.PLACES) for topic in arguments[5:])
        topics = cgutils.alloca_once_value(builder, ir.Constant(simd.PLACES, list(range(LANES))))

        def weight(block):
            n, here = load(builder, counts, block), builder.load(topics)
            n = builder.select(builder.icmp_signed("==", here, added), builder.fadd(n, simd.ONES), n)
            n = builder.select(builder.icmp_signed("==", here, removed), builder.fsub(n, simd.ONES), n)
            builder.store(n, place(builder, counts, block), align=4)
            builder.store(builder.add(here, ir.Constant(simd.PLACES, [LANES] * LANES)), topics)
            return builder.fadd(load(builder, base, block), n)

        sum_products(builder, weight, rows, arguments[3], running)
        return context.get_dummy_value()

    return types.void(counts, base, rows, types.intp, running, types.int32, types.int32), generate


@in_llvm
def add_expected(typing, running, factor, sums):
    """sums[b, l] += factor (running[b, l] − running[b − 1, l]): `factor` times the products added up."""

    def generate(context, builder, signature, arguments):
        running, sums = simd.open_arrays(context, builder, signature.args, arguments)
        before, factor = cgutils.alloca_once_value(builder, simd.ZEROS), simd.spread(builder, arguments[1], simd.VECTOR)
        with cgutils.for_range(builder, last_row(builder, running)) as loop:
            summed = load(builder, running, loop.index)
            product = builder.fmul(factor, builder.fsub(summed, builder.load(before)))
            builder.store(summed, before)
            total = builder.fadd(load(builder, sums, loop.index), product)
            builder.store(total, place(builder, sums, loop.index), align=4)
        return context.get_dummy_value()

    return types.void(running, types.float32, sums), generate


@in_llvm
def lanes_below(typing, running, level):
    """The lane in which `level` lies: how many of the lanes 1 to 15 have at most `level` before them."""

    def generate(context, builder, signature, arguments):
        (running,) = simd.open_arrays(context, builder, signature.args, arguments)
        before = load(builder, running, last_row(builder, running))
        levels = simd.spread(builder, arguments[1], simd.VECTOR)
        mask = builder.bitcast(builder.fcmp_ordered("<=", before, levels), ir.IntType(LANES))
        mask = builder.and_(mask, ir.Constant(ir.IntType(LANES), (1 << LANES) - 2))
        return builder.zext(builder.ctpop(mask), simd.LONG)

    return types.intp(running, types.float32), generate


def sum_products(builder, weight, rows, j, running) -> None:
    """Store the running sums of weight(block) rows[j, block] over the blocks, and the sum of the lanes before each."""
    total, blocks = cgutils.alloca_once_value(builder, simd.ZEROS), last_row(builder, running)
    first = builder.mul(j, blocks)
    with cgutils.for_range(builder, blocks) as loop:
        product = builder.fmul(weight(loop.index), load(builder, rows, builder.add(first, loop.index)))
        summed = builder.fadd(builder.load(total), product)
        builder.store(summed, total)
        builder.store(summed, place(builder, running, loop.index), align=4)
    before = shift(builder, builder.load(total), 1)
    for reach in (1, 2, 4, 8):
        before = builder.fadd(before, shift(builder, before, reach))
    builder.store(before, place(builder, running, blocks), align=4)


def last_row(builder, array):
    return builder.sub(simd.length(builder, array), ir.Constant(simd.LONG, 1))


def shift(builder, vector, reach: int):
    """The vector moved up by `reach` lanes, zeros below."""
    lanes = [LANES + l if l < reach else l - reach for l in range(LANES)]
    return builder.shuffle_vector(vector, simd.ZEROS, ir.Constant(simd.PLACES, lanes))


@numba.njit(**INLINE)
def total_of(running):
    """The sum of all products."""
    return running[-1, LANES - 1] + running[-2, LANES - 1]


@numba.njit(**INLINE)
def draw_topic(running, topics, state):
    """Draw a topic below `topics` in proportion to the products added up. The result is a valid topic even where
    rounding leaves the level above all sums, or a diverged chain supplies NaN."""
    level = np.float32(uniform(state)) * total_of(running)
    lane = lanes_below(running, level)
    level -= running[-1, lane]
    block = 0
    for b in range(running.shape[0] - 2):
        block += int(running[b, lane] <= level)
    return np.int32(min(LANES * block + lane, topics - 1))
