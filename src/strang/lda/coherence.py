"""Topic coherence: do the top words of a topic occur in the same documents?

The NPMI of two words is log(p_ij / (p_i p_j)) / −log p_ij, with p the fractions of documents that hold them: 1 if they
always occur together, 0 if they are independent, −1 if they never do. A topic's coherence is the mean over the pairs of
its top words.
"""

from typing import Any

import numpy as np

from strang.util.errors import InputError
from strang.util.progress import track

CHUNK_DOCUMENTS = 2000  # documents read at a time


def top_words(phi: Any, count: int = 10) -> np.ndarray:
    """Numbers of the `count` most probable words of every topic, (K, count), from φ (V, K)."""
    phi = np.asarray(phi)
    if not 2 <= count <= phi.shape[0]:
        raise InputError(f"count is {count}; write a number of words from 2 to {phi.shape[0]}.")
    return np.argsort(-phi, axis=0, kind="stable")[:count].T


def coherence(top: Any, corpus: Any, *, progress: bool | None = False) -> np.ndarray:
    """The NPMI coherence of every topic, from the numbers of its top words, over all documents of a corpus."""
    together = joint_counts(np.asarray(top), corpus, progress) / corpus.documents
    single = np.diagonal(together, axis1=1, axis2=2)
    with np.errstate(divide="ignore", invalid="ignore"):  # log 0 and 0/0 at the two ends of the scale
        npmi = np.log(together / (single[:, :, None] * single[:, None, :])) / -np.log(together)
    npmi = np.where(together == 0, -1.0, np.where(together == 1, 1.0, npmi))
    first, second = np.triu_indices(together.shape[1], 1)
    return npmi[:, first, second].mean(1)


def joint_counts(top: np.ndarray, corpus: Any, progress: bool | None) -> np.ndarray:
    """The number of documents in which words i and j of topic k both occur, (K, n, n)."""
    needed, columns = np.unique(top, return_inverse=True)
    columns, column_of = columns.reshape(top.shape), np.full(len(corpus.words), -1)
    column_of[needed] = np.arange(len(needed))
    total = np.zeros((*top.shape, top.shape[1]))
    for start in track(range(0, corpus.documents, CHUNK_DOCUMENTS), "coherence", progress):
        numbers = np.arange(start, min(start + CHUNK_DOCUMENTS, corpus.documents), dtype=np.uint32)
        indptr, indices, counts = corpus.gather(numbers)
        document, column = np.repeat(np.arange(len(numbers)), np.diff(indptr)), column_of[indices]
        used = (column >= 0) & (counts > 0)
        present = np.zeros((len(numbers), len(needed)), np.float32)
        present[document[used], column[used]] = 1
        by_topic = present.T[columns]  # topic, word, document
        total += by_topic @ by_topic.transpose(0, 2, 1)
    return total
