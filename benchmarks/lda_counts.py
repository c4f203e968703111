"""What expected counts cost: nanoseconds per token and sweep, against the plain loop of the public codes.

    .venv/bin/python benchmarks/lda_counts.py [CORPUS] [--topics 50 200 500] [--documents 100] [--rounds 7]

CORPUS is a folder that `strang lda prepare` made; without it documents of 450 tokens are drawn from random topics. The
plain loop (`dense`) is collapsed Gibbs with one running sum over all topics and its inverse, in double precision. Both
are timed in turns, best of the rounds: CPU time for one thread, elapsed time for several. `all` is one whole call with
10 sweeps (start, gathering φ, adding up the counts) per token and sweep, `sweep` what one sweep more costs. The limit
is what the machine lets as many threads do that each have a whole call of their own: where two cores share a clock or
a memory, it is below two.
"""

import argparse
import time
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np

from strang.lda import open_corpus
from strang.lda.kernels import gibbs as lda
from strang.lda.kernels.documents import as_bags, as_documents
from strang.util.host_random import uniform

SWEEPS, ALPHA, WORDS = 10, 0.1, 7702  # words of a drawn corpus


@numba.njit(nogil=True)
def dense(phi, indptr, indices, counts, alpha, seeds, sweeps):
    """The same counts, of the sweeps after the first half, by a serial cumulative sum."""
    topics = phi.shape[1]
    result = np.zeros(phi.shape)
    total = np.empty(topics)
    for d in range(len(indptr) - 1):
        words = np.repeat(indices[indptr[d] : indptr[d + 1]], counts[indptr[d] : indptr[d + 1]])
        state, held = seeds[d : d + 1].copy(), np.zeros(topics)
        z = np.empty(len(words), np.int32)
        for i in range(len(words)):
            z[i] = int(uniform(state) * topics)
            held[z[i]] += 1
        for s in range(sweeps):
            for i in range(len(words)):
                row = phi[words[i]]
                held[z[i]] -= 1
                running = 0.0
                for k in range(topics):
                    running += (alpha + held[k]) * row[k]
                    total[k] = running
                level, k = uniform(state) * running, 0
                while k < topics - 1 and total[k] <= level:
                    k += 1
                z[i] = k
                held[k] += 1
                if s >= sweeps // 2:
                    result[words[i], k] += 1
    return result / (sweeps - sweeps // 2)


def synthetic(phi, count):
    """Documents of a lognormal number of tokens, 450 on average, from the topics."""
    rng = np.random.default_rng(1)
    rows = [
        rng.multinomial(rng.lognormal(5.6, 1), phi @ rng.dirichlet(np.full(phi.shape[1], ALPHA))) for _ in range(count)
    ]
    return as_documents(as_bags(np.stack(rows)), len(phi))


def some_topics(words, topics):
    """Topics with a few frequent words each, as trained ones have."""
    rng = np.random.default_rng(0)
    weights = rng.gamma(0.05 + 3 / (10 + np.arange(words)), size=(topics, words)) + 1e-9
    return np.ascontiguousarray((weights / weights.sum(1, keepdims=True)).T)


def best(calls: dict, rounds: int) -> dict:
    """The least time of each call, the calls taken in turns: (function, clock) by name."""
    least = dict.fromkeys(calls, np.inf)
    for _ in range(rounds + 1):  # the first round compiles
        for name, (call, clock) in calls.items():
            started = clock()
            call()
            least[name] = min(least[name], clock() - started)
    return least


def compare(documents, words: int, topics: int, rounds: int, threads: int) -> None:
    phi = some_topics(words, topics)
    documents = synthetic(phi, 100) if documents is None else documents
    narrow, seeds = phi.astype(np.float32), np.random.Philox(key=0).random_raw(len(documents.indptr) - 1)

    def counts(sweeps, threads):
        result = np.zeros(narrow.shape, np.float32)
        lda.add_up_counts(narrow, documents, seeds, result, alpha=ALPHA, sweeps=sweeps, threads=threads)

    pool = ThreadPoolExecutor(threads)
    calls = {
        "dense": (lambda: dense(phi, *documents, ALPHA, seeds, SWEEPS), time.thread_time),
        "one": (lambda: counts(SWEEPS, 1), time.thread_time),
        "long": (lambda: counts(3 * SWEEPS, 1), time.thread_time),
        "one elapsed": (lambda: counts(SWEEPS, 1), time.perf_counter),
        "many elapsed": (lambda: counts(SWEEPS, threads), time.perf_counter),
        "apart": (lambda: list(pool.map(lambda _: counts(SWEEPS, 1), range(threads))), time.perf_counter),
    }
    found = best(calls, rounds)
    tokens = int(documents.counts.sum())
    nanoseconds = {name: value / tokens / SWEEPS * 1e9 for name, value in found.items()}
    slope = (nanoseconds["long"] - nanoseconds["one"]) / 2
    print(
        f"K = {topics:3d}, {tokens:,} tokens: dense {nanoseconds['dense']:.0f}, strang {nanoseconds['one']:.0f} in all "
        f"({found['dense'] / found['one']:.1f} times faster), {slope:.0f} a sweep; {threads} threads "
        f"{found['one elapsed'] / found['many elapsed']:.2f} times faster than one (limit "
        f"{threads * found['one elapsed'] / found['apart']:.2f}); {1e3 * found['one']:.0f} ms a call",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?")
    parser.add_argument("--topics", type=int, nargs="+", default=[50, 200, 500])
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    documents, words = None, WORDS
    if given.corpus:
        corpus = open_corpus(given.corpus)
        words = len(corpus.words)
        documents = as_documents(corpus.gather(np.arange(given.documents)), words)
    print("nanoseconds per token and sweep")
    for topics in given.topics:
        compare(documents, words, topics, given.rounds, given.threads)


if __name__ == "__main__":
    main()
