"""A model and data are enough: what is chosen, what is said, what comes out, and what is refused."""

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import strang
from strang.coordinates import Dense, Diagonal, from_curvature
from strang.run.api import begun_anew, is_thrown
from strang.run.driver import Goal
from strang.tuning import choice, saved
from strang.tuning.tuning import only_finite
from strang.util.errors import InputError

RNG = np.random.default_rng(0)
ROWS = (RNG.normal(size=(300, 3)) * [100.0, 1.0, 0.01] + [50.0, 0, 0]).astype(np.float32)  # unequal, shifted columns
TARGETS = (ROWS @ [0.02, 1.0, 30.0] + RNG.normal(size=300)).astype(np.float32)
LINEAR = strang.Model(
    lambda q: -jnp.sum(q["w"] ** 2) / 2e4 - q["b"] ** 2 / 2e4,
    lambda q, row: -((row[1] - row[0] @ q["w"] - q["b"]) ** 2) / 2,
    init={"w": np.zeros(3, np.float32), "b": np.zeros((), np.float32)},
)
FLAT = np.zeros(4, np.float32)  # data that say nothing: the posterior is the prior


def posterior(rows, targets):
    """Mean and standard deviations of (b, w), in closed form."""
    x = np.column_stack([np.ones(len(rows)), rows]).astype(float)
    precision = x.T @ x + np.eye(4) / 1e4
    return np.linalg.solve(precision, x.T @ targets), np.sqrt(np.diag(np.linalg.inv(precision)))


def prior_only(log_density, init):
    return strang.Model(log_density, lambda q, x: 0.0 * x * jax.tree.leaves(q)[0].sum(), init=init)


@pytest.fixture(scope="module")
def linear_run():
    return strang.sample(LINEAR, (ROWS, TARGETS), error=0.03, progress=False)


def test_a_model_and_data_are_enough(linear_run):
    """Raw columns of scales from 0.01 to 100. Means within 0.15 and standard deviations within 0.15 of a posterior
    standard deviation, which are five of the errors that were asked for: a false alarm in 10^5."""
    run = linear_run
    assert run.trusted, run.reasons
    mean, sd = posterior(ROWS, TARGETS)
    table = run.summary().to_dict()
    assert list(table) == ["b", "w[0]", "w[1]", "w[2]"]
    for k, row in enumerate(table.values()):
        assert set(row) == {"mean", "sd", "q05", "q50", "q95", "mc_error", "bias", "ess", "rhat"}
        assert abs(row["mean"] - mean[k]) < 0.15 * sd[k]
        assert abs(row["sd"] / sd[k] - 1) < 0.15
        assert abs(row["q95"] - (mean[k] + 1.645 * sd[k])) < 0.25 * sd[k]
        assert 0 <= row["bias"] < 0.03 * sd[k]
    assert run.goal.reached
    assert "all errors are below 0.03" in str(run)
    assert str(run).splitlines()[6].startswith("trusted: Monte Carlo errors are at most")


def test_what_was_chosen_is_told(linear_run):
    tuning = linear_run.tuning
    text = str(tuning)
    assert "SGHMC leimkuhler:BAOA with friction 1" in text
    assert "data per effective draw" in text
    assert "pilot run at step size 0.5" in text
    assert not tuning.problems
    assert tuning.batch_order == "full"
    assert isinstance(tuning.coordinates, Dense)


def test_a_tuning_is_used_again_and_changes_no_bit(linear_run):
    again = strang.sample(LINEAR, (ROWS, TARGETS), error=0.03, tuning=linear_run.tuning, progress=False)
    np.testing.assert_array_equal(again.average["w"], linear_run.average["w"])
    more = strang.sample(LINEAR, (ROWS, TARGETS), tuning=linear_run.tuning, steps=64, chains=20, progress=False)
    assert more.steps == 64
    assert more.job.program.chains == 20


def test_what_is_given_is_kept():
    given = strang.tune(
        LINEAR, strang.data.arrays((ROWS, TARGETS), batch_size=50, batch_order="symmetric"), strang.SGHMC(2.0),
        integrator="ubu:UBU", step_size=0.05, coordinates="diagonal", chains=8, coupled=8, error=0.2, progress=False,
    )  # fmt: skip
    assert (given.batch_order, given.batch_size) == ("symmetric", 50)
    assert (given.integrator, given.step_size) == ("ubu:UBU", 0.05)
    assert (given.dynamics.friction, given.chains, given.coupled) == (2.0, 8, 8)
    assert isinstance(given.coordinates, Diagonal)


