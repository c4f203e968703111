"""Fits of belief networks: the folder they write, resuming after a kill, the grid, the page, bad input."""

import errno
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from browser import chromium, problems
from killing import kill_after_first_save
from strang import sbn
from strang.cli.app import app
from strang.sbn import commands, fitting, scoring
from strang.storage.series import read_series
from strang.util.errors import InputError

SMALL = {"hidden": 4, "steps": 24, "every": 4, "burn_in": 12, "batch_size": 8, "sweeps": 2, "validation": 10}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """Stripes: one row and one column of a 4 x 4 image per picture, with some pixels flipped."""
    rng = np.random.default_rng(0)
    lines = np.kron(np.eye(4), np.ones(4)).reshape(4, 4, 4)
    made = np.array([lines[a] + lines[b].T for a, b in rng.integers(0, 4, (120, 2))]).reshape(120, 16) > 0
    made ^= rng.random(made.shape) < 0.05
    path = tmp_path_factory.mktemp("pictures") / "stripes.npz"
    np.savez(path, train=made[:100], test=made[100:])
    return path


def options(settings) -> list[str]:
    return [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", str(value))]


@pytest.fixture(scope="module")
def fitted(pictures, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit") / "run"
    return folder, sbn.fit(folder, data=str(pictures), progress=False, **SMALL)


def test_a_fit_writes_model_samples_and_page(fitted, pictures):
    folder, result = fitted
    assert result["finished"]
    assert result["diverged"] == 0
    assert result["samples"] == 3
    assert result["binarisation"].startswith("none")
    assert np.isfinite([result["nll_validation"], result["temperature"]]).all()
    last = np.load(folder / "model.npz")
    assert {name: last[name].shape for name in last} == {"W": (16, 4), "b": (4,), "c": (16,)}
    np.testing.assert_array_equal(last["W"], np.load(folder / "samples/step-0000024-chain-0.npz")["W"])
    assert "dictionary" in Path(result["page"]).read_text()


def test_the_page_has_no_problems_in_a_browser(fitted):
    with chromium() as opened:
        assert problems(opened, fitted[0] / "index.html") == []


def test_without_jinja2_there_is_a_result_but_no_page(pictures, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    settings = {**SMALL, "steps": 4, "burn_in": 2}
    result = sbn.fit(tmp_path / "run", data=str(pictures), progress=False, **settings)
    assert result["page"] is None
    assert (tmp_path / "run" / "model.npz").exists()
    assert "index.html" not in "".join(commands.describe(tmp_path / "run", result))


def test_without_numba_a_fit_is_refused_before_it_begins(pictures, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(InputError, match=r"strang\[numba\]"):
        sbn.fit(tmp_path / "run", data=str(pictures), progress=False, **SMALL)
    assert not (tmp_path / "run").exists()


def test_scores_by_annealing_agree_with_enumeration(fitted, pictures):
    folder, _ = fitted
    score = ["sbn", "score", str(folder), "--data", str(pictures), "--json"]
    exact, annealed = (
        json.loads(CliRunner().invoke(app, [*score, *extra]).stdout)
        for extra in (["--exact"], ["--temperatures", "400", "--particles", "20"])
    )
    assert annealed["samples"] == 3
    assert annealed["nll"] == pytest.approx(exact["nll"], abs=0.05)
    assert {"nll", "nll_se", "images", "temperatures", "binarisation"} <= set(annealed)
    assert annealed["images"] == 20


def test_models_are_compared_image_by_image(fitted, pictures, tmp_path):
    folder, plain = fitted[0], tmp_path / "plain.npz"
    frequency = np.clip(np.load(pictures)["train"].mean(0), 0.01, 0.99)
    np.savez(plain, W=np.zeros((16, 1)), b=np.zeros(1), c=np.log(frequency / (1 - frequency)))
    score = ["sbn", "score", str(folder / "model.npz"), "--data", str(pictures), "--exact", "--against"]
    result = json.loads(CliRunner().invoke(app, [*score, str(plain), "--json"]).stdout)
    test = np.load(pictures)["test"]
    model, other = (-sbn.exact(scoring.load_model(path), test) for path in (folder / "model.npz", plain))
    assert result["difference"] == pytest.approx(model.mean() - other.mean(), abs=1e-9)
    assert result["difference_se"] == pytest.approx((model - other).std(ddof=1) / 20**0.5, abs=1e-9)
    assert result["difference"] == pytest.approx(result["nll"] - result["against"], abs=1e-9)
    same = CliRunner().invoke(app, [*score, str(folder / "model.npz")]).stdout
    assert "+0.000 ± 0.000, image by image" in same
    missing = CliRunner().invoke(app, [*score, str(tmp_path / "none.npz")])
    assert isinstance(missing.exception, InputError)


def test_what_annealing_errs_by_is_given_with_a_difference(pictures, tmp_path):
    """Annealing a network with large weights in few steps is too large by nats, which the error over images hides."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "hard.npz", W=3 * rng.normal(size=(16, 8)), b=np.zeros(8), c=np.zeros(16))
    np.savez(tmp_path / "plain.npz", W=np.zeros((16, 1)), b=np.zeros(1), c=np.zeros(16))
    models = [str(tmp_path / "hard.npz"), "--against", str(tmp_path / "plain.npz")]
    score = ["sbn", "score", *models, "--data", str(pictures)]
    exact = json.loads(CliRunner().invoke(app, [*score, "--exact", "--json"]).stdout)
    result = json.loads(CliRunner().invoke(app, [*score, "--temperatures", "5", "--json"]).stdout)
    bias = result["difference"] - exact["difference"]
    assert bias > 3 * result["annealing_change_se"]
    assert -bias - 3 * result["annealing_change_se"] < result["annealing_change"] < -bias / 3
    assert "annealing_change" not in exact
    printed = CliRunner().invoke(app, [*score, "--temperatures", "5"]).stdout
    assert "with 20 temperatures the difference changes by -" in printed


def test_weights_too_large_to_be_annealed_are_an_error(pictures, tmp_path):
    np.savez(tmp_path / "hot.npz", W=np.full((16, 2), 90.0), b=np.zeros(2), c=np.zeros(16))
    score = ["sbn", "score", str(tmp_path / "hot.npz"), "--data", str(pictures), "--temperatures", "10"]
    answer = CliRunner().invoke(app, score)
    assert isinstance(answer.exception, InputError)
    assert "--exact" in str(answer.exception)
    assert CliRunner().invoke(app, [*score, "--exact"]).exit_code == 0


def test_a_killed_fit_continues_to_the_same_bytes(pictures, fitted, tmp_path):
    folder = tmp_path / "run"
    kill_after_first_save(["sbn", "fit", "--store", str(folder), "--data", str(pictures), *options(SMALL)], folder)
    answer = CliRunner().invoke(app, ["resume", str(folder), "--json"])
    result = json.loads(answer.stdout)
    assert result["finished"]
    whole, _ = fitted
    for name in ("spec.json", "chain.npz", "model.npz", *(f"samples/{p.name}" for p in (whole / "samples").iterdir())):
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name
    one, other = (
        [(line["step"], line["nll"], line["temperature"]) for line in read_series(f)] for f in (folder, whole)
    )
    assert one == other


def test_the_error_of_a_full_disk_says_what_is_kept(pictures, fitted, tmp_path, monkeypatch):
    def full(path, arrays):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(fitting, "write_npz", full)
        with pytest.raises(OSError, match="No space left on device; the run is kept up to step 12, and the same call"):
            sbn.fit(tmp_path, data=str(pictures), progress=False, **SMALL)
    assert sbn.fit(tmp_path, data=str(pictures), progress=False, **SMALL)["finished"]
    assert (tmp_path / "model.npz").read_bytes() == (fitted[0] / "model.npz").read_bytes()


def test_more_steps_and_other_settings(fitted, pictures, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(fitted[0], folder)
    with pytest.raises(InputError, match="another run"):
        sbn.fit(folder, data=str(pictures), progress=False, **SMALL | {"step_size": 1e-3})
    longer = json.loads(CliRunner().invoke(app, ["resume", str(folder), "--steps", "6", "--json"]).stdout)
    assert longer["steps"] == 30
    assert longer["seconds"] > fitted[1]["seconds"] > 0  # those of all steps
    (folder / "chain.npz").write_bytes((folder / "chain.npz").read_bytes()[:-30])
    with pytest.raises(InputError, match="damaged"):
        sbn.fit(folder, data=str(pictures), progress=False, **SMALL | {"steps": 30})


def test_the_data_are_found_from_anywhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert fitting.completed(fitting.DEFAULTS | {"data": "x.npz"})["data"] == str(tmp_path / "x.npz")


def test_step_sizes_fall_to_their_fraction_over_the_second_half():
    assert fitting.cooling(6e-4, 1.0, 100) == 6e-4
    sizes = np.array([fitting.cooling(6e-4, 0.1, 100)(step) for step in (1, 50, 75, 100)])
    np.testing.assert_allclose(sizes, 6e-4 * np.array([1, 1, 0.55, 0.1]), rtol=1e-5)
    with pytest.raises(InputError, match="final_fraction is 0"):
        fitting.completed({**fitting.DEFAULTS, "final_fraction": 0.0})
    with pytest.raises(InputError, match="burn_in is 24 of 24 steps; write fewer"):
        fitting.completed({**fitting.DEFAULTS, "steps": 24, "burn_in": 24})


def test_the_grid_is_searched_on_held_out_images(pictures, monkeypatch):
    monkeypatch.setattr(fitting, "STEP_SIZES", (1e-3, 1e9))
    monkeypatch.setattr(fitting, "FRICTIONS", (1e-6,))
    result = fitting.search(data=str(pictures), progress=False, grid_steps=20, **SMALL)
    assert [row["nll"] is None for row in result["grid"]] == [False, True]  # the absurd step size diverges
    assert result["best"]["step_size"] == pytest.approx(1e-3)
    with pytest.raises(InputError, match="sgld"):
        fitting.search(data=str(pictures), dynamics="sgld", grid_steps=20)


def test_the_grid_is_searched_once(pictures, tmp_path, monkeypatch):
    searches = []

    def counted(**settings):
        searches.append(settings)
        return {"grid": [], "best": {"step_size": 2e-3, "friction": 7.0}}

    monkeypatch.setattr(fitting, "search", counted)
    monkeypatch.setattr(commands, "describe_grid", lambda result: [])
    command = ["sbn", "fit", "--store", str(tmp_path / "run"), "--data", str(pictures), "--json", "--grid"]
    command += options(SMALL | {"steps": 4, "burn_in": 2})
    first, again = (json.loads(CliRunner().invoke(app, command).stdout) for _ in range(2))
    assert len(searches) == 1
    assert (first["step_size"], first["friction"]) == (again["step_size"], again["friction"]) == (2e-3, 7.0)
    other = CliRunner().invoke(app, [*command, "--hidden", "5"])
    assert isinstance(other.exception, InputError)
    assert "another run" in str(other.exception)


def test_a_diverging_fit_warns_and_writes_no_model(pictures, tmp_path):
    with pytest.warns(UserWarning, match="diverged"):
        result = sbn.fit(tmp_path / "run", data=str(pictures), progress=False, **SMALL, dynamics="sgld", step_size=1e9)
    assert result["diverged"] == 1
    assert result["model"] is None


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"W": np.zeros((16, 2)), "b": np.zeros(2)}, "no array c"),
        ({"W": np.zeros((16, 2)), "b": np.zeros(3), "c": np.zeros(16)}, "shapes"),
        ({"W": np.zeros((2, 16)), "b": np.zeros(2), "c": np.zeros(16)}, "shapes"),
        ({"W": np.zeros((16, 0)), "b": np.zeros(0), "c": np.zeros(16)}, "shapes"),
        ({"W": np.full((16, 2), np.nan), "b": np.zeros(2), "c": np.zeros(16)}, "not finite"),
        ({"W": np.full((16, 2), "a"), "b": np.zeros(2), "c": np.zeros(16)}, "real numbers"),
        ({"W": np.zeros((9, 2)), "b": np.zeros(2), "c": np.zeros(9)}, "16 pixels"),
    ],
)
def test_bad_models_are_refused(arrays, message, pictures, tmp_path):
    np.savez(tmp_path / "model.npz", **arrays)
    with pytest.raises(InputError, match=message):
        scoring.score_files([tmp_path / "model.npz"], data=str(pictures), temperatures=10)


def test_bad_input_is_refused(pictures, tmp_path):
    np.savez(tmp_path / "ok.npz", W=np.zeros((16, 2)), b=np.zeros(2), c=np.zeros(16))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "ok.npz").read_bytes()[:100])
    fit, score = ["sbn", "fit", "--store", str(tmp_path / "x"), "--data", str(pictures)], ["sbn", "score"]
    ok = [str(tmp_path / "ok.npz"), "--data", str(pictures)]
    wrongs = [
        [*fit, "--hidden", "0"],
        [*fit, "--validation", "100"],
        [*fit, "--dynamics", "sgrhmc"],
        [*fit, "--dynamics", "sgld", "--friction", "1"],
        [*fit, "--update", "magic"],
        [*fit, "--batch-size", "1000"],
        [*fit, "--step-size", "-1"],
        [*fit, "--data", str(tmp_path / "missing.npz")],
        [*score, str(tmp_path / "cut.npz"), "--data", str(pictures)],
        [*score, str(tmp_path / "none.npz"), "--data", str(pictures)],
        [*score, str(tmp_path), "--data", str(pictures)],
        [*score, *ok, "--images", "0"],
        [*score, *ok, "--temperatures", "0"],
        [*score, *ok, "--particles", "0"],
        [*score, *ok, "--seed", "-1"],
        [*fit, "--seed", "-1"],
    ]
    for wrong in wrongs:
        answer = CliRunner().invoke(app, wrong)
        assert isinstance(answer.exception, InputError), (wrong, answer.exception)
    assert not (tmp_path / "x" / "chain.npz").exists()
