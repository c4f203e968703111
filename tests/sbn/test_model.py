"""The belief network against enumeration: likelihood, gradient, Gibbs sweeps, annealed importance sampling.

Sampling tests use |z| < 5 on independent draws (false alarm below 1e-6 per number) and a control that must fail.
"""

import itertools
import os
import subprocess
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numba
import numpy as np
import pytest
from scipy.special import logsumexp

import strang
from strang import sbn
from strang.data.batches import Batch
from strang.sbn.kernels import gibbs as kernel
from strang.sbn.kernels import polya_gamma
from strang.sbn.model import SBN
from strang.util import random
from strang.util.host_random import streams, uniform

M, J = 5, 3
ALL_V = np.array(list(itertools.product([0, 1], repeat=M)))
ALL_H = np.array(list(itertools.product([0, 1], repeat=J)))


@pytest.fixture(scope="module")
def network() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    shapes = {"W": (M, J), "b": (J,), "c": (M,)}
    return {name: (1.5 * rng.normal(size=shape)).astype(np.float32) for name, shape in shapes.items()}


def log_joints(parameters, visible) -> np.ndarray:
    """log p(v, h) for all h, literally."""
    w, b, c = (parameters[name].astype(float) for name in ("W", "b", "c"))
    x = ALL_H @ w.T + c
    effects = (visible * x - np.logaddexp(0, x)).sum(1)
    return effects + (ALL_H * b - np.logaddexp(0, b)).sum(1)


def posterior(parameters, visible) -> np.ndarray:
    joint = log_joints(parameters, visible)
    return np.exp(joint - logsumexp(joint))


def test_probabilities_of_all_images_add_up_to_one(network):
    log_p = sbn.exact(network, ALL_V)
    assert np.exp(log_p).sum() == pytest.approx(1, abs=1e-12)
    literal = [logsumexp(log_joints(network, v)) for v in ALL_V]
    np.testing.assert_allclose(log_p, literal, atol=1e-12)


def test_the_gradient_is_that_of_the_likelihood(network):
    """Σ_h p(h | v) ∇ log p(v, h) = ∇ log p(v): Fisher's identity, with the shipped joint gradient."""
    model = SBN(J, M)
    with jax.enable_x64(True):
        position = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), network)

        def log_p(position, v):
            return jax.nn.logsumexp(jax.vmap(lambda h: model.log_joint(position, v, h))(jnp.asarray(ALL_H, float)))

        for v in ALL_V[[0, 7, 19]]:
            expected = jax.grad(log_p)(position, jnp.asarray(v, float))
            rows = jnp.broadcast_to(jnp.asarray(v, float), (len(ALL_H), M))
            gradient = model.joint_gradient(position, rows, jnp.asarray(ALL_H), jnp.asarray(posterior(network, v)))
            for name in expected:
                np.testing.assert_allclose(gradient[name], expected[name], atol=1e-7)


def z_scores(hidden, expected) -> np.ndarray:
    """How far the frequencies of hidden states are from the expected ones, in standard errors."""
    codes = hidden.astype(int) @ (1 << np.arange(J))[::-1]
    frequency = np.bincount(codes, minlength=len(ALL_H)) / len(codes)
    return (frequency - expected) / np.sqrt(expected * (1 - expected) / len(codes))


def sweeps_of(kind: str, parameters, visible, start, seed: int, sweeps: int) -> np.ndarray:
    """Hidden units of many copies of an image after sweeps of one of the three kinds."""
    count = len(start)
    rows = np.broadcast_to(visible.astype(bool), (count, M)).copy()
    if kind == "array":
        key = jax.random.key_data(jax.random.key(seed))
        return np.asarray(jax.jit(SBN(J, M, sweeps=sweeps)._array_sweeps)(parameters, rows, key, start))
    loop = kernel.gibbs if kind == "compiled" else polya_gamma.gibbs
    own = streams(np.array([seed, 1], np.uint32), count)
    return loop(rows, start, parameters["W"], parameters["b"], parameters["c"], own, sweeps)


