"""Temperatures other than 1, as numbers and as schedules, and cycles whose cold ends count."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import strang
from strang.sampling import averages, record
from strang.theory import closed, linear
from strang.util.errors import InputError

MODEL = strang.models.Gaussian()
X = np.random.default_rng(0).normal(0.5, 1.0, 20).astype(np.float32)
DATA = strang.data.arrays(X, batch_order="full")


@pytest.mark.parametrize(("kind", "name"), closed.CLOSED)
def test_closed_forms_hold_at_any_temperature(kind, name):
    """Var_h/(T/K) by linear algebra on the shipped step is the closed form, where gradient noise V counts as V/T."""
    numbers = {"temperature": 0.3} | ({"friction": 2.0} if kind is strang.SGHMC else {})
    dynamics, step = kind(**numbers), strang.spell(kind, name)
    for variance in (0.0, 0.7):
        exact = linear.variance_ratio(step, dynamics, 1.7, 0.2, variance)
        assert float(exact) == pytest.approx(
            float(closed.variance_ratio(step, dynamics, 1.7, 0.2, variance)), rel=1e-11
        )


def test_known_gradient_noise_is_taken_out_at_any_temperature():
    dynamics = strang.SGHMC(friction=2.0, gradient_noise=0.7, temperature=0.5)
    for name in ("chen:ABOBA", "nogin"):
        step = strang.spell(dynamics, name)
        silent = strang.SGHMC(friction=2.0, temperature=0.5)
        noisy = linear.variance_ratio(step, dynamics, 1.0, 0.1, 0.7)
        assert float(noisy) == pytest.approx(float(linear.variance_ratio(step, silent, 1.0, 0.1)), rel=1e-9)


def test_the_exact_law_of_a_run_is_that_of_its_temperature():
    """The finite-time theory at T = 0.25: a long run's second moment is mean² + T/precision at small steps."""
    found = strang.theory.finite_time(
        strang.spell(strang.SGHMC, "leimkuhler:BAOAB"), strang.SGHMC(friction=2.0, temperature=0.25), data=X,
        batch_order="full", step_size=0.02, steps=200_000, burn_in=5_000,
    )  # fmt: skip
    mean, variance = MODEL.posterior(X)
    assert found.truth == pytest.approx(mean**2 + 0.25 * variance, rel=1e-6)
    assert abs(found.bias) < 1e-3 * variance


def square(theta):
    return theta**2


def run(**settings):
    given = {"step_size": 0.1, "steps": 60, "chains": 3, "average": square, "thin": 1, "progress": False}
    return strang.sample(MODEL, DATA, settings.pop("dynamics"), **{**given, **settings})


def test_a_schedule_that_does_not_change_is_the_number():
    number = run(dynamics=strang.SGHMC(2.0, temperature=0.5))
    schedule = run(dynamics=strang.SGHMC(2.0, temperature=lambda l: 0.5 + 0 * l))
    np.testing.assert_array_equal(number.draws, schedule.draws)
    per_chain = run(dynamics=strang.SGHMC(2.0, temperature=np.array([0.5, 0.5, 4.0])))
    np.testing.assert_allclose(per_chain.draws[:, :2], number.draws[:, :2], rtol=1e-5)
    assert not np.allclose(per_chain.draws[:, 2], number.draws[:, 2], rtol=1e-2)


@pytest.mark.parametrize("what", ["step_size", "temperature"])
def test_only_cold_ends_count(what):
    """The average is that of the draws at cold ends, with equal weights, and so are the samples; to rounding."""
    cycle = strang.schedule.cyclical(0.3, 0.1, length=10, cold=0.4)
    settings = {"step_size": cycle} if what == "step_size" else {}
    dynamics = strang.SGHMC(2.0, temperature=cycle if what == "temperature" else 1.0)
    found = run(dynamics=dynamics, burn_in=10, coupled=1, **settings)
    steps = np.arange(1, 61)
    cold = ((steps - 1) % 10 >= 6) & (steps > 10)
    np.testing.assert_array_equal(found.samples, np.swapaxes(found.draws[cold], 0, 1))
    np.testing.assert_allclose(found.average, (found.draws[cold] ** 2).mean(), rtol=1e-5)
    assert found.samples.shape == (3, 20)
    longer = run(dynamics=dynamics, burn_in=10, coupled=1, steps=25, **settings).more(35)
    np.testing.assert_array_equal(longer.chain.average.total["average"], found.chain.average.total["average"])


def test_cycles_that_are_none_are_refused():
    for wrong in ({"cold": 1.0}, {"length": 1}, {"settle": 1.0}):
        cycle = strang.schedule.cyclical(**{"largest": 0.3, "smallest": 0.1, "length": 10, **wrong})
        with pytest.raises(InputError, match="step_size has cycles of length"):
            run(dynamics=strang.SGHMC(2.0), step_size=cycle)
    with pytest.raises(InputError, match="temperature is -1"):
        run(dynamics=strang.SGHMC(2.0, temperature=lambda l: -1.0))
    with pytest.raises(InputError, match="temperature is 0"):
        run(dynamics=strang.SGHMC(2.0, temperature=0.0))
    with pytest.raises(InputError, match="one temperature only"):
        run(dynamics=strang.SGHMC(2.0, gradient_noise=0.1, temperature=lambda l: 1.0))


def test_a_stepper_knows_schedules():
    cooling = strang.schedule.decreasing(4.0, alpha=1.0)
    stepper = strang.Stepper(MODEL, strang.SGHMC(2.0, temperature=cooling), step_size=0.1)
    same = strang.Stepper(MODEL, strang.SGHMC(2.0, temperature=4.0), step_size=0.1)
    one, other = (each.step(each.start(), X, size=20) for each in (stepper, same))
    np.testing.assert_array_equal(one.state.position, other.state.position)
    one, other = stepper.step(one, X, size=20), same.step(other, X, size=20)
    assert not np.allclose(one.state.momentum, other.state.momentum)
    assert jax.tree.leaves(jnp.asarray(one.alive))


def test_many_coordinates_have_temperatures_array_by_array(monkeypatch):
    model = strang.Model(lambda q: -jnp.sum(q["a"] ** 2) - q["b"] ** 2, lambda q, x: 0.0 * x, init={
        "a": np.ones(3, np.float32), "b": np.float32(1.0)})  # fmt: skip
    settings = {"step_size": 0.1, "steps": 40, "progress": False}
    each = strang.sample(model, DATA, strang.SGHMC(2.0, temperature=0.5), **settings)
    monkeypatch.setattr(record, "MAX_COORDINATES", 1)
    jax.clear_caches()
    arrays = strang.sample(model, DATA, strang.SGHMC(2.0, temperature=0.5), **settings)
    fine, coarse = (averages.means(run.chain.average) for run in (each, arrays))
    np.testing.assert_allclose(coarse["leaf_heat"]["a"], fine["heat"]["a"].mean(1), rtol=1e-5)
    np.testing.assert_allclose(coarse["leaf_heat"]["b"], fine["heat"]["b"], rtol=1e-5)
    assert "heat" not in coarse