def test_a_stored_run_is_tuned_once_and_goes_on_bit_for_bit(tmp_path, linear_run, monkeypatch):
    """Ended early, then to its goal, as without a stop; the same call once more has nothing to do."""
    settings = {"store": tmp_path / "run", "error": 0.03, "progress": False}
    early = strang.sample(LINEAR, (ROWS, TARGETS), steps=100, every=50, **settings)
    assert early.steps == 100
    monkeypatch.setattr("strang.tuning.tuning.explore", None)  # which would fail if it were called again
    for _ in range(2):
        run = strang.sample(LINEAR, (ROWS, TARGETS), **settings)
        assert run.steps == linear_run.steps
        np.testing.assert_array_equal(run.average["w"], linear_run.average["w"])
    assert saved.lines(tmp_path / "run")[0].startswith("SGHMC leimkuhler:BAOA")
    (tmp_path / "run" / saved.NAME).write_bytes(b"no tuning")
    with pytest.raises(InputError, match=r"tuning.npz is damaged .*; delete it, and everything is chosen anew"):
        strang.sample(LINEAR, (ROWS, TARGETS), **settings)


KILLED = """
import os, signal, sys
sys.path[:] = {path!r}
import strang
from strang.tuning.pilot import Pilot
from test_tuning import LINEAR, ROWS, TARGETS
Pilot.find_step = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
strang.sample(LINEAR, (ROWS, TARGETS), store={folder!r}, error=0.03, progress=False)
"""


def test_a_kill_in_the_warm_up_does_not_show(tmp_path, linear_run):
    """Everything before the run is a function of the seed, so the same call does it again to the same bits."""
    folder, here = str(tmp_path / "run"), str(Path(__file__).parent)
    code = KILLED.format(path=[here, *sys.path], folder=folder)
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    run = strang.sample(LINEAR, (ROWS, TARGETS), store=folder, error=0.03, progress=False)
    np.testing.assert_array_equal(run.average["w"], linear_run.average["w"])


def test_time_and_steps_end_a_run():
    run = strang.sample(LINEAR, (ROWS, TARGETS), error=1e-4, seconds=1e-3, progress=False)
    assert not run.trusted
    assert "the time was up before all errors were below 0.0001 posterior sd" in run.goal.why
    run = strang.sample(LINEAR, (ROWS, TARGETS), error=1e-4, steps=300, progress=False)
    assert "all 300 steps were made before" in run.goal.why
    assert run.goal.why in run.reasons


def test_large_data_are_sampled_by_minibatches():
    """20,000 rows of a logistic regression: the curvature of some rows, the mode of all, a control variate; in the
    units of the posterior the mean is where Newton's method has the mode, to within the skewness."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(20_000, 40)).astype(np.float32)
    y = np.where(rng.random(20_000) < 1 / (1 + np.exp(-x @ np.linspace(-0.5, 0.5, 40))), 1, -1).astype(np.float32)
    model = strang.models.Logistic(40)
    run = strang.sample(model, (x, (y > 0).astype(np.float32)), error=0.1, progress=False)
    assert run.tuning.batch_order == "iid"
    assert run.tuning.rows < 20_000
    assert run.tuning.noise.reduced < run.tuning.noise.plain / 10
    assert run.trusted, run.reasons
    z = run.tuning.coordinates.inverse(jax.tree.map(jnp.asarray, run.average))
    assert np.abs(jax.tree.leaves(z)[0]).max() < 0.6


def test_parameters_of_any_scale_are_kept_apart():
    """Standard deviations of 1e-7 and 1e7 beside each other, and correlated."""
    scales = np.array([1e-7, 1.0, 1e7])
    correlation = np.array([[1.0, 0.5, 0.3], [0.5, 1.0, 0.9], [0.3, 0.9, 1.0]])
    precision = np.linalg.inv(correlation * scales * scales[:, None])
    found = from_curvature(np.zeros(3, np.float32), precision, dense=True, least=1e-8)
    factor = np.asarray(found.factor, float)
    np.testing.assert_allclose(factor @ factor.T / scales / scales[:, None], correlation, atol=1e-5)


def test_the_cheapest_way_is_chosen():
    """Noise that control variates remove is worth two gradients; few rows are best taken all at once."""
    few = choice.options(choice.Noise(1e3, 1e2), 100, 0.005)
    many = choice.options(choice.Noise(1e6, 1e2), 10**6, 0.005)
    assert few[0].gradient == "full"
    assert (many[0].gradient, many[0].batch_order) == ("control variate", "iid")
    assert many[0].noise_bias == pytest.approx(0.005)
    assert [option.cost for option in many] == sorted(option.cost for option in many)
    exact = choice.options(choice.Noise(1e6, 0.0), 10**6, 0.005)  # a model whose control variate takes all noise
    assert exact[0].step_size == choice.LONGEST_STEP


def wells(apart):
    return prior_only(lambda q: jnp.logaddexp(-((q - apart) ** 2) / 2, -((q + apart) ** 2) / 2), np.float32(0.3))


def test_other_modes_make_an_answer_doubtful():
    """Two normals far apart, of which no chain sees both: found from starts elsewhere, and said first."""
    run = strang.sample(wells(12.0), FLAT, error=0.1, progress=False)
    assert not run.trusted
    assert any("there is another mode, 24 standard deviations away, with about 0.5" in each for each in run.reasons)
    near = strang.sample(wells(1.5), FLAT, error=0.1, progress=False)
    assert near.trusted, near.reasons
    assert float(near.sd) == pytest.approx(np.sqrt(1 + 1.5**2), rel=0.2)


def test_a_posterior_that_no_step_suits_is_not_trusted():
    """Neal's funnel: chains diverge, disagree, or the bias stays; which of these is said."""

    def funnel(q):
        return -(q["v"] ** 2) / 18 - jnp.sum(q["x"] ** 2) * jnp.exp(-q["v"]) / 2 - 5 * q["v"] / 2

    start = {"v": np.zeros((), np.float32), "x": np.zeros(5, np.float32)}
    run = strang.sample(prior_only(funnel, start), FLAT, steps=20_000, progress=False)
    assert not run.trusted
    assert any(word in " ".join(run.reasons) for word in ("chains disagree", "diverged", "the bias of"))


