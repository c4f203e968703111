"""Document-completion perplexity: how well topics predict the rest of documents of which a part is seen.

The seen tokens of a held-out document determine its topic weights, by Gibbs sampling with the topics φ held fixed, and
these the probabilities of its scored tokens. Over posterior samples of φ the probabilities are averaged before the
logarithm is taken: `begin`, `add_sample` for each φ, then `perplexity`, in the same memory for any number of samples.

The tokens' topics are part of the score and continue from sample to sample, so that a few sweeps each are enough for
the average over many samples. The logarithm of a noisy mean is too small on average: with 5 sweeps the perplexity of 20
samples is 0.3 % too high (arXiv abstracts, K = 50), and that of `last` 4 %. A score is a pure function of the last one,
φ and a key, so that a saved run resumes bit for bit. `score_topics` instead infers the topic weights for one φ from
scratch, which scores the topics of all libraries in the same way, and corrects for the noise.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from strang.lda.kernels.documents import Documents, as_documents, read_only
from strang.lda.kernels.gibbs import as_alpha, complete_documents, plan_runs, run_on_threads, thread_count
from strang.lda.kernels.weights import weigh_documents
from strang.util.errors import InputError, whole
from strang.util.host_random import mixed, streams

BURN_IN = 20  # sweeps from the start that are not counted
WEIGHT_BURN_IN, WEIGHT_SWEEPS = 1, 9  # of topic weights, for which probabilities of topics are averaged
SWEEPS = 100  # of a score from scratch; on short documents (arXiv) its error is then below 0.1 %
MAX_SWEEPS = 100_000
ANY_WORD = np.iinfo(np.int32).max  # the vocabulary's size where it is not known yet


@dataclass(frozen=True)
class HeldOut:
    """Held-out documents, each in two parts, and how they were split, for reports."""

    seen: Documents
    scored: Documents
    how: dict[str, Any]


class Score(NamedTuple):
    """Probabilities of the scored words: the sum over samples, and the last sample's own."""

    topics: np.ndarray  # of every seen token
    total: np.ndarray  # p(w | document) of every scored word, summed over the samples
    last: np.ndarray  # the same of the last sample alone
    samples: int


def split(documents: Any, *, fraction: float = 0.5, every: int | None = None, seed: int = 0) -> HeldOut:
    """Split the tokens of documents (indptr, indices, counts) into a seen and a scored part.

    Scored is a `fraction` of each document's tokens, rounded down and chosen by `seed`; or with `every` = m every m-th
    token in the order of the words, as by Patterson & Teh with 10.

    >>> split(([0, 2], [0, 4], [3, 1])).how["tokens_scored"]
    2
    """
    bags, seed = as_documents(documents, ANY_WORD), whole("seed", seed, 0, 2**64 - 1)
    if not 0 < fraction < 1:
        raise InputError(f"fraction is {fraction}; write the fraction of the tokens to score, between 0 and 1.")
    every, tokens = every if every is None else whole("every", every, 2), bags.tokens
    lengths, entry = np.diff(tokens), np.repeat(np.arange(len(bags.counts)), bags.counts)
    place = np.arange(tokens[-1]) - np.repeat(tokens[:-1], lengths)
    if every is not None:
        chosen = place % every == every - 1
    else:
        owner = np.repeat(np.arange(len(lengths)), lengths)
        order = np.lexsort((np.random.Philox(key=seed).random_raw(int(tokens[-1])), owner))
        chosen = np.empty(len(order), bool)
        chosen[order] = place < np.repeat(np.floor(fraction * lengths), lengths)
    scored = np.bincount(entry[chosen], minlength=len(bags.counts)).astype(np.int32)
    if not scored.any():
        raise InputError("no token is left to be scored; write a larger fraction, or longer documents.")
    how = {"share": fraction, "seed": seed} if every is None else {"every": every}
    total = {"tokens_seen": int(tokens[-1] - scored.sum()), "tokens_scored": int(scored.sum())}
    how |= {"documents": len(lengths), **total}
    return HeldOut(with_counts(bags, bags.counts - scored), with_counts(bags, scored), how)


