"""Document completion: probabilities of scored words given the seen tokens of their documents, topics held fixed."""

import numba
import numpy as np

from strang.lda.kernels.choice import add_up, total_of
from strang.lda.kernels.gibbs import start, sweep
from strang.util.simd import COMPILE


@numba.njit(**COMPILE)
def finish(phi, scored, d, alpha, sweeps, tokens, topics, probabilities, weights, work):
    """Store the topics, the mean of (α + n) / (Σα + N) over the sweeps counted, and p(w | document) of scored words."""
    topics[:] = work.topics[:tokens]
    total = np.float32(0)
    for k in range(alpha.shape[0]):
        work.base[k] = alpha[k] + work.sums[k] / np.float32(sweeps)
        total += work.base[k]
    for k in range(alpha.shape[0]):
        work.base[k] /= total
        weights[d, k] = work.base[k]
    for j in range(scored[0][d], scored[0][d + 1]):
        for k in range(alpha.shape[0]):
            work.rows[0, k] = phi[scored[1][j], k]
        add_up(work.base, work.rows, 0, work.running)
        probabilities[j] = total_of(work.running)


@numba.njit(**COMPILE)
def complete_documents(
    phi, seen, scored, starts, alpha, seeds, fresh, burn_in, sweeps, topics, probabilities, weights, run, work, work2
):
    """Sweep the documents in `run`, two at a time, and store what `finish` does."""
    for i in range(-(run.shape[0] % 2), run.shape[0], 2):
        d, d2, tokens = run[i], run[i + 1], 0
        own, own2 = topics[starts[d] : starts[d + 1]], topics[starts[d2] : starts[d2 + 1]]
        if i >= 0:
            tokens = start(phi, seen, d, alpha, seeds[d], fresh, own, work)
        tokens2 = start(phi, seen, d2, alpha, seeds[d2], fresh, own2, work2)
        for s in range(burn_in + sweeps):
            sweep(alpha.shape[0], tokens, work, tokens2, work2)
            if s >= burn_in:  # sums of whole numbers: no rounding errors accumulate
                for k in range(alpha.shape[0]):
                    work.sums[k] += work.counts[k]
                    work2.sums[k] += work2.counts[k]
        if i >= 0:
            finish(phi, scored, d, alpha, sweeps, tokens, own, probabilities, weights, work)
        finish(phi, scored, d2, alpha, sweeps, tokens2, own2, probabilities, weights, work2)
