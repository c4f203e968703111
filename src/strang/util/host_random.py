"""Random numbers for loops compiled by Numba. Every image or document has its own generator with 64 bits of state, so
results depend neither on the number of threads nor on how work is divided."""

import numba
import numpy as np


@numba.njit(nogil=True, cache=True)
def uniform(state):
    """Draws a number in (0, 1) by SplitMix64 and advances `state`, an array of one 64-bit integer."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (np.float64(z >> np.uint64(12)) + 0.5) * 2.0**-52


def mixed(z: np.ndarray) -> np.ndarray:
    """Mixes 64-bit integers: every output bit depends on every input bit."""
    with np.errstate(over="ignore"):
        for _ in range(2):
            z = (z ^ (z >> np.uint64(32))) * np.uint64(0xDABA0B6EB09322E3)
    return z ^ (z >> np.uint64(32))


def streams(key: np.ndarray, count: int) -> np.ndarray:
    """Makes `count` seeds of 64 bits from one key of twice 32 bits, by mixing the key with each number."""
    base = np.uint64(key[0]) << np.uint64(32) | np.uint64(key[1])
    with np.errstate(over="ignore"):
        return mixed(base + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0xD1342543DE82EF95))
