"""Expected counts of topics in documents, E[n_kw | φ, documents], and the probabilities of other words of the same
documents, by collapsed Gibbs sampling with φ held fixed.

P(z_i = k | rest) ∝ (α_k + n_k) φ_kw with n the counts of the document's other tokens. A document starts from topics
drawn at a short fixed point of its topic weights, so that few sweeps are needed to forget the start; the topics of all
sweeps after the first half are counted. φ is (V, K) in single precision, a word's topics contiguous.

The result depends neither on the number of threads nor on how documents are assigned to them: every document has a
random generator of its own, and every word's counts are whole numbers added by one thread.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numba
import numpy as np

from strang.lda.kernels.choice import NO_TOPIC, add_expected, add_up, draw_topic, move_and_add_up, total_of
from strang.lda.kernels.documents import Documents, as_documents, kept_sweeps, read_only, slices
from strang.util.cores import cores_per_device, free_cores
from strang.util.errors import InputError
from strang.util.simd import COMPILE, INLINE, LANES, aligned

FIXED_POINT_STEPS = 5  # before the first sweep
RUNS_PER_THREAD = 8  # few enough to cost nothing, enough that all threads end at about the same time
WORD_BLOCK = 64  # neighbouring words whose counts one thread adds up: their memory is contiguous
TOKENS_PER_THREAD = 20_000  # tokens times sweeps that are worth starting a thread


class Workspace(NamedTuple):
    """Memory for one document during its sweeps; topics are padded with zeros to whole blocks of lanes."""

    rows: Any  # φ of its words
    row_of: Any  # the row of every token
    topics: Any  # of every token
    base: Any  # α, or the topic weights from which it starts
    counts: Any  # n, whole numbers
    sums: Any  # of n over sweeps, or of expected counts
    running: Any  # sums of products, for a draw
    state: Any  # of the document's random generator


@numba.njit(**COMPILE)
def load_document(phi, documents, d, seed, work):
    """Copy document d into the workspace; returns its number of tokens."""
    indptr, indices, counts = documents
    rows, row_of, token, first = work.rows, work.row_of, 0, indptr[d]
    work.state[0] = seed
    for j in range(first, indptr[d + 1]):
        row, word = j - first, indices[j]
        for k in range(phi.shape[1]):
            rows[row, k] = phi[word, k]
        for k in range(phi.shape[1], rows.shape[1]):
            rows[row, k] = 0
        for _ in range(counts[j]):
            row_of[token] = row
            token += 1
    return token


@numba.njit(**COMPILE)
def fixed_point(counts, alpha, steps, work):
    """Iterate base = α + E[n], each token's topic drawn in proportion to base × φ, from equal weights."""
    rows, base, sums, running = work.rows, work.base, work.sums, work.running
    base[: alpha.shape[0]] = 1
    for _ in range(steps):
        sums[:] = 0
        for j in range(counts.shape[0]):
            add_up(base, rows, j, running)
            total = total_of(running)
            factor = np.float32(counts[j]) / total if total > 0 else np.float32(0)
            for k in range(sums.shape[0]):
                sums[k] += factor * rows[j, k]
        for k in range(alpha.shape[0]):
            base[k] = alpha[k] + base[k] * sums[k]


@numba.njit(**COMPILE)
def start(phi, documents, d, alpha, seed, fresh, previous, work):
    """Load document d with its `previous` topics or, if `fresh`, with topics drawn independently in proportion to
    weights × φ at the fixed point of the weights; returns its number of tokens."""
    tokens = load_document(phi, documents, d, seed, work)
    rows, row_of, topics, base, counts, sums, running, state = work
    if fresh:
        fixed_point(documents[2][documents[0][d] : documents[0][d + 1]], alpha, FIXED_POINT_STEPS, work)
        for token in range(tokens):
            add_up(base, rows, row_of[token], running)
            topics[token] = draw_topic(running, alpha.shape[0], state)
    else:
        topics[:tokens] = previous
    counts[:] = 0
    sums[:] = 0
    base[: alpha.shape[0]] = alpha
    for token in range(tokens):
        counts[topics[token]] += 1
    return tokens


@numba.njit(**INLINE)
def redraw(token, added, count, rows, row_of, topics, base, counts, running, state, sums):
    """Draw one token's topic given the others; `added` is the new topic of the token before, not counted yet. (The
    workspace is passed field by field: Numba would count references to what it takes out of a tuple, per token.)"""
    move_and_add_up(counts, base, rows, row_of[token], running, added, topics[token])
    if sums is not None:  # decided when compiled, by its type: a branch here would cost a third of a sweep
        total = total_of(running)
        add_expected(running, np.float32(1) / total if total > 0 else np.float32(0), sums)
    topics[token] = draw_topic(running, count, state)
    return topics[token]


