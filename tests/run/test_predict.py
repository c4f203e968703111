"""Predictions over draws: exact against NumPy, block by block, resumed after a stop."""

import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import strang
from strang.run import predict

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(80, 2)).astype(np.float32)
Y = (X @ np.array([1.0, -2.0]) + RANDOM.normal(size=80)).astype(np.float32)
NEW = RANDOM.normal(size=(31, 2)).astype(np.float32)
MODEL = strang.Model(
    lambda q: -jnp.sum(q["w"] ** 2) / 2, lambda q, row: -((row[1] - row[0] @ q["w"]) ** 2) / 2, init={"w": jnp.zeros(2)}
)


@pytest.fixture(scope="module")
def run():
    data = strang.data.arrays((X, Y), batch_size=20)
    return strang.sample(MODEL, data, strang.SGHMC(2.0), step_size=0.02, steps=400, burn_in=100, chains=3, thin=10)


def mean_of(position, x):
    return x @ position["w"]


def by_numpy(run, x=NEW):
    return run.samples["w"].reshape(-1, 2) @ x.T


def test_moments_and_quantiles_are_those_of_the_draws(run, monkeypatch):
    monkeypatch.setattr(predict, "BLOCK", 700)  # blocks of 7 rows, the last of 3
    monkeypatch.setattr(predict, "CHUNK", 16)  # positions read 8 at a time
    found, values = run.predict(mean_of, NEW, quantiles=(0.1, 0.5), keep=True), by_numpy(run)
    assert found.count == len(values) == 90
    assert np.allclose(found.draws, values, atol=1e-5)
    assert np.allclose(found.mean, values.mean(0), atol=1e-5)
    assert np.allclose(found.sd, values.std(0), atol=1e-5)
    assert np.allclose(found.quantiles[0.1], np.quantile(values, 0.1, axis=0), atol=1e-5)


def test_functions_of_the_position_alone_and_of_trees(run):
    assert np.allclose(run.predict(lambda q: q["w"].sum()).mean, run.samples["w"].sum(-1).mean(), atol=1e-5)
    found = run.predict(lambda q, x: {"mean": x @ q["w"], "parts": x * q["w"]}, NEW)
    assert found.mean["parts"].shape == (31, 2)
    assert np.allclose(found.mean["parts"].sum(1), found.mean["mean"], atol=1e-5)


def test_what_is_drawn_at_random_is_drawn_anew_for_every_draw_and_row(run):
    def response(position, x, key):
        return x @ position["w"] + jax.random.normal(key, x.shape[:1])

    one, again, other = (run.predict(response, NEW, keep=True, seed=seed).draws for seed in (0, 0, 1))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    noise = one - by_numpy(run)
    assert len(np.unique(noise)) == noise.size
    assert abs(noise.mean()) < 4 / np.sqrt(noise.size)  # false alarms: 6e-5


def test_some_of_the_draws(run):
    assert run.predict(mean_of, NEW, draws=10).count == 10
    assert run.predict(mean_of, NEW, draws=10**6).count == 90


def test_a_stored_prediction_goes_on_where_it_stopped(run, tmp_path, monkeypatch):
    monkeypatch.setattr(predict, "BLOCK", 700)
    whole, put, blocks = run.predict(mean_of, NEW, keep=True), predict.Place.put, []

    def dies(self, where, found, done):
        if done > 2:
            raise KeyboardInterrupt
        put(self, where, found, done)

    monkeypatch.setattr(predict.Place, "put", dies)
    with pytest.raises(KeyboardInterrupt):
        run.predict(mean_of, NEW, keep=True, store=tmp_path)
    assert json.loads((tmp_path / "prediction.json").read_text())["done"] == 2

    def counts(self, where, found, done):
        blocks.append(done)
        put(self, where, found, done)

    monkeypatch.setattr(predict.Place, "put", counts)
    found = run.predict(mean_of, NEW, keep=True, store=tmp_path)
    assert blocks == [3, 4, 5]
    assert np.array_equal(found.draws, whole.draws)
    assert np.array_equal(found.quantiles[0.05], whole.quantiles[0.05])
    assert np.array_equal(np.load(tmp_path / "mean.npy"), whole.mean)
    with pytest.raises(strang.InputError, match="another prediction"):
        run.predict(mean_of, NEW + 1, keep=True, store=tmp_path)
    (tmp_path / "prediction.json").write_text("{")
    with pytest.raises(strang.InputError, match="damaged"):
        run.predict(mean_of, NEW, keep=True, store=tmp_path)


