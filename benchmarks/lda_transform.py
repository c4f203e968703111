"""Topic weights of new documents by `strang.LDA.transform`, scikit-learn's `transform` and tomotopy's `infer`.

    .venv/bin/python benchmarks/lda_transform.py [CORPUS] [--topics 200] [--documents 10000] [--repeats 9]

CORPUS is a folder that `strang lda prepare` made, whose last documents are held out; without it there is a simulated
one of as long documents as abstracts. Strang and scikit-learn get the same topics, fitted by Strang; tomotopy (in an
environment of its own under benchmarks/.peers) fits its own, on up to 20,000 documents. All see half of each held-out
document's tokens, on one core; the perplexity is of the other half, by each one's weights. Strang and scikit-learn take
turns, also on whole documents: the ratios have the median and the range over the turns.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import numpy as np
from scipy import sparse
from scipy.special import psi
from sklearn.decomposition import LatentDirichletAllocation

import strang
from peers import HERE, python_for
from strang.lda import open_corpus
from strang.lda.completion import SWEEPS, score_topics, split, topic_weights

ALPHA, BETA, WORDS = 0.1, 0.01, 7702
FITTED = 100_000  # documents at most
PACKAGES = ["gensim==4.4.0", "scikit-learn==1.9.1", "tomotopy==0.14.0"]  # as of benchmarks/lda.py


def simulated(topics: int, documents: int) -> sparse.csr_matrix:
    """Documents of about 70 tokens, of topics that have a few hundred words each."""
    rng = np.random.default_rng(0)
    phi = rng.dirichlet(np.full(WORDS, 0.05), topics)
    rows = []
    for theta in rng.dirichlet(np.full(topics, ALPHA / 2), documents):
        counts = np.bincount(rng.choice(topics, rng.poisson(70), p=theta), minlength=topics)
        drawn = [rng.choice(WORDS, n, p=phi[k]) for k, n in enumerate(counts) if n]
        rows.append(np.bincount(np.concatenate(drawn or [np.zeros(0, int)]), minlength=WORDS))
    return sparse.csr_matrix(np.array(rows))


def matrix(bags, words: int) -> sparse.csr_matrix:
    indptr, indices, counts = bags
    return sparse.csr_matrix((counts.astype(np.int64), indices, indptr), (len(indptr) - 1, words))


def with_sklearn(lda: strang.LDA) -> LatentDirichletAllocation:
    """Strang's topics as a fitted model of scikit-learn: `components_` have the same meaning."""
    peer = LatentDirichletAllocation(lda.n_components, doc_topic_prior=ALPHA, topic_word_prior=BETA, random_state=0)
    peer.partial_fit(np.eye(1, lda.n_features_in_))  # makes all attributes
    peer.components_ = counts = lda.components_.astype(float)
    peer.exp_dirichlet_component_ = np.exp(psi(counts) - psi(counts.sum(1, keepdims=True)))
    return peer


def perplexity(test, weights: np.ndarray, phi: np.ndarray) -> float:
    """Of the scored tokens, from the weights that the seen ones led to; φ is words by topics."""
    document = np.repeat(np.arange(len(weights)), np.diff(test.scored.indptr))
    p = np.einsum("jk,jk->j", weights[document], phi[test.scored.indices])
    return float(np.exp(-np.average(np.log(p), weights=test.scored.counts)))


def seconds(function, *arguments) -> float:
    started = time.process_time()
    function(*arguments)
    return time.process_time() - started


def with_tomotopy(train, seen, topics: int) -> dict:
    """Documents per second of `infer`, with its topics and weights; a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        for name, counts in (("train", train), ("seen", seen)):
            sparse.save_npz(Path(folder) / f"{name}.npz", counts)
        command = [python_for("with_topics.py", PACKAGES), HERE / "topic_weights.py", folder, str(topics)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        arrays = np.load(Path(folder) / "weights.npz")
        return json.loads(done.stdout) | {"phi": arrays["phi"], "weights": arrays["weights"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, nargs="?")
    parser.add_argument("--topics", type=int, default=200)
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--no-tomotopy", action="store_true")
    given = parser.parse_args()
    if given.corpus:
        train, held_out = open_corpus(given.corpus).split(given.documents)
        bags = [corpus.gather(np.arange(min(corpus.documents, FITTED))) for corpus in (train, held_out)]
        train, held_out = (matrix(each, len(train.words)) for each in bags)
    else:
        counts = simulated(given.topics, 5 * given.documents)
        train, held_out = counts[given.documents :], counts[: given.documents]
    lda = strang.LDA(given.topics, alpha=ALPHA, beta=BETA, random_state=0).fit(train)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    compare(lda, train, held_out, given)


def compare(lda: strang.LDA, train, held_out, given) -> None:
    peer, phi = with_sklearn(lda), lda.topic_word_.T.astype(float)
    test = split((held_out.indptr, held_out.indices, held_out.data))
    seen = matrix(test.seen, held_out.shape[1])
    for name, counts in (("half documents", seen), ("whole documents", held_out)):
        turns = np.array([[seconds(each.transform, counts) for each in (lda, peer)] for _ in range(given.repeats)])
        ratios, rates = turns[:, 1] / turns[:, 0], counts.shape[0] / turns.min(0)
        print(
            f"{name} of {counts.sum() / counts.shape[0]:.0f} tokens, K = {given.topics}: Strang {rates[0]:,.0f} per "
            f"CPU second, scikit-learn {rates[1]:,.0f}: {np.median(ratios):.2f} times ({ratios.min():.2f} to "
            f"{ratios.max():.2f} over {len(ratios)} turns)",
            flush=True,
        )
    many = topic_weights(test.seen, phi, alpha=ALPHA, sweeps=20 * SWEEPS)
    scores = [perplexity(test, weights, phi) for weights in (lda.transform(seen), peer.transform(seen), many)]
    print("perplexity of the other half: Strang {:.1f}, scikit-learn {:.1f}, 2,000 sweeps {:.1f}".format(*scores))
    print(f"  (by `strang.lda.completion`: {score_topics(test, phi, alpha=ALPHA):.1f})", flush=True)
    if not given.no_tomotopy:
        other = with_tomotopy(train, seen, given.topics)
        mine, its = seen.shape[0] / min(seconds(lda.transform, seen) for _ in range(5)), other["rate"]
        score = perplexity(test, other["weights"], other["phi"].T)
        print(
            f"tomotopy's infer (100 iterations): {its:,.0f} per CPU second, {mine / its:.1f} times slower; perplexity"
        )
        print(f"  {score:.1f} with topics of its own, from {other['trained']:,} documents")


if __name__ == "__main__":
    main()
