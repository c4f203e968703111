"""A corpus in memory, walked through batch by batch by a `strang.Stepper`."""

from collections.abc import Iterable, Iterator

import numpy as np

from strang.lda.corpus import Corpus
from strang.lda.kernels.documents import Documents
from strang.run.stepper import Stepper
from strang.sampling.chain import Chain

SMALLEST = 1 << 10  # entries that a batch has room for


def walk(
    stepper: Stepper, chain: Chain, corpus: Corpus, batches: Iterable[np.ndarray], batch_size: int, total: float
) -> Iterator[Chain]:
    """The chain after each batch of the corpus's document numbers, which stands for `total` documents."""
    for numbers in batches:
        rows, weights = padded(corpus, numbers, batch_size)
        chain = stepper.step(chain, rows, size=total, weights=weights)
        yield chain


def padded(corpus: Corpus, numbers: np.ndarray, batch_size: int) -> tuple[Documents, np.ndarray]:
    """These documents with room for a power of two of entries, and empty documents of weight 0 up to `batch_size`: so
    that batches of about as many words share a compilation."""
    indptr, indices, counts = corpus.gather(numbers)
    room = max(SMALLEST, 1 << (len(indices) - 1).bit_length())
    surplus, missing = room - len(indices), batch_size - len(numbers)
    rows = Documents(
        np.pad(indptr, (0, missing), mode="edge").astype(np.int32),
        np.pad(indices, (0, surplus)),
        np.pad(counts, (0, surplus)),
    )
    return rows, np.pad(np.ones(len(numbers), np.float32), (0, missing))


def shuffled(documents: int, batch_size: int, seed: int) -> Iterator[np.ndarray]:
    """Batches of document numbers for ever: one pass after the other, each in a random order of its own."""
    rng, left = np.random.default_rng(seed), np.empty(0, np.int64)
    while True:
        while len(left) < batch_size:
            left = np.append(left, rng.permutation(documents))
        yield left[:batch_size]
        left = left[batch_size:]


def in_order(documents: int, batch_size: int) -> Iterator[np.ndarray]:
    """One pass in the order of the corpus."""
    for begin in range(0, documents, batch_size):
        yield np.arange(begin, min(begin + batch_size, documents))
