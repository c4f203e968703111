"""Fits of networks: what they predict, what they say of themselves, how they go on after a kill."""

import copy
import pickle
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.base import clone

import strang
from strang.models import bnn
from strang.nn import (
    estimator,
    fitting,
    health,
    legs,
    local,
    network,
    pilots,
    predictive,
    sampling,
    scales,
    sharpness,
    starts,
    tables,
)
from strang.storage.series import read_series
from strang.storage.store import read_chain
from strang.util.errors import InputError
from strang.util.files import read_npz

SMALL = {"hidden_layer_sizes": (6,), "starts": 2, "draws": 20, "steps": 100, "random_state": 0}


@pytest.fixture(autouse=True, scope="module")
def two_legs():
    """So that these fits have more than one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "SHORTEST_LEG", 50)
        yield


@pytest.fixture
def compilations():
    """The seconds that each compilation has taken from here on."""
    seconds = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, duration, **_: seconds.append(duration) if event.endswith("backend_compile_duration") else None
    )
    return seconds


def test_another_fit_of_as_many_rows_compiles_nothing(compilations):
    fits = []
    for seed in range(2):
        x, y = blobs(seed=seed)
        strang.BNNClassifier(**SMALL | {"random_state": seed}).fit(x, y).predict_proba(x)
        fits.append(len(compilations))
    assert fits[0] > 0
    assert fits[1] == fits[0]


def blobs(rows=120, seed=0):
    """Three classes in the plane, called by letters."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 3, rows)
    return rng.normal(size=(rows, 2)) + 4 * np.eye(3)[label][:, :2], np.array(["a", "b", "c"])[label]


def waves(rows=120, seed=0):
    """A wave whose noise grows to the right, in a unit of its own."""
    x = np.random.default_rng(seed).uniform(-2, 2, (rows, 1))
    noise = 0.05 + 0.1 * (x[:, 0] + 2)
    return x, 100 + 10 * (np.sin(2 * x[:, 0]) + noise * np.random.default_rng(seed + 1).normal(size=rows))


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return strang.BNNClassifier(**SMALL, store=tmp_path_factory.mktemp("fit")).fit(*blobs())


@pytest.fixture(scope="module")
def regressor():
    return strang.BNNRegressor(**SMALL).fit(*waves())


def test_classes_are_learnt(classifier):
    x, y = blobs(seed=1)
    found = classifier.predict_proba(x)
    assert classifier.score(x, y) > 0.85
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-12)
    labels = np.searchsorted(classifier.classes_, y)
    assert strang.calibration.score(found, labels).nll < 0.6  # log 3 knows nothing


def test_predictions_are_means_over_all_draws(classifier):
    x, _ = blobs(seed=1)
    model, rows = classifier._net(x).model, classifier._scaling(x)
    draws = classifier._fitted.draws
    assert jax.tree.leaves(draws)[0].shape[:2] == (2, 20)
    plain = jax.vmap(jax.vmap(scales.LearntScales(model, 1).network))(draws)
    mean = np.asarray(model.predict(plain, rows), float)
    for power in (1.0, 1.3):
        other = copy.copy(classifier)
        other._fitted = replace(classifier._fitted, choice=classifier._fitted.choice._replace(sharpness=power))
        np.testing.assert_allclose(other.predict_proba(x), predictive.sharpened(mean, power), rtol=1e-5, atol=1e-7)


def test_numbers_are_learnt_with_their_noise(regressor):
    x, y = waves(rows=400, seed=2)
    mean, sd = regressor.predict(x, return_std=True)
    assert regressor.score(x, y) > 0.8
    assert np.mean(np.abs(y - mean) < 2 * sd) > 0.85
    assert sd[x[:, 0] > 1].mean() > sd[x[:, 0] < -1].mean()


