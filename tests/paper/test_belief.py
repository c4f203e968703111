"""Tests of Table 1's belief networks: parts on small images of stripes instead of MNIST, tables and verdicts."""

import json
import sys

import numpy as np
import pytest

from strang.data.images import Images
from strang.paper import belief, reproduce
from strang.paper.figure import FULL, NOT_REPRODUCED, QUICK, REPRODUCED, UNDER_READING
from strang.sbn import fitting

OLD = "SGHMC-E, old momentum"


@pytest.fixture(scope="module")
def stripes():
    rng = np.random.default_rng(0)
    lines = np.kron(np.eye(4), np.ones(4)).reshape(4, 4, 4)
    made = np.array([lines[a] + lines[b].T for a, b in rng.integers(0, 4, (1400, 2))]).reshape(1400, 16) > 0
    pictures = Images(made[:1300].astype(np.uint8), made[1300:].astype(np.uint8), "none")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(belief.images, "load", lambda *args: pictures)
        patch.setattr(fitting, "load", lambda *args: pictures)
        patch.setattr(fitting, "QUICK", {"images": 20, "temperatures": 20})
        yield


def test_a_grid_is_run_at_each_of_its_points(stripes):
    points = belief.try_grid(method=OLD, sizes=[6e-4, 3e-4], frictions=[36.0, 40.0], steps=4)
    assert [(point["step_size"], point["friction"]) for point in points] == [(6e-4, 36.0), (3e-4, 40.0)]
    assert all(np.isfinite([point["nll"], point["temperature"]]).all() for point in points)
    assert not any(point["diverged"] for point in points)


def test_chains_that_cannot_be_scored_are_reported_as_lost(stripes):
    """SGLD with steps far above its limit: its weights may overflow single precision, and become NaN."""
    points = belief.try_grid(method="SGLD", sizes=[1e9, 0.5, 1e-6], frictions=None, steps=3)
    json.dumps(points, allow_nan=False)
    exploded, lost, fine = (belief.fate({**point, "independent": np.inf}, None) for point in points)
    assert exploded == "explodes" if points[0]["diverged"] else exploded.startswith("lost")
    assert not points[1]["diverged"]
    assert (lost, fine) == ("lost: log odds beyond what can be scored", "survives")
    assert belief.fate({**points[1], "diverged": True}, None) == "explodes"


def test_a_fit_is_scored_at_its_end_and_during_its_second_half(stripes):
    settings = {"method": "SGHMC-S", "hidden": 4, "seed": 1, "count": 30, "levels": 5}
    result = belief.learn_and_score(**settings, steps=20, samples=5)
    assert len(result["last"]) == len(result["predictive"]) == 30
    assert result["last"] != result["predictive"]
    assert len(result["change"]) == 3
    assert np.mean(result["change"]) < 0  # with more temperatures scores fall towards the truth
    assert result["temperature"] > 0
    alone = belief.learn_and_score(**settings, steps=20, samples=1)
    assert alone["last"] == alone["predictive"] == result["last"]


def point(temperature, nll=105.0, diverged=False):
    row = {"step_size": 6e-4, "friction": 36.7, "nll": nll, "temperature": temperature, "diverged": diverged}
    return {**row, "independent": 206.0}


def results(losses: dict[str, float], heat: dict[str, float], langevin=(243.0, 104.0)) -> list:
    """Results of a quick reproduction, given the nats that each method loses, its temperature, and SGLD's scores on the
    paper's grid and on its own."""
    base = np.random.default_rng(0).normal(100, 20, 400)
    surveys = [[point(heat.get(method, 3.0))] for method in belief.METHODS] + [[point(None, nll=langevin[1])]]
    surveys[3] = [point(None, nll=langevin[0])]
    rng = np.random.default_rng(1)
    fits = [
        {
            "diverged": False,
            "last": (base + losses.get(method, 0.0) + rng.normal(0, 1, 400)).tolist(),
            "change": [-0.1] * 50,
            "predictive": (base - 1).tolist(),
            "temperature": heat.get(method, 3.0),
        }
        for method in belief.FITTED
    ]
    return [*surveys, *fits]


