"""Vectors of 16 single-precision numbers in LLVM's own vector type, for loops compiled by Numba.

By itself, Numba vectorises sums and products over a loop only where it may reassociate them, and then their bits differ
from one compilation to the next. Explicit vectors give the same bits on every machine.
"""

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

LANES = 16
in_llvm: Any = intrinsic  # its declared type lacks the first argument
COMPILE: dict[str, Any] = {"nogil": True, "error_model": "numpy", "cache": True}
INLINE = {**COMPILE, "inline": "always"}  # within loops: calls would count references to their arrays

LONG, LANE = ir.IntType(64), ir.IntType(32)
VECTOR, PLACES = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(LANE, LANES)
ZEROS, ONES = (ir.Constant(VECTOR, [value] * LANES) for value in (0.0, 1.0))


def aligned(rows: int, blocks: int) -> np.ndarray:
    """Allocates rows of `blocks` vectors that begin at cache lines, so that no vector lies across two."""
    memory = np.empty((rows * blocks + 1) * LANES, np.float32)
    start = -memory.ctypes.data % 64 // 4
    return memory[start : start + rows * blocks * LANES].reshape(rows, blocks * LANES)


def open_arrays(context, builder, kinds, values) -> list:
    """Opens those arguments that are arrays."""
    pairs = [pair for pair in zip(kinds, values, strict=True) if isinstance(pair[0], types.Array)]
    return [context.make_array(kind)(context, builder, value) for kind, value in pairs]


def length(builder, array):
    """The length of an array's first axis."""
    return cgutils.unpack_tuple(builder, array.shape)[0]


def place(builder, array, block):
    """A pointer to a block of an array."""
    start = builder.gep(array.data, [builder.mul(block, ir.Constant(LONG, LANES))])
    return builder.bitcast(start, VECTOR.as_pointer())


def load(builder, array, block):
    return builder.load(place(builder, array, block), align=4)


def spread(builder, number, kind):
    """Copies the number into every lane."""
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(LANE, 0))
    return builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), ir.Constant(PLACES, [0] * LANES))


def multiply_add(builder, one, other, third):
    """one · other + third, rounded once."""
    kind = ir.FunctionType(VECTOR, [VECTOR] * 3)
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.fma.v16f32"), [one, other, third])
