"""LDA: compiled sweeps against enumeration of all topics, gradients against autodiff, runs with every dynamics."""

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
import jax.numpy as jnp
import numba
import numpy as np
import pytest
from scipy import stats

import strang
from strang import lda as corpora
from strang.dynamics import SGRLD
from strang.gradients.full import batch_gradient
from strang.lda.kernels import choice, gibbs
from strang.lda.kernels import documents as documents_module
from strang.lda.kernels.documents import as_bags, as_documents, kept_sweeps, read_only
from strang.lda.model import PARAMETRISATIONS
from strang.util.host_random import uniform

V, K, ALPHA = 5, 3, 0.4
WORDS = np.array([0, 2, 2, 3])  # a document of four tokens, two of them of the same word
BAG = np.bincount(WORDS, minlength=V)
ALL_Z = np.array(list(itertools.product(range(K), repeat=len(WORDS))))  # every way to give them topics
N_KW = np.zeros((len(ALL_Z), V, K))
for state, z in enumerate(ALL_Z):
    np.add.at(N_KW[state], (WORDS, z), 1)


def random_topics(words=V, topics=K, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(words), topics).T


def log_joint(phi, n_kw=N_KW, alpha=ALPHA):
    """log p(z, w | φ) of every z, the document's topic weights integrated out."""
    n_k = n_kw.sum(1)
    weights = jax.scipy.special.gammaln(alpha + n_k) - jax.scipy.special.gammaln(alpha)
    tokens, topics = n_k[0].sum(), n_k.shape[1]
    scale = jax.scipy.special.gammaln(topics * alpha) - jax.scipy.special.gammaln(topics * alpha + tokens)
    return weights.sum(1) + scale + (n_kw * jnp.log(phi)).sum((1, 2))


def posterior(phi):
    with jax.enable_x64(True):
        return np.asarray(jax.nn.softmax(log_joint(jnp.asarray(phi))))


def bags(rows):
    return as_bags(np.atleast_2d(rows))


def seeds(count, seed=0):
    return np.random.Philox(key=seed).random_raw(count)


def expected_counts(phi, documents, seeds, *, sweeps, **settings):
    """Σ_d weights_d E[n_dkw | φ], (V, K), as the mean over the kept sweeps."""
    result = np.zeros(phi.shape, np.float32)
    gibbs.add_up_counts(phi, documents, seeds, result, sweeps=sweeps, **settings)
    return result / np.float32(kept_sweeps(sweeps))


# One draw.


@numba.njit
def drawn_topic(work, topics):
    choice.add_up(work.base, work.rows, 0, work.running)
    return choice.draw_topic(work.running, topics, work.state)


