"""Corpora in memory that share one compiled program, walked through batch by batch.

A program is compiled for a model, the number of its data and their order. A shelf stands for whatever corpora lie on
it, each under document numbers of its own, and the data of a step are the numbers of one batch: so fits with as many
topics, words and documents a batch, and about as many tokens, compile once, and new documents may come at any time.
"""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from ..chain import Chain, Inputs, Program, advance
from ..data import Batch, Data
from ..gradient import Minibatch, batch_gradient
from ..tree import Tree
from .corpus import Corpus


class Shelf:
    """Stands for any corpus of so many words and about so many tokens, a batch of whose documents is wanted at a time.
    All shelves of a process have the same corpora, so that a program compiled with one serves the others."""

    corpora: ClassVar[dict[int, Corpus]] = {}
    lock = threading.Lock()

    def __init__(self, words: int, batch: int, tokens: float):
        self.words, self.documents = range(words), batch
        self.tokens = 2.0 ** round(np.log2(tokens))  # it is compiled in, and its size is all that matters
        self.fingerprint = f"a shelf for {words} words"

    @contextmanager
    def holding(self, corpus: Corpus) -> Iterator[int]:
        """With the corpus on the shelf; gives the number of its first document. The one after its last is empty."""
        with self.lock:
            first = max((begin + one.documents + 1 for begin, one in self.corpora.items()), default=0)
            self.corpora[first] = corpus
        try:
            yield first
        finally:
            with self.lock:
                del self.corpora[first]

    def gather(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """These documents, all of one corpus and empty ones last, as (indptr, indices, counts)."""
        with self.lock:
            first = max(begin for begin in self.corpora if begin <= numbers.min())
            corpus = self.corpora[first]
        own = numbers.astype(np.int64) - first
        filled = own < corpus.documents
        indptr, indices, counts = corpus.gather(own[filled])
        return indptr[np.append(0, np.cumsum(filled))], indices, counts


@dataclass(frozen=True)
class Spokesmen(Minibatch):
    """All rows are one batch, and a number of the run says how many documents each of them speaks for."""

    def __call__(self, model, data: Data, shared, carried, position: Tree, batch: Batch, key) -> Tree:
        return batch_gradient(model, position, Batch(data.rows, None, shared), key)


def walk(
    program: Program, inputs: Inputs, chain: Chain, corpus: Corpus, batches: Iterable[np.ndarray], total: float
) -> Iterator[Chain]:
    """The chain after each batch of the corpus's document numbers, which speaks for `total` documents; one with fewer
    than the others is filled up with empty documents."""
    with program.model.documents.holding(corpus) as first:
        for numbers in batches:
            rows = np.full(inputs.data.batch, corpus.documents)
            rows[: len(numbers)] = numbers
            data = replace(inputs.data, rows=jnp.asarray(first + rows, jnp.uint32))
            own = inputs._replace(data=data, shared=jnp.float32(total / len(numbers)))
            chain, _ = advance(program, own, chain, chain.step + 1)
            chain.step.block_until_ready()  # the corpus must be on the shelf until then
            yield chain


def shuffled(documents: int, batch: int, seed: int) -> Iterator[np.ndarray]:
    """Batches of document numbers for ever: one pass after the other, each in a random order of its own."""
    rng, left = np.random.default_rng(seed), np.empty(0, np.int64)
    while True:
        while len(left) < batch:
            left = np.append(left, rng.permutation(documents))
        yield left[:batch]
        left = left[batch:]


def in_order(documents: int, batch: int) -> Iterator[np.ndarray]:
    """One pass in the order of the corpus."""
    for begin in range(0, documents, batch):
        yield np.arange(begin, min(begin + batch, documents))
