"""Learning a belief network: the folder it leaves, resuming after a kill, the grid, the page, bad input."""

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
from strang.sbn import files, format, search
from strang.sbn import fitting as learning
from strang.storage.series import read_series
from strang.util.errors import InputError

SMALL = {"hidden": 4, "steps": 24, "every": 4, "burn_in": 12, "batch_size": 8, "sweeps": 2, "validation": 10}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """Stripes: rows or columns of a 4 x 4 image, one of each kind a picture, with some pixels turned."""
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


def test_a_fit_leaves_model_samples_and_page(fitted, pictures):
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


def test_the_page_shows_without_a_complaint(fitted):
    with chromium() as opened:
        assert problems(opened, fitted[0] / "index.html") == []


def test_without_what_draws_there_is_no_page_but_a_result(pictures, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    given = {**SMALL, "steps": 4, "burn_in": 2}
    result = sbn.fit(tmp_path / "run", data=str(pictures), progress=False, **given)
    assert result["page"] is None
    assert (tmp_path / "run" / "model.npz").exists()
    assert "index.html" not in "".join(format.describe(tmp_path / "run", result))


def test_without_numba_a_fit_says_so_before_it_begins(pictures, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(InputError, match=r"strang\[numba\]"):
        sbn.fit(tmp_path / "run", data=str(pictures), progress=False, **SMALL)
    assert not (tmp_path / "run").exists()


def test_scores_by_annealing_agree_with_enumeration(fitted, pictures):
    folder, _ = fitted
    run = CliRunner()
    found = {}
    for name, extra in {"exact": ["--exact"], "ais": ["--temperatures", "400", "--particles", "20"]}.items():
        answer = run.invoke(app, ["sbn", "score", str(folder), "--data", str(pictures), "--json", *extra])
        found[name] = json.loads(answer.stdout)
    assert found["ais"]["samples"] == 3
    assert found["ais"]["nll"] == pytest.approx(found["exact"]["nll"], abs=0.05)
    assert {"nll", "nll_se", "images", "temperatures", "binarisation"} <= set(found["ais"])
    assert found["ais"]["images"] == 20


def test_models_are_compared_image_by_image(fitted, pictures, tmp_path):
    folder, plain = fitted[0], tmp_path / "plain.npz"
    often = np.clip(np.load(pictures)["train"].mean(0), 0.01, 0.99)
    np.savez(plain, W=np.zeros((16, 1)), b=np.zeros(1), c=np.log(often / (1 - often)))
    given = ["sbn", "score", str(folder / "model.npz"), "--data", str(pictures), "--exact", "--against"]
    found = json.loads(CliRunner().invoke(app, [*given, str(plain), "--json"]).stdout)
    test = np.load(pictures)["test"]
    model, other = (-sbn.exact(files.load_model(path), test) for path in (folder / "model.npz", plain))
    assert found["difference"] == pytest.approx(model.mean() - other.mean(), abs=1e-9)
    assert found["difference_se"] == pytest.approx((model - other).std(ddof=1) / 20**0.5, abs=1e-9)
    assert found["difference"] == pytest.approx(found["nll"] - found["against"], abs=1e-9)
    same = CliRunner().invoke(app, [*given, str(folder / "model.npz")]).stdout
    assert "+0.000 ± 0.000, image by image" in same
    missing = CliRunner().invoke(app, [*given, str(tmp_path / "none.npz")])
    assert isinstance(missing.exception, InputError)


def test_weights_too_large_to_be_annealed_are_told(pictures, tmp_path):
    np.savez(tmp_path / "hot.npz", W=np.full((16, 2), 90.0), b=np.zeros(2), c=np.zeros(16))
    given = ["sbn", "score", str(tmp_path / "hot.npz"), "--data", str(pictures), "--temperatures", "10"]
    answer = CliRunner().invoke(app, given)
    assert isinstance(answer.exception, InputError)
    assert "--exact" in str(answer.exception)
    assert CliRunner().invoke(app, [*given, "--exact"]).exit_code == 0


def test_a_killed_fit_goes_on_to_the_same_bytes(pictures, fitted, tmp_path):
    folder = tmp_path / "run"
    given = ["--store", str(folder), "--data", str(pictures), *options(SMALL)]
    kill_after_first_save(["sbn", "fit", *given], folder)
    answer = CliRunner().invoke(app, ["resume", str(folder), "--json"])
    result = json.loads(answer.stdout)
    assert result["finished"]
    whole, _ = fitted
    for name in ("chain.npz", "model.npz", *(f"samples/{p.name}" for p in (whole / "samples").iterdir())):
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name
    one, other = (
        [(line["step"], line["nll"], line["temperature"]) for line in read_series(f)] for f in (folder, whole)
    )
    assert one == other


def test_a_full_disk_is_told_with_what_is_kept(pictures, fitted, tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(files, "replace_file", full)
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
    assert longer["seconds"] > fitted[1]["seconds"] > 0  # as many as all of the steps took
    (folder / "chain.npz").write_bytes((folder / "chain.npz").read_bytes()[:-30])
    with pytest.raises(InputError, match="damaged"):
        sbn.fit(folder, data=str(pictures), progress=False, **SMALL | {"steps": 30})


def test_the_data_are_found_from_anywhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert learning.completed(learning.DEFAULTS | {"data": "x.npz"})["data"] == str(tmp_path / "x.npz")


def test_steps_fall_to_their_share_over_the_latter_half():
    assert learning.cooling(6e-4, 1.0, 100) == 6e-4
    sizes = np.array([learning.cooling(6e-4, 0.1, 100)(step) for step in (1, 50, 75, 100)])
    np.testing.assert_allclose(sizes, 6e-4 * np.array([1, 1, 0.55, 0.1]), rtol=1e-5)
    with pytest.raises(InputError, match="final_fraction is 0"):
        learning.completed({**learning.DEFAULTS, "final_fraction": 0.0})


def test_the_grid_is_searched_on_held_out_images(pictures, monkeypatch):
    monkeypatch.setattr(search, "STEP_SIZES", (1e-3, 1e9))
    monkeypatch.setattr(search, "FRICTIONS", (1e-6,))
    found = search.search(data=str(pictures), progress=False, grid_steps=20, **SMALL)
    assert [row["nll"] is None for row in found["grid"]] == [False, True]  # the absurd step diverges and is told
    assert found["best"]["step_size"] == pytest.approx(1e-3)
    with pytest.raises(InputError, match="sgld"):
        search.search(data=str(pictures), dynamics="sgld", grid_steps=20)


def test_the_grid_is_searched_once(pictures, tmp_path, monkeypatch):
    searches = []

    def found(**settings):
        searches.append(settings)
        return {"grid": [], "best": {"step_size": 2e-3, "friction": 7.0}}

    monkeypatch.setattr(search, "search", found)
    monkeypatch.setattr(format, "describe_grid", lambda found: [])
    given = ["--store", str(tmp_path / "run"), "--data", str(pictures), "--json", "--grid"]
    small = options(SMALL | {"steps": 4, "burn_in": 2})
    first, again = (json.loads(CliRunner().invoke(app, ["sbn", "fit", *given, *small]).stdout) for _ in range(2))
    assert len(searches) == 1
    assert (first["step_size"], first["friction"]) == (again["step_size"], again["friction"]) == (2e-3, 7.0)
    other = CliRunner().invoke(app, ["sbn", "fit", *given, *small, "--hidden", "5"])
    assert isinstance(other.exception, InputError)
    assert "another run" in str(other.exception)


def test_a_diverging_fit_says_so_and_leaves_no_model(pictures, tmp_path):
    with pytest.warns(UserWarning, match="diverged"):
        result = sbn.fit(tmp_path / "run", data=str(pictures), progress=False, **SMALL, dynamics="sgld", step_size=1e9)
    assert result["diverged"] == 1
    assert result["model"] is None


@pytest.mark.parametrize(
    ("arrays", "says"),
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
def test_bad_models_are_refused(arrays, says, pictures, tmp_path):
    np.savez(tmp_path / "model.npz", **arrays)
    with pytest.raises(InputError, match=says):
        format.score_files([tmp_path / "model.npz"], str(pictures), "bernoulli:0", None, 10, 1, 0, False)


def test_bad_input_ends_with_a_sentence(pictures, tmp_path):
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
