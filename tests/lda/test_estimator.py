"""strang.LDA: scikit-learn's own checks, planted topics, streams, and inputs for other tools."""

import pickle
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import strang
from strang.lda import corpus, estimator, fitting
from strang.lda.settings import completed
from strang.run.driver import run_blocks

TOPICS, WORDS = 3, 30
PHI = np.kron(np.eye(TOPICS), np.full(WORDS // TOPICS, TOPICS / WORDS))
SMALL = {"n_components": TOPICS, "batch_size": 20, "sweeps": 4, "samples": 5, "random_state": 0}


def planted(documents=200, seed=0, tokens=40):
    """Documents from three topics of ten words each, mostly of one topic, and their topic weights."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet([0.1] * TOPICS, documents)
    return np.array([rng.multinomial(tokens, weight @ PHI) for weight in weights]), weights


@pytest.fixture(scope="module")
def fitted():
    counts, _ = planted()
    return strang.LDA(**SMALL, max_iter=6).fit(counts)


def blocks(model):
    """The weight of each planted topic in each learnt one, (topics, planted)."""
    return model.topic_word_.reshape(TOPICS, TOPICS, -1).sum(2)


# scikit-learn's checks pass real numbers, which are rounded to counts here. Nothing else is changed.


@pytest.fixture
def whole_numbers(monkeypatch):
    def rounded(matrix):
        return corpus.from_matrix(np.rint(matrix) if sparse.issparse(matrix) else np.round(matrix))

    monkeypatch.setattr(estimator, "from_matrix", rounded)


@parametrize_with_checks([strang.LDA(n_components=2, batch_size=10, max_iter=1, sweeps=2, samples=1)])
def test_scikit_learn_s_own_checks(whole_numbers, estimator, check):
    check(estimator)


# What is learnt.


def test_planted_topics_are_found(fitted):
    counts, weights = planted()
    assert sorted(blocks(fitted).argmax(1)) == [0, 1, 2]
    assert blocks(fitted).max(1).min() > 0.9
    planted_topic = blocks(fitted).argmax(1)
    np.testing.assert_allclose(fitted.topic_share_, weights.mean(0)[planted_topic], atol=0.05)
    assert np.abs(fitted.transform(counts) - weights[:, planted_topic]).mean() < 0.05
    assert fitted.perplexity(counts) < 14  # ten words per topic, some documents with several; a unigram model has 30


def test_attributes_of_a_fit(fitted):
    counts, _ = planted()
    np.testing.assert_allclose(fitted.topic_word_.sum(1), 1, rtol=1e-5)
    ratio = fitted.components_ / fitted.components_.sum(1, keepdims=True)
    np.testing.assert_allclose(ratio, fitted.topic_word_, rtol=1e-4)
    assert fitted.components_.sum() == pytest.approx(counts.sum() + TOPICS * WORDS * fitted.beta, rel=1e-4)
    assert (fitted.topic_word_sd_ >= 0).all()
    assert 0 < fitted.topic_word_sd_.max() < 0.2
    assert (fitted.n_iter_, fitted.n_steps_, fitted.n_samples_) == (6, 60, 5)
    assert fitted.n_features_in_ == WORDS
    assert list(fitted.get_feature_names_out()) == ["lda0", "lda1", "lda2"]
    assert fitted.score(counts) == pytest.approx(-np.log(fitted.perplexity(counts)) * counts.sum())


def test_moments_are_those_of_the_samples():
    rng = np.random.default_rng(0)
    samples, topics = rng.random((7, 2, 3)), estimator.TopicMoments()
    for sample in samples:
        topics = topics.with_sample(sample, 1 / (topics.samples + 1))
    np.testing.assert_allclose(topics.mean, samples.mean(0), rtol=1e-12)
    np.testing.assert_allclose(topics.variance, samples.var(0), rtol=1e-12)
    weights, topics = np.array([1.0, 4, 10, 20, 35, 56, 84]), estimator.TopicMoments()  # n (n + 1) (n + 2) / 6
    for x in samples[:, 0, 0]:
        topics = topics.with_sample(x, estimator.stream_gain(topics.samples + 1))
    mean = np.average(samples[:, 0, 0], weights=weights)
    assert topics.mean == pytest.approx(mean)
    assert topics.variance == pytest.approx(np.average((samples[:, 0, 0] - mean) ** 2, weights=weights))


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array, sparse.coo_array, lambda x: x.astype(float)])
def test_any_kind_of_matrix_gives_the_same_bytes(kind, fitted):
    counts, _ = planted()
    same = clone(fitted).fit(kind(counts))
    np.testing.assert_array_equal(same.components_, fitted.components_)
    np.testing.assert_array_equal(same.transform(kind(counts)), fitted.transform(counts))


def test_as_many_samples_as_asked_for(fitted):
    assert clone(fitted).set_params(samples=17).fit(planted()[0]).n_samples_ == 17  # of the 30 steps of the latter half


def test_another_seed_and_threads(fitted):
    counts, _ = planted()
    seeds = [0, 1, 2]
    with ThreadPoolExecutor(3) as pool:
        fits = list(pool.map(lambda seed: clone(fitted).set_params(random_state=seed).fit(counts).components_, seeds))
    np.testing.assert_array_equal(fits[0], fitted.components_)
    np.testing.assert_array_equal(fits[1], clone(fitted).set_params(random_state=1).fit(counts).components_)
    assert not np.array_equal(fits[1], fits[2])


# Streams.


def test_a_stream_finds_the_topics_and_continues_from_a_pickle():
    one, parts = strang.LDA(**SMALL, total_samples=200), [planted(45, seed)[0] for seed in range(10)]
    for counts in parts[:5]:
        one.partial_fit(counts)  # batches of 20, 20 and 5
    other = pickle.loads(pickle.dumps(one))
    for counts in parts[5:]:
        one.partial_fit(counts)
        other.partial_fit(counts)
    assert one.n_steps_ == one.n_samples_ == 30
    assert one.n_iter_ == 10
    np.testing.assert_array_equal(one.components_, other.components_)
    assert sorted(blocks(one).argmax(1)) == [0, 1, 2]
    assert blocks(one).max(1).min() > 0.9
    assert one.components_.sum() == pytest.approx(200 * 40 + TOPICS * WORDS * one.beta, rel=1e-4)


def test_a_stream_after_a_fit_does_no_harm(fitted):
    """Batches are scaled to the number of documents that the chain was set up for, whatever comes later."""
    counts, model = planted()[0], pickle.loads(pickle.dumps(fitted))
    begun = strang.LDA(**SMALL, total_samples=200).partial_fit(counts[:45])
    for seed, documents in enumerate((45, 45, 300), start=1):
        more = planted(documents, seed)[0]
        assert model.partial_fit(more).perplexity(counts) < fitted.perplexity(counts) + 0.3
        begun.set_params(total_samples=1e6).partial_fit(more)
        for one in (model, begun):
            assert one.components_.sum() == pytest.approx(200 * 40 + TOPICS * WORDS * one.beta, rel=1e-4)


def plain_settings(documents, **changed):
    settings = {**fitting.DEFAULTS, "topics": 1, "batch_size": 20, "sweeps": 4, **changed}
    return completed(settings, documents)


def position_after(stepper, documents, batches, total):
    *_, chain = estimator.walk(stepper, stepper.start(), documents, batches, total, plain_settings(documents))
    return np.asarray(chain.state.position)


def test_a_batch_is_scaled_to_all_documents_however_it_is_padded():
    """With one topic the gradient has no noise of its own: ten documents with ten empty ones weigh as much as twice."""
    documents = corpus.from_matrix(planted(20)[0])
    stepper = estimator.stepper_of(plain_settings(documents), WORDS, documents.tokens)
    ten = np.arange(10)
    few, twice, less = (
        position_after(stepper, documents, [numbers], total)
        for numbers, total in ((ten, 640.0), (np.tile(ten, 2), 640.0), (ten, 320.0))
    )
    np.testing.assert_array_equal(few, twice)
    assert not np.allclose(few, less)


def test_a_walk_equals_a_run_of_the_sampler():
    documents = corpus.from_matrix(planted(16, tokens=32)[0])  # 2^9 tokens, which is not rounded
    settings = plain_settings(documents, topics=TOPICS)
    position = position_after(estimator.stepper_of(settings, WORDS, 512), documents, [np.arange(16)] * 4, 16)
    *_, (chain, _) = run_blocks(fitting.job_of(settings | {"batch_order": "cyclic", "passes": 4}, documents), None)
    np.testing.assert_allclose(position, np.asarray(chain.state.position), rtol=1e-4)


# Other tools.


def texts(counts):
    letters = "abcdefghij"
    words = np.array([f"w{letters[i // 10]}{letters[i % 10]}" for i in range(WORDS)])
    return [" ".join(np.repeat(words, row)) for row in counts], words


def test_a_pipeline_from_texts(fitted):
    counts, _ = planted()
    documents, words = texts(counts)
    pipeline = make_pipeline(CountVectorizer(), clone(fitted)).fit(documents)
    assert list(pipeline[0].get_feature_names_out()) == list(words)
    np.testing.assert_array_equal(pipeline[1].components_, fitted.components_)
    assert pipeline.transform(documents[:3]).shape == (3, TOPICS)
    assert pipeline.score(documents) == fitted.score(counts)
    assert list(pipeline.get_feature_names_out()) == ["lda0", "lda1", "lda2"]


def test_the_documented_example_runs():
    page = Path(__file__).parents[2] / "docs/guides/topics.md"
    example = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[0]
    names: dict = {}
    exec(compile(example, "docs/guides/topics.md", "exec"), names)
    weights = names["weights"]
    assert weights.shape == (100, 2)
    assert weights[0].argmax() != weights[2].argmax()  # cats, and the market
    assert weights[2].argmax() == weights[3].argmax()


def test_inputs_of_pyldavis(fitted):
    counts = planted(30)[0]
    counts[4] = 0
    inputs = fitted.pyldavis_inputs(sparse.csr_matrix(counts), texts(counts)[1])
    assert set(inputs) == {"topic_term_dists", "doc_topic_dists", "doc_lengths", "vocab", "term_frequency"}
    assert inputs["topic_term_dists"].shape == (TOPICS, WORDS)
    assert inputs["doc_topic_dists"].shape == (29, TOPICS)
    for name in ("topic_term_dists", "doc_topic_dists"):
        np.testing.assert_allclose(inputs[name].sum(1), 1, rtol=1e-12)
    np.testing.assert_array_equal(inputs["doc_lengths"], [40] * 29)
    np.testing.assert_array_equal(inputs["term_frequency"], counts.sum(0))
    assert inputs["vocab"] == list(texts(counts)[1])
    assert fitted.pyldavis_inputs(counts)["vocab"][:2] == ["0", "1"]
    with pytest.raises(strang.InputError, match="29 words"):
        fitted.pyldavis_inputs(counts, inputs["vocab"][1:])


def test_without_scikit_learn_the_error_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "strang.lda.estimator")
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(strang.InputError, match=r"needs sklearn.*strang\[sklearn\]"):
        _ = strang.LDA
    with pytest.raises(AttributeError, match="nonsense"):
        _ = strang.nonsense


# Bad input.


def changed(row, column, value):
    counts = planted(20)[0].astype(float)
    counts[row, column] = value
    return counts


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.fit(changed(3, 4, 0.5)), "document 3 has the count 0.5"),
        (lambda m: m.fit(changed(3, 4, -1)), "Negative values"),
        (lambda m: m.fit(changed(3, 4, np.nan)), "NaN"),
        (lambda m: m.fit(changed(3, 4, 2.0**40)), "below 2\\^31"),
        (lambda m: m.fit(np.zeros((20, WORDS), int)), "no word at all"),
        (lambda m: m.set_params(n_components=0).fit(planted(20)[0]), "topics is 0"),
        (lambda m: m.set_params(batch_size=0).fit(planted(20)[0]), "batch_size is 0"),
        (lambda m: m.set_params(max_iter=0).fit(planted(20)[0]), "passes is 0"),
        (lambda m: m.set_params(samples=0).fit(planted(20)[0]), "samples is 0"),
        (lambda m: m.set_params(alpha=-1.0).fit(planted(20)[0]), "alpha is -1"),
        (lambda m: m.set_params(dynamics="magic").fit(planted(20)[0]), "magic"),
        (lambda m: m.set_params(total_samples=0).partial_fit(planted(20)[0]), "total_samples is 0"),
        (lambda m: m.transform(planted(20)[0][:, 1:]), "29 features"),
        (lambda m: m.partial_fit(planted(20)[0][:, 1:]), "29 features"),
        (lambda m: m.perplexity(np.eye(WORDS, dtype=int)), "no token is left"),
        (lambda m: m.set_params(step_size=1e30).fit(planted()[0]), "diverged at step"),
        (lambda m: m.set_params(step_size=1e30).fit(planted()[0][:, 1:]), "diverged at step"),
        (lambda m: m.set_params(n_components=0).fit(planted(20)[0][:, 1:]), "topics is 0"),
    ],
)
def test_bad_input_is_refused_and_leaves_the_previous_fit(call, message, fitted):
    model = pickle.loads(pickle.dumps(fitted))
    with pytest.raises(ValueError, match=message):
        call(model)
    np.testing.assert_array_equal(model.components_, fitted.components_)
    assert model.n_features_in_ == WORDS


def test_documents_without_words_have_equal_weights(fitted):
    counts = planted()[0]
    counts[7] = 0
    weights = fitted.transform(counts)
    np.testing.assert_allclose(weights[7], 1 / TOPICS, rtol=1e-5)
    np.testing.assert_array_equal(np.delete(weights, 7, 0), fitted.transform(np.delete(counts, 7, 0)))
    clone(fitted).set_params(max_iter=1).fit(counts)
