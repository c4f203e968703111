"""`strang.LDA`: topics by scikit-learn's conventions, for matrices of word counts in memory."""

from collections.abc import Iterable, Iterator
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

from strang.lda.completion import score_topics, split, topic_sizes, topic_weights
from strang.lda.corpus import Corpus, from_matrix
from strang.lda.fitting import DEFAULTS, model_of, motion_of
from strang.lda.kernels.documents import Documents
from strang.lda.model import current_topics
from strang.lda.settings import completed, is_scored
from strang.run.stepper import Stepper
from strang.sampling.record import Chain
from strang.util.errors import InputError
from strang.util.progress import bar
from strang.util.signatures import without

SIZE_DOCUMENTS = 1000  # from which the topics' sizes are estimated
POWER = 3  # weights of samples in a stream grow like this power of their number: the first half has 1/16
MIN_ENTRIES = 1 << 10  # that a padded batch has room for


class TopicMoments(NamedTuple):
    """Running mean and variance of φ, (V, K), over posterior samples."""

    mean: Any = 0.0
    variance: Any = 0.0
    samples: int = 0

    def with_sample(self, phi: np.ndarray, gain: float) -> "TopicMoments":
        """The moments with one more sample, which has the fraction `gain` of the total weight."""
        change = phi - self.mean
        variance = (1 - gain) * (self.variance + gain * change**2)
        return TopicMoments(self.mean + gain * change, variance, self.samples + 1)


