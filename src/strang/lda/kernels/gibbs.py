"""Expected counts of topics in documents, E[n_kw | φ, documents], by collapsed Gibbs sampling with φ held fixed.

P(z_i = k | rest) ∝ (α_k + n_k) φ_kw with n the counts of the document's other tokens. A document starts from topics
drawn at a short fixed point of its shares, so that few sweeps are needed to forget the start; the topics of all sweeps
after the first half are counted. φ is (V, K) in single precision, a word's topics contiguous.

The result depends neither on the number of threads nor on how documents are shared out: every document has a generator
of its own, and every word's counts are whole numbers added by one thread.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numba
import numpy as np

from strang.lda.kernels.choice import NONE, add_up, choose, move_and_add_up, total_of
from strang.lda.kernels.documents import Documents, as_documents, frozen, slices
from strang.util.errors import InputError
from strang.util.simd import COMPILE, INLINE, LANES, aligned

FIXED_POINT = 5  # iterations before the first sweep
RUNS = 8  # a thread: few enough to cost nothing, enough that all end at about the same time
BLOCK = 64  # neighbouring words whose counts one thread adds up: their memory touches
GRAIN = 20_000  # tokens, once for every sweep, that are worth a thread


class Desk(NamedTuple):
    """One document being worked on; topics are padded to whole blocks of lanes with zeros."""

    rows: Any  # φ of its words
    which: Any  # the row of every token
    topics: Any  # of every token
    base: Any  # α, or the shares with which it starts
    held: Any  # n, whole numbers
    pushed: Any
    running: Any
    state: Any  # of its generator


@numba.njit(**COMPILE)
def lay_out(phi, words, counts, seed, desk):
    """Put a document on the desk; returns how many tokens it has."""
    rows, which, token = desk.rows, desk.which, 0
    desk.state[0] = seed
    for j in range(words.shape[0]):
        word = words[j]
        for k in range(phi.shape[1]):
            rows[j, k] = phi[word, k]
        for k in range(phi.shape[1], rows.shape[1]):
            rows[j, k] = 0
        for _ in range(counts[j]):
            which[token] = j
            token += 1
    return token


@numba.njit(**COMPILE)
def fixed_point(counts, alpha, steps, desk):
    """base = α + E[n] where each token's topic is drawn in proportion to base × φ, iterated from equal shares."""
    rows, base, pushed, running = desk.rows, desk.base, desk.pushed, desk.running
    base[: alpha.shape[0]] = 1
    for _ in range(steps):
        pushed[:] = 0
        for j in range(counts.shape[0]):
            add_up(base, rows, j, running)
            total = total_of(running)
            push = np.float32(counts[j]) / total if total > 0 else np.float32(0)
            for k in range(pushed.shape[0]):
                pushed[k] += push * rows[j, k]
        for k in range(alpha.shape[0]):
            base[k] = alpha[k] + base[k] * pushed[k]


@numba.njit(**COMPILE)
def first_topics(counts, alpha, tokens, desk):
    """Topics drawn independently in proportion to shares × φ, the shares at their fixed point."""
    fixed_point(counts, alpha, FIXED_POINT, desk)
    rows, which, chosen, base, running, state = desk.rows, desk.which, desk.topics, desk.base, desk.running, desk.state
    for token in range(tokens):
        add_up(base, rows, which[token], running)
        chosen[token] = choose(running, alpha.shape[0], state)


@numba.njit(**COMPILE)
def count_topics(alpha, tokens, desk):
    """Make the desk ready for sweeps: α, and n of the topics there are."""
    desk.held[:] = 0
    for k in range(alpha.shape[0]):
        desk.base[k] = alpha[k]
    for token in range(tokens):
        desk.held[desk.topics[token]] += 1


