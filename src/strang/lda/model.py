"""Latent Dirichlet allocation: topics φ_k ~ Dirichlet(β) over words; a document has shares ~ Dirichlet(α) of them.

The position is one unconstrained vector t_k a topic, as columns of one array (V, K); shares and tokens' topics are
integrated out. By Fisher's identity the gradient of log p(document | φ) needs the expected counts E[n_kw] of tokens of
word w in topic k only, which a compiled loop estimates. Four ways to write a topic (Patterson & Teh 2013):

- `reduced-mean`: φ = (t, 1 − Σt), V − 1 numbers. A step out of the simplex ends the chain.
- `reduced-natural`: φ = softmax(t, 0), V − 1 numbers.
- `expanded-mean`: φ = |t| / Σ|t|, |t| ~ Gamma(β, 1): the sign is free, which mirrors steps at 0.
- `expanded-natural`: φ = softmax(t), e^t ~ Gamma(β, 1).

In the expanded ones the sum Σ|t| or Σe^t says nothing about φ, so that its law may be chosen: with `scale` = s it is
Gamma(Vβ + s), without it Gamma(Vβ).
"""

import importlib.util
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.lda.kernels.documents import Documents, as_bags
from strang.util.errors import InputError, choose, whole
from strang.util.host import on_host

PARAMETRISATIONS = ("reduced-mean", "reduced-natural", "expanded-mean", "expanded-natural")
GATHERED = 10_000  # documents read together
TINY = 1e-30  # |t| below this counts as this where it divides: rounding takes a mirrored number to 0 now and then


