"""Expected topic weights of documents, E[θ | document, φ] = (α + E[n]) / (Σα + N), by collapsed Gibbs sampling.

Of every token the probabilities of its topics given all others are averaged, not the topics drawn from them: the same
expectation with less noise (Rao & Blackwell), so that fewer sweeps are needed.
"""

import numba
import numpy as np

from strang.lda.kernels.gibbs import start, sweep
from strang.util.simd import COMPILE


@numba.njit(**COMPILE)
def weigh_documents(phi, documents, alpha, seeds, burn_in, sweeps, weights, run, work, work2):
    """Store the weights of the documents in `run`, two at a time, in rows of `weights` that are 0 before."""
    none = np.empty(0, np.int32)
    for i in range(-(run.shape[0] % 2), run.shape[0], 2):
        d, d2 = run[i], run[i + 1]
        tokens = start(phi, documents, d, alpha, seeds[d], True, none, work) if i >= 0 else 0
        tokens2 = start(phi, documents, d2, alpha, seeds[d2], True, none, work2)
        for _ in range(burn_in):
            sweep(alpha.shape[0], tokens, work, tokens2, work2, None, None)
        for _ in range(sweeps):
            sweep(alpha.shape[0], tokens, work, tokens2, work2, work.sums, work2.sums)
            if i >= 0:
                move_sums(work.sums, weights[d])
            move_sums(work2.sums, weights[d2])
        if i >= 0:
            normalise(weights[d], alpha, sweeps)
        normalise(weights[d2], alpha, sweeps)


@numba.njit(**COMPILE)
def move_sums(sums, total):
    """Add the sums of one sweep, in single precision, to a total in double precision: many sweeps would be rounded."""
    for k in range(total.shape[0]):
        total[k] += sums[k]
        sums[k] = 0


@numba.njit(**COMPILE)
def normalise(weights, alpha, sweeps):
    """From sums of expected counts to weights."""
    for k in range(alpha.shape[0]):
        weights[k] = alpha[k] + weights[k] / sweeps
    weights /= weights.sum()
