"""`strang.LDA`: topics by scikit-learn's conventions, for matrices of word counts in memory."""

from copy import copy
from itertools import islice
from numbers import Integral
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from strang.lda.completion import document_shares, score_topics, split, topic_shares
from strang.lda.corpus import Corpus, from_matrix
from strang.lda.fitting import DEFAULTS, model_of, motion_of
from strang.lda.settings import completed, looked_at
from strang.lda.walk import in_order, shuffled, walk
from strang.run.stepper import Stepper
from strang.sampling.chain import Chain
from strang.util.errors import InputError
from strang.util.progress import bar

GLANCE = 1000  # documents whose shares of the topics give the topics' sizes
POWER = 3  # weights of samples in a stream grow like this power of their number: the first half has 1/16
SAME = (
    "batch_size", "alpha", "beta", "dynamics", "integrator", "step_size", "decay", "delay", "friction",
    "parametrisation", "sweeps", "samples",
)  # fmt: skip


class Topics(NamedTuple):
    """Running moments of φ, words by topics, over so many posterior samples."""

    mean: np.ndarray
    variance: np.ndarray
    samples: int

    def with_sample(self, phi: np.ndarray, gain: float) -> "Topics":
        """One more, with this share of all weight."""
        change = phi - self.mean
        return Topics(self.mean + gain * change, (1 - gain) * (self.variance + gain * change**2), self.samples + 1)