def test_moments_and_quantiles_are_those_of_the_mixture(regressor):
    x, _ = waves(rows=4, seed=2)
    mixture = regressor.predict_mixture(x)
    mean, sd = regressor.predict(x, return_std=True)
    for row in range(4):
        parts = norm(mixture.means[:, row], mixture.sds[:, row])
        low, high = mean[row] - 12 * sd[row], mean[row] + 12 * sd[row]
        moments = [
            quad(lambda t, k=k, parts=parts: parts.pdf(t).mean() * t**k, low, high, limit=500)[0] for k in (0, 1, 2)
        ]
        assert moments[0] == pytest.approx(1, abs=1e-6)
        assert moments[1] == pytest.approx(mean[row], rel=1e-6)
        assert np.sqrt(moments[2] - moments[1] ** 2) == pytest.approx(sd[row], rel=1e-3)
        for level, value in zip((0.1, 0.9), regressor.predict_quantiles(x[row : row + 1], (0.1, 0.9))[0], strict=True):
            assert parts.cdf(value).mean() == pytest.approx(level, abs=1e-6)


def test_a_fit_says_what_it_chose_and_how_it_is(classifier):
    assert classifier.settings_["batches"] == "all rows at every step"
    assert classifier.settings_["draws"] == 40
    assert tuple(classifier.settings_["held_out_nll_of_temperatures"]) == pilots.TEMPERATURES
    assert classifier.settings_["temperature"] in pilots.TEMPERATURES
    assert 0.5 < classifier.settings_["sharpness"] < 2
    assert set(classifier.settings_["prior_sd"]) == {"layer 0", "layer 1"}
    health = classifier.health_
    assert set(health.temperature) == {"layer 0", "layer 1"}
    assert all(0.5 < value < 2.5 for value in health.temperature.values())  # after a hundred steps
    assert len(health.moved) == 2
    assert min(health.moved) > 0
    assert np.isfinite([health.rhat, health.rhat_within, health.bias, health.bias_error]).all()
    assert "temperature (should be 1): layer 0" in str(health)
    assert health.hottest >= max(health.temperature.values())
    assert "A CHAIN IS HOT (a layer has temperature 2.00)" in str(replace(health, hottest=2.0))
    assert "IS HOT" not in str(replace(health, hottest=1.1))
    assert "not measured" in str(replace(health, bias=float("nan")))
    assert "CHAINS HAVE NOT SETTLED" in str(replace(health, rhat_within=1.2))
    assert "SETTLED" not in str(replace(health, rhat_within=1.05))
    assert "settled was not measured" in str(replace(health, rhat_within=float("nan")))


def leg_of(good, *draws):
    """A leg with this many draws, which are numbered, of chains of which these were good."""
    samples = np.array([draws] * len(good), float)
    return legs.Leg(None, SimpleNamespace(samples={"w": samples}), np.array(good))


def test_the_nearest_good_leg_stands_in_for_one_that_was_lost():
    parts = [
        leg_of([True, False, False], 0, 1, 2),
        leg_of([False, True, False], 3, 4, 5),
        leg_of([True] * 2 + [False], 6),
    ]
    np.testing.assert_array_equal(legs.merged_draws(parts)["w"], [[0, 1, 2, 0, 1, 2, 6], [3, 4, 5, 3, 4, 5, 6]])


def test_a_chain_that_was_lost_goes_back_with_smaller_steps(regressor, monkeypatch):
    """In the first of two legs one of two chains is said to boil."""
    found, said = [], iter([np.array([False, True]), np.array([True, True])])
    monkeypatch.setattr(legs, "usable", lambda run: next(said))

    def sample(net, data, settled, *rest, **settings):
        found.append(settled)
        return sampling.sample(net, data, settled, *rest, **settings)

    monkeypatch.setattr(legs, "sample", sample)
    model = clone(regressor).fit(*waves())
    for before, after in zip(*(jax.tree.leaves(settled.positions["network"]) for settled in found), strict=True):
        np.testing.assert_array_equal(before[0], after[0])
        assert (np.asarray(before[1]) != after[1]).any()
    assert found[1].step_size[0] == pytest.approx(max(legs.CALMER * found[0].step_size[0], sampling.SHORTEST_STEP))
    assert found[1].step_size[1] >= legs.COOLER * found[0].step_size[1]
    draws = jax.tree.leaves(model._fitted.draws["network"])[0]
    np.testing.assert_array_equal(draws[0, :10], draws[0, 10:])  # the second leg stands in for the first
    assert (draws[1, :10] != draws[1, 10:]).any()
    assert model.health_.lost == 1
    assert model.health_.diverged == 0
    assert "far too hot, and were replaced: 1" in str(model.health_)