@pytest.mark.parametrize("topics", [1, 3, 16, 17, 50, 200])
def test_a_topic_is_drawn_by_inverting_the_distribution_function(topics):
    """Lane by lane, then block by block; only levels within rounding of an edge may fall on either side."""
    rng, work = np.random.default_rng(topics), gibbs.workspace(1, 1, topics)
    work.base[:topics], work.rows[0, :topics] = rng.uniform(0.1, 9, topics), rng.dirichlet(np.full(topics, 0.3))
    lane_order = sorted(range(topics), key=lambda k: (k % choice.LANES, k // choice.LANES))
    mass = (work.base.astype(float) * work.rows[0])[lane_order]
    edges = np.cumsum(mass) / mass.sum()
    state = work.state.copy()
    for _ in range(2000):
        drawn, level = drawn_topic(work, topics), uniform(state)
        if np.abs(edges - level).min() > 1e-6:
            assert drawn == lane_order[np.searchsorted(edges, level)]


@pytest.mark.parametrize("row", [0.0, np.nan, np.inf, 1e-45, -1.0])
def test_a_drawn_topic_is_valid_whatever_the_numbers(row):
    """A diverging chain may supply anything; the search must end among the topics."""
    work = gibbs.workspace(1, 1, 50)
    work.base[:50], work.rows[0, :50] = 0.1, row
    assert all(0 <= drawn_topic(work, 50) < 50 for _ in range(100))


# Sweeps.


def last_topics(phi, count, sweeps):
    """Topics of the last sweep over `count` copies of the document."""
    documents = as_documents(bags(np.tile(BAG, (count, 1))), V)
    starts, kept = read_only(documents.tokens, np.int64), np.empty((count * len(WORDS), 1), np.int32)
    own = read_only(seeds(count), np.uint64)
    (run,), (pair,) = gibbs.plan_runs(documents, starts, 1, K)
    alpha = gibbs.as_alpha(ALPHA, K)
    gibbs.sweep_documents(read_only(phi, np.float32), documents, starts, alpha, own, sweeps, kept, run, *pair)
    return kept.reshape(count, len(WORDS))


def chi_squared(topics, law):
    """The p-value of the frequencies of z under the distribution `law`."""
    number = topics @ K ** np.arange(len(WORDS))[::-1]
    return stats.chisquare(np.bincount(number, minlength=len(ALL_Z)), len(topics) * law).pvalue


def wrong_law(phi):
    """The stationary distribution of sweeps with a bug: a token's own count is not subtracted."""
    transition = np.eye(len(ALL_Z))
    place = {tuple(z): state for state, z in enumerate(ALL_Z)}
    for i, word in enumerate(WORDS):
        one = np.zeros_like(transition)
        for state, z in enumerate(ALL_Z):
            weight = (ALPHA + np.bincount(z, minlength=K)) * phi[word]
            for k in range(K):
                one[state, place[(*z[:i], k, *z[i + 1 :])]] = weight[k] / weight.sum()
        transition = transition @ one
    law = np.linalg.matrix_power(transition, 200)[0]
    return law / law.sum()


def test_sweeps_sample_the_exact_distribution_of_all_tokens_topics():
    """A chi-squared test over all 81 states with fixed seeds; it rejects the distribution of sweeps with a bug."""
    phi = random_topics()
    drawn = last_topics(phi, 20_001, 12)
    assert chi_squared(drawn, posterior(phi)) > 1e-3
    assert chi_squared(drawn, wrong_law(phi)) < 1e-30


def test_expected_counts_are_those_of_enumeration():
    phi, copies = random_topics(), 20_000
    exact = np.einsum("z,zvk->vk", posterior(phi), N_KW)
    counts = expected_counts(phi, bags(np.tile(BAG, (copies, 1))), seeds(copies, 1), alpha=ALPHA, sweeps=10) / copies
    np.testing.assert_allclose(counts, exact, atol=0.01)  # 5 standard errors of 5 correlated sweeps
    assert np.abs(np.einsum("z,zvk->vk", wrong_law(phi), N_KW) - exact).max() > 0.1
    np.testing.assert_allclose(counts.sum(1), BAG, rtol=1e-5)


def test_the_start_is_a_fixed_point_of_the_topic_weights():
    """weights = α + Σ_w counts_w p(topic | w, weights): the loop against array code, and converged after many steps."""
    phi, alpha = random_topics(50, 20, 3), np.linspace(0.1, 1, 20)
    bag = np.random.default_rng(4).multinomial(60, phi[:, :2].mean(1))
    work, documents = gibbs.workspace(50, 60, 20), as_documents(bags(bag), 50)
    gibbs.load_document(read_only(phi, np.float32), documents, 0, np.uint64(0), work)
    weights = np.ones(20)
    for steps in range(60):
        if steps in (0, 1, 5):
            gibbs.fixed_point(documents.counts, gibbs.as_alpha(alpha, 20), steps, work)
            np.testing.assert_allclose(work.base[:20], weights, rtol=1e-5)
        joint = phi * weights
        before, weights = weights, alpha + bag @ (joint / joint.sum(1, keepdims=True))
    assert np.abs(weights - before).max() < 0.02 < np.abs(weights - 1).max()


def some_documents(count=40, words=30, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.multinomial(20, rng.dirichlet(np.full(words, 0.2)), size=count).astype(np.int32)
    rows[3] = 0  # an empty document
    return rows


def test_counts_depend_neither_on_threads_nor_on_how_documents_are_divided(monkeypatch):
    phi, rows, own = random_topics(30, 17), some_documents(), seeds(40)

    def count(chosen, threads=1):
        return expected_counts(phi, bags(rows[chosen]), own[chosen], alpha=0.1, sweeps=6, threads=threads) * 3

    expected = count(np.arange(40))
    for threads in (2, 3, 7):
        np.testing.assert_array_equal(count(np.arange(40), threads), expected)
    halves = count(np.arange(0, 40, 2)) + count(np.arange(1, 40, 2))
    np.testing.assert_allclose(halves, expected, rtol=1e-6)
    monkeypatch.setattr(documents_module, "SLICE_TOKENS", 50)
    np.testing.assert_array_equal(count(np.arange(40), 2), expected)
    assert not np.array_equal(count(np.arange(40)[::-1]), count(np.arange(40)) + 1)
    assert not np.array_equal(expected_counts(phi, bags(rows), seeds(40, 1), alpha=0.1, sweeps=6) * 3, expected)


def test_documents_count_in_proportion_to_their_weights():
    phi, rows, own = random_topics(30, 17), some_documents(), seeds(40)
    weights = np.where(np.arange(40) < 20, 2.0, 0.0)
    weighted = expected_counts(phi, bags(rows), own, alpha=0.1, sweeps=6, weights=weights)
    half = expected_counts(phi, bags(rows[:20]), own[:20], alpha=0.1, sweeps=6)
    np.testing.assert_allclose(weighted, 2 * half, rtol=1e-6)


# Gradients.


@pytest.fixture
def double_precision():
    with jax.enable_x64(True):
        yield


def model(parametrisation, **settings):
    return strang.lda.TopicModel(K, V, alpha=ALPHA, beta=0.3, parametrisation=parametrisation, **settings)


def start_of(parametrisation, seed=0):
    position = model(parametrisation).init(jax.random.key(seed))
    return -position if parametrisation == "expanded-mean" and seed % 2 else position


def closed_form(parametrisation, t, n, a):
    """The gradient of the log posterior of t given counts n, one topic per column, in closed form."""
    total = n.sum(0)
    if parametrisation == "reduced-mean":
        return (n[:-1] + a - 1) / t - (n[-1] + a - 1) / (1 - t.sum(0))
    if parametrisation == "reduced-natural":
        pi = np.exp(t) / (1 + np.exp(t).sum(0))
        return n[:-1] + a - (total + V * a) * pi
    if parametrisation == "expanded-mean":
        return np.sign(t) * ((n + a - 1) / np.abs(t) - total / np.abs(t).sum(0) - 1)
    return n + a - total * np.exp(t) / np.exp(t).sum(0) - np.exp(t)


@pytest.mark.parametrize("parametrisation", ["expanded-mean", "expanded-natural"])
def test_a_scale_changes_only_the_distribution_of_the_sum(parametrisation, double_precision):
    """The two densities differ by a function of Σ|t| alone, s log Σ|t|; along φ their gradients agree."""
    plain, scaled = model(parametrisation), model(parametrisation, scale=7.0)
    t = start_of(parametrisation)
    total = lambda t: plain.log_prior(t) + 7.0 * jnp.log(size(t).sum(0)).sum()  # noqa: E731
    size = jnp.abs if parametrisation == "expanded-mean" else jnp.exp
    np.testing.assert_allclose(jax.grad(scaled.log_prior)(t), jax.grad(total)(t), rtol=1e-12)
    np.testing.assert_allclose(scaled.log_prior(t), total(t), rtol=1e-12)
    np.testing.assert_allclose(size(scaled.init(jax.random.key(0))).sum(0), 7.0, rtol=1e-12)
    with pytest.raises(strang.InputError, match="is not expanded"):
        model("reduced-mean", scale=7.0)


@pytest.mark.parametrize("parametrisation", PARAMETRISATIONS)
def test_gradients_are_those_of_autodiff_of_the_enumerated_posterior(parametrisation, double_precision):
    ours = model(parametrisation)

    def log_posterior(t):
        return jax.nn.logsumexp(log_joint(ours.topics_of(t))) + ours.log_prior(t)

    def gradient(t, phi, counts):
        return ours.count_gradient(t, phi, counts) + jax.grad(ours.log_prior)(t)

    @jax.jit
    def both(t):
        phi = ours.topics_of(t)
        counts = jnp.einsum("z,zvk->vk", jax.nn.softmax(log_joint(phi)), N_KW)
        wrong = gradient(t, phi, counts.at[0].add(1e-6))
        return phi, counts, jax.grad(log_posterior)(t), gradient(t, phi, counts), wrong

    for seed in (0, 1):
        position = start_of(parametrisation, seed)
        assert position.dtype == jnp.float64
        phi, counts, expected, computed, wrong = map(np.asarray, both(position))
        np.testing.assert_allclose(phi.sum(0), 1, rtol=1e-13)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(computed / scale, expected / scale, rtol=0, atol=1e-10)
        closed = closed_form(parametrisation, np.asarray(position), counts, 0.3)
        np.testing.assert_allclose(closed / scale, expected / scale, rtol=0, atol=1e-10)
        assert np.abs(wrong - expected).max() / scale > 1e-9


@pytest.mark.parametrize("parametrisation", PARAMETRISATIONS)
def test_the_estimated_gradient_is_right_on_average(parametrisation):
    copies, ours, position = 30_000, model(parametrisation), start_of(parametrisation)
    rows, weights = jnp.tile(jnp.asarray(BAG, jnp.int32), (copies, 1)), jnp.full(copies, 1 / copies)
    gradient = np.asarray(jax.jit(ours.likelihood_gradient)(position, rows, weights, jax.random.key(1)))
    expected = jax.jit(jax.grad(lambda t: jax.nn.logsumexp(log_joint(ours.topics_of(t)))))(position)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(gradient / scale, expected / scale, atol=0.03)
    assert gradient.dtype == position.dtype == np.float32


def test_neither_chains_nor_the_corpus_change_the_gradient(monkeypatch):
    rows, weights = jnp.asarray(some_documents(10)), jnp.ones(10).at[7].set(0)
    dense, sparse = (strang.lda.TopicModel(4, 30, documents=d) for d in (None, corpora.from_matrix(np.asarray(rows))))
    keys = jax.random.split(jax.random.key(0))
    positions = jnp.stack([dense.init(key) for key in keys])
    together = jax.jit(jax.vmap(dense.likelihood_gradient, (0, None, None, 0)))(positions, rows, weights, keys)
    alone = jax.jit(dense.likelihood_gradient)(positions[1], rows, weights, keys[1])
    np.testing.assert_allclose(together[1], alone, rtol=1e-5, atol=1e-5)
    monkeypatch.setattr("strang.lda.model.MAX_DOCUMENTS_READ", 4)
    by_number = jax.jit(sparse.likelihood_gradient)(positions[1], jnp.arange(10), weights, keys[1])
    np.testing.assert_array_equal(by_number, alone)


def test_models_differ_by_their_settings_and_documents():
    rows = some_documents(4)
    one, same, other = (corpora.from_matrix(r) for r in (rows, rows, rows[::-1]))
    models = [strang.lda.TopicModel(4, 30, documents=documents) for documents in (one, same, other, None)]
    assert models[0] == models[1]
    assert hash(models[0]) == hash(models[1])
    assert len(set(models)) == 3
    assert repr(models[0]) != repr(models[2])  # by which stored runs are compared
    assert isinstance(models[0], strang.models.Posterior)


def test_a_step_out_of_the_simplex_gives_nan():
    ours = model("reduced-mean")
    outside = start_of("reduced-mean").at[0, 0].set(-0.1)
    gradient = ours.likelihood_gradient(outside, jnp.asarray(BAG)[None], jnp.ones(1), jax.random.key(0))
    assert np.isnan(gradient[:, 0]).all()
    assert np.isnan(jax.grad(ours.log_prior)(outside)[:, 0]).all()


# The Riemannian dynamics.


def hill(t):
    return jnp.sum(jnp.cos(t)) + 0.3 * jnp.sum(t) ** 2 + 0.1 * jnp.sum(t**4)


def stationarity(dynamics, drift):
    """(L* π)/π at a point, 0 if the SDE keeps π = e^−hill; the noise may depend on the coordinate it moves."""
    point = jnp.asarray([0.4, 1.3, 0.7])

    def diffusivity(x):  # half the variance, coordinate by coordinate
        return dynamics.diffusion(dynamics.at(x))[0] ** 2 / 2

    def flux(x):  # π^-1 (drift π − ∇(diffusivity π))
        own = jax.jvp(diffusivity, (x,), (jnp.ones_like(x),))[1]
        return drift(dynamics.at(x), jax.grad(hill))[0] - own + diffusivity(x) * jax.grad(hill)(x)

    return float(jax.jit(lambda x: jnp.trace(jax.jacfwd(flux)(x)) - flux(x) @ jax.grad(hill)(x))(point))


@pytest.mark.parametrize("inverse", [None, lambda t: 1 / (1 + t**2 / 2)], ids=["diag(t)", "another"])
def test_sgrld_keeps_the_posterior(inverse, double_precision):
    dynamics = SGRLD() if inverse is None else SGRLD(inverse_metric=inverse)
    assert stationarity(dynamics, dynamics.drift) == pytest.approx(0, abs=1e-12)

    def without_divergence(state, gradient):
        return (-dynamics.inverse_metric(state.position) * gradient(state.position),)

    assert abs(stationarity(dynamics, without_divergence)) > 1e-2


def test_the_split_step_has_the_sde_s_moments(double_precision):
    """Mean and variance of a step are θ + h drift and 2 h θ up to h²; with another metric it is refused."""
    dynamics, step = SGRLD(), SGRLD().steps["split"]
    t, h = jnp.asarray([0.7, 2.0]), 1e-4
    nodes, weights = np.polynomial.hermite_e.hermegauss(9)
    moved = np.array([step(dynamics, dynamics.at(t), h, jax.grad(hill), (jnp.full(2, z),)).position for z in nodes])
    mean = weights @ moved / weights.sum()
    variance = weights @ (moved - mean) ** 2 / weights.sum()
    np.testing.assert_allclose((mean - t) / h, dynamics.drift(dynamics.at(t), jax.grad(hill))[0], rtol=1e-2)
    np.testing.assert_allclose(variance / h, 2 * t, rtol=1e-2)
    with pytest.raises(strang.InputError, match="mirrored-euler"):
        step(SGRLD(inverse_metric=jnp.ones_like), dynamics.at(t), h, jax.grad(hill), (t,))


def test_sgrld_with_metric_one_is_sgld(double_precision):
    plain, flat = strang.SGLD(), SGRLD(inverse_metric=jnp.ones_like)
    t, z = jnp.asarray([0.3, -0.8]), jnp.asarray([0.4, -0.6])
    moved, expected = (d.steps["euler"](d, d.init(t, z), 0.1, jax.grad(hill), (z,)) for d in (flat, plain))
    np.testing.assert_allclose(moved.position, expected.position, rtol=1e-15)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_sgrld_keeps_structure_and_dtype(dtype):
    dynamics, tree = SGRLD(), {"a": jnp.ones(3, dtype), "b": [jnp.full((2, 2), 0.5, dtype)]}
    step = dynamics.steps["mirrored-euler"]
    moved = jax.eval_shape(lambda h: step(dynamics, dynamics.init(tree, tree), h, lambda t: t, (tree,)), 0.1)
    assert jax.tree.structure(moved.position) == jax.tree.structure(tree)
    assert {leaf.dtype for leaf in jax.tree.leaves(moved)} == {jnp.dtype(dtype)}


def test_sgrld_of_lda_is_that_of_patterson_and_teh(double_precision):
    """Expanded mean: drift n + a − t − n. π, noise √(2t), mirrored at 0."""
    ours, t = model("expanded-mean"), start_of("expanded-mean")
    counts = jnp.asarray(np.random.default_rng(0).uniform(0, 5, (V, K)))

    def gradient(position):
        return -ours.count_gradient(position, ours.topics_of(position), counts) - jax.grad(ours.log_prior)(position)

    dynamics, z = SGRLD(), jnp.asarray(np.random.default_rng(1).normal(size=(V, K)))
    drift = counts + 0.3 - t - counts.sum(0) * ours.topics_of(t)
    np.testing.assert_allclose(dynamics.drift(dynamics.at(t), gradient)[0], drift, rtol=1e-12)
    moved = dynamics.steps["mirrored-euler"](dynamics, dynamics.at(t), 0.5, gradient, (z,)).position
    plain = t + 0.5 * drift + jnp.sqrt(2 * 0.5 * t) * z
    np.testing.assert_allclose(moved, jnp.abs(plain), rtol=1e-12)
    assert (plain < 0).any()
    shaken = (jnp.sqrt(t) + jnp.sqrt(0.25) * z) ** 2
    there = counts + 0.3 - 0.5 - shaken - counts.sum(0) * ours.topics_of(shaken)
    split = dynamics.steps["split"](dynamics, dynamics.at(t), 0.5, gradient, (z,)).position
    np.testing.assert_allclose(split, jnp.abs(shaken + 0.5 * there), rtol=1e-12)
    stuck = dynamics.steps["mirrored-euler"](dynamics, dynamics.at(t.at[0, 0].set(0)), 0.5, gradient, (z,)).position
    assert np.isfinite(stuck).all()


# Runs.

RUNS = {
    "SGLD": (strang.SGLD(), "expanded-natural", None, 1e-3),
    "SGHMC": (strang.SGHMC(friction=5.0), "reduced-natural", "chen:ABOBA", 1e-2),
    "SGHMC Euler": (strang.SGHMC(friction=5.0), "expanded-natural", "euler-old", 1e-2),
    "SGNHT": (strang.SGNHT(friction=5.0), "expanded-natural", "leimkuhler:BADODAB", 1e-2),
    "SGRHMC": (strang.SGRHMC(metric=jnp.exp, friction=5.0, iterations=3), "expanded-natural", None, 1e-2),
    "SGRLD": (SGRLD(), "expanded-mean", None, 1e-2),
}


@pytest.mark.parametrize("name", RUNS)
def test_every_dynamics_moves_the_topics(name):
    dynamics, parametrisation, integrator, h = RUNS[name]
    ours = strang.lda.TopicModel(3, 20, parametrisation=parametrisation, sweeps=4)
    step = strang.spell(dynamics, integrator or dynamics.default_integrator)
    batch = strang.data.Batch(some_documents(8, 20), None, 4.0)
    before = np.stack([ours.init(jax.random.key(chain)) for chain in range(2)])
    normals = np.random.default_rng(0).normal(size=(2, 1 + step.noises, *before.shape[1:])).astype(np.float32)

    @jax.jit
    @jax.vmap
    def move(position, normals, key):
        def gradient(position):
            return batch_gradient(ours, position, batch, key)

        return step(dynamics, dynamics.init(position, normals[0]), h, gradient, tuple(normals[1:])).position

    after = np.asarray(move(*map(jnp.asarray, (before, normals, np.array([[1, 2], [3, 4]], np.uint32)))))
    assert np.isfinite(after).all()
    assert (before != after).mean() > 0.9


def exact_second_moments(rows, topics, alpha, beta):
    """E Σ_k φ_kw² of every word given documents: a mixture of Dirichlets over the topics of all their tokens."""
    words, owner = (
        np.concatenate([np.repeat(np.arange(len(r)), r) for r in rows]),
        np.repeat(range(len(rows)), rows.sum(1)),
    )
    log_weight, moments = [], []
    for z in itertools.product(range(topics), repeat=len(words)):
        n_dk, n_wk = np.zeros((len(rows), topics)), np.zeros((rows.shape[1], topics))
        np.add.at(n_dk, (owner, z), 1)
        np.add.at(n_wk, (words, z), 1)
        shape = beta + n_wk
        log_gamma = jax.scipy.special.gammaln
        log_weight.append(log_gamma(alpha + n_dk).sum() + log_gamma(shape).sum() - log_gamma(shape.sum(0)).sum())
        total = shape.sum(0)
        moments.append((shape * (shape + 1) / (total * (total + 1))).sum(1))
    return np.exp(log_weight - np.max(log_weight)) @ np.array(moments) / np.exp(log_weight - np.max(log_weight)).sum()


@pytest.mark.parametrize("name", ["SGHMC", "SGRLD", "SGRLD, scaled"])
def test_runs_sample_the_posterior_of_the_topics_and_continue_bit_for_bit(name):
    """Against the exact mixture of Dirichlets; the prior's value, as of a run without data, is far off."""
    rows = np.array([[4, 0, 0], [0, 3, 0]], np.int32)
    dynamics, parametrisation, h = {
        "SGHMC": (strang.SGHMC(friction=3.0), "expanded-natural", 0.15),
        "SGRLD": (SGRLD(), "expanded-mean", 0.05),
        "SGRLD, scaled": (SGRLD(), "expanded-mean", 0.05),
    }[name]
    integrator = "split" if name.endswith("scaled") else None
    scale = 4.0 if name.endswith("scaled") else 0.0
    ours = strang.lda.TopicModel(2, 3, alpha=0.5, beta=1.0, parametrisation=parametrisation, sweeps=6, scale=scale)
    data = strang.data.arrays(rows, batch_order="full")
    settings = {"step_size": h, "chains": 10, "average": lambda t: (ours.topics_of(t) ** 2).sum(1)}
    settings["integrator"] = integrator
    first, longer = (strang.sample(ours, data, dynamics, steps=steps, **settings) for steps in (20, 60))
    np.testing.assert_array_equal(first.more(40).chain.state.position, longer.chain.state.position)
    exact = exact_second_moments(rows, 2, 0.5, 1.0)
    np.testing.assert_allclose(longer.more(440).average, exact, atol=0.04)
    assert np.abs(exact - exact_second_moments(0 * rows, 2, 0.5, 1.0)).max() > 0.15


# Bad input.


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"topics": 0}, "topics is 0"),
        ({"vocabulary": 1}, "vocabulary is 1"),
        ({"sweeps": 2.5}, "sweeps is 2.5"),
        ({"alpha": 0.0}, "alpha is 0.0"),
        ({"beta": np.nan}, "beta is nan"),
        ({"parametrisation": "natural"}, "choose one of: reduced-mean"),
        ({"documents": corpora.from_matrix(np.ones((2, 4), int))}, "write vocabulary=4"),
    ],
)
def test_bad_settings_are_refused(settings, text):
    with pytest.raises(strang.InputError, match=text):
        strang.lda.TopicModel(**{"topics": 2, "vocabulary": 5, **settings})


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (np.ones((4, 5), np.float32), "5 whole counts each"),
        (np.ones((4, 6), np.int32), r"shape \(4, 6\)"),
        (np.arange(4), "5 whole counts each"),
    ],
)
def test_bad_documents_are_refused(rows, text):
    with pytest.raises(strang.InputError, match=text):
        strang.lda.TopicModel(2, 5).likelihood_gradient(jnp.zeros((5, 2)), rows, jnp.ones(4), jax.random.key(0))


