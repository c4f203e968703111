"""Whether a run is to be trusted: every reason against a case in which it is true, and a run that has none of them."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import strang
from strang.run import verdict

QUIET = strang.data.arrays(np.zeros(2, np.float32), batch_order="full")
NORMAL = strang.Model(lambda q: -jnp.sum(q**2) / 2, lambda q, x: 0 * x * q[0], init=np.zeros(2, np.float32))
GOOD = {"step_size": 0.3, "steps": 6000, "burn_in": 200, "chains": 16, "coupled": 4, "progress": False}
WORD = "leimkuhler:BAOA"


def noisy(scales, rows=100):
    """Standard normals with gradient noise of unequal size, and batches of one row."""
    x = np.random.default_rng(0).normal(size=(rows, len(scales)))
    x = ((x - x.mean(0)) / x.std(0) * scales).astype(np.float32)
    model = strang.Model(lambda q: -jnp.sum(q**2) / 2, lambda q, x: jnp.sum(q * x), np.zeros(len(scales), np.float32))
    return model, strang.data.arrays(x, batch_size=1)


def sample(model=NORMAL, data=QUIET, dynamics=None, **changes):
    dynamics = strang.SGHMC(1.0) if dynamics is None else dynamics
    return strang.sample(model, data, dynamics, **{"integrator": WORD, **GOOD, **changes})


def test_a_run_that_is_right_is_trusted():
    run = sample()
    assert run.trusted, run.reasons
    assert run.reasons == []
    text = str(run)
    assert "trusted: Monte Carlo errors are at most 0.0" in text
    assert "NOT TO BE TRUSTED" not in text
    value, error = run.configurational_temperature
    assert abs(value - 1) < 5 * error < 0.5


@pytest.mark.parametrize("changes", [{"coupled": 0}, {"chains": 1, "coupled": 1}, {"steps": 250}, {"average": None}])
def test_what_is_not_known_is_not_trusted(changes):
    """Without a companion, another chain, enough steps, or an average."""
    run = sample(**changes)
    assert not run.trusted
    expected = {"coupled": "bias was not measured", "chains": "one chain cannot be compared", "steps": "Monte Carlo"}
    expected |= {"average": "nothing was averaged"}
    first = next(iter(changes))
    assert any(expected[first] in reason for reason in run.reasons)
    assert not verdict.serious(run)  # which warnings are for


def test_a_hot_coordinate_is_found_behind_a_mean_that_is_right():
    """One of twenty has all the noise, so that the mean temperature is 1.03."""
    scales = np.zeros(20)
    scales[7] = 0.08
    with pytest.warns(strang.TrustWarning, match=r"the temperature of position\[7\] is"):
        run = sample(*noisy(scales), strang.SGHMC(1.0), step_size=0.02, steps=20_000)
    assert abs(run.temperature - 1) < 0.05
    assert run.reasons[0].startswith("the temperature of position[7] is 1.")


def test_the_bias_of_a_long_step_is_found():
    """A symmetric scheme whose standard deviations are too large by 7 % at this step, and by 40 % at twice that: a
    third of the difference overestimates the bias, which is the side to err on."""
    run = sample(integrator="leimkuhler:OBABO", step_size=0.7, steps=20_000)
    assert run.reasons[0].startswith("the bias of the sd of position[")
    assert float(run.bias[0]) == pytest.approx(0, abs=0.05)
    assert 0.068 < run.estimates.sd.bias[0] < 0.2


def test_positions_that_are_too_narrow_are_found_at_the_right_kinetic_temperature():
    """One thermostat and unequal noise: its temperature is 1 and its variances are 1.5 and 0.5."""
    run = sample(
        *noisy([0.2, 0.0]), strang.SGNHT(1.0, gain=0.1, start=3.0), integrator="chen:ABOBA", step_size=0.01,
        steps=40_000, burn_in=4000, coupled=0,
    )  # fmt: skip
    assert abs(run.temperature - 1) < 0.03
    assert not run.trusted
    assert "the temperature of position[" in run.reasons[0]


def test_chains_in_several_modes_are_found():
    wells = strang.Model(
        lambda q: -((q**2 - 9) ** 2),
        lambda q, x: 0 * q * x,
        init=lambda key: jnp.where(jax.random.bernoulli(key), 3.0, -3.0).astype(jnp.float32),
    )
    run = sample(wells, step_size=0.05)
    assert any(reason.startswith("chains disagree: R-hat is") for reason in run.reasons)


def test_sweeps_that_are_too_long_are_found():
    model, _ = noisy([0.1, 0.1])
    rows = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    swept = strang.data.arrays(rows, batch_size=5, batch_order="symmetric")
    run = sample(model, swept, coordinates="dense", step_size=0.2, steps=2000)
    assert any("an epoch takes R h = 4 in units of the posterior's scale" in reason for reason in run.reasons)


def test_a_number_that_does_not_move_is_found():
    run = sample(average=lambda q: {"still": 0 * q[0], "moving": q[1]})
    assert any(reason.startswith("still did not move at all") for reason in run.reasons)


def test_a_grid_is_a_table_by_setting():
    run = sample(step_size=np.repeat([0.1, 0.5], 8), coupled=16, steps=2000)
    rows = run.by_setting()
    assert [row["setting"] for row in rows] == [{"step_size": pytest.approx(0.1)}, {"step_size": pytest.approx(0.5)}]
    assert [row["chains"] for row in rows] == [8, 8]
    lines = str(run).splitlines()
    assert " ".join(lines[1].split()) == "setting chains diverged temperature average ± Monte Carlo (± bias)"
    assert lines[2].startswith("step_size 0.1  8")
    assert "see run.by_setting()" in run.reasons[0]


def test_chains_that_diverge_come_first():
    with pytest.warns(strang.DivergenceWarning):
        run = sample(step_size=2.5, coupled=0)
    assert "diverged at step" in run.reasons[0]
    assert not run.trusted


def test_the_table_has_names_and_all_numbers():
    model = strang.Model(
        lambda q: -jnp.sum(q["w"] ** 2) / 2 - (q["b"] - 1) ** 2 / 2 * 100,
        lambda q, x: 0 * x * q["b"],
        init={"w": np.zeros((2, 1), np.float32), "b": np.zeros((), np.float32)},
    )
    run = sample(model, step_size=0.1, steps=8000, thin=5)
    table = run.summary()
    rows = table.to_dict()
    assert list(rows) == ["b", "w[0,0]", "w[1,0]"]
    assert rows["b"]["mean"] == pytest.approx(1, abs=0.02)
    assert rows["b"]["sd"] == pytest.approx(0.1, rel=0.15)
    assert rows["b"]["q05"] == pytest.approx(1 - 0.1645, abs=0.03)
    assert rows["w[0,0]"]["rhat"] == pytest.approx(1, abs=0.05)
    assert str(table).splitlines()[0].split()[:3] == ["mean", "sd", "5"]
    assert table._repr_html_().count("<tr>") == 4
    assert run.sd["w"].shape == (2, 1)
    assert run.bias["w"].shape == (2, 1)
    if importlib.util.find_spec("pandas"):
        assert table.to_frame().loc["b", "mean"] == rows["b"]["mean"]
    else:
        with pytest.raises(strang.InputError, match="pip install pandas"):
            table.to_frame()
