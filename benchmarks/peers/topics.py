"""Topics by other libraries: python topics.py LIBRARY BAGS.npz OUT --topics K --seconds S [--passes P]

BAGS has indptr, indices, counts and the size of the vocabulary; OUT gets phi-<cpu seconds>-<passes>.npy after every
pass (topics by words, rows adding up to 1), until so many CPU seconds or passes are spent. The clock is the process's
CPU time while it trains: neither imports nor conversions count.
"""

import argparse
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

ALPHA, BETA, SEED = 0.1, 0.01, 0


class Watch:
    """CPU seconds spent inside `with`."""

    seconds = 0.0

    def __enter__(self):
        self.started = time.process_time()

    def __exit__(self, *_):
        self.seconds += time.process_time() - self.started


def with_sklearn(bags, topics, watch, batch=512):
    """Online variational Bayes, as `fit` does it, a pass at a time."""
    from scipy.sparse import csr_matrix
    from sklearn.decomposition import LatentDirichletAllocation

    matrix = csr_matrix(
        (bags["counts"].astype(float), bags["indices"], bags["indptr"]), (len(bags["indptr"]) - 1, bags["words"])
    )
    model = LatentDirichletAllocation(
        topics,
        doc_topic_prior=ALPHA,
        topic_word_prior=BETA,
        learning_method="online",
        batch_size=batch,
        total_samples=matrix.shape[0],
        random_state=SEED,
    )
    while True:
        for first in range(0, matrix.shape[0], batch):
            rows = matrix[first : first + batch]
            with watch:
                model.partial_fit(rows)
        yield model.components_ / model.components_.sum(1, keepdims=True)


def with_gensim(bags, topics, watch, batch=512):
    """Online variational Bayes, a pass at a time."""
    from gensim.models import LdaModel

    corpus = [
        list(zip(bags["indices"][a:b].tolist(), bags["counts"][a:b].tolist(), strict=True))
        for a, b in pairwise(bags["indptr"])
    ]
    names = {word: str(word) for word in range(int(bags["words"]))}
    model = LdaModel(
        id2word=names, num_topics=topics, alpha=[ALPHA] * topics, eta=BETA, chunksize=batch, random_state=SEED
    )
    model.eval_every = None
    while True:
        with watch:
            model.update(corpus, chunksize=batch)
        yield model.get_topics()


def with_tomotopy(bags, topics, watch, rounds=5):
    """Collapsed Gibbs sampling, the whole corpus in memory; a look after every few passes."""
    import tomotopy

    model = tomotopy.LDAModel(k=topics, alpha=ALPHA, eta=BETA, seed=SEED + 1, rm_top=0, min_cf=0, min_df=0)
    for a, b in pairwise(bags["indptr"]):
        if b > a:
            model.add_doc(np.repeat(bags["indices"][a:b], bags["counts"][a:b]).astype(str).tolist())
    model.optim_interval = 0  # α as given, like the others
    with watch:
        model.train(0, workers=2)
    place = np.array([int(word) for word in model.used_vocabs])
    while True:
        with watch:
            model.train(rounds, workers=2)
        known = np.array([model.get_topic_word_dist(k) for k in range(topics)])
        found = np.tile(known.min(1, keepdims=True), (1, int(bags["words"])))  # a word it has not met has no counts
        found[:, place] = known
        yield found / found.sum(1, keepdims=True)


LIBRARIES = {
    "scikit-learn": (with_sklearn, 1),
    "gensim": (with_gensim, 1),
    "tomotopy": (with_tomotopy, 5),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("bags", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--topics", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--passes", type=int, default=10**6)
    given = parser.parse_args()
    trainer, at_once = LIBRARIES[given.library]
    bags, watch, started = dict(np.load(given.bags)), Watch(), time.perf_counter()
    for number, phi in enumerate(trainer(bags, given.topics, watch), start=1):
        name = f"phi-{watch.seconds:.2f}-{number * at_once}.npy"
        np.save(given.out / name, phi.astype(np.float32))
        if watch.seconds >= given.seconds or number * at_once >= given.passes:
            break
    print(f"{given.library}: {watch.seconds:.1f} CPU s, {time.perf_counter() - started:.1f} s in all")


if __name__ == "__main__":
    main()
