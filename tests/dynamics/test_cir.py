"""The Cox-Ingersoll-Ross step of SGRLD: the law it claims is that of Gamma, and its draws have that law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import strang
from strang.dynamics.sgrld import cir_law

SHAPE, RATE = 0.3, 1.7
SGRLD_CIR = strang.SGRLD.steps["cir"]


def drift(theta):
    """1 − θ ∂U, for Gamma(SHAPE, RATE)."""
    return SHAPE - RATE * theta


def law(theta, h, rate):
    """The distribution after a step, as scipy has it."""
    gain, kept, scale = (float(x) for x in cir_law(jnp.asarray(theta), jnp.asarray(drift(theta)), h, rate))
    return stats.ncx2(max(2 * gain, 1e-9), 2 * kept / scale, scale=scale / 2)


@pytest.mark.parametrize("h", [0.01, 0.3, 5.0])
def test_gamma_is_kept_exactly(h):
    """The Laplace transform E exp(−sθ) of Gamma after a step is what it was; at another rate it is not."""
    with jax.enable_x64():
        theta = jnp.asarray([1e-5, 0.1, 1.0, 20.0])
        s = np.array([0.1, 1.0, 10.0])

        def after(rate):
            gain, kept, scale = cir_law(theta, drift(theta), h, rate)
            np.testing.assert_allclose(gain, drift(theta) + rate * theta, rtol=1e-12)
            gain, keep = np.asarray(gain)[0], np.asarray(kept / theta)[0]
            c = np.asarray(scale) * np.ones(4)
            return (1 + s * c[0]) ** -gain * (RATE / (RATE + s * keep / (1 + s * c[0]))) ** SHAPE

        before = (RATE / (RATE + s)) ** SHAPE
        np.testing.assert_allclose(after(RATE), before, rtol=1e-12)
        assert np.abs(after(2 * RATE) / before - 1).max() > 1e-4  # negative control


@pytest.mark.parametrize("theta", [1e-6, 0.05, 3.0, 1e4])
@pytest.mark.parametrize("rate", [0.0, RATE])
def test_draws_have_the_law(theta, rate):
    """By Kolmogorov and Smirnov, at a chance of 1e-4 of a false alarm each: gains below and above 1/2, few and many
    Poisson numbers, drift towards 0 and away."""
    count, h = 5_000, 0.2
    dynamics = strang.SGRLD(rate=rate)
    keys = jax.random.split(jax.random.key(3), 3)
    noise = tuple(jax.random.normal(key, (count,)) for key in keys)
    start = dynamics.init(jnp.full(count, theta), None)
    moved = SGRLD_CIR(dynamics, start, h, lambda position: (1 - drift(position)) / position, noise)
    moved = np.asarray(moved.position, float)
    assert moved.min() > 0
    expected = law(theta, h, rate)
    assert stats.kstest(moved, expected.cdf).pvalue > 1e-4


def test_another_metric_is_refused():
    dynamics = strang.SGRLD(inverse_metric=jnp.ones_like)
    with pytest.raises(strang.InputError, match="cir solves the metric"):
        SGRLD_CIR(dynamics, dynamics.init(jnp.ones(1), None), 0.1, lambda q: q, (jnp.ones(1),) * 3)
