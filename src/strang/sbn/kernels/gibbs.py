"""Gibbs sweeps over the binary causes h of binary effects v, and annealed importance sampling (AIS) with them.

v_m ~ Bernoulli(s(x_m)), x = c + W h, so that log p(v | h) = v·x − log Z with Z = Π_m (1 + e^{x_m}). The loops
keep the odds e^{x_m} and log Z of each image. Flipping unit j multiplies the odds by e^w, w = ±W_mj, and log p(v | h)
changes by ±Σ_m v_m W_mj minus the change of log Z; the new Z is one product over the pixels. Weights are stored unit by
unit, (J, M), in rows that are padded to an even number of vectors with pixels that are never on.
"""

import math

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types

from strang.util import simd
from strang.util.host_random import uniform
from strang.util.simd import COMPILE, INLINE, LANE, LANES, LONG

MAX_WEIGHT = 80.0  # |w| beyond this counts as this, so that e^w is finite in single precision
MIN_ODDS, MAX_ODDS = np.float32(1e-37), np.float32(1e37)  # x from −85 to 85
LOST = (np.float32(np.nan), np.float32(np.nan))  # replaces odds out of range where the result must be exact
CLIPPED = (MIN_ODDS, MAX_ODDS)  # ... and where the nearest odds in range will do
PADDING_LOG_ODDS = -60.0
REFRESH_SWEEPS = 16  # between recomputations of the odds, which keep rounding errors from adding up
ALL_LANES = 2 * LANES  # of a product


@simd.in_llvm
def product(typing, odds, growth, row, start):
    """start^32 Π_m (1 + odds[m] growth[row, m]), with an even number of vectors per row. Each of 32 lanes multiplies
    every 32nd factor in single precision, beginning with `start`; the lanes are multiplied in double precision."""

    def generate(context, builder, signature, arguments):
        odds, growth = simd.open_arrays(context, builder, signature.args, arguments)
        blocks = builder.sdiv(simd.length(builder, odds), ir.Constant(LONG, LANES))
        first = builder.mul(arguments[2], blocks)
        starts = simd.spread(builder, arguments[3], simd.VECTOR)
        totals = [cgutils.alloca_once_value(builder, starts) for _ in range(2)]  # one would have to wait for itself
        with cgutils.for_range(builder, builder.sdiv(blocks, ir.Constant(LONG, 2))) as loop:
            for k, total in enumerate(totals):
                block = builder.add(builder.mul(loop.index, ir.Constant(LONG, 2)), ir.Constant(LONG, k))
                growths = simd.load(builder, growth, builder.add(first, block))
                factor = simd.multiply_add(builder, simd.load(builder, odds, block), growths, simd.ONES)
                builder.store(builder.fmul(builder.load(total), factor), total)
        wide = ir.VectorType(ir.DoubleType(), LANES)
        return multiply_lanes(builder, builder.fmul(*(builder.fpext(builder.load(total), wide) for total in totals)))

    return types.float64(odds, growth, types.intp, types.float32), generate


def multiply_lanes(builder, vector):
    """The product of 16 numbers, by halves."""
    undefined = ir.Constant(vector.type, ir.Undefined)
    for half in (8, 4, 2, 1):
        lanes = ir.VectorType(LANE, half)
        lower, upper = (
            builder.shuffle_vector(vector, undefined, ir.Constant(lanes, list(range(start, start + half))))
            for start in (0, half)
        )
        vector, undefined = builder.fmul(lower, upper), ir.Constant(lower.type, ir.Undefined)
    return builder.extract_element(vector, ir.Constant(LANE, 0))


@numba.njit(**COMPILE)
def log_product(odds, growth, row):
    """log Π_m (1 + odds[m] growth[row, m]) for any range: four factors at a time, each below e^170, since odds and
    growths are below e^85."""
    total = 0.0
    for first in range(0, odds.shape[0], 4):
        part = 1.0
        for m in range(first, first + 4):
            part *= 1.0 + np.float64(odds[m]) * np.float64(growth[row, m])
        total += math.log(part)
    return total