class LDA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Latent Dirichlet allocation by stochastic-gradient MCMC, as a scikit-learn transformer.

    X is a matrix of whole-number counts, documents by words, dense or SciPy sparse, such as CountVectorizer's. What is
    None is chosen from the corpus's size, as by `strang lda fit`.

    Args:
        n_components (int, default 100): the number of topics.
        alpha (float, default 0.1): the Dirichlet prior of a document's topic weights.
        beta (float, default 0.01): the Dirichlet prior of a topic's words.
        max_iter (float or None, default None): passes over the documents; None: 1, or enough for 800 batches.
        batch_size (int or None, default None): documents per minibatch; None: about 60,000 tokens, at most a tenth.
        dynamics (str, default "sgrld"): `sgrld`, `sghmc`, `sgnht` or `sgld`.
        integrator (str or None, default None): a word or name; None: the dynamics' own.
        step_size (float or None, default None): h of the step size h (1 + l / d)^-a at step l.
        decay (float or None, default None): a; None: 0, for sgrld 0.6.
        delay (float or None, default None): d, in steps; None: 1000, for sgrld 8.
        friction (float or None, default None): the friction of sghmc and sgnht.
        parametrisation (str or None, default None): see `strang.lda.TopicModel`.
        sweeps (int, default 10): Gibbs sweeps over a document per gradient.
        samples (int, default 20): posterior samples to average, spread over the latter half of the steps.
        total_samples (float, default 1e6): documents of the whole stream, if `partial_fit` begins without a fit.
        random_state (int, RandomState or None, default None): an int gives the same bits again.
        verbose (bool, default False): whether to show a progress bar.

    Attributes:
        topic_word_ (array, topics by words): the posterior mean of the topics; rows add up to 1.
        topic_word_sd_ (array, topics by words): its standard deviation over the samples; NaN if there is only one.
        topic_share_ (array, one per topic): each topic's fraction of all tokens.
        components_ (array, topics by words): pseudocounts as in scikit-learn: `topic_word_` times the topic's tokens.
        n_iter_ (int): passes, or calls of `partial_fit`.
        n_steps_ (int): steps of the chain.
        n_samples_ (int): posterior samples averaged.
        n_features_in_ (int): words.
        settings_ (dict): all settings, with those that were chosen from the corpus's size.

    Example:
        >>> counts = np.random.default_rng(0).poisson(1.0, (40, 12))
        >>> LDA(n_components=2, max_iter=2, random_state=0).fit(counts).transform(counts).shape
        (40, 2)
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
        for name, value in without(locals(), "self").items():
            setattr(self, name, value)

    def fit(self, X, y=None):
        """Learn topics from scratch; if that fails, the previous fit remains.

        Args:
            X: counts, documents by words; y is ignored.

        Returns:
            The estimator itself.

        Raises:
            InputError: a parameter is out of range, X has no words, or the chain diverges.
        """
        self.__dict__ = copy(self)._fit(X).__dict__
        return self

    def _fit(self, X):
        corpus = self._corpus(X, reset=True)
        settings = self._settings(corpus)
        stepper = stepper_of(settings, len(corpus.words), corpus.tokens)
        batch_size = min(settings["batch_size"], corpus.documents)
        steps = max(2, round(settings["passes"] * corpus.documents / batch_size))
        batches = islice(shuffled(corpus.documents, batch_size, settings["seed"]), steps)
        topics = TopicMoments()
        with bar(steps, "learning topics", bool(self.verbose)) as done:
            chains = walk(stepper, stepper.start(), corpus, batches, corpus.documents, settings)
            for step, chain in enumerate(chains, start=1):
                if step > steps // 2 and is_scored(step, steps, settings["samples"]):
                    topics = topics.with_sample(current_topics(stepper.code.model, chain), 1 / (topics.samples + 1))
                done(step)
        self.settings_, self._stepper = settings, stepper
        self._tokens, self._total = corpus.tokens, corpus.documents
        self.n_iter_ = max(1, round(steps * batch_size / corpus.documents))
        return self._store(chain, topics, self._sizes(corpus, SIZE_DOCUMENTS, topics), corpus.tokens)

    def partial_fit(self, X, y=None):
        """Continue the chain with new documents, each seen once.

        They count as part of `total_samples` documents in all or, after a `fit`, of as many as that had. The settings
        and the total of the first call remain, since the steps were chosen for them. Topics are averaged over all
        calls, late samples counting more than early ones, so that those before convergence are soon forgotten.
        Arguments, result and errors are those of `fit`.
        """
        known = hasattr(self, "topic_word_")
        corpus = self._corpus(X, reset=not known)
        if not 1 <= self.total_samples < np.inf:
            raise InputError(f"total_samples is {self.total_samples}; write how many documents there will be in all.")
        if not known:
            ratio = max(1.0, self.total_samples / corpus.documents)
            whole = Corpus(corpus.shards, corpus.words, corpus.mark, repeat=round(ratio))
            self.settings_, self.n_iter_, self.topic_share_ = self._settings(whole), 0, np.zeros(())
            self._tokens, self._total = whole.tokens, ratio * corpus.documents
        settings = self.settings_
        if not (known and hasattr(self, "_stepper")):  # at first, and after unpickling
            self._stepper = stepper_of(settings, len(corpus.words), self._tokens)
        chain, topics = (self._chain, self._topics) if known else (self._stepper.start(), TopicMoments())
        starts = range(0, corpus.documents, settings["batch_size"])
        batches = (np.arange(i, min(i + starts.step, corpus.documents)) for i in starts)
        every = max(1, len(starts) // settings["samples"])
        chains = walk(self._stepper, chain, corpus, batches, self._total, settings)
        for step, chain in enumerate(chains, start=1):
            if step % every == 0:
                phi = current_topics(self._stepper.code.model, chain)
                topics = topics.with_sample(phi, stream_gain(topics.samples + 1))
        self.n_iter_ += 1
        sizes = self._sizes(corpus, corpus.documents // 10, topics)
        sizes = self.topic_share_ + stream_gain(self.n_iter_) * (sizes - self.topic_share_)
        return self._store(chain, topics, sizes, self._total / corpus.documents * corpus.tokens)

    def transform(self, X):
        """Infer each document's topic weights.

        Args:
            X: counts, documents by words.

        Returns:
            The expected weights, documents by topics; rows add up to 1. They depend on the document's words alone; a
            document without words has equal weights.
        """
        corpus, alpha = self._corpus(X), self.settings_["alpha"]
        return topic_weights(corpus.gather(np.arange(corpus.documents)), self.topic_word_.T, alpha=alpha, key=None)

    def perplexity(self, X) -> float:
        """exp(−mean log p) of half of each document's tokens, predicted from the other half: document completion."""
        corpus, alpha = self._corpus(X), self.settings_["alpha"]
        return score_topics(split(corpus.gather(np.arange(corpus.documents))), self.topic_word_.T, alpha=alpha)

    def score(self, X, y=None) -> float:
        """About the log likelihood of all tokens: −log(perplexity) times their number."""
        return -float(np.log(self.perplexity(X))) * self._corpus(X).tokens

    def pyldavis_inputs(self, X, vocabulary=None) -> dict[str, Any]:
        """The arguments of `pyLDAvis.prepare(**inputs)`.

        Args:
            X: counts, documents by words; documents without words are left out, since pyLDAvis divides by lengths.
            vocabulary: the words in the order of the columns, such as `vectorizer.get_feature_names_out()`; by
                default the names that `fit` saw, or numbers.

        Returns:
            The arguments by name.

        Raises:
            InputError: the vocabulary has another number of words than the topics.
        """
        weights, counts = self.transform(X), sparse.csr_array(X)
        words = getattr(self, "feature_names_in_", range(self.n_features_in_)) if vocabulary is None else vocabulary
        if len(words) != self.n_features_in_:
            raise InputError(f"the vocabulary has {len(words):,} words, the topics {self.n_features_in_:,}.")
        lengths, topics = counts.sum(1), self.topic_word_.astype(float)
        return {
            "topic_term_dists": topics / topics.sum(1, keepdims=True),
            "doc_topic_dists": weights[lengths > 0],
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
        """The state without compiled code, which is made again when needed."""
        return {name: value for name, value in super().__getstate__().items() if name != "_stepper"}

    def _corpus(self, X, reset: bool = False) -> Corpus:
        """The counts, checked; without `reset` against the words of the fit."""
        if not reset:
            check_is_fitted(self, "topic_word_")
        least = 2 if reset else 1  # later a wrong number of words has an error of its own
        checks = {"accept_sparse": "csr", "ensure_non_negative": True, "ensure_min_features": least}
        return from_matrix(validate_data(self, X, reset=reset, **checks))

    def _settings(self, corpus: Corpus) -> dict[str, Any]:
        """The settings of `strang lda fit` for a corpus of this size."""
        if corpus.tokens == 0:
            raise InputError("the documents hold no word at all.")
        seed = self.random_state
        if not isinstance(seed, Integral):
            seed = check_random_state(seed).randint(2**31 - 1)
        same = {name: value for name, value in self.get_params().items() if name in DEFAULTS}
        renamed = {"topics": self.n_components, "passes": self.max_iter, "seed": int(seed)}
        return completed({**DEFAULTS, **same, **renamed}, corpus)

    def _sizes(self, corpus: Corpus, documents: int, topics: TopicMoments) -> np.ndarray:
        """Each topic's fraction of the tokens, estimated from this many documents."""
        chosen = np.linspace(0, corpus.documents - 1, min(max(documents, 1), corpus.documents)).astype(int)
        return topic_sizes(corpus.gather(chosen), topics.mean, alpha=self.settings_["alpha"])

    def _store(self, chain: Chain, topics: TopicMoments, sizes: np.ndarray, tokens: float):
        """Set the attributes of a fit."""
        self._chain, self._topics, self.n_steps_ = jax.tree.map(np.asarray, chain), topics, int(chain.step)
        self.topic_word_, self.topic_share_, self.n_samples_ = topics.mean.T, sizes, topics.samples
        self.topic_word_sd_ = np.sqrt(topics.variance.T) if topics.samples > 1 else np.full_like(topics.mean.T, np.nan)
        prior = self.n_features_in_ * self.settings_["beta"]
        self.components_ = self.topic_word_ * (sizes * tokens + prior)[:, None].astype(np.float32)
        return self


def stream_gain(number: int) -> float:
    """The fraction of the total weight that the sample of this number in a stream gets."""
    return (POWER + 1) / (number + POWER)


def stepper_of(settings: dict[str, Any], vocabulary: int, tokens: float) -> Stepper:
    """The stepper for about this many tokens in all: they are part of the compiled code, so that they are rounded to
    a power of two, for corpora of about the same size to share a compilation."""
    model = model_of(settings, vocabulary, 2.0 ** round(np.log2(tokens)))
    return Stepper(model, **motion_of(settings), seed=settings["seed"])


def walk(
    stepper: Stepper, chain: Chain, corpus: Corpus, batches: Iterable[np.ndarray], total: float, settings: dict
) -> Iterator[Chain]:
    """Yield the chain after each batch of document numbers, scaled to `total` documents; raises if it diverges."""
    for numbers in batches:
        rows, weights = padded(corpus, numbers, settings["batch_size"])
        chain = stepper.step(chain, rows, size=total, weights=weights)
        if not chain.alive[0]:
            step, size = int(chain.diverged_at[0]), settings["step_size"]
            raise InputError(f"the chain diverged at step {step} with step_size={size:.3g}; write a smaller one.")
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
