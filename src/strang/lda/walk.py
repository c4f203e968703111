"""Advancing a `strang.Stepper` through a corpus in memory, batch by batch."""

from collections.abc import Iterable, Iterator

import numpy as np

from strang.lda.corpus import Corpus
from strang.lda.kernels.documents import Documents
from strang.run.stepper import Stepper
from strang.sampling.chain import Chain
from strang.util.errors import InputError

MIN_ENTRIES = 1 << 10  # that a padded batch has room for


def walk(
    stepper: Stepper, chain: Chain, corpus: Corpus, batches: Iterable[np.ndarray], total: float, settings: dict
) -> Iterator[Chain]:
    """Yield the chain after each batch of document numbers, scaled to `total` documents; raises if it diverges."""
    for numbers in batches:
        rows, weights = padded(corpus, numbers, settings["batch_size"])
        chain = stepper.step(chain, rows, size=total, weights=weights)
        if not chain.alive[0]:
            raise InputError(
                f"the chain diverged at step {int(chain.diverged_at[0])} with step_size={settings['step_size']:.3g}; "
                "write a smaller one."
            )
        yield chain


def padded(corpus: Corpus, numbers: np.ndarray, batch_size: int) -> tuple[Documents, np.ndarray]:
    """These documents, padded to a power of two of entries and with empty documents of weight 0 to `batch_size`, so
    that batches of about equal size share a compilation."""
    indptr, indices, counts = corpus.gather(numbers)
    surplus = max(MIN_ENTRIES, 1 << (len(indices) - 1).bit_length()) - len(indices)
    missing = batch_size - len(numbers)
    ends = np.pad(indptr, (0, missing), mode="edge").astype(np.int32)
    rows = Documents(ends, np.pad(indices, (0, surplus)), np.pad(counts, (0, surplus)))
    return rows, np.pad(np.ones(len(numbers), np.float32), (0, missing))


def shuffled(documents: int, batch_size: int, seed: int) -> Iterator[np.ndarray]:
    """Yield batches of document numbers without end, each pass in a random order of its own."""
    rng, rest = np.random.default_rng(seed), np.empty(0, np.int64)
    while True:
        while len(rest) < batch_size:
            rest = np.append(rest, rng.permutation(documents))
        yield rest[:batch_size]
        rest = rest[batch_size:]