@numba.njit(**INLINE)
def multiply(odds, growth, row, beyond):
    """Multiplies the odds by a row of `growth`; the two of `beyond` replace odds that are too small or too large."""
    for m in range(odds.shape[0]):
        new = odds[m] * growth[row, m]
        odds[m] = beyond[0] if new < MIN_ODDS else beyond[1] if new > MAX_ODDS else new


@numba.njit(**COMPILE)
def activate(odds, hidden, bias, rows, growth, beyond):
    """Computes the odds of an image from x = bias + Σ_j h_j rows[j]; returns log Z."""
    for m in range(bias.shape[0]):  # loops, since whole arrays take a sixth longer
        odds[m] = bias[m]
    for j in range(hidden.shape[0]):
        if hidden[j]:
            for m in range(bias.shape[0]):
                odds[m] += rows[j, m]
    for m in range(bias.shape[0]):
        odds[m] = math.exp(odds[m])
    multiply(odds, growth, growth.shape[0] - 1, beyond)
    return log_product(odds, growth, growth.shape[0] - 1)


@numba.njit(**COMPILE)
def sweep(odds, log_z, hidden, prior, evidence, growth, power, state, beyond):
    """One Gibbs sweep over an image's units under p(h) p(v | h)^power; returns log Z and the change of log p(v | h).

    A unit is on with the logit prior + power · (log p(v | h) with it on, minus that with it off); it is set on if this
    exceeds the logit of a uniform number. So, on or off, it flips if the new log Z is below some bound, and the
    logarithm of the product is needed only for units that flip, and never waited for."""
    gain, units = 0.0, hidden.shape[0]
    start = np.float32(math.exp(-log_z / ALL_LANES))  # the product stays about 1
    base = -ALL_LANES * math.log(start)
    for j in range(units):
        level = uniform(state)
        ahead = evidence[j] + (prior[j] - math.log(level / (1.0 - level))) / power
        bound = log_z - ahead if hidden[j] else log_z + ahead
        row = units + j if hidden[j] else j
        z = product(odds, growth, row, start)
        in_range = 1e-300 < z < 1e300  # false where odds are NaN: then all that follows is NaN too
        if z < math.exp(bound - base) if in_range else not log_product(odds, growth, row) >= bound:
            before, log_z = log_z, base + math.log(z) if in_range else log_product(odds, growth, row)
            gain += before - log_z + (-evidence[j] if hidden[j] else evidence[j])
            multiply(odds, growth, row, beyond)
            hidden[j] = not hidden[j]
    return log_z, gain


@numba.njit(**COMPILE)
def draw_prior(prior, hidden, state):
    for j in range(hidden.shape[0]):
        hidden[j] = uniform(state) * (1.0 + math.exp(-prior[j])) < 1.0


@numba.njit(**COMPILE)
def evidence_of(visible, weights):
    """Σ_m v_m W_mj of one image, unit by unit."""
    evidence = np.zeros(weights.shape[1])
    for m in range(visible.shape[0]):
        if visible[m]:
            for j in range(weights.shape[1]):
                evidence[j] += weights[m, j]
    return evidence


@numba.njit(**COMPILE)
def log_conditional(visible, hidden, bias, evidence, log_z):
    """log p(v | h) of one image."""
    total = -log_z
    for m in range(visible.shape[0]):
        if visible[m]:
            total += bias[m]
    for j in range(hidden.shape[0]):
        if hidden[j]:
            total += evidence[j]
    return total


@numba.njit(parallel=True, **COMPILE)
def gibbs_images(visible, hidden, prior, bias, weights, rows, growth, odds, seeds, sweeps, fresh):
    """Sweeps over the units of every image, in place; `fresh` units start at a draw of their prior."""
    for i in numba.prange(hidden.shape[0]):
        evidence, state, log_z = evidence_of(visible[i], weights), seeds[i : i + 1].copy(), 0.0
        if fresh:
            draw_prior(prior[i], hidden[i], state)
        for k in range(sweeps):
            if k % REFRESH_SWEEPS == 0:
                log_z = activate(odds[i], hidden[i], bias, rows, growth, CLIPPED)
            log_z, _ = sweep(odds[i], log_z, hidden[i], prior[i], evidence, growth, 1.0, state, CLIPPED)


