"""`strang sample FILE.py:model FILE.py:data` and `strang tune`: a file of one's own, the table, the verdict."""

import json
import sys

import pytest

from command_line import call

FILE = """
import jax.numpy as jnp, numpy as np, strang
rows = np.random.default_rng(0).normal(3.0, 1.0, 50).astype("float32")
def data():
    return rows
model = strang.Model(lambda q: -q["m"] ** 2 / 2e4, lambda q, x: -((x - q["m"]) ** 2) / 2, init={"m": jnp.zeros(())})
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def test_a_model_in_a_file_is_sampled(capsys, file, tmp_path):
    page = tmp_path / "page.html"
    given = (f"{file}:model", f"{file}:data", "--error", "0.05", "--html", str(page), "--store", str(tmp_path / "run"))
    status, out, _ = call(capsys, "sample", *given, "--json")
    assert status == 0
    result = json.loads(out)
    assert result["trusted"] is True
    assert result["reasons"] == []
    assert result["summary"]["m"]["mean"] == pytest.approx(3.0, abs=0.5)
    assert result["tuning"]["batch_order"] in ("full", "iid")
    assert "<h2>Trusted</h2>" in page.read_text()
    status, out, _ = call(capsys, "report", str(tmp_path / "run"), "--html", str(tmp_path / "stored.html"))
    assert "trusted, as far as it has come" in out
    assert "finished at step" in out
    stored = (tmp_path / "stored.html").read_text()
    assert (
        stored.index("<h2>Trusted</h2>") < stored.index("<h2>Averages</h2>") < stored.index("<h2>What was chosen</h2>")
    )


def test_what_would_be_chosen_is_told(capsys, file):
    status, out, _ = call(capsys, "tune", f"{file}:model", f"{file}:data", "--error", "0.1")
    assert status == 0
    assert out.startswith("SGHMC leimkuhler:BAOA")
    status, out, _ = call(capsys, "tune", "gaussian", "--error", "0.1", "--json")
    assert json.loads(out)["integrator"] == "leimkuhler:BAOA"


@pytest.mark.parametrize(
    ("places", "sentence"),
    [
        (("{file}:model",), "data is missing; write where it is too, such as"),
        (("{file}:modle", "{file}:data"), "has no 'modle'; it has:"),
        (("nothing.py:model", "{file}:data"), "there is no file nothing.py"),
        (("{file}:", "{file}:data"), "names nothing; write a file and a name in it"),
        (("{file}:rows", "{file}:data"), "model is a ndarray; give a model"),
    ],
)
def test_mistakes_are_said_in_a_sentence(capsys, file, places, sentence):
    status, _, told = call(capsys, "sample", *(place.format(file=file) for place in places))
    assert status == 2
    assert sentence in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        ("sample", "{file}:never", "{file}:never", "--html", "{folder}/page.html"),
        ("glm", "{folder}/never.csv", "y ~ x", "--html", "{folder}/page.html"),
        ("reproduce", "fig1", "--out", "{folder}/report"),
    ],
)
def test_a_page_that_could_not_be_made_is_refused_before_the_work(capsys, file, tmp_path, monkeypatch, command):
    """What would fail a moment later shows that nothing is begun."""
    monkeypatch.setitem(sys.modules, "jinja2", None)
    status, _, told = call(capsys, *(each.format(file=file, folder=tmp_path) for each in command))
    assert status == 2
    assert told == "strang: This needs jinja2, which is not installed; write pip install 'strang[report]'.\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.py"]


def test_a_file_that_fails_is_said(capsys, tmp_path):
    (tmp_path / "bad.py").write_text("1 / 0")
    status, _, told = call(capsys, "sample", f"{tmp_path}/bad.py:model", f"{tmp_path}/bad.py:data")
    assert status == 2
    assert "fails (ZeroDivisionError: division by zero)" in told
