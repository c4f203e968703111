"""What a run tells of its own health: every line against a case in which it is true, and one in which it is not."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import strang
from strang.run import health
from strang.util.errors import InputError

PLAIN = {"step_size": 0.02, "steps": 2048, "chains": 2, "progress": False}


def normal(scales, rows=100):
    """Standard normals whose minibatch gradients have the noise of rows with these standard deviations, and a batch."""
    x = np.random.default_rng(0).normal(size=(rows, len(scales)))
    x = ((x - x.mean(0)) / x.std(0) * scales).astype(np.float32)
    model = strang.Model(
        lambda q: -jnp.sum(q**2) / 2, lambda q, x: jnp.sum(q * x), init=np.zeros(len(scales), np.float32)
    )
    return model, strang.data.arrays(x, batch_size=1), rows**2 * np.asarray(scales) ** 2


def test_temperatures_are_given_by_coordinate_and_the_worst_first():
    """One coordinate of four has all the noise: variances 2 at temperature 2, where the mean would say 1.25."""
    model, data, variance = normal([0.0, 0.0, 0.2, 0.0])
    friction, h = 2.0, 0.01
    run = strang.sample(model, data, strang.SGHMC(friction), **{**PLAIN, "step_size": h, "steps": 20_000})
    found = health.temperatures(run)
    assert found.shape == (1, 4)
    np.testing.assert_allclose(found[0], 1 + h * variance / (2 * friction), rtol=0.2)
    (line,) = health.heating(run)
    assert line.startswith(f"gradient noise makes the temperature {found.max():.4g} at position[2] ({found.mean():.4g}")
    assert "% too large" not in str(run)


def test_temperatures_of_a_grid_are_those_of_its_chains():
    model, data, variance = normal([0.1, 0.1])
    frictions = np.array([1.0, 100.0])
    run = strang.sample(model, data, strang.SGHMC(frictions), **{**PLAIN, "step_size": 0.01, "steps": 10_000})
    found = health.temperatures(run)
    np.testing.assert_allclose(found, 1 + 0.01 * variance / (2 * frictions[:, None]), rtol=0.3)
    assert "of chain 0" in health.heating(run)[0]


@pytest.mark.parametrize("grid", [False, True])
def test_what_is_known_is_left_out_coordinate_by_coordinate(grid):
    """All of one coordinate's noise is known, and as much of the other's, which has none: too cold by as much."""
    model, data, variance = normal([0.1, 0.0])
    friction = np.array([2.0, 3.0]) if grid else 2.0
    known = np.full(2, variance[0], np.float32)
    run = strang.sample(model, data, strang.SGHMC(friction, known), **{**PLAIN, "step_size": 0.01, "steps": 20_000})
    found = health.temperatures(run)
    least = 1 - 0.01 * variance[0] / (2 * np.reshape(friction, -1))
    np.testing.assert_allclose(found[:, 1], least, rtol=1e-5)
    assert abs(found[:, 0] - 1).max() < 0.2 * (1 - least.min())
    assert "at position[1]" in health.heating(run)[0].split(" and ")[0]


def test_one_thermostat_does_not_absorb_unequal_noise():
    """The temperatures that are foretold are the variances that were measured: 1.5 and 0.5, with a slow thermostat."""
    model, data, variance = normal([0.2, 0.0])
    friction, h = 1.0, 0.01
    settings = {**PLAIN, "step_size": h, "steps": 40_000, "burn_in": 4000, "chains": 20, "average": lambda q: q**2}
    heat = h * variance / 2
    run = strang.sample(model, data, strang.SGNHT(friction, gain=0.1, start=friction + heat.mean()), **settings)
    found = health.temperatures(run)[0]
    np.testing.assert_allclose(found, (friction + heat) / (friction + heat.mean()), rtol=0.05)
    np.testing.assert_allclose(run.average, found, rtol=0.1)
    assert "write thermostat='coordinate'" in health.heating(run)[0]
    each = strang.sample(model, data, strang.SGNHT(friction, thermostat="coordinate"), **{**settings, "steps": 5000})
    assert health.heating(each) == ["the thermostat of each coordinate absorbs constant gradient noise"]
    model, data, _ = normal([0.2, 0.2])
    equal = strang.sample(model, data, strang.SGNHT(friction), **{**settings, "steps": 40_000})
    assert "equal in all coordinates" in health.heating(equal)[0]


def test_nothing_is_foretold_where_it_is_not_known():
    _, data, _ = normal([0.1])
    positive = strang.Model(lambda q: jnp.sum(-q), lambda q, x: 0 * jnp.sum(q), init=np.ones(1, np.float32))
    assert health.heating(strang.sample(positive, data, strang.SGRLD(), **PLAIN)) == []


def test_the_step_that_heats_is_weighted_as_averages_are():
    model, data, _ = normal([0.1])
    schedule = strang.schedule.decreasing(1e-3, 0.5)
    settings = {**PLAIN, "step_size": schedule, "burn_in": 100, "average": None}
    run = strang.sample(model, data, strang.SGHMC(1.0), **settings)
    h = 1e-3 * np.arange(101.0, 2049) ** -0.5
    assert health.mean_steps(run)[0] == pytest.approx((h**2).sum() / h.sum(), rel=0.01)


def wells(apart):
    """Two wells, at ±apart; chains start in the one or the other."""
    return strang.Model(
        lambda q: -((q**2 - apart**2) ** 2) * 2,
        lambda q, x: 0 * q * x,
        init=lambda key: jnp.where(jax.random.bernoulli(key), apart, -apart).astype(jnp.float32),
    )


def test_chains_that_disagree_are_told_of():
    data = strang.data.arrays(np.zeros(2, np.float32), batch_order="full")
    settings = {**PLAIN, "chains": 20}
    with pytest.warns(strang.DisagreementWarning, match=r"R-hat is .* for average; the errors have their spread"):
        run = strang.sample(wells(3.0), data, strang.SGHMC(2.0), **settings)
    assert run.rhat > 5
    assert abs(run.average) < 3 * run.error
    assert any(line.startswith("chains disagree") for line in str(run).splitlines())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calm = strang.sample(wells(0.0), data, strang.SGHMC(2.0), **settings)
        grid = strang.sample(wells(3.0), data, strang.SGHMC(np.linspace(1, 2, 20)), **settings)  # differ anyway
    assert calm.rhat < 1.1
    assert not health.disagreement(grid)


@pytest.mark.parametrize(
    ("place", "spread", "h", "dynamics"),
    [(1.0, 1e-3, 1e-11, strang.SGLD()), (1000.0, 0.1, 1e-6, strang.SGLD())],
)
def test_small_drifts_are_not_rounded_away(place, spread, h, dynamics):
    """The stationary variance of one step, exactly: what is left of x after many tiny steps, against double precision.

    With the drift rounded into the position before the noise is added, it would vanish here: |h x / spread²| is below
    half of the last digit for all but the farthest positions.
    """
    step = strang.SGLD.steps["euler"]
    theta = (place + spread * np.random.default_rng(0).normal(size=100_000)).astype(np.float32)
    noise = np.random.default_rng(1).normal(size=theta.shape).astype(np.float32)

    def gradient(theta):
        return (theta - jnp.float32(place)) / np.float32(spread**2)

    moved = step(dynamics, dynamics.init(jnp.asarray(theta), None), np.float32(h), gradient, (jnp.asarray(noise),))
    exact = theta.astype(float) - h * (theta.astype(float) - place) / spread**2 + np.sqrt(2 * h) * noise
    error = np.asarray(moved.position, float) - exact
    pull = np.polyfit(theta.astype(float) - place, error, 1)[0] / (h / spread**2)  # of the drift, how much is missing
    digit = np.spacing(np.float32(place))
    noise_in_pull = digit / np.sqrt(12) / (spread * np.sqrt(len(theta))) / (h / spread**2)
    assert abs(pull) < 5 * noise_in_pull
    before = (theta - np.float32(h) * np.asarray(gradient(theta))).astype(np.float32)
    assert np.mean(before == theta) > 0.9  # negative control: the drift alone does not move them


def test_steps_below_the_last_digit_are_told_of():
    data = strang.data.arrays(np.zeros(2, np.float32), batch_order="full")

    def far(place):
        return strang.Model(lambda q: -((q - place) ** 2) / 2e-8, lambda q, x: 0 * q, init=np.float32(place))

    lost = strang.sample(far(1000.0), data, strang.SGHMC(1e4), **{**PLAIN, "step_size": 1e-5})
    (line,) = health.rounding(lost)
    assert line.startswith("a step moves position by about 1e-05, and its last digit is 6.1e-05")
    assert line in str(lost)
    assert not health.rounding(strang.sample(far(0.001), data, strang.SGHMC(1e4), **{**PLAIN, "step_size": 1e-5}))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_refused(dtype):
    data = strang.data.arrays(np.zeros(2, np.float32), batch_order="full")
    with pytest.raises(InputError, match=rf"a start has dtype {dtype}, in which small steps are rounded to nothing"):
        strang.sample(strang.models.Gaussian(), data, strang.SGLD(), init=jnp.zeros((), dtype), **PLAIN)


def test_noise_that_is_not_there_is_not_taken_out():
    rows = np.arange(8, dtype=np.float32)
    dynamics, settings = strang.SGHMC(10.0, gradient_noise=5.0), {**PLAIN, "chains": 1}
    with pytest.raises(InputError, match="gradient_noise is given, but full gradients have none; leave it out"):
        strang.sample(strang.models.Gaussian(), strang.data.arrays(rows, batch_order="full"), dynamics, **settings)
    swept = strang.data.arrays(rows, batch_size=4, batch_order="symmetric")
    with pytest.warns(UserWarning, match="with symmetric batches most of it cancels over an epoch"):
        strang.sample(strang.models.Gaussian(), swept, dynamics, **settings)


@pytest.mark.parametrize("word", ["chen:ABOBA", "euler-old"])
def test_all_of_the_noise_may_be_known(word):
    """At V = 2D/h nothing is left of the noise, and rounding must not take the root of less."""
    data = strang.data.arrays(np.arange(8, dtype=np.float32), batch_size=4)
    for friction, h in ((0.1, 0.3), (0.7, 0.01), (3.3, 1 / 3)):
        dynamics = strang.SGHMC(friction, gradient_noise=2 * friction / h)
        run = strang.sample(
            strang.models.Gaussian(), data, dynamics, integrator=word, **{**PLAIN, "step_size": h, "steps": 3}
        )
        assert not run.diverged


def test_a_temperature_that_is_wrong_says_so():
    """Too hot by gradient noise, too cold by a step near the limit of stability, and right."""
    model, data, _ = normal([0.2])
    settings = {**PLAIN, "steps": 20_000}
    assert "another distribution" in health.temperature(strang.sample(model, data, strang.SGHMC(2.0), **settings))[0]
    quiet = strang.data.arrays(np.zeros((2, 1), np.float32), batch_order="full")
    cold = strang.sample(model, quiet, strang.SGHMC(2.0), **{**settings, "step_size": 1.2})
    assert "another distribution" in health.temperature(cold)[0]
    right = strang.sample(model, quiet, strang.SGHMC(2.0), **settings)
    assert health.temperature(right)[0].endswith("(should be 1)")
    frictions = strang.SGHMC(np.array([2.0, 2000.0]))
    assert "of chain 0, and it should be 1" in health.temperature(strang.sample(model, data, frictions, **settings))[0]