@dataclass(frozen=True)
class TopicModel:
    """`topics` over a `vocabulary` of so many words.

    A datum is a document: its word counts, a vector of V whole numbers; or with `documents`, a corpus of `strang.lda`,
    its number there, so that the data are `strang.data.arrays(np.arange(corpus.documents), batch=100)` whatever their
    size on disk. `sweeps` Gibbs sweeps over a document's tokens are made at every visit and the latter half of them
    counted: the fewer, the noisier the gradient, and the more it is drawn to where the sweeps start.

    Where `scale` is about the number of tokens of a topic, t is in the unit of counts: a step h of SGRLD then takes a
    topic the share h of the way to its words' counts, whatever the size of the corpus: drift n + β − t − (Σn − s) φ.

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
    corpus: str | None = field(init=False, default=None)  # the documents' fingerprint, by which models are told apart

    def __post_init__(self):
        for name, least in (("topics", 1), ("vocabulary", 2), ("sweeps", 1)):
            object.__setattr__(self, name, whole(name, getattr(self, name), least))
        for name in ("alpha", "beta"):
            if not (np.isscalar(getattr(self, name)) and 0 < getattr(self, name) < np.inf):
                raise InputError(f"{name} is {getattr(self, name)}; write a positive number.")
        if self.parametrisation not in PARAMETRISATIONS:
            raise choose("parametrisation", self.parametrisation, PARAMETRISATIONS)
        if not 0 <= self.scale < np.inf or (self.scale > 0 and not self.parametrisation.startswith("expanded")):
            raise InputError(
                f"scale is {self.scale}; write 0 or more, and 0 where the parametrisation is not expanded."
            )
        if self.documents is not None:
            words = len(self.documents.words)
            if words != self.vocabulary:
                raise InputError(f"the corpus has {words} words, not {self.vocabulary}; write vocabulary={words}.")
            object.__setattr__(self, "corpus", self.documents.fingerprint)

    def topics_of(self, position):
        """φ, (V, K): the words' probabilities, one topic a column."""
        if self.parametrisation == "reduced-mean":
            full = jnp.concatenate([position, 1 - position.sum(0, keepdims=True)])
            return full * jnp.where((full > 0).all(0), 1, jnp.nan).astype(full.dtype)
        if self.parametrisation == "reduced-natural":
            return jax.nn.softmax(jnp.concatenate([position, jnp.zeros_like(position[:1])]), axis=0)
        if self.parametrisation == "expanded-mean":
            return jnp.abs(position) / jnp.abs(position).sum(0)
        return jax.nn.softmax(position, axis=0)

    def log_prior(self, position):
        """The logarithm of t's prior density, Jacobian included."""
        if self.parametrisation == "expanded-natural":
            free = self.scale * jax.nn.logsumexp(position, axis=0).sum() if self.scale else 0.0
            return jnp.sum(self.beta * position - jnp.exp(position)) + free
        if self.parametrisation == "expanded-mean":
            size = jnp.abs(position)
            free = self.scale * jnp.log(size.sum(0)).sum() if self.scale else 0.0
            return jnp.sum((self.beta - 1) * jnp.log(jnp.maximum(size, TINY)) - size) + free
        power = self.beta if self.parametrisation == "reduced-natural" else self.beta - 1
        return power * jnp.sum(jnp.log(self.topics_of(position)))

    def log_likelihood(self, position, datum):
        raise InputError(
            "log p(document) of LDA has no closed form: score held-out documents with strang.lda.completion instead."
        )

    def init(self, key):
        """Topics from a flat Dirichlet, as |t| ~ Gamma(1, 1) where t is expanded; Σ|t| = `scale` if there is one."""
        shape = (self.vocabulary, self.topics)
        size = jnp.maximum(jax.random.exponential(key, shape), 1e-6)
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
        """The gradient of Σ_i weights_i log p(row_i | position), estimated from the expected counts."""
        if not isinstance(rows, Documents):
            self._check_rows(rows)
        if importlib.util.find_spec("numba") is None:
            raise InputError("LDA needs Numba: pip install 'strang[lda]'.")
        phi = self.topics_of(position)
        result, words = jax.ShapeDtypeStruct(phi.shape, jnp.float32), jax.random.key_data(key)
        summed = on_host(self._count, result, phi.astype(jnp.float32), rows, weights, words)
        return self.count_gradient(position, phi, summed.astype(position.dtype) / (self.sweeps - self.sweeps // 2))

    def _check_rows(self, rows) -> None:
        shape = () if self.documents is not None else (self.vocabulary,)
        if rows.shape[1:] != shape or not jnp.issubdtype(rows.dtype, jnp.integer):
            expected = "numbers of documents" if self.documents is not None else f"{self.vocabulary} whole counts each"
            raise InputError(f"data have shape {rows.shape} and dtype {rows.dtype}; LDA expects {expected}.")

    def count_gradient(self, position, phi, counts):
        """The gradient of Σ_kw counts_kw log φ_kw, (V, K) all but the position."""
        if self.parametrisation == "reduced-mean":
            ratio = counts / phi
            return ratio[:-1] - ratio[-1]
        total = counts.sum(0)
        if self.parametrisation == "expanded-mean":
            size = jnp.abs(position)
            return jnp.sign(position) * (counts / jnp.maximum(size, TINY) - total / size.sum(0))
        return (counts - total * phi)[: position.shape[0]]

    def _count(self, phi, rows, weights, key):
        """Counts on the host, summed over the sweeps kept; chains lead all arrays."""
        from strang.lda.kernels.gibbs import add_up_counts
        from strang.util.host_random import streams

        result = np.zeros(phi.shape, np.float32)
        for chain in np.ndindex(phi.shape[:-2]):
            given = jax.tree.map(lambda array: array[chain], rows)  # noqa: B023
            seeds = streams(key[chain], weights.shape[-1])
            used = np.flatnonzero(weights[chain])
            for few in np.split(used, range(GATHERED, len(used), GATHERED)):
                settings = {"alpha": self.alpha, "sweeps": self.sweeps, "weights": weights[chain][few]}
                add_up_counts(phi[chain], self._gather(given, few), seeds[few], result[chain], **settings)
        return result

    def _gather(self, rows, few) -> Documents:
        """Some of the rows as bags of words."""
        if isinstance(rows, Documents):
            return rows.between(few[0], few[-1] + 1) if len(few) else rows.between(0, 0)
        return as_bags(rows[few]) if self.documents is None else Documents(*self.documents.gather(rows[few]))