class LDA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Latent Dirichlet allocation by stochastic-gradient MCMC, for whole-number counts: documents by words, dense or
    SciPy sparse, such as CountVectorizer's.

    `n_components` topics; `alpha` and `beta` are the priors of a document's shares of topics and of a topic's words;
    `max_iter` passes over the documents in batches of `batch_size`; the latter half of the steps is averaged over
    `samples` posterior samples. These and `dynamics`, `integrator`, `step_size`, `decay`, `delay` (h, a and d of
    h (1 + l/d)^-a), `friction`, `parametrisation` and `sweeps` are those of `strang lda fit`; where they are None they
    are chosen from the corpus's size. `total_samples` is how many documents a stream given to `partial_fit` will have,
    where it does not go on with a fit.

    After a fit: `topic_word_` (topics by words, the posterior mean, rows add up to 1) and `topic_word_sd_` (its
    standard deviation over the samples, not a number while there is only one); `topic_share_`, what part of all tokens
    each topic has; `components_`, pseudocounts as in scikit-learn: `topic_word_` times the tokens of the topic;
    `n_iter_` (passes), `n_steps_`, `n_samples_` (posterior samples averaged), `settings_` (as chosen).
    """

    def __init__(
        self,
        n_components=DEFAULTS["topics"],
        *,
        alpha=DEFAULTS["alpha"],
        beta=DEFAULTS["beta"],
        max_iter=None,
        batch_size=None,
        dynamics=DEFAULTS["dynamics"],
        integrator=None,
        step_size=None,
        decay=None,
        delay=None,
        friction=None,
        parametrisation=None,
        sweeps=DEFAULTS["sweeps"],
        samples=DEFAULTS["samples"],
        total_samples=1e6,
        random_state=None,
        verbose=False,
    ):
        self.n_components = n_components
        self.alpha = alpha
        self.beta = beta
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.dynamics = dynamics
        self.integrator = integrator
        self.step_size = step_size
        self.decay = decay
        self.delay = delay
        self.friction = friction
        self.parametrisation = parametrisation
        self.sweeps = sweeps
        self.samples = samples
        self.total_samples = total_samples
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X, y=None):
        """Learn topics from counts, from the beginning; where that fails, what was learnt before stays."""
        self.__dict__ = copy(self)._learnt(X).__dict__
        return self

    def _learnt(self, X):
        corpus = self._corpus(X, reset=True)
        settings = self._settings(corpus)
        stepper = stepper_of(settings, len(corpus.words), corpus.tokens)
        batch_size = min(settings["batch_size"], corpus.documents)
        steps = max(2, round(settings["passes"] * corpus.documents / batch_size))
        batches = islice(shuffled(corpus.documents, batch_size, settings["seed"]), steps)
        topics, chain = nothing(stepper), stepper.start()
        with bar(steps, "learning topics", bool(self.verbose)) as done:
            moved = walk(stepper, chain, corpus, batches, settings["batch_size"], corpus.documents)
            for step, chain in enumerate(moved, start=1):
                check(chain, settings)
                if step > steps // 2 and looked_at(step, steps, settings["samples"]):
                    topics = topics.with_sample(topics_of(stepper, chain), 1 / (topics.samples + 1))
                done(step)
        self.settings_, self._stepper = settings, stepper
        self._tokens, self._total = corpus.tokens, corpus.documents
        self.n_iter_ = max(1, round(steps * batch_size / corpus.documents))
        return self._settle(chain, topics, self._sizes(corpus, GLANCE, topics), corpus.tokens)

    def partial_fit(self, X, y=None):
        """Go on with new documents, each seen once; they are taken for a part of `total_samples` in all, or after a
        fit for a part of as many as that had.

        The chain goes on where it was, with the settings and the total of the first call, which its steps were chosen
        for. Topics are averaged over all calls, late samples counting more than early ones, so that what came before
        the chain had settled is soon forgotten.
        """
        known = hasattr(self, "topic_word_")
        corpus = self._corpus(X, reset=not known)
        if not 1 <= self.total_samples < np.inf:
            raise InputError(f"total_samples is {self.total_samples}; write how many documents there will be in all.")
        if not known:
            part = max(1.0, self.total_samples / corpus.documents)
            whole = Corpus(corpus.shards, corpus.words, corpus.mark, repeat=round(part))
            self.settings_, self.n_iter_, self.topic_share_ = self._settings(whole), 0, np.zeros(())
            self._tokens, self._total = whole.tokens, part * corpus.documents
        settings = self.settings_
        if not (known and hasattr(self, "_stepper")):  # at first, and out of a file
            self._stepper = stepper_of(settings, len(corpus.words), self._tokens)
        stepper = self._stepper
        chain, topics = (self._chain, self._topics) if known else (stepper.start(), nothing(stepper))
        steps = -(-corpus.documents // settings["batch_size"])
        every = max(1, steps // settings["samples"])
        batches = in_order(corpus.documents, settings["batch_size"])
        moved = walk(stepper, chain, corpus, batches, settings["batch_size"], self._total)
        for step, chain in enumerate(moved, start=1):
            check(chain, settings)
            if step % every == 0:
                topics = topics.with_sample(topics_of(stepper, chain), (POWER + 1) / (topics.samples + 1 + POWER))
        self.n_iter_ += 1
        sizes = self._sizes(corpus, corpus.documents // 10, topics)
        gain = (POWER + 1) / (self.n_iter_ + POWER)
        share = self.topic_share_ + gain * (sizes - self.topic_share_)
        return self._settle(chain, topics, share, self._total / corpus.documents * corpus.tokens)

    def transform(self, X):
        """Each document's expected shares of the topics; rows add up to 1. A document's shares depend on its words
        alone; one without words has equal shares."""
        check_is_fitted(self, "topic_word_")
        corpus = self._corpus(X, reset=False)
        shares = document_shares(
            corpus.gather(np.arange(corpus.documents)), self.topic_word_.T, alpha=self.settings_["alpha"], key=None
        ).astype(float)
        return shares / shares.sum(1, keepdims=True)

    def perplexity(self, X) -> float:
        """exp(−mean log p) of half of each document's tokens, foretold from the other half: document completion."""
        check_is_fitted(self, "topic_word_")
        return self._perplexity(self._corpus(X, reset=False))

    def score(self, X, y=None) -> float:
        """About the log likelihood of all tokens: −log(perplexity) times their number."""
        check_is_fitted(self, "topic_word_")
        corpus = self._corpus(X, reset=False)
        return -float(np.log(self._perplexity(corpus))) * corpus.tokens

    def pyldavis_inputs(self, X, vocabulary=None) -> dict[str, Any]:
        """What `pyLDAvis.prepare(**inputs)` takes, for these documents; those without words are left out, since it
        divides by their lengths. `vocabulary` has the words in the order of the columns, such as
        `vectorizer.get_feature_names_out()`; by default the names that `fit` saw, or numbers."""
        shares, counts = self.transform(X), sparse.csr_array(X)
        words = getattr(self, "feature_names_in_", range(self.n_features_in_)) if vocabulary is None else vocabulary
        if len(words) != self.n_features_in_:
            raise InputError(f"the vocabulary has {len(words):,} words, the topics {self.n_features_in_:,}.")
        lengths, topics = counts.sum(1), self.topic_word_.astype(float)
        return {
            "topic_term_dists": topics / topics.sum(1, keepdims=True),
            "doc_topic_dists": shares[lengths > 0],
            "doc_lengths": lengths[lengths > 0],
            "vocab": [str(word) for word in words],
            "term_frequency": counts.sum(0),
        }

    @property
    def _n_features_out(self) -> int:
        return len(self.topic_word_)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.positive_only = True
        return tags

    def __getstate__(self):
        """Without what is compiled; it is made again where it is needed."""
        return {name: value for name, value in super().__getstate__().items() if name != "_stepper"}

    def _corpus(self, X, reset: bool) -> Corpus:
        """The counts, checked."""
        least = 2 if reset else 1  # later on a wrong number of words has an error of its own
        return from_matrix(
            validate_data(
                self, X, reset=reset, accept_sparse="csr", ensure_non_negative=True, ensure_min_features=least
            )
        )

    def _perplexity(self, corpus: Corpus) -> float:
        test = split(corpus.gather(np.arange(corpus.documents)))
        return score_topics(test, self.topic_word_.T, alpha=self.settings_["alpha"])

    def _settings(self, corpus: Corpus) -> dict[str, Any]:
        """Those of `strang lda fit`, with what follows from a corpus of this size."""
        if corpus.tokens == 0:
            raise InputError("the documents hold no word at all.")
        seed = self.random_state
        if not isinstance(seed, Integral):
            seed = check_random_state(seed).randint(2**31 - 1)
        renamed = {"topics": self.n_components, "passes": self.max_iter, "seed": int(seed)}
        return completed({**DEFAULTS, **renamed, **{name: getattr(self, name) for name in SAME}}, corpus)

    def _sizes(self, corpus: Corpus, documents: int, topics: Topics) -> np.ndarray:
        """What part of the tokens each topic has, by a look at so many documents."""
        chosen = np.linspace(0, corpus.documents - 1, min(max(documents, 1), corpus.documents)).astype(int)
        return topic_shares(corpus.gather(chosen), topics.mean, alpha=self.settings_["alpha"])

    def _settle(self, chain: Chain, topics: Topics, share: np.ndarray, tokens: float):
        """What there is to see after the chain has moved on."""
        self._chain, self._topics, self.n_steps_ = jax.tree.map(np.asarray, chain), topics, int(chain.step)
        self.topic_share_, self.n_samples_ = share, topics.samples
        self.topic_word_ = topics.mean.T
        spread = np.sqrt(topics.variance) if topics.samples > 1 else np.full_like(topics.mean, np.nan)
        self.topic_word_sd_ = spread.T
        prior = self.n_features_in_ * self.settings_["beta"]
        self.components_ = self.topic_word_ * (share * tokens + prior)[:, None].astype(np.float32)
        return self


def stepper_of(settings: dict[str, Any], words: int, tokens: float) -> Stepper:
    """What runs one batch after the other, for about so many tokens in all: their number is compiled in, and its size
    is all that matters, so that it is rounded to a power of two."""
    model = model_of(settings, words, 2.0 ** round(np.log2(tokens)))
    return Stepper(model, **motion_of(settings), seed=settings["seed"])


def nothing(stepper: Stepper) -> Topics:
    model = stepper.code.model
    zeros = np.zeros((model.vocabulary, model.topics), np.float32)
    return Topics(zeros, zeros, 0)


def topics_of(stepper: Stepper, chain: Chain) -> np.ndarray:
    return np.asarray(stepper.code.model.topics_of(chain.state.position[0]), np.float32)


def check(chain: Chain, settings: dict[str, Any]) -> None:
    if not chain.alive[0]:
        raise InputError(
            f"the chain diverged at step {int(chain.diverged_at[0])} with step_size={settings['step_size']:.3g}; "
            "write a smaller one."
        )