@numba.njit(parallel=True, **COMPILE)
def ais_images(visible, prior, bias, weights, rows, growth, odds, seeds, powers, particles):
    """Log weights (images, particles) of AIS from the prior to the posterior of h: weight first, then move. NaN where
    odds leave the range of single precision."""
    log_weights = np.empty((visible.shape[0], particles))
    for run in numba.prange(visible.shape[0] * particles):
        i, p = run // particles, run % particles
        hidden = np.empty(prior.shape[0], np.bool_)
        evidence, state = evidence_of(visible[i], weights), seeds[run : run + 1].copy()
        draw_prior(prior, hidden, state)
        weight, likelihood, log_z = 0.0, 0.0, 0.0
        for t in range(1, powers.shape[0]):
            if (t - 1) % REFRESH_SWEEPS == 0:
                log_z = activate(odds[run], hidden, bias, rows, growth, LOST)
                likelihood = log_conditional(visible[i], hidden, bias, evidence, log_z)
            weight += (powers[t] - powers[t - 1]) * likelihood
            if weight != weight:
                break
            if t + 1 < powers.shape[0]:
                log_z, gain = sweep(odds[run], log_z, hidden, prior, evidence, growth, powers[t], state, LOST)
                likelihood += gain
        log_weights[i, p] = weight
    return log_weights


def laid_out(weights: np.ndarray, bias: np.ndarray, images: int) -> tuple[np.ndarray, ...]:
    """The arrays that the loops read, in rows of an even number of vectors: the bias (M); the weights unit by unit;
    the factors of the odds where a unit is turned on (J rows), where it is turned off (J), and where none is (1); and
    room for the odds of `images` images."""
    (pixels, units), blocks = weights.shape, 2 * -(-weights.shape[0] // (2 * LANES))
    padded, rows, growth = simd.aligned(1, blocks)[0], simd.aligned(units, blocks), simd.aligned(2 * units + 1, blocks)
    padded[:pixels], padded[pixels:] = bias, PADDING_LOG_ODDS
    rows[:, :pixels], rows[:, pixels:] = weights.T, 0
    np.exp(np.clip(rows, -MAX_WEIGHT, MAX_WEIGHT), out=growth[:units])
    np.exp(np.clip(-rows, -MAX_WEIGHT, MAX_WEIGHT), out=growth[units:-1])
    growth[-1] = 1
    return padded, rows, growth, simd.aligned(images, blocks)


def starts(visible, hidden, weights, prior) -> tuple[np.ndarray, np.ndarray]:
    """Hidden units (n, J) to move in place, not yet drawn where `hidden` is None, and their prior logits (n, J)."""
    shape = (visible.shape[0], weights.shape[1])
    units = np.empty(shape, np.bool_) if hidden is None else hidden.astype(np.bool_)
    return units, np.ascontiguousarray(np.broadcast_to(prior, shape))


def gibbs(visible, hidden, weights, prior, bias, seeds, sweeps: int) -> np.ndarray:
    """Draws hidden units (n, J) of `visible` (n, M) by sweeps from `hidden`, or from their prior where that is None;
    `prior` (J) or (n, J) are logits, `seeds` (n)."""
    units, prior = starts(visible, hidden, weights, prior)
    padded, rows, growth, odds = laid_out(weights, bias, len(units))
    gibbs_images(visible, units, prior, padded, weights, rows, growth, odds, seeds, sweeps, hidden is None)
    return units


def ais(visible, weights, prior, bias, seeds, powers, particles: int) -> np.ndarray:
    """Log weights (images, particles), whose exponentials have mean p(v); `seeds` has 64 bits for each. NaN beyond
    single precision: weights above 80, or activations above about 85."""
    if np.abs(weights).max() > MAX_WEIGHT:
        return np.full((visible.shape[0], particles), np.nan)
    padded, rows, growth, odds = laid_out(weights, bias, len(visible) * particles)
    return ais_images(visible, prior, padded, weights, rows, growth, odds, seeds, powers, particles)
