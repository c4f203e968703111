"""Gibbs sweeps over the binary causes h of binary effects v, and annealed importance sampling on top of them.

v_m ~ Bernoulli(s(x_m)), x = c + W h, so that log p(v | h) = v·x − log Z with Z = Π_m (1 + e^{x_m}). Of an image we keep
the odds e^{x_m} and log Z. Turning unit j multiplies the odds by e^w, w = ±W_mj, and log p(v | h) changes by
±Σ_m v_m W_mj less what log Z changes by: one product over the pixels tells what Z would be. Weights lie unit by unit,
(J, M), as the loops read them, in rows that pixels which are never on fill up to whole pairs of vectors.
"""

import math

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types

from strang.util.host_random import uniform
from strang.util.simd import (
    COMPILE,
    INLINE,
    LANE,
    LANES,
    LONG,
    ONES,
    VECTOR,
    aligned,
    in_llvm,
    length,
    load,
    multiply_add,
    open_arrays,
    spread,
)

LIMIT = 80.0  # |w| beyond this counts as this, so that e^w is a number in single precision
LEAST, MOST = np.float32(1e-37), np.float32(1e37)  # of the odds that are kept: x from −85 to 85
LOST = (np.float32(np.nan), np.float32(np.nan))  # what odds beyond these become where all that follows must be true
CLIPPED = (LEAST, MOST)  # ... and where the nearest will do
NEVER = -60.0  # the log odds of pixels that only fill a row up
REFRESH = 16  # sweeps after which the odds are computed anew, so that rounding does not add up
WIDE = ir.DoubleType()
PARTS = 2 * LANES  # of a product


@in_llvm
def product(typing, odds, growth, row, start):
    """start^32 Π_m (1 + odds[m] growth[row, m]) with an even number of vectors a row: in single precision in each of 32
    lanes, which has every 32nd factor and begins with `start`, and of all lanes in double."""

    def generate(context, builder, signature, arguments):
        odds, growth = open_arrays(context, builder, signature.args, arguments)
        blocks = builder.sdiv(length(builder, odds), ir.Constant(LONG, LANES))
        first = builder.mul(arguments[2], blocks)
        starts = spread(builder, arguments[3], VECTOR)
        totals = [cgutils.alloca_once_value(builder, starts) for _ in range(2)]  # one would have to wait for itself
        with cgutils.for_range(builder, builder.sdiv(blocks, ir.Constant(LONG, 2))) as loop:
            for k, total in enumerate(totals):
                block = builder.add(builder.mul(loop.index, ir.Constant(LONG, 2)), ir.Constant(LONG, k))
                growths = load(builder, growth, builder.add(first, block))
                factor = multiply_add(builder, load(builder, odds, block), growths, ONES)
                builder.store(builder.fmul(builder.load(total), factor), total)
        one, other = (builder.fpext(builder.load(total), ir.VectorType(WIDE, LANES)) for total in totals)
        return multiply_lanes(builder, builder.fmul(one, other))

    return types.float64(odds, growth, types.intp, types.float32), generate


def multiply_lanes(builder, vector):
    """The product of 16 numbers, halves first."""
    for half in (8, 4, 2, 1):
        nothing, order = ir.Constant(vector.type, ir.Undefined), ir.VectorType(LANE, half)
        lower, upper = (
            builder.shuffle_vector(vector, nothing, ir.Constant(order, list(range(start, start + half))))
            for start in (0, half)
        )
        vector = builder.fmul(lower, upper)
    return builder.extract_element(vector, ir.Constant(LANE, 0))


@numba.njit(**COMPILE)
def log_product(odds, growth, row):
    """log Π_m (1 + odds[m] growth[row, m]) whatever its range: four factors at a time, none of which is above e^170,
    since neither odds nor growths are above e^85."""
    total = 0.0
    for first in range(0, odds.shape[0], 4):
        part = 1.0
        for m in range(first, first + 4):
            part *= 1.0 + np.float64(odds[m]) * np.float64(growth[row, m])
        total += math.log(part)
    return total


@numba.njit(**INLINE)
def turn(odds, growth, row, beyond):
    """The odds multiplied by this row of `growth`; those that become too small or too large are the two of `beyond`."""
    for m in range(odds.shape[0]):
        new = odds[m] * growth[row, m]
        odds[m] = beyond[0] if new < LEAST else beyond[1] if new > MOST else new


@numba.njit(**COMPILE)
def activate(odds, hidden, bias, rows, growth, beyond):
    """The odds of an image from x = bias + Σ_j h_j rows[j]; returns log Z."""
    for m in range(bias.shape[0]):
        odds[m] = bias[m]
    for j in range(hidden.shape[0]):
        if hidden[j]:
            for m in range(bias.shape[0]):
                odds[m] += rows[j, m]
    for m in range(bias.shape[0]):
        odds[m] = math.exp(odds[m])
    turn(odds, growth, growth.shape[0] - 1, beyond)
    return log_product(odds, growth, growth.shape[0] - 1)