def with_counts(documents: Documents, counts: np.ndarray) -> Documents:
    """The documents with other counts, without the words whose count is 0."""
    kept = counts > 0
    indptr = np.concatenate([[0], np.cumsum(kept)])[documents.indptr]
    return as_documents((indptr, documents.indices[kept], counts[kept]), ANY_WORD)


def begin(test: HeldOut) -> Score:
    """The score before the first sample."""
    zeros = np.zeros(len(test.scored.indices))
    return Score(np.zeros(test.seen.tokens[-1], np.int32), zeros, zeros, 0)


def add_sample(
    test: HeldOut, score: Score, phi: Any, *, alpha: Any, key: Any, sweeps: int = 5, burn_in=BURN_IN, threads=None
) -> Score:
    """Add a posterior sample of the topics φ (V, K) to the score, after `sweeps` sweeps of the seen tokens' topics (for
    the first sample `burn_in` more). `key` is a whole number or two 32-bit numbers, different for every sample;
    `alpha` is one number or one per topic; `threads` are by default as many as are worth starting."""
    first, seeds = score.samples == 0, document_seeds(key, len(test.seen.indptr) - 1)
    plan = first, burn_in if first else 0, sweeps
    topics, probabilities = complete(test.seen, test.scored, phi, alpha, seeds, score.topics, plan, threads)
    return Score(topics, score.total + probabilities, probabilities, score.samples + 1)


def perplexity(test: HeldOut, score: Score, *, last: bool = False) -> float:
    """exp(−mean log p) over the scored tokens, p averaged over the samples; or of the last sample alone."""
    if score.samples == 0:
        raise InputError("nothing has been scored yet; call add_sample first.")
    with np.errstate(divide="ignore"):  # a word that has probability 0 in all topics
        logs = np.log(score.last if last else score.total / score.samples)
    return float(np.exp(-np.average(logs, weights=test.scored.counts)))