def test_from_the_draws_of_a_stored_run(tmp_path):
    data = strang.data.arrays((X, Y), batch_size=20)
    given = {"dynamics": strang.SGHMC(2.0), "step_size": 0.02, "steps": 100, "chains": 2, "thin": 10}
    strang.sample(MODEL, data, **given, store=tmp_path)
    again = strang.sample(MODEL, data, **given, store=tmp_path)  # which only opens it
    assert np.allclose(again.predict(mean_of, NEW).mean, by_numpy(again).mean(0), atol=1e-5)


def test_the_log_predictive_density(run, monkeypatch):
    monkeypatch.setattr(predict, "BLOCK", 700)
    rows = NEW, (NEW @ np.array([1.0, -2.0], np.float32))
    means = by_numpy(run)
    terms = norm.logpdf(rows[1], means, 1.0) + np.log(np.sqrt(2 * np.pi))
    each = logsumexp(terms, axis=0) - np.log(len(terms))
    found = run.log_predictive_density(rows)
    assert np.allclose(found.each, each, atol=1e-4)
    assert found.mean == pytest.approx(each.mean(), abs=1e-4)
    assert found.error == pytest.approx(each.std(ddof=1) / np.sqrt(31), rel=1e-3)
    chains = [logsumexp(part, axis=0).mean() - np.log(30) for part in np.split(terms, 3)]
    assert found.monte_carlo == pytest.approx(np.std(chains, ddof=1) / np.sqrt(3), rel=1e-2, abs=1e-6)
    assert "log predictive density" in str(found)


def test_arviz_has_names_axes_and_the_likelihood(run):
    from arviz_stats import loo

    tree = run.to_arviz({"w": "slope"}, {"slope": ["feature"]}, {"feature": ["a", "b"]}, log_likelihood=True)
    assert tree.posterior["slope"].sel(feature="b").shape == (3, 30)
    terms = tree.log_likelihood["likelihood"]
    assert terms.dims == ("chain", "draw", "row")
    position = {"w": run.samples["w"][1, 7]}
    expected = jax.vmap(lambda row: MODEL.log_likelihood(position, row))((X, Y))
    assert np.allclose(terms[1, 7], expected, atol=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few draws have heavy tails
        assert loo(tree).n_data_points == 80
    with pytest.raises(strang.InputError, match="the variables are w"):
        run.to_arviz({"v": "slope"})
    with pytest.raises(strang.InputError, match="dims and coords"):
        run.to_arviz(dims={"w": ["feature"]}, coords={"feature": ["a", "b", "c"]})


def test_sites_of_numpyro_models_are_predicted_by_name():
    def model(x, y=None):
        w = numpyro.sample("w", dist.Normal(0, 3).expand([2]).to_event(1))
        mean = numpyro.deterministic("mean", x @ w)
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    data = strang.data.arrays((X, Y), batch_size=20)
    given = {"dynamics": strang.SGHMC(2.0), "step_size": 0.02, "steps": 100, "chains": 2, "thin": 5}
    run = strang.sample(strang.models.from_numpyro(model), data, **given)
    assert np.allclose(run.predict("mean", (NEW, None), keep=True).draws, by_numpy(run), atol=1e-5)
    noise = run.predict("y", (NEW, None), keep=True).draws - by_numpy(run)
    assert noise.std() == pytest.approx(1.0, abs=4 / np.sqrt(2 * noise.size))  # false alarms: 6e-5
    with pytest.raises(strang.InputError, match="no site 'z'"):
        run.predict("z", (NEW, None))


@pytest.mark.parametrize(
    ("function", "x", "message"),
    [
        (mean_of, None, "fails on shapes"),
        (mean_of, NEW[:, :1], "fails on shapes"),
        (lambda q, x: q["w"], NEW, "must lead with the rows"),
        (mean_of, (NEW, NEW[:3]), "common leading axis"),
        ("y", NEW, "only NumPyro's models"),
        (3, NEW, "give a function"),
    ],
)
def test_mistakes_are_explained(run, function, x, message):
    with pytest.raises(strang.InputError, match=message):
        run.predict(function, x)


def test_without_draws_there_is_nothing_to_predict_from():
    data = strang.data.arrays((X, Y), batch_size=20)
    run = strang.sample(MODEL, data, strang.SGHMC(2.0), step_size=0.02, steps=10)
    with pytest.raises(strang.InputError, match="kept no positions"):
        run.predict(mean_of, NEW)
