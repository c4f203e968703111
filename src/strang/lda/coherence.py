"""Topic coherence: do a topic's first words occur in the same documents?

NPMI of a pair of words is log(p_ij / (p_i p_j)) / −log p_ij with p the shares of documents that hold them: 1 where they
come together always, 0 where they are independent, −1 where they never meet. A topic's coherence is the mean over the
pairs of its first words.
"""

from typing import Any

import numpy as np

from strang.util.errors import InputError
from strang.util.progress import track

CHUNK = 2000  # documents looked at together


def top_words(phi: Any, count: int = 10) -> np.ndarray:
    """Numbers of the `count` most probable words of every topic, (K, count), from φ (V, K)."""
    phi = np.asarray(phi)
    if not 2 <= count <= phi.shape[0]:
        raise InputError(f"count is {count}; write a number of words from 2 to {phi.shape[0]}.")
    return np.argsort(-phi, axis=0, kind="stable")[:count].T


def coherence(top: Any, corpus: Any, *, progress: bool | None = False) -> np.ndarray:
    """The NPMI coherence of every topic, given its first words, over a corpus's documents, read once in chunks."""
    together = meetings(np.asarray(top), corpus, progress) / corpus.documents
    alone = np.diagonal(together, axis1=1, axis2=2)
    with np.errstate(divide="ignore", invalid="ignore"):  # log 0 and 0/0 at the two ends of the scale
        npmi = np.log(together / (alone[:, :, None] * alone[:, None, :])) / -np.log(together)
    npmi = np.where(together == 0, -1.0, np.where(together == 1, 1.0, npmi))
    first, second = np.triu_indices(together.shape[1], 1)
    return npmi[:, first, second].mean(1)


def meetings(top: np.ndarray, corpus: Any, progress: bool | None) -> np.ndarray:
    """In how many documents words i and j of topic k both occur, (K, n, n)."""
    needed, column = np.unique(top, return_inverse=True)
    column, place = column.reshape(top.shape), np.full(len(corpus.words), -1)
    place[needed] = np.arange(len(needed))
    total = np.zeros((*top.shape, top.shape[1]))
    starts = range(0, corpus.documents, CHUNK)
    for start in track(starts, "coherence", progress):
        numbers = np.arange(start, min(start + CHUNK, corpus.documents), dtype=np.uint32)
        indptr, indices, counts = corpus.gather(numbers)
        owner, where = np.repeat(np.arange(len(numbers)), np.diff(indptr)), place[indices]
        used = (where >= 0) & (counts > 0)
        present = np.zeros((len(numbers), len(needed)), np.float32)
        present[owner[used], where[used]] = 1
        held = present.T[column]  # topic, word, document
        total += held @ held.transpose(0, 2, 1)
    return total
