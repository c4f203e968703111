"""Latent Dirichlet allocation: topics φ_k ~ Dirichlet(β) over words, topic weights of a document ~ Dirichlet(α).

The position is one unconstrained vector t_k per topic, as columns of one array (V, K); the documents' topic weights and
the tokens' topics are integrated out. By Fisher's identity the gradient of log p(document | φ) needs only the expected
counts E[n_kw] of tokens of word w in topic k, which a compiled loop estimates. Four ways to write a topic (Patterson &
Teh 2013):

- `reduced-mean`: φ = (t, 1 − Σt), V − 1 numbers. A step out of the simplex ends the chain.
- `reduced-natural`: φ = softmax(t, 0), V − 1 numbers.
- `expanded-mean`: φ = |t| / Σ|t|, |t| ~ Gamma(β, 1): the sign is free, which mirrors steps at 0.
- `expanded-natural`: φ = softmax(t), e^t ~ Gamma(β, 1).

In the expanded ones φ does not depend on the sum Σ|t| or Σe^t, so that its distribution may be chosen: Gamma(Vβ + s)
with `scale` = s, Gamma(Vβ) without.
"""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.lda.kernels.documents import Documents, as_bags, kept_sweeps
from strang.lda.settings import PARAMETRISATIONS
from strang.lda.text.bags import Bags, take
from strang.util.errors import InputError, choose, need, whole
from strang.util.host import call_host
from strang.util.memory import check_fits

MAX_DOCUMENTS_READ = 10_000  # documents read together
MAX_SWEEPS = 10_000  # per gradient: the topics of all their tokens are kept
MIN_SIZE = 1e-30  # lower bound of |t| in divisions: rounding takes a mirrored number to 0 now and then