@numba.njit(**INLINE)
def draw(token, gained, topics, rows, which, chosen, base, held, running, state):
    """One token's topic anew given the others; `gained` is the topic of the token before, which is not counted yet.

    The desk is given piece by piece: Numba counts references to what it takes out of a tuple, for every token.
    """
    move_and_add_up(held, base, rows, which[token], running, gained, chosen[token])
    chosen[token] = choose(running, topics, state)
    return chosen[token]


@numba.njit(**COMPILE)
def sweep(topics, tokens, desk, others, other):
    """Draw every token's topic anew, of two documents in turns: while one waits for its draw, the other computes. The
    other has at least as many tokens as the first, which may have none."""
    rows, which, chosen, base, held, _, running, state = desk
    rows2, which2, chosen2, base2, held2, _, running2, state2 = other
    gained, gained2 = np.int32(NONE), np.int32(NONE)
    for token in range(tokens):
        gained = draw(token, gained, topics, rows, which, chosen, base, held, running, state)
        gained2 = draw(token, gained2, topics, rows2, which2, chosen2, base2, held2, running2, state2)
    for token in range(tokens, others):
        gained2 = draw(token, gained2, topics, rows2, which2, chosen2, base2, held2, running2, state2)
    if tokens > 0:
        held[gained] += 1
    if others > 0:
        held2[gained2] += 1


@numba.njit(**COMPILE)
def start(phi, documents, d, alpha, seeds, desk):
    """Document d on the desk, with its first topics; returns how many tokens it has."""
    indptr, indices, counts = documents
    here = slice(indptr[d], indptr[d + 1])
    tokens = lay_out(phi, indices[here], counts[here], seeds[d], desk)
    first_topics(counts[here], alpha, tokens, desk)
    count_topics(alpha, tokens, desk)
    return tokens


@numba.njit(**COMPILE)
def visit(phi, documents, starts, alpha, seeds, sweeps, kept, order, desk, other):
    """Topics of the kept sweeps, `kept[token]`, of the documents in `order`, two at a time, the shortest alone if they
    are odd in number."""
    dropped = sweeps - kept.shape[1]
    for i in range(-(order.shape[0] % 2), order.shape[0], 2):
        tokens = start(phi, documents, order[i], alpha, seeds, desk) if i >= 0 else 0
        others = start(phi, documents, order[i + 1], alpha, seeds, other)
        for s in range(sweeps):
            sweep(alpha.shape[0], tokens, desk, others, other)
            if s >= dropped:
                for token in range(tokens):
                    kept[starts[order[i]] + token, s - dropped] = desk.topics[token]
                for token in range(others):
                    kept[starts[order[i + 1]] + token, s - dropped] = other.topics[token]


@numba.njit(**COMPILE)
def add_counts(documents, weights, kept, result, part, parts):
    """Add the kept topics of every `parts`-th block of words to the result, document after document."""
    indptr, indices, counts = documents
    token = 0
    for d in range(weights.shape[0]):
        for j in range(indptr[d], indptr[d + 1]):
            word, end = indices[j], token + counts[j]
            if word // BLOCK % parts == part:
                for i in range(token, end):
                    for s in range(kept.shape[1]):
                        result[word, kept[i, s]] += weights[d]
            token = end


def expected_counts(phi: np.ndarray, documents: Documents, seeds: np.ndarray, *, sweeps: int, **settings) -> np.ndarray:
    """Σ_d weights_d E[n_dkw | φ], (V, K); arguments as for `add_up_counts`."""
    result = np.zeros(phi.shape, np.float32)
    add_up_counts(phi, documents, seeds, result, sweeps=sweeps, **settings)
    result /= np.float32(kept_of(sweeps))
    return result


def kept_of(sweeps: int) -> int:
    """How many sweeps are counted: all after the first half."""
    return sweeps - sweeps // 2


