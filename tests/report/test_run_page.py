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
