"""Document-completion perplexity: how well topics foretell the rest of documents of which a part is seen.

The seen tokens of a held-out document give its shares of the topics, by Gibbs sampling with the topics φ held fixed,
and these the probabilities of its scored tokens. Over posterior samples of φ the probabilities are averaged before the
logarithm is taken, as a sum that grows by one sample at a time, so that any number of them needs the same memory:

    test = split(documents)
    score = begin(test)
    for phi in samples:
        score = add_sample(test, score, phi, alpha=0.1, key=step)
    perplexity(test, score)

The tokens' topics stay in the score and go on from sample to sample, so that a few sweeps each are enough: one does for
the average over many samples, but leaves `last` some percent too high. A score is a plain record of arrays, and the
next one a pure function of (score, φ, key): a run that is saved resumes bit for bit. `score_topics` fits one φ afresh
instead, whoever made it: the same judge for all libraries.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from strang.lda.kernels import completion as lda_score
from strang.lda.kernels import gibbs as lda
from strang.lda.kernels.documents import Documents, as_documents, frozen
from strang.util.errors import InputError, whole
from strang.util.host_random import mixed, streams

BURN_IN = 20  # sweeps from the start that are not counted


@dataclass(frozen=True)
class HeldOut:
    """Held-out documents, each in two parts, and how they were split: what a report should say."""

    seen: Documents
    scored: Documents
    how: dict[str, Any]


class Score(NamedTuple):
    """What has been learnt of the scored words so far: sums over samples, and the last sample's own."""

    topics: np.ndarray  # of every seen token
    total: np.ndarray  # p(w | document) of every scored word, summed over the samples
    last: np.ndarray  # the same of the last sample alone
    samples: int


def split(documents: Any, *, share: float = 0.5, every: int | None = None, seed: int = 0) -> HeldOut:
    """Documents (indptr, indices, counts) with a `share` of each one's tokens, rounded down and chosen by `seed`, to be
    scored; or with `every` = m every m-th of its tokens in the order of its words, as Patterson & Teh do with 10."""
    parts, seed = as_documents(documents, np.iinfo(np.int32).max), whole("seed", seed, 0, 2**64 - 1)
    if not 0 < share < 1:
        raise InputError(f"share is {share}; write the part of the tokens to be scored, between 0 and 1.")
    if every is not None:
        every = whole("every", every, 2)
    tokens = parts.tokens
    lengths, entry = np.diff(tokens), np.repeat(np.arange(len(parts.counts)), parts.counts)
    place = np.arange(tokens[-1]) - np.repeat(tokens[:-1], lengths)
    if every is not None:
        chosen = place % every == every - 1
    else:
        owner = np.repeat(np.arange(len(lengths)), lengths)
        order = np.lexsort((np.random.Philox(key=seed).random_raw(int(tokens[-1])), owner))
        chosen = np.empty(len(order), bool)
        chosen[order] = place < np.repeat(np.floor(share * lengths), lengths)
    scored = np.bincount(entry[chosen], minlength=len(parts.counts)).astype(np.int32)
    if not scored.any():
        raise InputError("no token is left to be scored; write a larger share, or longer documents.")
    how = {"share": share, "seed": seed} if every is None else {"every": every}
    how |= {
        "documents": len(lengths),
        "tokens_seen": int(tokens[-1] - scored.sum()),
        "tokens_scored": int(scored.sum()),
    }
    return HeldOut(part_of(parts, parts.counts - scored), part_of(parts, scored), how)


def part_of(documents: Documents, counts: np.ndarray) -> Documents:
    """The documents with other counts; words that do not occur any more are left out."""
    kept = counts > 0
    indptr = np.concatenate([[0], np.cumsum(kept)])[documents.indptr]
    return as_documents((indptr, documents.indices[kept], counts[kept]), np.iinfo(np.int32).max)


def begin(test: HeldOut) -> Score:
    """Nothing scored yet."""
    zeros = np.zeros(len(test.scored.indices))
    return Score(np.zeros(test.seen.tokens[-1], np.int32), zeros, zeros, 0)


def add_sample(
    test: HeldOut,
    score: Score,
    phi: Any,
    *,
    alpha: Any,
    key: Any,
    sweeps: int = 5,
    burn_in: int = BURN_IN,
    threads: int | None = None,
) -> Score:
    """The score with one more sample of the topics φ (V, K), after `sweeps` sweeps of the seen tokens' topics.

    The first sample starts them and makes `burn_in` sweeps more. `key` is a whole number or two 32-bit words, another
    one for every sample; `alpha` is one number or one a topic.
    """
    first = score.samples == 0
    plan = {"fresh": first, "burn_in": burn_in if first else 0, "sweeps": sweeps}
    seeds = document_seeds(key, len(test.seen.indptr) - 1)
    topics, chances, _ = complete(test.seen, test.scored, phi, alpha, seeds, score.topics, plan, threads)
    return Score(topics, score.total + chances, chances, score.samples + 1)


