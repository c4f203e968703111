"""Rows that are left out of their own forecasts, where the posterior without them is known."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logit
from scipy.stats import beta

from strang.nn import network, predictive, sharpness

ROWS, ONES = 40, 10


def outputs(position, x):
    return jnp.concatenate([jnp.zeros_like(x), jnp.full_like(x, position)], 1)


@pytest.fixture(scope="module")
def draws():
    """Of the chance of class 1, from the posterior of all rows, as quantiles of it: nothing is random."""
    posterior = beta(1 + ONES, 1 + ROWS - ONES)
    return logit(posterior.ppf((np.arange(2000) + 0.5) / 2000)).astype(np.float32)


@pytest.fixture(scope="module")
def rows():
    return np.zeros((ROWS, 1), np.float32), (np.arange(ROWS) < ONES).astype(np.int32)


def test_a_row_is_left_out_of_its_own_forecast(draws, rows):
    code = predictive.Code(outputs, "classes")
    found = sharpness.without_own_row(code, draws, *rows)
    np.testing.assert_allclose(found.sum(1), 1)
    np.testing.assert_allclose(found[:ONES, 1], ONES / (ROWS + 1), atol=2e-4)
    np.testing.assert_allclose(found[ONES:, 1], (ONES + 1) / (ROWS + 1), atol=2e-4)
    plain = predictive.probabilities(code, draws, rows[0], predictive.as_single)  # which has learnt from it
    np.testing.assert_allclose(plain[:, 1], (ONES + 1) / (ROWS + 2), atol=2e-4)
    assert np.abs(plain - found).min() > 5e-3


def test_more_rows_than_a_block_keep_their_order(draws):
    """And with draws that are all alike, or few, there is nothing to smooth."""
    classes = np.arange(600, dtype=np.int32) % 2
    code, x = predictive.Code(outputs, "classes"), np.zeros((600, 1), np.float32)
    found = sharpness.without_own_row(code, draws, x, classes)
    assert np.ptp(found[::2], axis=0).max() == np.ptp(found[1::2], axis=0).max() == 0
    assert found[0, 1] > found[1, 1]
    np.testing.assert_allclose(sharpness.without_own_row(code, np.zeros(400, np.float32), x, classes), 0.5, rtol=1e-6)
    assert sharpness.without_own_row(code, draws[::900], x, classes).shape == (600, 2)


def test_the_largest_weights_are_smoothed():
    """Draws of an exponential's tail, which weights of infinite variance come from: the smoothed are not above the
    largest, and change the tail alone."""
    log_likelihoods = -np.quantile(np.random.default_rng(0).exponential(size=10_000), np.linspace(0, 1, 400))[:, None]
    plain = np.exp(-log_likelihoods)
    plain /= plain.sum()
    found = sharpness.leaving_out(log_likelihoods)[:, 0] / 400
    ratio = found / plain[:, 0]
    assert ratio[:300].std() < 1e-6  # no part of the tail
    assert ratio[-60:].std() > 1e-3
    assert found.sum() == pytest.approx(1)


def test_forecasts_that_are_not_sure_enough_are_sharpened():
    """Draws that no row has moved, so that to leave one out changes little; classes are as sure as the square says."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(20_000, 1)).astype(np.float32)
    y = (rng.random(20_000) < 1 / (1 + np.exp(-2 * x[:, 0]))).astype(np.int32)

    def sloped(position, x):
        return jnp.concatenate([jnp.zeros_like(x), position * x], 1)

    net = network.Net(None, "classes", sloped, None)
    found = sharpness.left_out_in_turn(net, np.full(50, 1.35, np.float32), x, y)
    assert found == pytest.approx(2 / 1.35, abs=0.1)  # 8,192 rows: a standard error of 0.03
    assert sharpness.left_out_in_turn(net, np.full(50, 2.0, np.float32), x, y) == pytest.approx(1, abs=0.08)