@numba.njit(**COMPILE)
def sweep(odds, log_z, hidden, prior, evidence, growth, power, state, beyond):
    """One Gibbs sweep over an image's units under p(h) p(v | h)^power; returns log Z, and what log p(v | h) grew by.

    A unit is on with the logit prior + power · (what log p(v | h) is larger by with it on), and comes to be so if that
    is above the logit of a uniform number: whether it is on or off, it turns if the new log Z is below some bound. So a
    logarithm of the product is needed only of a unit that turns, and nothing waits for one."""
    gain, units = 0.0, hidden.shape[0]
    start = np.float32(math.exp(-log_z / PARTS))  # the product stays about 1
    base = -PARTS * math.log(start)
    for j in range(units):
        level = uniform(state)
        ahead = evidence[j] + (prior[j] - math.log(level / (1.0 - level))) / power
        bound = log_z - ahead if hidden[j] else log_z + ahead
        row = units + j if hidden[j] else j
        z = product(odds, growth, row, start)
        plain = 1e-300 < z < 1e300  # not where odds are NaN: then so is what follows
        if z < math.exp(bound - base) if plain else not log_product(odds, growth, row) >= bound:
            before, log_z = log_z, base + math.log(z) if plain else log_product(odds, growth, row)
            gain += before - log_z + (-evidence[j] if hidden[j] else evidence[j])
            turn(odds, growth, row, beyond)
            hidden[j] = not hidden[j]
    return log_z, gain


@numba.njit(**COMPILE)
def draw_prior(prior, hidden, state):
    for j in range(hidden.shape[0]):
        hidden[j] = uniform(state) * (1.0 + math.exp(-prior[j])) < 1.0


@numba.njit(**COMPILE)
def weigh(visible, weights):
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
    """Sweeps over the units of every image, in place; `fresh` ones begin with a draw of their prior."""
    for i in numba.prange(hidden.shape[0]):
        evidence, state, log_z = weigh(visible[i], weights), seeds[i : i + 1].copy(), 0.0
        if fresh:
            draw_prior(prior[i], hidden[i], state)
        for k in range(sweeps):
            if k % REFRESH == 0:
                log_z = activate(odds[i], hidden[i], bias, rows, growth, CLIPPED)
            log_z, _ = sweep(odds[i], log_z, hidden[i], prior[i], evidence, growth, 1.0, state, CLIPPED)


@numba.njit(parallel=True, **COMPILE)
def ais_images(visible, prior, bias, weights, rows, growth, odds, seeds, powers, particles):
    """log weights (images, particles) of AIS from the prior to the posterior of h: weigh first, then move. NaN where
    odds left the range of single precision, since what follows would be no weight."""
    found = np.empty((visible.shape[0], particles))
    for run in numba.prange(visible.shape[0] * particles):
        i, p = run // particles, run % particles
        hidden = np.empty(prior.shape[0], np.bool_)
        evidence, state = weigh(visible[i], weights), seeds[run : run + 1].copy()
        draw_prior(prior, hidden, state)
        weight, likelihood, log_z = 0.0, 0.0, 0.0
        for t in range(1, powers.shape[0]):
            if (t - 1) % REFRESH == 0:
                log_z = activate(odds[run], hidden, bias, rows, growth, LOST)
                likelihood = log_conditional(visible[i], hidden, bias, evidence, log_z)
            weight += (powers[t] - powers[t - 1]) * likelihood
            if weight != weight:
                break
            if t + 1 < powers.shape[0]:
                log_z, gain = sweep(odds[run], log_z, hidden, prior, evidence, growth, powers[t], state, LOST)
                likelihood += gain
        found[i, p] = weight
    return found


def laid_out(weights: np.ndarray, bias: np.ndarray, images: int) -> tuple[np.ndarray, ...]:
    """What the loops read of weights (M, J) and bias (M), in rows of whole pairs of vectors: the bias; the weights unit
    by unit; what the odds are multiplied by where a unit is turned on (J rows), where it is turned off (J), or none is
    (1). And room for the odds of so many images."""
    (pixels, units), blocks = weights.shape, 2 * -(-weights.shape[0] // (2 * LANES))
    filled, rows, growth = aligned(1, blocks)[0], aligned(units, blocks), aligned(2 * units + 1, blocks)
    filled[:pixels], filled[pixels:] = bias, NEVER
    rows[:, :pixels], rows[:, pixels:] = weights.T, 0
    np.exp(np.clip(rows, -LIMIT, LIMIT), out=growth[:units])
    np.exp(np.clip(-rows, -LIMIT, LIMIT), out=growth[units:-1])
    growth[-1] = 1
    return filled, rows, growth, aligned(images, blocks)


def gibbs(visible, hidden, weights, prior, bias, seeds, sweeps: int) -> np.ndarray:
    """Hidden units (n, J) of `visible` (n, M) after so many sweeps from `hidden`, or from their prior where that is
    None; `prior` (J) or (n, J) are logits, `seeds` (n)."""
    shape = (visible.shape[0], weights.shape[1])
    units = np.empty(shape, np.bool_) if hidden is None else hidden.astype(np.bool_)
    prior = np.ascontiguousarray(np.broadcast_to(prior, shape))
    filled, rows, growth, odds = laid_out(weights, bias, len(units))
    gibbs_images(visible, units, prior, filled, weights, rows, growth, odds, seeds, sweeps, hidden is None)
    return units


def ais(visible, weights, prior, bias, seeds, powers, particles: int) -> np.ndarray:
    """Log weights (images, particles), whose exponentials have the mean p(v); `seeds` has one word for each. NaN beyond
    what single precision holds: weights above 80, or activations above about 85."""
    if np.abs(weights).max() > LIMIT:
        return np.full((visible.shape[0], particles), np.nan)
    filled, rows, growth, odds = laid_out(weights, bias, len(visible) * particles)
    return ais_images(visible, prior, filled, weights, rows, growth, odds, seeds, powers, particles)
