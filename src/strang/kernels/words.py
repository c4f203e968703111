"""Random words for the compiled loops: every image or document has a generator of its own, whose state is one word, so
that results depend neither on the number of threads nor on how the work is shared out."""

import numba
import numpy as np


@numba.njit(nogil=True, cache=True)
def uniform(state):
    """A number in (0, 1) by SplitMix64; `state` is an array of one 64-bit word."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (np.float64(z >> np.uint64(12)) + 0.5) * 2.0**-52


def seeds(words: np.ndarray) -> np.ndarray:
    """One 64-bit seed from each pair of 32-bit words along the last axis."""
    return words[..., 0].astype(np.uint64) << np.uint64(32) | words[..., 1].astype(np.uint64)
