"""Document completion: what the seen tokens of documents say of the words to be scored, topics held fixed."""

import numba
import numpy as np

from strang.lda.kernels.choice import add_up, total_of
from strang.lda.kernels.documents import frozen
from strang.lda.kernels.gibbs import count_topics, first_topics, lay_out, plan, share, sweep
from strang.util.simd import COMPILE


@numba.njit(**COMPILE)
def resume(phi, seen, starts, d, alpha, seeds, topics, fresh, desk):
    """Document d on the desk with the topics it had, or with its first ones; returns how many tokens it has."""
    indptr, indices, counts = seen
    here = slice(indptr[d], indptr[d + 1])
    tokens = lay_out(phi, indices[here], counts[here], seeds[d], desk)
    if fresh:
        first_topics(counts[here], alpha, tokens, desk)
    else:
        for token in range(tokens):
            desk.topics[token] = topics[starts[d] + token]
    count_topics(alpha, tokens, desk)
    desk.pushed[:] = 0
    return tokens


@numba.njit(**COMPILE)
def finish(phi, scored, starts, d, alpha, sweeps, tokens, topics, chances, shares, desk):
    """Keep the topics, the mean of (α + n) / (Σα + N) over the sweeps counted, and p(w | document) of scored words."""
    for token in range(tokens):
        topics[starts[d] + token] = desk.topics[token]
    total = np.float32(0)
    for k in range(alpha.shape[0]):
        desk.base[k] = alpha[k] + desk.pushed[k] / np.float32(sweeps)
        total += desk.base[k]
    for k in range(alpha.shape[0]):
        desk.base[k] /= total
        shares[d, k] = desk.base[k]
    for j in range(scored[0][d], scored[0][d + 1]):
        for k in range(alpha.shape[0]):
            desk.rows[0, k] = phi[scored[1][j], k]
        add_up(desk.base, desk.rows, 0, desk.running)
        chances[j] = total_of(desk.running)


@numba.njit(**COMPILE)
def complete_documents(phi, seen, scored, starts, alpha, seeds, kinds, topics, chances, shares, order, desk, other):
    """Topics moved on by the sweeps, and what they say, for the documents in `order`, two at a time."""
    fresh, burn_in, sweeps = kinds
    for i in range(-(order.shape[0] % 2), order.shape[0], 2):
        tokens = resume(phi, seen, starts, order[i], alpha, seeds, topics, fresh, desk) if i >= 0 else 0
        others = resume(phi, seen, starts, order[i + 1], alpha, seeds, topics, fresh, other)
        for s in range(burn_in + sweeps):
            sweep(alpha.shape[0], tokens, desk, others, other)
            if s >= burn_in:  # sums of whole numbers: no rounding adds up
                for k in range(alpha.shape[0]):
                    desk.pushed[k] += desk.held[k]
                    other.pushed[k] += other.held[k]
        if i >= 0:
            finish(phi, scored, starts, order[i], alpha, sweeps, tokens, topics, chances, shares, desk)
        finish(phi, scored, starts, order[i + 1], alpha, sweeps, others, topics, chances, shares, other)


def complete(phi, seen, scored, alpha, seeds, topics, *, fresh: bool, burn_in: int, sweeps: int, threads: int):
    """Topics of the seen tokens after `burn_in` + `sweeps` sweeps from `topics` (or, where `fresh`, from the start of
    `lda`), p(w | document) of the scored words, and the documents' shares of topics, both averaged over `sweeps`."""
    topics = topics.copy()
    chances = np.empty(len(scored.indices), np.float64)
    shares = np.empty((len(seen.indptr) - 1, phi.shape[1]), np.float32)
    starts = frozen(seen.tokens, np.int64)
    arguments = phi, seen, scored, starts, alpha, seeds, (fresh, burn_in, sweeps), topics, chances, shares
    share(lambda *work: complete_documents(*arguments, *work), *plan(seen, starts, threads, phi.shape[1]))
    return topics, chances, shares
