"""Gibbs sweeps over the binary causes h of binary effects v, and annealed importance sampling on top of them.

v_m ~ Bernoulli(s(x_m)), x = c + W h. With unit j turned on each x_m grows by w = W_mj, and log p(v | h) by
Σ_m v_m w − log r_m,  r_m = (1 + e^{x_m + w}) / (1 + e^{x_m}) = s(−x_m) + s(x_m) e^w. So a conditional needs but one
logarithm, that of the product of all r_m. Turning the unit takes s(x) → s(x) e^w / r and s(−x) → s(−x) / r; both are
kept, since sums of positive terms lose no digits. Weights lie unit by unit, (J, M), as the loops read them.
"""

import math
from typing import Any

import numba
import numpy as np

from .words import uniform

LIMIT = 80.0  # |w| beyond this counts as this, so that e^w is a number in single precision
REFRESH = 8  # sweeps after which activations are computed anew, so that rounding does not add up
FAST = {"contract", "nsz", "arcp", "reassoc"}  # infinities and NaN keep their meaning
COMPILE: dict[str, Any] = {"nogil": True, "fastmath": FAST, "error_model": "numpy", "cache": True}


@numba.njit(**COMPILE)
def activate(weights, bias, hidden, on, off):
    """on = s(x) and off = s(−x) of one image, from x = bias + Σ_j h_j weights[j]."""
    for m in range(bias.shape[0]):
        on[m] = bias[m]
    for j in range(hidden.shape[0]):
        if hidden[j]:
            for m in range(bias.shape[0]):
                on[m] += weights[j, m]
    for m in range(bias.shape[0]):
        e = math.exp(-abs(on[m]))
        large, small = np.float32(1 / (1 + e)), np.float32(e / (1 + e))
        if on[m] >= 0:
            on[m], off[m] = large, small
        else:
            on[m], off[m] = small, large


@numba.njit(**COMPILE)
def log_ratio(on, off, growth):
    """Σ_m log r_m: of their product in single precision, in double where that leaves its range (a unit in fifty), and
    term by term where even that does."""
    product = np.float32(1)
    for m in range(on.shape[0]):
        product *= off[m] + on[m] * growth[m]
    if 1e-36 < product < 1e36:
        return math.log(product)
    wide = 1.0
    for m in range(on.shape[0]):
        wide *= np.float64(off[m] + on[m] * growth[m])
    if 1e-290 < wide < 1e290:
        return math.log(wide)
    total = 0.0
    for m in range(on.shape[0]):
        total += math.log(np.float64(off[m]) + np.float64(on[m]) * np.float64(growth[m]))
    return total


@numba.njit(**COMPILE)
def turn(on, off, growth):
    """The activations after turning a unit whose weights' exponentials are `growth`."""
    for m in range(on.shape[0]):
        inverse = np.float32(1) / (off[m] + on[m] * growth[m])
        on[m] *= growth[m] * inverse
        off[m] *= inverse


@numba.njit(**COMPILE)
def sweep(on, off, hidden, prior, evidence, up, down, power, state):
    """One Gibbs sweep over an image's units under p(h) p(v | h)^power; returns what log p(v | h) grew by."""
    gain = 0.0
    for j in range(hidden.shape[0]):
        change = evidence[j] + log_ratio(on, off, down[j]) if hidden[j] else evidence[j] - log_ratio(on, off, up[j])
        chosen = uniform(state) * (1.0 + math.exp(-(prior[j] + power * change))) < 1.0
        if chosen != hidden[j]:
            turn(on, off, up[j] if chosen else down[j])
            hidden[j] = chosen
            gain += change if chosen else -change
    return gain


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
def log_conditional(visible, on, off):
    """log p(v | h) of one image."""
    total = 0.0
    for m in range(visible.shape[0]):
        total += math.log(on[m] if visible[m] else off[m])
    return total


@numba.njit(**COMPILE)
def in_range(on, off):
    """Whether single precision has held all activations since they were computed: one that has become 0 stays so."""
    least = np.float32(1)
    for m in range(on.shape[0]):
        least = min(least, on[m], off[m])
    return least > 0


@numba.njit(parallel=True, **COMPILE)
def gibbs_images(visible, hidden, prior, bias, weights, rows, up, down, seeds, sweeps, fresh):
    """Sweeps over the units of every image, in place; `fresh` ones begin with a draw of their prior."""
    for i in numba.prange(hidden.shape[0]):
        on, off = np.empty(bias.shape[0], np.float32), np.empty(bias.shape[0], np.float32)
        evidence, state = weigh(visible[i], weights), seeds[i : i + 1].copy()
        if fresh:
            draw_prior(prior[i], hidden[i], state)
        for k in range(sweeps):
            if k % REFRESH == 0:
                activate(rows, bias, hidden[i], on, off)
            sweep(on, off, hidden[i], prior[i], evidence, up, down, 1.0, state)


@numba.njit(parallel=True, **COMPILE)
def ais_images(visible, prior, bias, weights, rows, up, down, seeds, powers, particles):
    """log weights (images, particles) of AIS from the prior to the posterior of h: weigh first, then move. NaN where an
    activation left the range of single precision, since what follows would be no weight."""
    found = np.empty((visible.shape[0], particles))
    for run in numba.prange(visible.shape[0] * particles):
        i, p = run // particles, run % particles
        on, off = np.ones(bias.shape[0], np.float32), np.ones(bias.shape[0], np.float32)
        hidden = np.empty(prior.shape[0], np.bool_)
        evidence, state = weigh(visible[i], weights), seeds[run : run + 1].copy()
        draw_prior(prior, hidden, state)
        weight, likelihood, sound = 0.0, 0.0, True
        for t in range(1, powers.shape[0]):
            if (t - 1) % REFRESH == 0:
                sound = sound and in_range(on, off)
                activate(rows, bias, hidden, on, off)
                likelihood = log_conditional(visible[i], on, off)
            weight += (powers[t] - powers[t - 1]) * likelihood
            if t + 1 < powers.shape[0]:
                likelihood += sweep(on, off, hidden, prior, evidence, up, down, powers[t], state)
        found[i, p] = weight if sound and in_range(on, off) else np.nan
    return found


def exponentials(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights (M, J) as the loops want them: unit by unit, with e^w and e^−w."""
    rows = np.ascontiguousarray(weights.T, np.float32)
    bounded = np.clip(rows, -LIMIT, LIMIT)
    return rows, np.exp(bounded), np.exp(-bounded)


def gibbs(visible, hidden, weights, prior, bias, seeds, sweeps: int) -> np.ndarray:
    """Hidden units (n, J) of `visible` (n, M) after so many sweeps from `hidden`, or from their prior where that is
    None; `prior` (J) or (n, J) are logits, `seeds` (n)."""
    shape = (visible.shape[0], weights.shape[1])
    units = np.empty(shape, np.bool_) if hidden is None else hidden.astype(np.bool_)
    prior = np.ascontiguousarray(np.broadcast_to(prior, shape))
    gibbs_images(visible, units, prior, bias, weights, *exponentials(weights), seeds, sweeps, hidden is None)
    return units


def ais(visible, weights, prior, bias, seeds, powers, particles: int) -> np.ndarray:
    """Log weights (images, particles), whose exponentials have the mean p(v); `seeds` has one word for each. NaN beyond
    what single precision holds: weights above 80, or activations above about 100."""
    if np.abs(weights).max() > LIMIT:
        return np.full((visible.shape[0], particles), np.nan)
    return ais_images(visible, prior, bias, weights, *exponentials(weights), seeds, powers, particles)