@dataclass(frozen=True)
class TopicModel:
    """The posterior of topics given documents, a model for `strang.sample`.

    A datum is a document: its word counts, a vector of V whole numbers; or with `documents` its number in that corpus,
    so that the data are `strang.data.arrays(np.arange(corpus.documents), batch_size=100)` whatever their size on disk.

    Args:
        topics: the number of topics K.
        vocabulary: the number of words V.
        alpha: the Dirichlet prior of a document's topic weights.
        beta: the Dirichlet prior of a topic's words.
        parametrisation: `reduced-mean`, `reduced-natural`, `expanded-mean` or `expanded-natural`; see the module.
        sweeps: Gibbs sweeps over a document's tokens per gradient, of which the latter half is counted. With few the
            gradient is noisier, and biased towards where the sweeps start.
        scale: s, for the expanded parametrisations. If it is about the number of tokens per topic, t is in the unit of
            counts, and a step h of SGRLD moves a topic by the fraction h towards its words' counts, whatever the size
            of the corpus: drift n + β − t − (Σn − s) φ.
        documents: a corpus of `strang.lda`, if data are document numbers.

    Raises:
        InputError: a setting is out of range, or the corpus has another number of words.

    Example:
        >>> TopicModel(topics=2, vocabulary=5).init(jax.random.key(0)).shape
        (5, 2)
    """

    topics: int
    vocabulary: int
    alpha: float = 0.1
    beta: float = 0.01
    parametrisation: str = "expanded-natural"
    sweeps: int = 10
    scale: float = 0.0
    documents: Any = field(default=None, repr=False, compare=False)
    corpus: str | None = field(init=False, default=None)  # the documents' fingerprint, which distinguishes models

    def __post_init__(self):
        for name, least, most in (("topics", 1, None), ("vocabulary", 2, None), ("sweeps", 1, MAX_SWEEPS)):
            object.__setattr__(self, name, whole(name, getattr(self, name), least, most))
        size = 4 * self.topics * self.vocabulary
        check_fits(f"topics is {self.topics}: {self.topics:,} topics of {self.vocabulary:,} words", size)
        for name in ("alpha", "beta"):
            if not (np.isscalar(getattr(self, name)) and 0 < getattr(self, name) < np.inf):
                raise InputError(f"{name} is {getattr(self, name)}; write a positive number.")
        if self.parametrisation not in PARAMETRISATIONS:
            raise choose("parametrisation", self.parametrisation, PARAMETRISATIONS)
        if not 0 <= self.scale < np.inf or (self.scale > 0 and not self.parametrisation.startswith("expanded")):
            raise InputError(f"scale is {self.scale}; write 0 or more, and 0 if the parametrisation is not expanded.")
        if self.documents is not None:
            words = len(self.documents.words)
            if words != self.vocabulary:
                raise InputError(f"the corpus has {words} words, not {self.vocabulary}; write vocabulary={words}.")
            object.__setattr__(self, "corpus", self.documents.fingerprint)

    def topics_of(self, position):
        """φ, (V, K): the words' probabilities, one topic per column."""
        if self.parametrisation == "reduced-mean":
            full = jnp.concatenate([position, 1 - position.sum(0, keepdims=True)])
            return full * jnp.where((full > 0).all(0), 1, jnp.nan).astype(full.dtype)
        if self.parametrisation == "reduced-natural":
            return jax.nn.softmax(jnp.concatenate([position, jnp.zeros_like(position[:1])]), axis=0)
        if self.parametrisation == "expanded-mean":
            return jnp.abs(position) / jnp.abs(position).sum(0)
        return jax.nn.softmax(position, axis=0)

    def log_prior(self, position):
        """The log prior density of t, Jacobian included."""
        if self.parametrisation == "expanded-natural":
            free = self.scale * jax.nn.logsumexp(position, axis=0).sum() if self.scale else 0.0
            return jnp.sum(self.beta * position - jnp.exp(position)) + free
        if self.parametrisation == "expanded-mean":
            size = jnp.abs(position)
            free = self.scale * jnp.log(size.sum(0)).sum() if self.scale else 0.0
            return jnp.sum((self.beta - 1) * jnp.log(jnp.maximum(size, MIN_SIZE)) - size) + free
        power = self.beta if self.parametrisation == "reduced-natural" else self.beta - 1
        return power * jnp.sum(jnp.log(self.topics_of(position)))

    def log_likelihood(self, position, datum):
        raise InputError("log p(document) has no closed form: score held-out documents with strang.lda.completion.")

    def init(self, key):
        """Draw topics from a flat Dirichlet, as |t| ~ Gamma(1, 1) if t is expanded; Σ|t| = `scale` if there is one."""
        size = jnp.maximum(jax.random.exponential(key, (self.vocabulary, self.topics)), 1e-6)
        if self.scale:
            size = size * (self.scale / size.sum(0))
        if self.parametrisation == "expanded-mean":
            return size
        if self.parametrisation == "expanded-natural":
            return jnp.log(size)
        if self.parametrisation == "reduced-natural":
            return jnp.log(size[:-1] / size[-1])
        return (size / size.sum(0))[:-1]

    def likelihood_gradient(self, position, rows, weights, key):
        """Estimate the gradient of Σ_i weights_i log p(row_i | position) from the expected counts."""
        if not isinstance(rows, Documents):
            shape = () if self.documents is not None else (self.vocabulary,)
            if rows.shape[1:] != shape or not jnp.issubdtype(rows.dtype, jnp.integer):
                expected = "numbers of documents" if shape == () else f"{self.vocabulary} whole counts each"
                raise InputError(f"data have shape {rows.shape} and dtype {rows.dtype}; LDA expects {expected}.")
        need("numba", "lda")
        phi, bits = self.topics_of(position), jax.random.key_data(key)
        result = jax.ShapeDtypeStruct(phi.shape, jnp.float32)
        given = phi.astype(jnp.float32), rows, weights, bits
        summed = call_host(self._count, result, *given, vmap_method="broadcast_all", out=True)
        return self.count_gradient(position, phi, summed.astype(position.dtype) / kept_sweeps(self.sweeps))

    def count_gradient(self, position, phi, counts):
        """The gradient of Σ_kw counts_kw log φ_kw; all arrays are (V, K) except the position."""
        if self.parametrisation == "reduced-mean":
            ratio = counts / phi
            return ratio[:-1] - ratio[-1]
        total = counts.sum(0)
        if self.parametrisation == "expanded-mean":
            size = jnp.abs(position)
            return jnp.sign(position) * (counts / jnp.maximum(size, MIN_SIZE) - total / size.sum(0))
        return (counts - total * phi)[: position.shape[0]]

    def _count(self, phi, rows, weights, bits, out=None):
        """Sum the counts of the kept sweeps on the host, chains leading. (Stored runs' fingerprints have its name.)"""
        from strang.lda.kernels.gibbs import add_up_counts
        from strang.util.host_random import streams

        result = np.empty(phi.shape, np.float32) if out is None else out
        result[...] = 0
        for chain in np.ndindex(phi.shape[:-2]):
            own = jax.tree.map(lambda array: array[chain], rows)  # noqa: B023
            seeds, used = streams(bits[chain], weights.shape[-1]), np.flatnonzero(weights[chain])
            for numbers in np.split(used, range(MAX_DOCUMENTS_READ, len(used), MAX_DOCUMENTS_READ)):
                settings = {"alpha": self.alpha, "sweeps": self.sweeps, "weights": weights[chain][numbers]}
                add_up_counts(phi[chain], self._gather(own, numbers), seeds[numbers], result[chain], **settings)
        return result

    def _gather(self, rows, numbers) -> Documents:
        """These rows as bags of words."""
        if isinstance(rows, Documents):
            chosen = take(Bags(np.diff(rows.indptr), rows.indices, rows.counts), numbers)
            return Documents(chosen.offsets, chosen.ids, chosen.counts)
        return as_bags(rows[numbers]) if self.documents is None else Documents(*self.documents.gather(rows[numbers]))


def current_topics(model: TopicModel, chain: Any) -> np.ndarray:
    """φ of the first chain, (V, K), on the host."""
    return np.asarray(model.topics_of(chain.state.position[0]), np.float32)