@numba.njit(**COMPILE)
def sweep(count, tokens, work, tokens2, work2, sums, sums2):
    """Redraw every token's topic, of two documents in turns: while one waits for its draw, the other computes.
    The second document has at least as many tokens as the first, which may have none. Every token's probabilities of
    topics are added to `sums` and `sums2`, if they are not None."""
    rows, row_of, topics, base, counts, _, running, state = work
    rows2, row_of2, topics2, base2, counts2, _, running2, state2 = work2
    added, added2 = np.int32(NO_TOPIC), np.int32(NO_TOPIC)
    for token in range(tokens):
        added = redraw(token, added, count, rows, row_of, topics, base, counts, running, state, sums)
        added2 = redraw(token, added2, count, rows2, row_of2, topics2, base2, counts2, running2, state2, sums2)
    for token in range(tokens, tokens2):
        added2 = redraw(token, added2, count, rows2, row_of2, topics2, base2, counts2, running2, state2, sums2)
    if tokens > 0:
        counts[added] += 1
    if tokens2 > 0:
        counts2[added2] += 1


@numba.njit(**COMPILE)
def sweep_documents(phi, documents, starts, alpha, seeds, sweeps, kept, run, work, work2):
    """Store the topics of the last sweeps, `kept[token]`, of the documents in `run`, two at a time; the shortest is
    alone if their number is odd."""
    dropped, none = sweeps - kept.shape[1], np.empty(0, np.int32)
    for i in range(-(run.shape[0] % 2), run.shape[0], 2):
        tokens = start(phi, documents, run[i], alpha, seeds[run[i]], True, none, work) if i >= 0 else 0
        tokens2 = start(phi, documents, run[i + 1], alpha, seeds[run[i + 1]], True, none, work2)
        for s in range(sweeps):
            sweep(alpha.shape[0], tokens, work, tokens2, work2, None, None)
            if s >= dropped:
                if i >= 0:
                    kept[starts[run[i]] : starts[run[i] + 1], s - dropped] = work.topics[:tokens]
                kept[starts[run[i + 1]] : starts[run[i + 1] + 1], s - dropped] = work2.topics[:tokens2]


@numba.njit(**COMPILE)
def add_counts(documents, weights, kept, result, parts, part):
    """Add the kept topics of every `parts`-th block of words to the result, document after document."""
    indptr, indices, counts = documents
    token = 0
    for d in range(weights.shape[0]):
        for j in range(indptr[d], indptr[d + 1]):
            word, end = indices[j], token + counts[j]
            if word // WORD_BLOCK % parts == part:
                for i in range(token, end):
                    for s in range(kept.shape[1]):
                        result[word, kept[i, s]] += weights[d]
            token = end


@numba.njit(**COMPILE)
def finish(phi, scored, d, alpha, sweeps, tokens, topics, probabilities, work):
    """Store the topics, and p(w | document) of scored words by the mean of (α + n) / (Σα + N) over the sweeps."""
    topics[:] = work.topics[:tokens]
    total = np.float32(0)
    for k in range(alpha.shape[0]):
        work.base[k] = alpha[k] + work.sums[k] / np.float32(sweeps)
        total += work.base[k]
    for k in range(alpha.shape[0]):
        work.base[k] /= total
    for j in range(scored[0][d], scored[0][d + 1]):
        for k in range(alpha.shape[0]):
            work.rows[0, k] = phi[scored[1][j], k]
        add_up(work.base, work.rows, 0, work.running)
        probabilities[j] = total_of(work.running)


@numba.njit(**COMPILE)
def complete_documents(
    phi, seen, scored, starts, alpha, seeds, fresh, burn_in, sweeps, topics, probabilities, run, work, work2
):
    """Sweep the documents in `run`, two at a time, and store what `finish` does."""
    for i in range(-(run.shape[0] % 2), run.shape[0], 2):
        d, d2, tokens = run[i], run[i + 1], 0
        own, own2 = topics[starts[d] : starts[d + 1]], topics[starts[d2] : starts[d2 + 1]]
        if i >= 0:
            tokens = start(phi, seen, d, alpha, seeds[d], fresh, own, work)
        tokens2 = start(phi, seen, d2, alpha, seeds[d2], fresh, own2, work2)
        for s in range(burn_in + sweeps):
            sweep(alpha.shape[0], tokens, work, tokens2, work2, None, None)
            if s >= burn_in:  # sums of whole numbers: no rounding errors accumulate
                for k in range(alpha.shape[0]):
                    work.sums[k] += work.counts[k]
                    work2.sums[k] += work2.counts[k]
        if i >= 0:
            finish(phi, scored, d, alpha, sweeps, tokens, own, probabilities, work)
        finish(phi, scored, d2, alpha, sweeps, tokens2, own2, probabilities, work2)