@pytest.mark.parametrize("kind", ["compiled", "array", "polya-gamma"])
def test_sweeps_keep_the_posterior_and_converge_to_it(kind, network):
    visible, count = ALL_V[22], 50_000
    expected = posterior(network, visible)
    rng = np.random.default_rng(0)
    at_rest = ALL_H[rng.choice(len(ALL_H), count, p=expected)].astype(bool)
    assert np.abs(z_scores(sweeps_of(kind, network, visible, at_rest, 1, 1), expected)).max() < 5
    converged = sweeps_of(kind, network, visible, np.zeros((count, J), bool), 2, 20)
    assert np.abs(z_scores(converged, expected)).max() < 5
    other = {**network, "c": network["c"] + np.float32(0.2)}  # the control: sweeps of a slightly other model
    assert np.abs(z_scores(sweeps_of(kind, other, visible, at_rest, 1, 1), expected)).max() > 8


def test_products_out_of_range_are_replaced_by_sums_of_logarithms():
    rng = np.random.default_rng(0)
    for scale, large in ((1.0, False), (20.0, True), (80.0, True)):
        x, w = rng.uniform(-scale, scale, 784), rng.uniform(-scale, scale, 784)
        bias, rows, growth, (odds,) = kernel.laid_out(w[:, None].astype(np.float32), x.astype(np.float32), 1)
        none = kernel.activate(odds, np.zeros(1, bool), bias, rows, growth, kernel.LOST)
        assert none == pytest.approx(np.logaddexp(0, x).sum(), rel=1e-6)
        assert kernel.log_product(odds, growth, 0) == pytest.approx(np.logaddexp(0, x + w).sum(), rel=1e-6)
        assert (product_of(odds, growth, 0, 1.0) < 1e300) != large


@numba.njit
def product_of(odds, growth, row, start):
    return kernel.product(odds, growth, row, np.float32(start))


@pytest.mark.parametrize("pixels", [1, 31, 32, 33, 784])
def test_a_product_has_all_factors_for_any_number_of_pixels(pixels):
    rng = np.random.default_rng(pixels)
    weights, bias = rng.normal(size=(pixels, 3)).astype(np.float32), rng.normal(size=pixels).astype(np.float32)
    _, _, growth, (odds,) = kernel.laid_out(weights, bias, 1)
    odds[:pixels], odds[pixels:] = np.exp(bias), np.exp(kernel.PADDING_LOG_ODDS)
    for row, sign in ((0, 1), (2, 1), (3, -1), (5, -1)):
        literal = np.logaddexp(0, bias.astype(float) + sign * weights[:, row % 3]).sum()
        assert np.log(product_of(odds, growth, row, 1.0)) == pytest.approx(literal, rel=1e-6)
        assert np.log(product_of(odds, growth, row, 0.5)) == pytest.approx(literal - 32 * np.log(2), rel=1e-6)


@pytest.mark.parametrize("kind", ["compiled", "array"])
def test_large_weights_that_cancel_leave_the_right_odds(kind):
    """Five ratios of about e^40 / 2 against evidence of 5 · 40: the odds of the unit are 2^5."""
    network = {"W": np.zeros((M, J), np.float32), "b": np.zeros(J, np.float32), "c": np.zeros(M, np.float32)}
    network["W"][:, 0] = 40
    drawn = sweeps_of(kind, network, np.ones(M), np.zeros((10_000, J), bool), 1, 1)
    assert drawn[:, 0].mean() == pytest.approx(32 / 33, abs=0.009)


def test_odds_stay_accurate_between_recomputations():
    """After flipping units many times the odds are those of a fresh computation."""
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(40, 20)).astype(np.float32)
    bias, hidden = rng.normal(size=40).astype(np.float32), rng.random(20) < 0.5
    padded, rows, growth, (odds, fresh) = kernel.laid_out(weights, bias, 2)
    kernel.activate(odds, hidden, padded, rows, growth, kernel.LOST)
    for j in rng.integers(0, 20, 320):
        kernel.multiply(odds, growth, 20 + j if hidden[j] else j, kernel.LOST)
        hidden[j] = not hidden[j]
    kernel.activate(fresh, hidden, padded, rows, growth, kernel.LOST)
    np.testing.assert_allclose(odds, fresh, rtol=1e-5)