def test_tables_and_verdicts_follow_the_numbers():
    losses = {"SGHMC-E, new momentum": 1.0, OLD: 4.0, "SGLD": 9.0}
    figure = belief.figure(QUICK, results(losses, {OLD: 11.0}))
    _, likelihoods, survived = figure.tables
    assert [row[1] for row in likelihoods.rows] == list(belief.FITTED)
    assert float(likelihoods.rows[2][3].split()[0]) == pytest.approx(4.0, abs=0.3)
    assert "hot: 3.7 times" in survived.rows[2][5]
    assert survived.rows[3][5] == "lost: worse than independent pixels"
    assert [verdict.verdict for verdict in figure.verdicts] == [REPRODUCED, UNDER_READING, UNDER_READING]
    assert "by 138.0 nats; on its own by -1.0 nats" in figure.verdicts[2].reading
    assert figure.verdicts[2].numbers["J = 100: SGLD minus SGHMC-S, by seed"] == [pytest.approx(9.0, abs=0.3)]
    calm = belief.figure(QUICK, results({OLD: -1.0, "SGLD": -1.0}, {}, langevin=(105.0, 105.0)))
    assert [verdict.verdict for verdict in calm.verdicts] == [NOT_REPRODUCED] * 3
    only_old = belief.figure(QUICK, results({OLD: 4.0}, {OLD: 11.0}, langevin=(140.0, 130.0)))
    assert [verdict.verdict for verdict in only_old.verdicts] == [UNDER_READING, UNDER_READING, REPRODUCED]


def test_a_difference_must_be_significant_over_images_and_over_seeds():
    base = np.random.default_rng(0).normal(100, 20, 400)

    def fits(*shifts, change=-0.1):
        return [{"diverged": False, "last": base + shift, "change": [change] * 50} for shift in shifts]

    nats, error = belief.lead(fits(0.2, 0.25, 0.15), fits(0.0, 0.05, -0.05))
    assert nats > 2 * error > 0
    nats, error = belief.lead(fits(0.2, 0.9, -0.5), fits(0.0, 0.05, -0.05))
    assert nats < 2 * error
    nats, error = belief.lead(fits(0.2, 0.25, 0.15, change=-0.3), fits(0.0, 0.05, -0.05))
    assert nats < 2 * error  # AIS may err by as much


def test_score_of_independent_pixels():
    train, held_out = np.array([[0, 1], [1, 1]]), np.array([[1, 1], [0, 1]])
    assert belief.independent_pixels(train, held_out) == pytest.approx(np.log(2), abs=1e-3)


def test_a_fit_that_diverged_is_worse_than_any_score():
    made, diverged = results({}, {}), {"diverged": True, "last": None, "predictive": None, "temperature": None}
    assert belief.lead([diverged], made[-1:])[0] == np.inf
    assert belief.lead(made[-1:], [diverged])[0] == -np.inf
    made[len(belief.METHODS) + 1] = diverged
    figure = belief.figure(QUICK, made)
    assert figure.tables[1].rows[0][2] == "diverged"
    assert figure.verdicts[0].verdict == NOT_REPRODUCED


def test_full_effort_covers_the_papers_grid_and_sizes(monkeypatch):
    monkeypatch.setattr(belief, "unavailable", lambda: None)
    parts = belief.parts(FULL)
    grids = [part.settings for part in parts if part.function is belief.try_grid]
    assert [len(grid["sizes"]) for grid in grids] == [12, 12, 12, 4, 12, len(belief.SGLD_STEP_SIZES)]
    assert {round(f * h**0.5, 6) for h, f in zip(grids[0]["sizes"], grids[0]["frictions"], strict=True)} == {
        0.9,
        1.0,
        5.0,
    }
    fits = [part.settings for part in parts if part.function is belief.learn_and_score]
    assert len(fits) == 2 * 3 * len(belief.FITTED)
    assert {(fit["steps"], fit["count"], fit["levels"]) for fit in fits} == {(5000, 10_000, 1000)}
    assert len(belief.parts(QUICK)) == len(belief.METHODS) + 1 + len(belief.FITTED)


def test_without_numba_the_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    assert "pip install 'strang[numba]'" in belief.unavailable.__wrapped__()  # past its cache


def test_without_mnist_the_table_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(belief, "unavailable", lambda: "there is no network.")
    report = reproduce.reproduce(["belief"], effort=QUICK, out=tmp_path, progress=False)
    assert report.parts == 0
    assert "there is no network" in report.figures[0].look
