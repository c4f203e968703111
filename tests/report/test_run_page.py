"""The page of a run: verdict first, whole in a browser, and nothing of the data can break out of it."""

import jax.numpy as jnp
import numpy as np
import pytest

import browser
import strang
from strang.report.run_page import content_of, page

NASTY = "<script>alert(1)</script> & {{ 7 * 7 }}"


@pytest.fixture(scope="module")
def run():
    rows = np.random.default_rng(0).normal(1.0, 1.0, (60, 2)).astype(np.float32)
    model = strang.Model(
        lambda q: -jnp.sum(q[NASTY] ** 2) / 200,
        lambda q, row: -jnp.sum((row - q[NASTY]) ** 2) / 2,
        init={NASTY: np.zeros(2, np.float32)},
    )
    return strang.sample(model, rows, error=0.05, progress=False)


def test_the_page_begins_with_the_verdict_and_is_whole(run, tmp_path):
    text = page(run)
    headings = ["Trusted", "Averages", "Traces and densities", "Running averages", "Temperature", "What was chosen"]
    places = [text.index(f"<h2>{heading}</h2>") for heading in (*headings, "Settings", "Versions")]
    assert places == sorted(places)
    assert "<script" not in text
    path = tmp_path / "page.html"
    path.write_text(text)
    with browser.chromium() as opened:
        assert browser.problems(opened, path) == []


def test_a_run_that_is_not_trusted_says_so_first(run, tmp_path):
    rows = strang.data.arrays(np.random.default_rng(0).normal(size=50), batch_size=1)
    hot = strang.sample(
        strang.models.Gaussian(), rows, strang.SGHMC(1.0), step_size=0.05, steps=4000, chains=4, thin=10, progress=False
    )
    text = page(hot)
    assert text.index("<h2>Not to be trusted</h2>") < text.index("<h2>Averages</h2>")
    assert "Temperature" in text[text.index("<h2>Not to be trusted</h2>") :][:200]
    content = content_of(hot)
    assert content["trusted"] is False
    assert content["tuning"] is None


def test_a_grid_is_a_table_by_setting():
    rows = strang.data.arrays(np.zeros(4), batch_order="full")
    grid = strang.sample(
        strang.models.Gaussian(), rows, strang.SGHMC(1.0), step_size=np.array([0.1, 0.2]), steps=200, chains=2,
        progress=False,
    )  # fmt: skip
    text = page(grid)
    assert "<h2>By setting</h2>" in text
    assert "step_size 0.2" in text


def test_predictive_checks_are_on_the_page_of_a_numpyro_model():
    import numpyro
    import numpyro.distributions as dist

    def model(x, y=None):
        w = numpyro.sample("w", dist.Normal(0, 3))
        numpyro.sample("y", dist.Normal(w * x, 1.0), obs=y)

    x = np.linspace(-1, 1, 80).astype(np.float32)
    y = (2 * x + np.random.default_rng(0).normal(size=80)).astype(np.float32)
    data = strang.data.arrays((x, y), batch_size=20)
    given = {"dynamics": strang.SGHMC(2.0), "step_size": 0.02, "steps": 600, "chains": 3, "thin": 10}
    run = strang.sample(strang.models.from_numpyro(model), data, **given)
    html = page(run)
    assert "Predictive check of y" in html
    assert "seen and replicated" in html
    check = run.predictive_check("y", (x, y), y)
    assert min(each.p_value for each in check.statistics) > 1e-3  # false alarms: about one in 200
    wrong = run.predictive_check("y", (x, y), 3 * y)  # data that the model would not have made
    assert {each.name: each.p_value for each in wrong.statistics}["sd"] < 0.02
    assert "p-value" in str(check)
    with pytest.raises(strang.InputError, match="one number for each of 80 rows"):
        run.predictive_check(lambda q, x, key: jnp.stack([x, x], 1), x, y)