def test_odds_beyond_single_precision_are_lost_or_clipped():
    padded, rows, growth, (odds,) = kernel.laid_out(np.full((2, 2), 50, np.float32), np.array([0, -60], np.float32), 1)
    hidden = np.array([True, False])
    for beyond, expected in ((kernel.LOST, np.nan), (kernel.CLIPPED, kernel.MAX_ODDS)):
        kernel.activate(odds, hidden, padded, rows, growth, beyond)
        kernel.multiply(odds, growth, 1, beyond)  # the first pixel comes to e^100, the second to e^40
        np.testing.assert_allclose(odds[:2], [expected, np.exp(40)], rtol=1e-5)


def test_draws_do_not_depend_on_whether_they_were_compiled_before(network, tmp_path):
    """A process that compiles the loops and one that loads them from the cache have the same bits."""
    code = (
        "import numpy as np; from strang import sbn; rng = np.random.default_rng(0);"
        "p = {'W': rng.normal(size=(300, 40)), 'b': np.zeros(40), 'c': np.zeros(300)};"
        "print(sbn.log_likelihood(p, rng.random((20, 300)) < 0.3, temperatures=50, progress=False).tobytes().hex())"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    first, second = (
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert list(tmp_path.rglob("*ais_images*.nbc"))
    assert first == second


def test_polya_gamma_draws_terminate_after_a_divergence():
    state = streams(np.array([1, 2], np.uint32), 1)
    for z in (np.nan, np.inf, -np.inf, 1e300):
        assert polya_gamma.polya_gamma(z, state) == 0
    assert 0 < polya_gamma.polya_gamma(1e30, state) < 1e-29


def test_polya_gamma_draws_have_their_mean_and_variance():
    state, count = np.array([5], np.uint64), 20_000
    for z in (0.0, 0.7, 3.0, 12.0):
        draws = np.array([polya_gamma.polya_gamma(z, state) for _ in range(count)])
        mean = 0.25 if z == 0 else np.tanh(z / 2) / (2 * z)
        variance = 1 / 24 if z == 0 else (np.sinh(z) - z) / (4 * z**3 * np.cosh(z / 2) ** 2)
        assert abs(draws.mean() - mean) < 5 * np.sqrt(variance / count)
        assert draws.var() == pytest.approx(variance, rel=0.1)


def test_uniforms_are_uniform_along_a_stream_and_across_streams():
    state = np.array([1], np.uint64)
    along = np.array([uniform(state) for _ in range(10_000)])
    across = np.array([uniform(seed[None].copy()) for seed in streams(np.array([7, 9], np.uint32), 10_000)])
    for draws in (along, across):
        assert draws.min() > 0
        assert draws.max() < 1
        counts = np.histogram(draws, 50, (0, 1))[0]
        assert ((counts - 200) ** 2 / 200).sum() < 49 + 6 * np.sqrt(2 * 49)  # χ² of 49 degrees of freedom
        assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.05


def test_the_gradient_s_draws_come_from_the_posterior(network):
    """The whole path through the model, traced and mapped over chains, has Fisher's mean."""
    model, count, visible = SBN(J, M, sweeps=30), 40_000, ALL_V[9]
    rows = jnp.broadcast_to(jnp.asarray(visible, jnp.uint8), (count, M))
    positions = jax.tree.map(lambda x: jnp.stack([jnp.asarray(x), 0.5 * jnp.asarray(x)]), network)
    hidden = jax.jit(jax.vmap(lambda p, key: model.draw_hidden(p, rows, key)))(
        positions, jax.random.split(jax.random.key(4), 2)
    )
    for k, parameters in enumerate((network, {name: 0.5 * x for name, x in network.items()})):
        assert np.abs(z_scores(np.asarray(hidden[k]), posterior(parameters, visible))).max() < 5
    assert (
        np.abs(z_scores(np.asarray(hidden[0]), posterior({n: 0.5 * x for n, x in network.items()}, visible))).max() > 8
    )


def test_scores_beyond_single_precision_are_nan():
    """With clipped odds these scores would be about half of the true ones."""
    rng, images = np.random.default_rng(0), np.eye(16)[:4] + np.eye(16)[4:8]
    small = {"W": rng.normal(size=(16, 8)), "b": np.zeros(8), "c": np.zeros(16)}
    assert np.isfinite(sbn.log_likelihood(small, images, temperatures=30)).all()
    one = np.zeros((16, 8))
    one[3, 2] = 81  # a weight alone, which no image need turn on
    two = np.zeros((16, 8))
    two[:, :2] = -60  # activations that sweeps only pass through, on the way from a fair prior
    for large in ({"W": 100 * small["W"]}, {"c": np.full(16, -200.0)}, {"W": one}, {"W": two}):
        estimates = sbn.log_likelihood({**small, **large}, images, temperatures=30, particles=20, progress=False)
        assert np.isfinite(sbn.exact({**small, **large}, images)).all()
        assert np.isnan(estimates).any(), large


def plain_ais(parameters, visible, powers, runs: int, weigh_first: bool, seed: int) -> np.ndarray:
    """Weights of AIS written plainly; `weigh_first=False` moves before it multiplies the weight, which is wrong."""
    rng = np.random.default_rng(seed)
    w, b, c = (parameters[name].astype(float) for name in ("W", "b", "c"))
    hidden = (rng.random((runs, J)) < 1 / (1 + np.exp(-b))).astype(float)

    def log_likelihood(hidden):
        x = hidden @ w.T + c
        return (visible * x - np.logaddexp(0, x)).sum(1)

    def move(hidden, power):
        for j in range(J):
            on, off = hidden.copy(), hidden.copy()
            on[:, j], off[:, j] = 1, 0
            logit = b[j] + power * (log_likelihood(on) - log_likelihood(off))
            hidden = np.where((rng.random(runs) < 1 / (1 + np.exp(-logit)))[:, None], on, off)
        return hidden

    total = np.zeros(runs)
    for before, power in itertools.pairwise(powers):
        if not weigh_first:
            hidden = move(hidden, power)
        total += (power - before) * log_likelihood(hidden)
        if weigh_first:
            hidden = move(hidden, power)
    return np.exp(total)


def test_the_mean_weight_is_the_likelihood_unless_moves_come_first(network):
    powers, runs = np.linspace(0, 1, 5), 40_000
    for number in (3, 22):
        visible = ALL_V[number]
        truth = np.exp(sbn.exact(network, visible[None])[0])

        def z(weights, truth=truth):
            return (weights.mean() - truth) / (weights.std() / np.sqrt(len(weights)))

        bits = np.random.default_rng(number).integers(0, 2**63, runs).astype(np.uint64)
        arguments = (network["W"], network["b"], network["c"], bits, powers, runs)
        shipped = np.exp(kernel.ais(visible[None].astype(bool), *arguments))[0]
        assert abs(z(shipped)) < 5
        assert abs(z(plain_ais(network, visible, powers, runs, True, number))) < 5
        assert z(plain_ais(network, visible, powers, runs, False, number)) > 8


def test_more_temperatures_bring_the_estimate_to_the_truth_from_above(network):
    truth = -sbn.exact(network, ALL_V).mean()
    rough = sbn.score([network], ALL_V, temperatures=2, progress=False).nll
    fine = sbn.score([network], ALL_V, temperatures=300, particles=20, progress=False).nll
    assert rough > truth + 0.1
    assert fine == pytest.approx(truth, abs=0.02)


def test_the_score_of_samples_is_that_of_their_mean_probability(network):
    other = {name: 0.8 * x for name, x in network.items()}
    both = sbn.score([network, other], ALL_V, temperatures=200, particles=50, progress=False)
    expected = -np.log((np.exp(sbn.exact(network, ALL_V)) + np.exp(sbn.exact(other, ALL_V))) / 2)
    np.testing.assert_allclose(both.each, expected, atol=0.08)
    mean, error = sbn.paired(both, sbn.Score(expected))
    assert abs(mean) < 0.02
    assert 0 < error < 0.02


def test_an_image_s_score_depends_only_on_seed_and_row(network):
    whole = sbn.log_likelihood(network, ALL_V, temperatures=5, progress=False)
    part = sbn.log_likelihood(network, ALL_V[:7], temperatures=5, progress=False)
    np.testing.assert_array_equal(whole[:7], part)
    assert (sbn.log_likelihood(network, ALL_V, temperatures=5, seed=1, progress=False) != whole).any()


@pytest.mark.parametrize(
    ("dynamics", "integrator", "persistent"),
    [
        (strang.SGLD(), None, False),
        (strang.SGHMC(friction=5.0), "chen:ABOBA", True),
        (strang.SGNHT(friction=5.0), None, False),
    ],
)
def test_it_samples_with_any_dynamics_and_resumes_bit_for_bit(dynamics, integrator, persistent):
    rows = np.random.default_rng(0).integers(0, 2, (30, M)).astype(np.uint8)
    model = SBN(J, M, sweeps=2).started_at(rows)
    data = strang.data.arrays(rows, batch_size=7, batch_order="reshuffled")
    settings = {"integrator": integrator, "step_size": 0.01, "chains": 2, "progress": False}
    if persistent:
        settings["gradient"] = strang.gradients.latent()
    whole = strang.sample(model, data, dynamics, steps=9, **settings)
    parts = strang.sample(model, data, dynamics, steps=4, **settings).more(5, progress=False)
    assert whole.diverged == 0
    jax.tree.map(np.testing.assert_array_equal, whole.chain, parts.chain)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(whole.average))


def test_persistent_causes_are_those_of_each_datum_s_last_visit(network):
    rows = jnp.asarray(np.random.default_rng(0).integers(0, 2, (6, M)), jnp.uint8)
    model, estimator, key = SBN(J, M, sweeps=3), strang.gradients.latent(), jnp.zeros(2, jnp.uint32)
    before = estimator.start(model, strang.data.arrays(rows, batch_size=3), network)
    batch = Batch(rows[3:], None, 2.0, jnp.arange(3, 6))
    after = estimator.visit(model, before, network, batch, key)
    np.testing.assert_array_equal(before[:3], after[:3])  # the batch is of the other three
    expected = model.draw_hidden(network, rows[3:], random.jax_key(key), before[3:])
    np.testing.assert_array_equal(after[3:], expected)
    assert (before[3:] != after[3:]).any()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.eye(M) / 2, "0.5, not zeros and ones"),
        (255 * np.eye(M, dtype=np.uint8), "255, not zeros and ones"),
        (np.eye(M + 1), "visible=5 expects rows"),
        (np.ones(M), "visible=5 expects rows"),
    ],
)
def test_data_other_than_zeros_and_ones_are_refused(rows, message, tmp_path, network):
    model, settings = SBN(J, M), {"step_size": 0.01, "steps": 2, "average": None, "progress": False}
    pairs, kept = (rows, np.arange(len(rows))), strang.gradients.latent()
    with pytest.raises(strang.InputError, match=message):
        model.started_at(rows)
    with pytest.raises(strang.InputError, match=message):
        strang.sample(model, strang.data.arrays(rows, batch_size=2), strang.SGLD(), **settings)
    with pytest.raises(strang.InputError, match=message):
        strang.sample(model, strang.data.arrays(rows, batch_size=2), strang.SGLD(), gradient=kept, **settings)
    with pytest.raises(strang.InputError, match="no single array"):
        strang.sample(model, strang.data.arrays(pairs, batch_size=2), strang.SGLD(), **settings)
    np.save(tmp_path / "x.npy", rows.astype(np.float32))
    on_disk = strang.data.files(tmp_path / "x.npy", batch_size=2)
    if "not zeros" in message:  # noticed only at the first step
        with pytest.warns(UserWarning, match="diverged"):
            assert strang.sample(model, on_disk, strang.SGLD(), **settings).diverged == 1
    else:
        with pytest.raises(strang.InputError, match=message):
            strang.sample(model, on_disk, strang.SGLD(), **settings)
        with pytest.raises(strang.InputError, match=message):
            jax.eval_shape(model.draw_hidden, network, rows, jax.random.key(0))


LONG = {"hidden": 3, "visible": 2, "log_odds": (0.0,) * 3}


def test_invalid_settings_are_refused():
    for wrong in ({"hidden": 0}, {"hidden": 2.5}, {"hidden": 3, "sweeps": 0}, {"hidden": 3, "update": "gibs"}, LONG):
        with pytest.raises(strang.InputError):
            SBN(**wrong)
    with pytest.raises(strang.InputError, match="prior_var"):
        replace(SBN(3), prior_var=-1.0)