SEPARATED = np.array([-2.0, -1.0, 1.0, 2.0], np.float32)


@pytest.mark.parametrize(
    ("model", "data", "sentence"),
    [
        (prior_only(lambda q: 0.0 * q, np.float32(0)), FLAT, "does not fall off along position: far from the mode"),
        (prior_only(lambda q: q, np.float32(0)), FLAT, "no mode was found|no curvature|does not fall off"),
        (
            prior_only(lambda q: -((q["a"] + q["b"]) ** 2), {"a": np.float32(1), "b": np.float32(2)}), FLAT,
            "does not fall off along a, b: far from the mode that was found U is hardly higher",
        ),
        (
            strang.Model(lambda q: 0.0 * q, lambda q, x: jax.nn.log_sigmoid(jnp.abs(x) * q), np.float32(0)), SEPARATED,
            "does not fall off along position|no mode was found|no curvature",
        ),
        (prior_only(lambda q: jnp.log(q), np.float32(-1)), FLAT, "log_prior is not finite at the start"),
        (
            strang.Model(lambda q: -(q**2), lambda q, x: jnp.sqrt(jnp.abs(x) * q**2), np.float32(0)), SEPARATED,
            "gradient of log_likelihood is not finite at the start for row 0 and 3 more",
        ),
        ("model", FLAT, "model is 'model'; give a model"),
        (wells(1.0), np.array(["a"]), "the data have dtype"),
    ],
)  # fmt: skip
def test_bad_input_is_said_in_a_sentence(model, data, sentence):
    with pytest.raises(InputError, match=sentence) as raised:
        strang.sample(model, data, progress=False)
    assert "\n" not in str(raised.value)


def test_what_cannot_be_tuned_is_refused():
    loader = strang.data.stream([FLAT], size=4)
    with pytest.raises(InputError, match="a loader's data cannot be gone through at will, so they cannot be tuned"):
        strang.tune(wells(1.0), loader)
    with pytest.raises(InputError, match="SGRLD moves positive numbers, and is not tuned; write step_size and steps"):
        strang.tune(wells(1.0), FLAT, strang.SGRLD())
    with pytest.raises(InputError, match="error is 0; write a positive number"):
        strang.tune(wells(1.0), FLAT, error=0)
    with pytest.raises(InputError, match="a step size belongs to coordinates"):
        strang.tune(wells(1.0), FLAT, coordinates="none")


def test_fewer_rows_than_coordinates_are_enough_with_a_prior():
    x = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)
    run = strang.sample(strang.models.Logistic(8), (x, np.array([1.0, 0, 1], np.float32)), error=0.05, progress=False)
    assert run.trusted, run.reasons


def test_chains_at_which_the_density_is_not_finite_go_on_from_others():
    model = prior_only(lambda q: jnp.log(q), np.float32(1.0))
    positions = jnp.asarray([1.0, -1.0, 2.0, -3.0])
    moved = only_finite(model, strang.data.arrays(FLAT, batch_order="full"), positions)
    assert np.array_equal(moved, [1.0, 2.0, 2.0, 2.0]) or np.array_equal(moved, [1.0, 2.0, 2.0, 1.0])
    assert np.array_equal(
        only_finite(model, strang.data.arrays(FLAT, batch_order="full"), jnp.abs(positions)), [1, 1, 2, 3]
    )


def test_chains_that_were_thrown_begin_anew_with_smaller_steps(linear_run):
    tuning = linear_run.tuning
    calmer = begun_anew(tuning)
    assert calmer.step_size == pytest.approx(0.4 * tuning.step_size)
    z = jax.vmap(tuning.coordinates.inverse)(jax.tree.map(jnp.asarray, calmer.starts))
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(z)) < 6  # about the mode
    assert not is_thrown(linear_run, tuning)
    apart = Goal(0.03, False, "chains do not come together", apart=True)
    run = replace(linear_run, goal=apart)
    assert is_thrown(run, tuning)
    assert not is_thrown(run, replace(tuning, notes=("there is another mode",)))
