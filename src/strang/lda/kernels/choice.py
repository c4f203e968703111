"""One choice among many topics in a few vector instructions, for the loops of `lda`.

Topics lie in blocks of 16 lanes, topic 16 b + l being lane l of block b. One pass adds up the products lane by lane and
keeps what every lane held after each block; a choice then takes the lane first and its block afterwards, which inverts
the distribution function of the topics in another order. Nothing is reassociated: the sums have the same bits on every
machine. There are no branches and no stores to single topics either, both of which would make a processor wait for one
document's draw before it begins with another's.
"""

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types

from strang.util.host_random import uniform
from strang.util.simd import (
    INLINE,
    LANES,
    LONG,
    ONES,
    PLACES,
    VECTOR,
    ZEROS,
    in_llvm,
    length,
    load,
    open_arrays,
    place,
    spread,
)

NONE = -1  # no topic


@in_llvm
def add_up(typing, weights, rows, j, running):
    """running[b, l] = Σ_{b' ≤ b} weights[b', l] rows[j, b', l], and in its last row the sum of all lanes before l.

    `weights` and each of `rows` are one block after the other, `running` has a row more than there are blocks; all are
    contiguous in single precision. (A row is given by its number: to cut it out would count references for each token.)
    """

    def generate(context, builder, signature, arguments):
        weights, rows, running = open_arrays(context, builder, signature.args, arguments)
        first = builder.mul(arguments[2], last_row(builder, running))

        def product(block):
            return builder.fmul(load(builder, weights, block), load(builder, rows, builder.add(first, block)))

        sum_lanes(builder, product, running)
        return context.get_dummy_value()

    return types.void(weights, rows, types.intp, running), generate


@in_llvm
def move_and_add_up(typing, held, base, rows, j, running, gained, lost):
    """held[gained] += 1 and held[lost] −= 1, then `add_up` with the weights base + held; NONE stands for no topic."""

    def generate(context, builder, signature, arguments):
        held, base, rows, running = open_arrays(context, builder, signature.args, arguments)
        first = builder.mul(arguments[3], last_row(builder, running))
        gained, lost = (spread(builder, number, PLACES) for number in arguments[5:])
        topics = cgutils.alloca_once_value(builder, ir.Constant(PLACES, list(range(LANES))))

        def product(block):
            n, here = load(builder, held, block), builder.load(topics)
            n = builder.select(builder.icmp_signed("==", here, gained), builder.fadd(n, ONES), n)
            n = builder.select(builder.icmp_signed("==", here, lost), builder.fsub(n, ONES), n)
            builder.store(n, place(builder, held, block), align=4)
            builder.store(builder.add(here, ir.Constant(PLACES, [LANES] * LANES)), topics)
            weights = builder.fadd(load(builder, base, block), n)
            return builder.fmul(weights, load(builder, rows, builder.add(first, block)))

        sum_lanes(builder, product, running)
        return context.get_dummy_value()

    return types.void(held, base, rows, types.intp, running, types.int32, types.int32), generate


@in_llvm
def lanes_below(typing, running, level):
    """How many of the lanes 1 to 15 have no more than `level` before them: the lane in which `level` lies."""

    def generate(context, builder, signature, arguments):
        (running,) = open_arrays(context, builder, signature.args, arguments)
        before, levels = load(builder, running, last_row(builder, running)), spread(builder, arguments[1], VECTOR)
        mask = builder.bitcast(builder.fcmp_ordered("<=", before, levels), ir.IntType(LANES))
        mask = builder.and_(mask, ir.Constant(ir.IntType(LANES), (1 << LANES) - 2))
        return builder.zext(builder.ctpop(mask), LONG)

    return types.intp(running, types.float32), generate


def sum_lanes(builder, product, running) -> None:
    """Running sums of product(block), and the sum of the lanes before each."""
    total = cgutils.alloca_once_value(builder, ZEROS)
    blocks = last_row(builder, running)
    with cgutils.for_range(builder, blocks) as loop:
        summed = builder.fadd(builder.load(total), product(loop.index))
        builder.store(summed, total)
        builder.store(summed, place(builder, running, loop.index), align=4)
    before = shift(builder, builder.load(total), 1)
    for reach in (1, 2, 4, 8):
        before = builder.fadd(before, shift(builder, before, reach))
    builder.store(before, place(builder, running, blocks), align=4)


def last_row(builder, array):
    return builder.sub(length(builder, array), ir.Constant(LONG, 1))


def shift(builder, vector, reach: int):
    """The vector moved up by so many lanes, zeros below."""
    order = [LANES + l if l < reach else l - reach for l in range(LANES)]
    return builder.shuffle_vector(vector, ZEROS, ir.Constant(PLACES, order))


@numba.njit(**INLINE)
def total_of(running):
    """What all lanes hold in the end."""
    return running[-1, LANES - 1] + running[-2, LANES - 1]


@numba.njit(**INLINE)
def choose(running, topics, state):
    """A topic below `topics`, drawn in proportion to the products added up. Rounding may leave the level above all
    sums, and a diverged chain any numbers at all; the choice is among the topics nevertheless."""
    level = np.float32(uniform(state)) * total_of(running)
    lane = lanes_below(running, level)
    level -= running[-1, lane]
    block = 0
    for b in range(running.shape[0] - 2):
        block += int(running[b, lane] <= level)
    return np.int32(min(LANES * block + lane, topics - 1))