def perplexity(test: HeldOut, score: Score, *, last: bool = False) -> float:
    """exp(−mean log p) over the scored tokens, p averaged over the samples; or of the last sample alone."""
    if score.samples == 0:
        raise InputError("nothing has been scored yet; call add_sample first.")
    chances = score.last if last else score.total / score.samples
    with np.errstate(divide="ignore"):  # a word that the topics rule out
        return float(np.exp(-np.average(np.log(chances), weights=test.scored.counts)))


def score_topics(test: HeldOut, phi: Any, *, alpha: Any, key: Any = 0, sweeps: int = 20, **settings) -> float:
    """The perplexity of one φ (V, K): shares fitted afresh, averaged over `sweeps` sweeps; settings as above."""
    return perplexity(test, add_sample(test, begin(test), phi, alpha=alpha, key=key, sweeps=sweeps, **settings))


def document_shares(
    documents: Any,
    phi: Any,
    *,
    alpha: Any,
    key: Any = 0,
    sweeps: int = 20,
    burn_in: int = BURN_IN,
    threads: int | None = None,
) -> np.ndarray:
    """E[shares of the topics | document, φ], (D, K). With `key` None a document's shares depend on its words alone, not
    on where it stands: equal documents have equal shares."""
    seen = as_documents(documents, np.shape(phi)[0])
    nothing = as_documents((np.zeros(len(seen.indptr), int), [], []), 1)
    plan = {"fresh": True, "burn_in": burn_in, "sweeps": sweeps}
    topics = np.zeros(seen.tokens[-1], np.int32)
    seeds = own_seeds(seen) if key is None else document_seeds(key, len(seen.indptr) - 1)
    return complete(seen, nothing, phi, alpha, seeds, topics, plan, threads)[2]


def topic_shares(documents: Any, phi: Any, *, alpha: Any) -> np.ndarray:
    """What part of the documents' tokens each topic has, (K,): few sweeps do, since the documents are many."""
    found = as_documents(documents, np.shape(phi)[0])
    shares = document_shares(found, phi, alpha=alpha, key=None, burn_in=5, sweeps=5)
    sizes = np.diff(found.tokens) @ shares.astype(float)
    return sizes / sizes.sum() if sizes.any() else np.full(len(sizes), 1 / len(sizes))


def complete(seen: Documents, scored: Documents, phi, alpha, seeds, topics, plan: dict, threads: int | None):
    """`lda_score.complete` after a look at the topics given."""
    phi = as_topics(phi)
    if not (plan["sweeps"] >= 1 and plan["burn_in"] >= 0):
        raise InputError(f"{plan['sweeps']} sweeps after {plan['burn_in']} of burn-in; write at least 1, and 0.")
    if not (plan["fresh"] or np.isin(topics, np.arange(phi.shape[1])).all()):  # the loops trust them blindly
        raise InputError(f"the score is of other topics than these {phi.shape[1]}; write begin(test) for a new one.")
    for part in (seen, scored):
        as_documents(part, phi.shape[0])
    alpha = lda.as_alpha(alpha, phi.shape[1])
    threads = threads or lda.cores(len(topics) * (plan["burn_in"] + plan["sweeps"]))
    return lda_score.complete(phi, seen, scored, alpha, seeds, topics, threads=threads, **plan)


def as_topics(phi: Any) -> np.ndarray:
    """φ as the loops read it: one word a row, one topic a column that adds up to 1."""
    phi = frozen(phi, np.float32)
    if phi.ndim != 2 or not np.isfinite(phi).all() or (phi < 0).any():
        raise InputError(f"topics of shape {phi.shape} must be a matrix of finite probabilities, words by topics.")
    if not np.allclose(phi.sum(0, dtype=float), 1, atol=1e-3):
        raise InputError("the topics' columns do not add up to 1; write (components / components.sum(1)[:, None]).T.")
    return phi


def own_seeds(documents: Documents) -> np.ndarray:
    """One 64-bit seed a document from its words and counts, in whatever order they come."""
    entries = mixed(documents.indices.astype(np.uint64) << np.uint64(32) | documents.counts.astype(np.uint64))
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(entries)])[documents.indptr]
    return frozen(mixed(total[1:] - total[:-1]), np.uint64)


def document_seeds(key: Any, count: int) -> np.ndarray:
    """One 64-bit seed a document from a whole number, or from two 32-bit words."""
    words = np.asarray(key).astype(np.uint64).ravel()
    if words.size not in (1, 2):
        raise InputError(f"key {key!r} is neither a whole number nor two 32-bit words.")
    pair = words if words.size == 2 else np.array([words[0] >> 32, words[0] & 0xFFFFFFFF])
    return frozen(streams(pair, count), np.uint64)