def score_topics(
    test: HeldOut, phi: Any, *, alpha: Any, key: Any = 0, sweeps: int = SWEEPS, burn_in=BURN_IN, threads=None
) -> float:
    """The perplexity of one φ (V, K), topic weights inferred from scratch; arguments as of `add_sample`.

    A mean over finitely many sweeps is noisy, which makes its logarithm too small on average, by about c / sweeps. The
    logarithms of the means over two halves of the sweeps are too small by 2c / sweeps: the difference is added.
    """
    seeds, half = document_seeds(key, len(test.seen.indptr) - 1), -(-whole("sweeps", sweeps, 1, MAX_SWEEPS) // 2)
    parts, topics = (test.seen, test.scored, phi, alpha), begin(test).topics
    topics, first = complete(*parts, seeds, topics, (True, burn_in, half), threads)
    _, second = complete(*parts, read_only(mixed(seeds), np.uint64), topics, (False, 0, half), threads)
    with np.errstate(divide="ignore", invalid="ignore"):  # a word that has probability 0 in all topics
        logs = np.log((first + second) / 2)
        correction = np.where(logs > -np.inf, logs - np.log(first * second) / 2, 0)
    return float(np.exp(-np.average(logs + correction, weights=test.scored.counts)))


def topic_weights(
    documents: Any, phi: Any, *, alpha: Any, key: Any = 0, sweeps: int = WEIGHT_SWEEPS, burn_in: int = WEIGHT_BURN_IN
) -> np.ndarray:
    """E[topic weights | document, φ], (D, K). With `key` None they depend on the document's words alone, not on its
    position: equal documents have equal weights."""
    phi, documents = as_topics(phi), as_documents(documents, np.shape(phi)[0])
    seeds = own_seeds(documents) if key is None else document_seeds(key, len(documents.indptr) - 1)
    starts, (burn_in, sweeps) = read_only(documents.tokens, np.int64), checked_sweeps(burn_in, sweeps)
    weights = np.zeros((len(seeds), phi.shape[1]))
    function = partial(weigh_documents, phi, documents, as_alpha(alpha, phi.shape[1]), seeds, burn_in, sweeps, weights)
    threads = thread_count(int(starts[-1]) * (burn_in + sweeps))
    run_on_threads(function, *plan_runs(documents, starts, threads, phi.shape[1]))
    return weights


def topic_sizes(documents: Any, phi: Any, *, alpha: Any) -> np.ndarray:
    """The fraction of the documents' tokens that each topic has, (K,); few sweeps, since there are many documents."""
    documents = as_documents(documents, np.shape(phi)[0])
    weights = topic_weights(documents, phi, alpha=alpha, key=None, burn_in=5, sweeps=5)
    sizes = np.diff(documents.tokens) @ weights
    return sizes / sizes.sum() if sizes.any() else np.full(len(sizes), 1 / len(sizes))


def complete(
    seen: Documents, scored: Documents, phi, alpha, seeds, topics, plan: tuple[bool, int, int], threads=None
) -> tuple[np.ndarray, np.ndarray]:
    """Sweep the seen tokens' topics by the `plan` (fresh, burn_in, sweeps), from `topics` unless `fresh`. The result is
    the new topics and p(w | document) of the scored words, averaged over `sweeps`."""
    phi, fresh = as_topics(phi), plan[0]
    burn_in, sweeps = checked_sweeps(*plan[1:])
    if not (fresh or np.isin(topics, np.arange(phi.shape[1])).all()):  # the compiled loops do not check bounds
        raise InputError(f"the score is of other topics than these {phi.shape[1]}; write begin(test) for a new one.")
    for part in (seen, scored):
        as_documents(part, phi.shape[0])
    alpha, starts = as_alpha(alpha, phi.shape[1]), read_only(seen.tokens, np.int64)
    threads = threads or thread_count(len(topics) * (burn_in + sweeps))
    results = topics.copy(), np.empty(len(scored.indices))
    function = partial(complete_documents, phi, seen, scored, starts, alpha, seeds, *plan, *results)
    run_on_threads(function, *plan_runs(seen, starts, threads, phi.shape[1]))
    return results


def checked_sweeps(burn_in: int, sweeps: int) -> tuple[int, int]:
    return whole("burn_in", burn_in, 0, MAX_SWEEPS), whole("sweeps", sweeps, 1, MAX_SWEEPS)


def as_topics(phi: Any) -> np.ndarray:
    """Check φ, one word per row and one topic per column that adds up to 1, and convert it for the loops."""
    phi = read_only(phi, np.float32)
    if phi.ndim != 2 or not np.isfinite(phi).all() or (phi < 0).any():
        raise InputError(f"topics of shape {phi.shape} must be a matrix of finite probabilities, words by topics.")
    if not np.allclose(phi.sum(0, dtype=float), 1, atol=1e-3):
        raise InputError("the topics' columns do not add up to 1; write (components / components.sum(1)[:, None]).T.")
    return phi


def own_seeds(documents: Documents) -> np.ndarray:
    """One 64-bit seed per document from its words and counts, whatever their order."""
    entries = mixed(documents.indices.astype(np.uint64) << np.uint64(32) | documents.counts.astype(np.uint64))
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(entries)])[documents.indptr]
    return read_only(mixed(total[1:] - total[:-1]), np.uint64)


def document_seeds(key: Any, count: int) -> np.ndarray:
    """One 64-bit seed per document from a whole number, or from two 32-bit numbers."""
    bits = np.asarray(key).astype(np.uint64).ravel()
    if bits.size not in (1, 2):
        raise InputError(f"key {key!r} is neither a whole number nor two 32-bit numbers.")
    pair = bits if bits.size == 2 else np.array([bits[0] >> 32, bits[0] & 0xFFFFFFFF])
    return read_only(streams(pair, count), np.uint64)