def test_draws_that_stand_in_do_not_make_a_chain_look_settled():
    """A chain whose first leg drifts and whose second was lost: its halves with the stand-in are alike, its own not."""
    drift = np.linspace(0, 1, 20)
    samples = {"w": np.stack([drift, drift])}
    parts = [legs.Leg(None, SimpleNamespace(samples=samples), np.array(good)) for good in ([True, True], [True, False])]
    merged, own = legs.merged_draws(parts)["w"][1], legs.own_draws(parts)[1]
    np.testing.assert_array_equal(own, [True] * 20 + [False] * 20)
    assert health.rhat(health.halves(merged[:, None])) < 1.1
    assert health.rhat(health.halves(merged[own, None])) > 1.5


def test_pickles_and_clones(classifier):
    x, _ = blobs(seed=1)
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.predict_proba(x), classifier.predict_proba(x))
    assert not hasattr(clone(classifier), "classes_")


def test_a_stored_fit_is_read_again(classifier):
    x, y = blobs()
    same = clone(classifier).fit(x, y)
    for one, other in zip(*(jax.tree.leaves(each._fitted.draws) for each in (same, classifier)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert clone(classifier).set_params(random_state=None)._seed(classifier.store) == 0  # it goes on with its seed
    with pytest.raises(InputError, match="other data or settings"):
        clone(classifier).fit(x**2, y)
    with pytest.raises(InputError, match="other data or settings"):
        clone(classifier).set_params(prior_sd=2.0).fit(x, y)


SLOW_FIT = """
import sys, time
import numpy as np
import strang
from strang.nn import sampling, saved
from strang.storage import store
sampling.SHORTEST_LEG = 50
from strang.util.files import write_npz


def slowly(path, arrays):
    write_npz(path, arrays)
    print(path.name, *(int(arrays[name]) for name in (".looks", ".step") if name in arrays), flush=True)
    time.sleep(0.05 if path.name == sys.argv[3] else 0)  # there is time to kill it


saved.SAVE_SECONDS, saved.write_npz, store.write_npz = -1.0, slowly, slowly  # saves at every look
sampling.Store = lambda folder, job, every: store.Store(folder, job, 5)
x, y = (np.load(f"{sys.argv[1]}/{name}.npy") for name in "xy")
getattr(strang, sys.argv[2])(**SETTINGS, store=sys.argv[1]).fit(x, y)
"""


def kill_fit(name: str, folder, file: str, wait: float) -> list[str]:
    """Begin a fit, or go on with it, in a process that is killed some time after a file is there: what it saved."""
    code = SLOW_FIT.replace("SETTINGS", repr(SMALL))
    command = [sys.executable, "-c", code, str(folder), name, file.rpartition("/")[2]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (folder / file).exists():
        time.sleep(0.002)
    time.sleep(wait)
    process.kill()
    printed, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors  # it was not at its end
    return printed.splitlines()


@pytest.mark.parametrize(("name", "kills", "leg"), [("BNNClassifier", 2, "chains"), ("BNNRegressor", 1, "chains-2")])
def test_kills_do_not_show(name, kills, leg, request, tmp_path):
    """SIGKILL while starts are optimised, of one of the two, then while chains are sampled, in their first leg or in
    the second, at random moments; each process goes on where the one before was, and the last one predicts what a fit
    that was left alone does, bit for bit."""
    whole = request.getfixturevalue({"BNNClassifier": "classifier", "BNNRegressor": "regressor"}[name])
    rows, dice, looks = {"BNNClassifier": blobs, "BNNRegressor": waves}[name], random.Random(0), 0
    for letter, array in zip("xy", rows(), strict=True):
        np.save(tmp_path / f"{letter}.npy", array)

    if kills == 2:
        kill_fit(name, tmp_path, "starts.npz", 0.4 * dice.random())
        search = read_npz(tmp_path / "starts.npz", "")
        assert not search["done"]
        looks = int(search[".looks"])
    first, *_ = kill_fit(name, tmp_path, f"{leg}/chain.npz", 0.2 * dice.random())
    assert first == f"starts.npz {looks + 1}"
    reached = int(read_chain(tmp_path / leg / "chain.npz")[".step"])
    assert 0 < reached < sampling.SHORTEST_LEG

    again = clone(whole).set_params(store=tmp_path).fit(*rows())
    assert read_series(tmp_path / leg)[-1]["since"] == reached
    for one, other in zip(*(jax.tree.leaves(each._fitted.draws) for each in (again, whole)), strict=True):
        np.testing.assert_array_equal(one, other)
    predict = "predict_proba" if name == "BNNClassifier" else "predict_quantiles"
    x, _ = rows(seed=1)
    np.testing.assert_array_equal(*(getattr(each, predict)(x) for each in (again, whole)))
    np.testing.assert_array_equal(again.predict(x), whole.predict(x))
    assert again.settings_ == whole.settings_
    # Companions draw the normals of the step before a block anew, by a program of their own; without LLVM's
    # optimisations, as here, its last bits may be others.
    biases = [(each.health_.bias, each.health_.bias_error) for each in (again, whole)]
    np.testing.assert_allclose(*biases, rtol=1e-3)
    assert replace(again.health_, bias=0.0, bias_error=0.0) == replace(whole.health_, bias=0.0, bias_error=0.0)


def test_more_rows_go_on_from_where_the_chains_are(regressor, monkeypatch):
    """The first call is replaced by one whose chains end at random weights."""
    x, y = waves()
    model = clone(regressor).set_params(steps=20, draws=5)  # with programs that are compiled already

    def random_weights(net, rows, settings):
        positions = net.starts(jax.random.split(jax.random.key(3), 2))
        positions = jax.tree.map(np.asarray, jax.vmap(net.model.lifted)(positions))
        return replace(regressor._fitted, positions=positions)

    monkeypatch.setattr(estimator, "fit_network", random_weights)
    first = model.partial_fit(x[:60], y[:60])._fitted
    model.partial_fit(x[60:], y[60:])
    assert len(model._seen[0]) == 120
    for start, end in zip(*map(jax.tree.leaves, (model._fitted.starts, first.positions)), strict=True):
        np.testing.assert_array_equal(start, end)
    assert model._fitted.search_steps == 0


def test_rows_on_disk_are_those_in_memory(regressor, tmp_path):
    x, y = waves()
    np.save(tmp_path / "x.npy", x.astype(np.float32))
    np.save(tmp_path / "y.npy", y)
    model = clone(regressor).set_params(steps=20, draws=5)
    on_disk = model.fit(tmp_path / "x.npy", tmp_path / "y.npy")
    assert on_disk.score(x, y) > 0.5
    np.testing.assert_allclose(on_disk.predict(tmp_path / "x.npy"), on_disk.predict(x.astype(np.float32)), rtol=1e-5)
    scaling, memory = on_disk._scaling, tables.scaling_of(x.astype(np.float32))
    np.testing.assert_allclose(scaling.centre, memory.centre)
    np.testing.assert_allclose(scaling.spread, memory.spread)


def test_a_constant_target_is_predicted(regressor):
    """As scikit-learn's regressors do, without a word; and a constant column is none to divide by."""
    x, y = waves()
    mean, sd = clone(regressor).fit(x, np.full_like(y, 7e3)).predict(x, return_std=True)
    np.testing.assert_allclose(mean, 7e3, atol=0.1)
    assert (sd < 0.5).all()
    scaling = tables.scaling_of(np.column_stack([np.full(5, 1e6), np.arange(5.0)]))
    np.testing.assert_allclose(scaling.spread, [1, np.sqrt(2)])


# The parts.


def test_held_out_rows_are_not_learnt_from():
    assert [len(starts.held_out(size, 0)) for size in (2, 50, 1000, 10**6)] == [1, 10, 100, 4096]
    held = starts.held_out(50, seed=0)
    learnt = starts.learnt_number(jnp.arange(40, dtype=jnp.uint32), jnp.asarray(held))
    assert sorted([*held.tolist(), *learnt.tolist()]) == list(range(50))


@pytest.mark.parametrize(
    ("slope", "best", "boiling"),
    [(0.5, 1.0, None), (7.0, 0.1, None), (40.0, 0.01, None), (40.0, 0.1, 0.01)],
)
def test_the_choice_is_that_of_the_best_forecast_of_rows_that_nothing_learnt_from(slope, best, boiling, monkeypatch):
    """In place of chains: logits that are the surer the colder they are; labels are as sure as one of them says. Chains
    see the other rows only, and those that diverged or boil do not count."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 1)).astype(np.float32)
    y = (rng.random(4000) < 1 / (1 + np.exp(-slope * x[:, 0].astype(float)))).astype(np.int32)
    held, seen = np.arange(0, 4000, 2), []

    def outputs(position, x):
        return jnp.concatenate([jnp.zeros_like(x), position * x], 1)

    def sampled(net, data, settled, plan, probe, **kwargs):
        sure = {1.0: 0.5, 0.1: 7.0, 0.01: 40.0}
        each = np.array([sure[t] for t in plan.temperature], np.float32)
        alive = np.arange(len(each)) % 2 == 0
        samples = np.where(alive[:, None], each[:, None] * np.ones((1, 5)), np.nan)
        return SimpleNamespace(samples=samples, hot=~alive | (np.array(plan.temperature) == boiling))

    monkeypatch.setattr(pilots, "hot_chains", lambda run, limit: run.hot)
    monkeypatch.setattr(pilots, "settle", lambda *args, **kwargs: None)
    monkeypatch.setattr(pilots, "sample", sampled)
    monkeypatch.setattr(pilots, "data_of", lambda rows, batch_size: seen.append(rows))
    net = network.Net(None, "classes", outputs, None)
    plan = sampling.Plan(40, settling=20, draws=20, temperature=1.0, seed=0, batch_size=None)
    given = {"temperature": None, "seconds": None, "progress": False}
    chosen, tried, sharpness = fitting.chosen_by_pilots(
        net, (x, y), held, np.zeros(2), plan, None, SimpleNamespace(**given), 0.0, None
    )
    assert chosen == best == min(tried, key=tried.get)  # here they are clearly apart
    assert sharpness == 1
    assert tuple(tried) == pilots.TEMPERATURES
    assert all(np.array_equal(rows[0], x[1::2]) for rows in seen)


def test_with_minibatches_rows_are_left_out_in_turn_and_there_are_no_pilots(monkeypatch, tmp_path):
    """Every draw learns from every row; the sharpness is the same after a fit that goes on from its folder."""
    monkeypatch.setattr(fitting, "choose", None)
    x, y = blobs()
    given = {**SMALL, "batch_size": len(x) // 4, "store": tmp_path / "fit"}
    model = strang.BNNClassifier(**given).fit(x, y)
    found = model.settings_["sharpness"]
    assert "held_out_nll_of_temperatures" not in model.settings_
    assert model.settings_["temperature"] == 1
    net, rows = model._net(x), (model._scaling(x), np.searchsorted(model.classes_, y))
    net = scales.with_learnt_scales(net, len(x))
    assert found == pytest.approx(sharpness.left_out_in_turn(net, model._fitted.flat_draws(), *rows), rel=1e-6)
    assert found != 1
    assert strang.BNNClassifier(**given).fit(x, y).settings_["sharpness"] == found
    assert strang.BNNClassifier(**{**given, "temperature": 1.0, "store": None}).fit(x, y).settings_["sharpness"] == 1


@pytest.mark.parametrize("temperature", pilots.TEMPERATURES[:2])
def test_forecasts_have_a_sharpness_at_the_posteriors_own_temperature(temperature, monkeypatch):
    monkeypatch.setattr(fitting, "choose", lambda *args, **kwargs: pilots.Choice(temperature, {temperature: 0.5}))
    settings = strang.BNNClassifier(**SMALL).fit(*blobs()).settings_
    assert settings["temperature"] == temperature
    assert (settings["sharpness"] != 1) == (temperature == 1)


def test_chains_that_were_thrown_out_are_known_by_their_scales():
    def positions(*scales):
        return {"network": np.zeros((3, 2)), "log_scale": {"layer 0": np.array(scales), "layer 1": np.zeros(3)}}

    found = sampling.thrown(positions(0.0, 0.0, 0.0), positions(1.2, -3.0, np.nan))
    np.testing.assert_array_equal(found, [False, True, True])
    np.testing.assert_array_equal(sampling.thrown([np.zeros((2, 1))], [np.ones((2, 1))]), [False, False])


def test_learnt_scales_are_a_change_of_variables():
    """Positions give the network's own arrays and likelihood back; the prior is that of u times a log-normal one, and
    layers without weights have no scale. Scales move while chains settle and stay from then on."""
    model = strang.models.BNN((2, 3, 2))
    learnt = scales.LearntScales(model, rows=25)
    network_ = model.init(jax.random.key(0))
    position = learnt.lifted(network_)
    assert set(position["log_scale"]) == {"layer 0", "layer 1"}
    moved = {**position, "log_scale": {"layer 0": jnp.log(3.0), "layer 1": jnp.log(scales.MEDIAN)}}
    for one, other in zip(*map(jax.tree.leaves, (learnt.network(position), network_)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    row = jnp.ones(2), 1
    larger = ({k: x * 3 / scales.MEDIAN for k, x in network_[0].items()}, network_[1])
    assert learnt.log_likelihood(moved, row) == pytest.approx(float(model.log_likelihood(larger, row)), rel=1e-5)
    change = learnt.log_prior(moved) - learnt.log_prior(position)
    wanted = norm.logpdf(np.log(3 / scales.MEDIAN), 0, scales.SPREAD) - norm.logpdf(0, 0, scales.SPREAD)
    assert float(change) == pytest.approx(wanted, rel=1e-4)
    assert scales.layers({"norm": {"scale": np.ones(3)}, "out": {"kernel": np.ones((3, 2)), "bias": np.ones(2)}}) == [
        "out"
    ]


def test_scales_stay_once_chains_have_settled(classifier):
    draws = classifier._fitted.draws["log_scale"]
    for name, each in draws.items():
        assert each.std(1).max() < 1e-6
        assert np.abs(each[:, 0] - np.log(scales.MEDIAN)).max() > 1e-3, name  # they had moved before


def test_forecasts_of_numbers_are_scored_as_mixtures():
    def outputs(position, x):
        return jnp.concatenate([position * x, jnp.full_like(x, np.log(np.expm1(1 - bnn.MIN_NOISE)))], 1)

    x, y = np.array([[1.0], [2.0]], np.float32), np.array([0.5, 3.0])
    net = network.Net(None, "number", outputs, None)
    found = pilots.held_out_losses(net, np.array([0.0, 1.0], np.float32), x, y)
    wanted = -np.log((norm.pdf(y) + norm.pdf(y, loc=x[:, 0])) / 2)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_rows_of_a_number_count_by_their_noise():
    """The gradient of the mean at β = 1/2 is that of Σ σ (y − μ)² / 2σ²: a row of twice the noise pulls half as much,
    where under the likelihood it would be a quarter."""
    net = network.built_in((1, 2), output="number", activation="tanh", prior="normal", prior_sd=1.0)
    rows = jnp.zeros((1, 1)), jnp.ones(1)
    pulls = []
    for noise in (1.0, 2.0):
        raw = jnp.log(jnp.expm1(noise - bnn.MIN_NOISE))
        position = ({"weights": jnp.zeros((1, 2)), "biases": jnp.array([0.0, raw])},)
        pulls.append(jax.grad(starts.objective)(position, net, rows)[0]["biases"][0])
    assert pulls[1] / pulls[0] == pytest.approx(0.5, rel=1e-5)


def test_coordinates_have_unit_curvature_in_the_stiffest_direction():
    """Softmax regression: the whole Hessian by differentiation, in the coordinates that were found."""
    x, y = blobs(rows=40)
    rows = jnp.asarray(x, jnp.float32), jnp.asarray(np.unique(y, return_inverse=True)[1], jnp.int32)
    model = strang.models.BNN((2, 3), prior_sd=3.0)
    positions = jax.vmap(model.init)(jax.random.split(jax.random.key(0), 2))
    place = local.frame(model, strang.data.arrays(rows, batch_order="full"), positions, 0)
    for chain in range(2):
        change = jax.tree.map(lambda leaf, k=chain: leaf[k], place.coordinates)
        flat, unravel = jax.flatten_util.ravel_pytree(change.centre)

        def potential(z):
            position = change(unravel(z))  # noqa: B023
            each = jax.vmap(lambda *row: model.log_likelihood(position, row))(*rows)
            return -model.log_prior(position) - each.sum()

        hessian = np.asarray(jax.hessian(potential)(jnp.zeros_like(flat)))
        assert np.linalg.eigvalsh(hessian).max() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("prior", ["normal", "student-t", "laplace"])
def test_priors_are_densities_of_their_scale(prior):
    """Integrals by quadrature: each has a finite mass, and the normal and Laplace's the variance prior_sd²."""
    model = strang.models.BNN((1, 2), prior_sd=(1.5,), prior=prior, output="number")

    def density(t):
        position = ({"weights": jnp.zeros((1, 2)), "biases": jnp.asarray([t, 0.0])},)
        return float(np.exp(model.log_prior(position)))

    grid = np.linspace(-60, 60, 4001)
    values = np.array(jax.vmap(lambda t: model.log_prior(
        ({"weights": jnp.zeros((1, 2)), "biases": jnp.stack([t, jnp.zeros(())])},)))(jnp.asarray(grid)))  # fmt: skip
    mass = np.exp(values)
    variance = (mass * grid**2).sum() / mass.sum()
    assert variance == pytest.approx(1.5**2 * {"student-t": 5 / 3}.get(prior, 1.0), rel=0.02)
    assert density(0.0) == 1.0


def test_modules_of_flax_and_equinox_take_the_place_of_layers():
    nnx, eqx = pytest.importorskip("flax.nnx"), pytest.importorskip("equinox")
    x = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    made = {
        "nnx": lambda key: nnx.Linear(2, 3, rngs=nnx.Rngs(key)),
        "equinox": lambda key: eqx.nn.Linear(2, 3, key=key),
    }
    for make in made.values():
        net = network.from_module(make, output="classes", outputs=3, prior_sd=1.0, x=x)
        found = net.starts(jax.random.split(jax.random.key(1), 2))
        assert {leaf.shape[0] for leaf in jax.tree.leaves(found)} == {2}
        one = jax.tree.map(lambda leaf: leaf[0], found)
        assert net.outputs(one, x).shape == (5, 3)
        scales = network.prior_scales(net.model, one)
        assert sorted(float(s.ravel()[0]) for s in jax.tree.leaves(scales)) == pytest.approx([0.5**0.5, 1.0])
        same = network.from_module(make(jax.random.key(0)), output="classes", outputs=3, prior_sd=1.0, x=x)
        shuffled = same.starts(jax.random.split(jax.random.key(1), 2))
        for mixed, own in zip(jax.tree.leaves(shuffled), jax.tree.leaves(same.model.init), strict=True):
            np.testing.assert_array_equal(np.sort(mixed[1].ravel()), np.sort(own.ravel()))
    with pytest.raises(InputError, match="it must give 2 numbers"):
        network.from_module(made["nnx"], output="number", outputs=2, prior_sd=1.0, x=x)


def test_a_quantile_of_few_normals_by_hand():
    means, sds = np.array([[0.0], [10.0]]), np.array([[1.0], [1.0]])
    assert predictive.mixture_quantile(means, sds, 0.5)[0] == pytest.approx(5.0, abs=1e-6)
    assert predictive.mixture_quantile(means, sds, 0.25)[0] == pytest.approx(0.0, abs=1e-6)
