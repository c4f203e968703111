"""Document completion against enumeration and closed forms; scores that stream and resume; topic coherence."""

import itertools

import numpy as np
import pytest

import strang
from strang import lda as corpora
from strang.lda import completion as score
from strang.lda import topics
from strang.lda.kernels.documents import as_bags

V, K = 6, 3
ALPHA = np.array([0.3, 0.8, 1.5])


def random_topics(words=V, topics=K, seed=0):
    return np.random.default_rng(seed).dirichlet(np.full(words, 0.5), topics).T.astype(np.float32)


def some_rows(count=30, words=V, tokens=12, seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([rng.multinomial(tokens, rng.dirichlet(np.ones(words))) for _ in range(count)])


def dense(documents, words=V):
    rows = np.zeros((len(documents.indptr) - 1, words), int)
    np.add.at(rows, (np.repeat(np.arange(len(rows)), np.diff(documents.indptr)), documents.indices), documents.counts)
    return rows


# The split.


@pytest.mark.parametrize("how", [{}, {"fraction": 0.2, "seed": 5}, {"every": 10}])
def test_a_split_divides_the_tokens_and_records_how(how):
    rows = some_rows(tokens=25)
    rows[3], rows[4] = 0, np.eye(V, dtype=int)[2]  # no token, and one
    test = score.split(as_bags(rows), **how)
    np.testing.assert_array_equal(dense(test.seen) + dense(test.scored), rows)
    expected = rows.sum(1) // 10 if "every" in how else np.floor(how.get("fraction", 0.5) * rows.sum(1))
    np.testing.assert_array_equal(dense(test.scored).sum(1), expected)
    assert test.how["tokens_seen"] + test.how["tokens_scored"] == rows.sum()
    recorded = {"share" if name == "fraction" else name: value for name, value in how.items()}
    assert recorded.items() <= test.how.items()
    again = score.split(as_bags(rows), **how)
    np.testing.assert_array_equal(dense(again.scored), dense(test.scored))
    if "every" not in how:
        assert (dense(score.split(as_bags(rows), **{**how, "seed": 1}).scored) != dense(test.scored)).any()


def test_every_token_is_as_likely_to_be_scored():
    """10,000 documents of 3 tokens of a word and 1 of another, half scored: a hypergeometric mean of 1.5 and 0.5."""
    test = score.split(as_bags(np.tile([3, 1], (10_000, 1))), seed=2)
    np.testing.assert_allclose(dense(test.scored, 2).mean(0), [1.5, 0.5], atol=0.02)  # 4 standard errors


# Probabilities.


def exact_weights(bag, phi, power=1):
    """E[topic weights^power | seen tokens, φ] over all topics of the tokens."""
    words = np.repeat(np.arange(len(bag)), bag)
    total, weights = 0, 0
    for z in itertools.product(range(K), repeat=len(words)):
        n_k = np.bincount(np.array(z, int), minlength=K)
        rising = np.prod([np.prod(a + np.arange(n)) for a, n in zip(ALPHA, n_k, strict=True)])
        weight = rising * np.prod(phi[words, list(z)])
        total = total + weight * ((ALPHA + n_k) / (ALPHA.sum() + len(words))) ** power
        weights += weight
    return total / weights


def test_scored_probabilities_are_those_of_enumeration():
    phi = random_topics()
    rows = np.array([[2, 1, 0, 0, 1, 0], [0, 0, 3, 1, 0, 0], [0, 0, 0, 0, 0, 0]])
    exact = np.stack([exact_weights(bag, phi) for bag in rows])
    weights = score.topic_weights(as_bags(rows), phi, alpha=ALPHA, sweeps=20_000)
    np.testing.assert_allclose(weights, exact, atol=0.01)
    np.testing.assert_allclose(weights[2], ALPHA / ALPHA.sum(), rtol=1e-5)
    wrong = score.topic_weights(as_bags(rows), phi, alpha=ALPHA.mean(), sweeps=20_000)
    assert np.abs(wrong - exact).max() > 0.05
    everything = as_bags(np.ones((3, V), int))
    test = score.HeldOut(as_bags(rows), everything, {})
    state = score.add_sample(test, score.begin(test), phi, alpha=ALPHA, key=1, sweeps=20_000)
    np.testing.assert_allclose(state.last.reshape(3, V), exact @ phi.T, atol=0.005)


def test_weights_have_less_noise_than_topics_drawn():
    """Over 2,000 documents with the same words but seeds of their own: the squared error at 8 sweeps in units of that
    of 8 independent draws of all topics, whose variance is enumerated. It was 0.22 to 0.23 with four keys; with topics
    drawn by as many sweeps, as for scored words, 1.5."""
    phi, bag, sweeps = random_topics(), np.array([2, 1, 0, 0, 1, 0]), 8
    exact, square = exact_weights(bag, phi), exact_weights(bag, phi, power=2)
    documents = as_bags(np.tile(bag, (2000, 1)))

    def error(weights):
        return np.mean((weights - exact) ** 2, 0).sum() * sweeps / np.sum(square - exact**2)

    weights = score.topic_weights(documents, phi, alpha=ALPHA, sweeps=sweeps)
    assert error(weights) < 0.3
    np.testing.assert_allclose(weights.mean(0), exact, atol=0.004)  # 5 standard errors
    test = score.HeldOut(documents, as_bags(np.ones((2000, V), int)), {})
    drawn = score.add_sample(test, score.begin(test), phi, alpha=ALPHA, key=0, sweeps=sweeps, burn_in=2).last
    assert error(drawn.reshape(2000, V) @ np.linalg.pinv(phi.T)) > 1


def test_weights_depend_neither_on_threads_nor_on_the_position(monkeypatch):
    phi, documents = random_topics(), some_rows(31)
    alone = score.topic_weights(as_bags(documents), phi, alpha=0.1, key=None)
    monkeypatch.setattr(score, "thread_count", lambda work: 3)
    shared = score.topic_weights(as_bags(documents[::-1]), phi, alpha=0.1, key=None)
    np.testing.assert_array_equal(shared[::-1], alone)
    np.testing.assert_allclose(alone.sum(1), 1, rtol=1e-12)


def test_with_one_topic_the_perplexity_is_a_closed_form():
    rows, phi = some_rows(), random_topics(topics=1)
    test = score.split(as_bags(rows))
    scored = dense(test.scored).sum(0)
    expected = np.exp(-scored @ np.log(phi[:, 0]) / scored.sum())
    assert score.score_topics(test, phi, alpha=0.1) == pytest.approx(expected, rel=1e-5)
    assert score.score_topics(test, np.full((V, 4), 1 / V), alpha=0.1) == pytest.approx(V, rel=1e-5)


def test_the_noise_of_the_sweeps_is_corrected():
    """Against enumeration: the mean over 200 keys has a standard error of 0.055 %, so that a false alarm, beyond 5 of
    them, is rarer than 1e-6; without the correction it is 0.6 % too high."""
    phi, rng = random_topics(), np.random.default_rng(3)
    rows = np.stack([rng.multinomial(4, phi @ rng.dirichlet(ALPHA)) for _ in range(20)])
    test = score.HeldOut(as_bags(rows), as_bags(np.ones((20, V), int)), {})
    exact = np.exp(-np.log(np.stack([exact_weights(bag, phi) for bag in rows]) @ phi.T).mean())
    keys, settings = range(200), {"alpha": ALPHA, "sweeps": 8}
    plain = [score.perplexity(test, score.add_sample(test, score.begin(test), phi, key=k, **settings)) for k in keys]
    corrected = [score.score_topics(test, phi, key=k, **settings) for k in keys]
    assert np.mean(plain) / exact > 1.0035
    assert np.mean(corrected) / exact == pytest.approx(1, abs=0.003)
    assert score.score_topics(test, phi, alpha=ALPHA) == pytest.approx(exact, rel=0.012)
    assert score.score_topics(test, np.where(np.arange(V)[:, None] < 5, 0.2, 0.0) * np.ones(K), alpha=ALPHA) == np.inf


def test_the_topics_that_made_the_documents_score_best():
    phi, rng = random_topics(40, 4, 1), np.random.default_rng(2)
    rows = np.stack([rng.multinomial(80, phi @ rng.dirichlet(np.full(4, 0.3))) for _ in range(100)])
    test = score.split(as_bags(rows))
    true, other = (score.score_topics(test, topics, alpha=0.3) for topics in (phi, random_topics(40, 4, 9)))
    assert true < 0.7 * other


# Streaming.


def test_probabilities_are_averaged_before_the_logarithm():
    test, probabilities = score.split(as_bags(some_rows())), []
    state = score.begin(test)
    for seed in range(4):
        state = score.add_sample(test, state, random_topics(seed=seed), alpha=ALPHA, key=seed)
        probabilities.append(state.last)
    weights = test.scored.counts
    averaged = np.exp(-np.average(np.log(np.mean(probabilities, 0)), weights=weights))
    assert score.perplexity(test, state) == pytest.approx(averaged, rel=1e-12)
    assert score.perplexity(test, state, last=True) == pytest.approx(
        np.exp(-np.average(np.log(probabilities[-1]), weights=weights)), rel=1e-12
    )
    assert averaged < 0.97 * np.exp(-np.average(np.mean(np.log(probabilities), 0), weights=weights))


def test_a_score_is_a_pure_function_whatever_the_threads():
    test = score.split(as_bags(some_rows()))

    def stream(state, keys, threads):
        for key in keys:
            phi = random_topics(seed=key)
            state = score.add_sample(test, state, phi, alpha=0.2, key=key, sweeps=2, threads=threads)
        return state

    whole = stream(score.begin(test), range(5), 1)
    kept = stream(score.begin(test), range(2), 3)
    resumed = stream(score.Score(*(np.array(part) for part in kept)), range(2, 5), 2)
    for one, other in zip(whole, resumed, strict=True):
        np.testing.assert_array_equal(one, other)
    elsewhere = stream(score.begin(test), [0, 1, 2, 3, 5], 1)
    assert not np.array_equal(elsewhere.topics, whole.topics)


def test_a_key_may_be_two_numbers():
    np.testing.assert_array_equal(score.document_seeds([1, 2], 3), score.document_seeds((1 << 32) + 2, 3))
    assert not np.array_equal(score.document_seeds([1, 2], 3), score.document_seeds([2, 1], 3))


# Coherence.


def plain_npmi(rows, top):
    """Pair by pair, document by document."""
    values = []
    for one, other in itertools.combinations(top, 2):
        both = np.mean((rows[:, one] > 0) & (rows[:, other] > 0))
        alone = np.mean(rows[:, one] > 0) * np.mean(rows[:, other] > 0)
        values.append(-1 if both == 0 else 1 if both == 1 else np.log(both / alone) / -np.log(both))
    return np.mean(values)


def test_coherence_is_the_mean_npmi_of_the_pairs(monkeypatch):
    rows = some_rows(60, 12, 5)
    rows[:, 11] = 1  # in every document
    rows[:, 10] = 0  # in none
    corpus = corpora.from_matrix(rows)
    top = np.array([[0, 1, 2], [3, 2, 11], [10, 4, 5], [11, 6, 7]])
    expected = [plain_npmi(rows, topic) for topic in top]
    np.testing.assert_allclose(topics.coherence(top, corpus), expected, rtol=1e-12)
    monkeypatch.setattr(topics, "CHUNK_DOCUMENTS", 7)
    np.testing.assert_allclose(topics.coherence(top, corpus), expected, rtol=1e-12)


def test_the_ends_of_the_scale():
    rows = np.array([[1, 1, 0, 1], [2, 1, 0, 1], [0, 0, 1, 1], [0, 0, 4, 1]])
    corpus = corpora.from_matrix(rows)
    np.testing.assert_allclose(topics.coherence([[0, 1], [0, 2], [0, 3], [3, 3]], corpus), [1, -1, 0, 1], atol=1e-12)


def test_top_words_come_in_the_order_of_their_probability():
    phi = np.array([[0.1, 0.4], [0.6, 0.2], [0.3, 0.4]])
    assert topics.top_words(phi, 2).tolist() == [[1, 2], [0, 2]]


# Bad input.


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: score.split(as_bags(some_rows()), fraction=1.0), "fraction is 1.0"),
        (lambda: score.split(as_bags(some_rows()), every=1), "every is 1"),
        (lambda: score.split(as_bags(np.eye(3, dtype=int))), "no token is left"),
        (lambda: score_of(random_topics().T / 2), "do not add up to 1"),
        (lambda: score_of(random_topics() * np.nan), "finite probabilities"),
        (lambda: score_of(random_topics(4)), "word id 4; .* from 0 to 3"),
        (lambda: score_of(random_topics(), alpha=[0.1, 0.2, -1]), "alpha is -1"),
        (lambda: score_of(random_topics(), key=[1, 2, 3]), "two 32-bit numbers"),
        (lambda: score_of(random_topics(), sweeps=0), "sweeps is 0"),
        (lambda: score_of(random_topics(), sweeps=10**18), "from 1 to 100000"),
        (lambda: score.perplexity(held_out(), score.begin(held_out())), "call add_sample first"),
        (lambda: add(add(score.begin(held_out()), random_topics()), random_topics()[:, :1]), "other topics than"),
        (lambda: topics.top_words(random_topics(), 7), "from 2 to 6"),
    ],
)
def test_bad_input_is_refused(call, text):
    with pytest.raises(strang.InputError, match=text):
        call()


def held_out():
    return score.split(as_bags(some_rows()))


def add(state, phi):
    return score.add_sample(held_out(), state, phi, alpha=0.1, key=0)


def score_of(phi, **settings):
    return score.score_topics(held_out(), phi, **{"alpha": 0.1, **settings})