def add_up_counts(
    phi: np.ndarray,
    documents: Documents,
    seeds: np.ndarray,
    result: np.ndarray,
    *,
    alpha: Any,
    sweeps: int,
    weights: np.ndarray | None = None,
    threads: int | None = None,
) -> None:
    """Add Σ_d weights_d n_dkw of every kept sweep to `result`: whole numbers, where the weights are.

    There is one 64-bit seed a document; `alpha` is one number or one a topic.
    """
    phi, alpha = frozen(phi, np.float32), as_alpha(alpha, phi.shape[1])
    documents, seeds = as_documents(documents, phi.shape[0]), frozen(seeds, np.uint64)
    weights = frozen(np.ones(len(seeds)) if weights is None else weights, np.float32)
    if not len(documents.indptr) - 1 == len(seeds) == len(weights):
        raise InputError(f"{len(seeds)} seeds and {len(weights)} weights for {len(documents.indptr) - 1} documents.")
    threads = threads or cores(int(documents.counts.sum()) * sweeps)
    for part, first, last in slices(documents):
        starts = frozen(part.tokens, np.int64)
        kept = np.empty((starts[-1], kept_of(sweeps)), np.int32)
        given = part, starts, alpha, seeds[first:last], sweeps, kept
        runs, desks = plan(part, starts, threads, phi.shape[1])
        share(lambda *work, given=given: visit(phi, *given, *work), runs, desks)
        found = part, weights[first:last], kept, result
        share(lambda i, found=found: add_counts(*found, i, threads), range(threads), [()] * threads)


def plan(documents: Documents, starts: np.ndarray, threads: int, topics: int) -> tuple[list[np.ndarray], list[tuple]]:
    """Runs of documents to be visited one after the other, and for each thread two desks on which all have room.

    Pairs of about equal length are dealt out like cards from the longest on, so that all runs have about as much work;
    within a run the longest are last. `starts` is where each document's tokens begin.
    """
    tokens, words = np.diff(starts), np.diff(documents.indptr)
    order = np.argsort(tokens, kind="stable")
    pair = np.arange(len(order))[::-1] // 2
    count = min(threads * RUNS, -(-len(order) // 2)) if threads > 1 else 1
    room = int(words.max(initial=1)), int(tokens.max(initial=0)), topics
    desks = [(desk_for(*room), desk_for(*room)) for _ in range(threads)]
    return [frozen(order[pair % count == i], np.int64) for i in range(count)], desks


def desk_for(words: int, tokens: int, topics: int) -> Desk:
    """Room for documents of up to so many distinct words and tokens."""
    blocks = -(-topics // LANES)
    base, held, pushed = aligned(3, blocks)
    which, chosen = np.empty(tokens, np.int32), np.empty(tokens, np.int32)
    rows, running = aligned(words, blocks), aligned(blocks + 1, 1)
    for small in (rows[0], base, held, pushed, running):  # the other rows when words are laid there
        small[:] = 0
    return Desk(rows, which, chosen, base, held, pushed, running, np.zeros(1, np.uint64))


def share(work: Callable, parts: Iterable, tools: list[tuple]) -> None:
    """work(part, *own) for every part, by as many threads as there are tools, each with its own; who is ready takes the
    next part, and the loops let go of the interpreter."""
    waiting = deque(parts)

    def go_on(own: tuple) -> None:
        while True:
            try:
                part = waiting.popleft()
            except IndexError:  # none is left
                return
            work(part, *own)

    if len(tools) == 1:
        return go_on(*tools)
    with ThreadPoolExecutor(len(tools) - 1) as pool:
        others = [pool.submit(go_on, own) for own in tools[1:]]
        go_on(tools[0])
    for other in others:
        other.result()  # or what went wrong there
    return None


def cores(work: int) -> int:
    """Cores that this process may use and so much work is worth."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(available, 1 + work // GRAIN)


def as_alpha(alpha: Any, topics: int) -> np.ndarray:
    """α of every topic."""
    alpha = frozen(np.broadcast_to(np.asarray(alpha, np.float32), (topics,)), np.float32)
    if not (np.isfinite(alpha) & (alpha > 0)).all():
        raise InputError(f"alpha is {alpha.min()}; write a positive number, or one for each of {topics} topics.")
    return alpha
