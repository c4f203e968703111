"""Pólya-Gamma variables by Devroye's method, and Gibbs sweeps over hidden units with them: the textbook method, kept as
a check on the collapsed sweeps of `gibbs.py`, which mix far better.

ω ~ PG(1, z) is a quarter of a Jacobi variable tilted by z / 2, whose density is an alternating series with a different
form on either side of T; proposals are an inverse Gaussian below T and an exponential above.
"""

import math

import numba
import numpy as np

from strang.sbn.kernels.gibbs import draw_prior, starts
from strang.util.host_random import uniform
from strang.util.simd import COMPILE

T = 0.64  # where the two forms of the series meet


@numba.njit(**COMPILE)
def normal(state):
    return math.sqrt(-2.0 * math.log(uniform(state))) * math.cos(2.0 * math.pi * uniform(state))


@numba.njit(**COMPILE)
def term(n, x):
    """The n-th coefficient of the Jacobi density's alternating series."""
    k = n + 0.5
    if x > T:
        return math.pi * k * math.exp(-k * k * math.pi * math.pi * x / 2.0)
    return math.pi * k * (2.0 / (math.pi * x)) ** 1.5 * math.exp(-2.0 * k * k / x)


@numba.njit(**COMPILE)
def normal_cdf(x):
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


@numba.njit(**COMPILE)
def small_proposal(z, state):
    """An inverse Gaussian with mean 1/z and shape 1, given that it is below T."""
    if z < 1.0 / T:
        while True:  # a scaled inverse chi-squared, thinned by its tilt
            while True:
                first, second = -math.log(uniform(state)), -math.log(uniform(state))
                if first * first <= 2.0 * second / T:
                    break
            x = T / (1.0 + T * first) ** 2
            if uniform(state) < math.exp(-0.5 * z * z * x):
                return x
    mean = 1.0 / z
    while True:
        y = normal(state) ** 2
        x = mean + 0.5 * mean * mean * y - 0.5 * mean * math.sqrt(4.0 * mean * y + (mean * y) ** 2)
        if uniform(state) > mean / (mean + x):
            x = mean * mean / x
        if x < T:
            return x


@numba.njit(**COMPILE)
def polya_gamma(z, state):
    """One draw of PG(1, z)."""
    z = 0.5 * abs(z)
    if not z < 1e100:  # or NaN, where a chain has diverged: no proposal would ever be accepted
        return 0.0
    rate = math.pi * math.pi / 8.0 + z * z / 2.0
    above = math.pi / (2.0 * rate) * math.exp(-rate * T)
    root = math.sqrt(1.0 / T)
    tail = math.exp(2.0 * z) * normal_cdf(-root * (T * z + 1.0)) if z < 300.0 else 0.0
    below = 2.0 * math.exp(-z) * (normal_cdf(root * (T * z - 1.0)) + tail)
    while True:
        if uniform(state) < above / (above + below):
            x = T - math.log(uniform(state)) / rate
        else:
            x = small_proposal(z, state)
        total = term(0, x)
        level = uniform(state) * total
        n = 0
        while True:
            n += 1
            total += -term(n, x) if n % 2 else term(n, x)
            if n % 2 and level <= total:
                return 0.25 * x
            if n % 2 == 0 and level > total:
                break


@numba.njit(parallel=True, **COMPILE)
def augmented_images(visible, hidden, prior, bias, rows, seeds, sweeps, fresh):
    """Draws ω_m ~ PG(1, x_m) for every effect, then each unit given these, in place, `sweeps` times."""
    for i in numba.prange(hidden.shape[0]):
        width = bias.shape[0]
        x, omega = np.empty(width), np.empty(width)
        state = seeds[i : i + 1].copy()
        if fresh:
            draw_prior(prior[i], hidden[i], state)
        for m in range(width):
            x[m] = bias[m]
            for j in range(hidden.shape[1]):
                x[m] += rows[j, m] * hidden[i, j]
        for _ in range(sweeps):
            for m in range(width):
                omega[m] = polya_gamma(x[m], state)
            for j in range(hidden.shape[1]):
                logit = np.float64(prior[i, j])
                for m in range(width):
                    rest = x[m] - rows[j, m] * hidden[i, j]
                    logit += rows[j, m] * (visible[i, m] - 0.5 - omega[m] * (rest + 0.5 * rows[j, m]))
                chosen = uniform(state) * (1.0 + math.exp(-logit)) < 1.0
                if chosen != hidden[i, j]:
                    for m in range(width):
                        x[m] += rows[j, m] if chosen else -rows[j, m]
                    hidden[i, j] = chosen


def gibbs(visible, hidden, weights, prior, bias, seeds, sweeps: int) -> np.ndarray:
    """As `gibbs.gibbs`, through Pólya-Gamma variables."""
    units, prior = starts(visible, hidden, weights, prior)
    augmented_images(visible, units, prior, bias, np.ascontiguousarray(weights.T), seeds, sweeps, hidden is None)
    return units
