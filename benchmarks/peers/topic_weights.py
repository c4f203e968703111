"""Topic weights by tomotopy: python topic_weights.py FOLDER TOPICS

FOLDER has train.npz and seen.npz, SciPy's sparse matrices of counts; it gets weights.npz: `phi` (topics by words) and
`weights` (documents by topics). Prints the number of documents trained on, and documents inferred per CPU second.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import tomotopy
from scipy import sparse

ALPHA, BETA, TRAINED, PASSES, ITERATIONS = 0.1, 0.01, 20_000, 100, 100


def words_of(counts, row: int) -> list[str]:
    entries = slice(counts.indptr[row], counts.indptr[row + 1])
    return np.repeat(counts.indices[entries], counts.data[entries]).astype(str).tolist()


def main(folder: Path, topics: int) -> None:
    train, seen = (sparse.load_npz(folder / f"{name}.npz") for name in ("train", "seen"))
    model = tomotopy.LDAModel(k=topics, alpha=ALPHA, eta=BETA, seed=1, rm_top=0, min_cf=0, min_df=0)
    for word in range(train.shape[1]):  # every word, so that all can be scored
        model.add_doc([str(word)])
    trained = min(TRAINED, train.shape[0])
    for row in range(trained):
        if train.indptr[row + 1] > train.indptr[row]:
            model.add_doc(words_of(train, row))
    model.train(PASSES, workers=0)
    numbers = np.array([int(word) for word in model.used_vocabs])
    phi = np.zeros((topics, train.shape[1]))
    for k in range(topics):
        phi[k, numbers] = model.get_topic_word_dist(k)
    full = [row for row in range(seen.shape[0]) if seen.indptr[row + 1] > seen.indptr[row]]
    documents = [model.make_doc(words_of(seen, row)) for row in full]
    started = time.process_time()
    found, _ = model.infer(documents, iterations=ITERATIONS, workers=1)
    spent = time.process_time() - started
    weights = np.full((seen.shape[0], topics), 1 / topics)
    weights[full] = found
    np.savez(folder / "weights.npz", phi=phi, weights=weights)
    print(json.dumps({"trained": trained, "rate": len(full) / spent}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