@pytest.mark.parametrize(
    ("documents", "text"),
    [
        (([0, 1], [9], [1]), "word id 9; .* from 0 to 4"),
        (([0, 1], [-1], [1]), "word id -1"),
        (([0, 1], [1], [-2]), "count -2; .* not negative"),
        (([0, 1], [1], [1.5]), "count 1.5; counts are whole numbers"),
        (bags([0, 0, -1, 0, 0]), "count -1; .* not negative"),
        (([0, 2], [1], [1]), "indptr ends with 2, indices has 1"),
        (([0, 1], [1], [1, 1]), "indices has 1 and counts 2"),
    ],
)
def test_documents_that_would_break_the_loops_are_refused(documents, text):
    with pytest.raises(strang.InputError, match=text):
        expected_counts(random_topics(), documents, seeds(1), alpha=0.1, sweeps=2)


def test_a_bad_alpha_and_a_likelihood_are_refused():
    with pytest.raises(strang.InputError, match="write a positive number"):
        gibbs.as_alpha([0.1, 0.0], 2)
    with pytest.raises(strang.InputError, match="closed form"):
        strang.lda.TopicModel(2, 5).log_likelihood(jnp.zeros((5, 2)), BAG)


def test_loops_that_run_at_the_same_time_share_the_cores(monkeypatch):
    """Of three times two threads, as of devices that call the host, only as many compute as there are cores."""
    one, computing, most = threading.Semaphore(1), [], []

    def compute(item):
        computing.append(item)
        most.append(len(computing))
        time.sleep(0.001)
        computing.remove(item)

    monkeypatch.setattr(gibbs, "free_cores", lambda: one)
    starts = [partial(gibbs.run_on_threads, compute, range(6 * k, 6 * k + 6), [(), ()]) for k in range(3)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda start: start(), starts))
    assert len(most) == 18
    assert max(most) == 1