def add_up_counts(
    phi: Any, documents: Any, seeds: Any, result: np.ndarray, *, alpha: Any, sweeps: int, weights=None, threads=None
) -> None:
    """Add Σ_d weights_d n_dkw of every kept sweep to `result`: whole numbers, if the weights are whole. There is one
    64-bit seed per document; `alpha` is one number or one per topic."""
    phi, alpha = read_only(phi, np.float32), as_alpha(alpha, phi.shape[1])
    documents, seeds = as_documents(documents, phi.shape[0]), read_only(seeds, np.uint64)
    weights = read_only(np.ones(len(seeds)) if weights is None else weights, np.float32)
    if not len(documents.indptr) - 1 == len(seeds) == len(weights):
        raise InputError(f"{len(seeds)} seeds and {len(weights)} weights for {len(documents.indptr) - 1} documents.")
    threads = threads or thread_count(int(documents.counts.sum()) * sweeps)
    for part, first, last in slices(documents):
        starts = read_only(part.tokens, np.int64)
        kept = np.empty((starts[-1], kept_sweeps(sweeps)), np.int32)
        visit = partial(sweep_documents, phi, part, starts, alpha, seeds[first:last], sweeps, kept)
        run_on_threads(visit, *plan_runs(part, starts, threads, phi.shape[1]))
        add = partial(add_counts, part, weights[first:last], kept, result, threads)
        run_on_threads(add, range(threads), [()] * threads)


def plan_runs(documents: Documents, starts: np.ndarray, threads: int, topics: int) -> tuple[list, list[tuple]]:
    """Divide documents into runs of about equal work, and allocate two workspaces per thread in which each one fits.
    Pairs of about equal length are dealt out like cards from the longest on; within a run the longest are last."""
    tokens, words = np.diff(starts), np.diff(documents.indptr)
    order = np.argsort(tokens, kind="stable")
    pair = np.arange(len(order))[::-1] // 2
    count = min(threads * RUNS_PER_THREAD, -(-len(order) // 2)) if threads > 1 else 1
    room = int(words.max(initial=1)), int(tokens.max(initial=0)), topics
    workspaces = [(workspace(*room), workspace(*room)) for _ in range(threads)]
    return [read_only(order[pair % count == i], np.int64) for i in range(count)], workspaces


def workspace(words: int, tokens: int, topics: int) -> Workspace:
    """A workspace for documents of up to this many distinct words and tokens."""
    blocks = -(-topics // LANES)
    base, counts, sums = aligned(3, blocks)
    rows, running = aligned(words, blocks), aligned(blocks + 1, 1)
    for array in (rows[0], base, counts, sums, running):  # the other rows are filled with each document
        array[:] = 0
    row_of, topic_of = np.empty(tokens, np.int32), np.empty(tokens, np.int32)
    return Workspace(rows, row_of, topic_of, base, counts, sums, running, np.zeros(1, np.uint64))


def run_on_threads(function: Callable, items: Iterable, resources: list[tuple]) -> None:
    """Call function(item, *own) for every item on as many threads as there are resources; each call has one of them
    as its own. The compiled loops release the interpreter's lock."""
    free = list(resources)

    def call(item) -> None:
        own = free.pop()  # there is always one: calls run on as many threads
        with free_cores():
            function(item, *own)
        free.append(own)

    if len(free) == 1:
        for item in items:
            call(item)
    else:
        with ThreadPoolExecutor(len(free)) as pool:
            list(pool.map(call, items))  # raises the first error of a thread


def thread_count(work: int) -> int:
    """Threads to start for this many tokens times sweeps, at most one per core that there is for this device."""
    return min(cores_per_device(), 1 + work // TOKENS_PER_THREAD)


def as_alpha(alpha: Any, topics: int) -> np.ndarray:
    """α of every topic."""
    alpha = read_only(np.broadcast_to(np.asarray(alpha, np.float32), (topics,)), np.float32)
    if not (np.isfinite(alpha) & (alpha > 0)).all():
        raise InputError(f"alpha is {alpha.min()}; write a positive number, or one for each of {topics} topics.")
    return alpha
