"""The examples run, and show what they say they show."""

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from strang.storage.series import read_series

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def run_example(monkeypatch, capsys):
    """Run an example with these arguments; gives what it printed and its names."""

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        names = runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out, names

    return run


def test_every_example_is_in_the_readme():
    told = set(re.findall(r"\((\w+\.py)\)", (EXAMPLES / "README.md").read_text()))
    assert told == {path.name for path in EXAMPLES.glob("*.py")}


def test_optax_schedule(run_example):
    printed, _ = run_example("optax_schedule.py")
    rows = dict(re.findall(r"^(\w.*?)  +(\S+ +\S+)%$", printed, re.MULTILINE))
    errors = {name: [abs(float(number)) for number in row.split()] for name, row in rows.items()}
    assert errors["fixed, small"][0] > 10  # has not arrived
    assert errors["fixed, large"][1] > 80  # is there, and twice too wide
    assert errors["cosine, large to small"][0] < 0.2
    assert errors["cosine, large to small"][1] < 25


def test_equinox_model(run_example):
    pytest.importorskip("equinox")
    _, names = run_example("equinox_model.py")
    inside = np.abs(names["places"]) <= 1
    truth = np.sin(2 * np.asarray(names["places"]))
    assert np.abs(names["mean"] - truth)[inside].max() < 0.15
    assert names["sd"][~inside].max() > 3 * names["sd"][inside].max()  # it knows what it does not know
    assert abs(names["run"].temperature - 1) < 0.1


def test_flax_model(run_example):
    pytest.importorskip("flax")
    _, names = run_example("flax_model.py")
    assert names["score"].accuracy > 0.85
    assert abs(names["run"].temperature - 1) < 0.15
    assert set(names["run"].positions) == {"hidden", "out"}


def test_mnist_bnn(run_example, small_digits, tmp_path):
    """On ten planted classes."""
    pytest.importorskip("matplotlib")
    printed, _ = run_example("mnist_bnn.py", "--quick", "--data", small_digits, "--out", tmp_path)
    rows = re.findall(r"^(\w[\w ]+?)  +([\d.]+) +([\d.]+) +([\d.]+)$", printed, re.MULTILINE)
    assert [name for name, *_ in rows] == ["maximum likelihood", "posterior mode", "one draw", "mean of 50 draws"]
    assert all(float(accuracy) > 0.5 for _, accuracy, _, _ in rows)
    assert (tmp_path / "reliability.png").read_bytes().startswith(b"\x89PNG")
    assert read_series(tmp_path)[-1]["step"] == 1500


@pytest.fixture
def small_digits(tmp_path):
    """MNIST's four files in small: 8 x 8 images of ten patterns, half of the pixels turned to noise."""
    folder, rng = tmp_path / "digits", np.random.default_rng(0)
    folder.mkdir()
    patterns = rng.random((10, 64))
    for part, count in (("train", 400), ("t10k", 200)):
        labels = rng.integers(0, 10, count)
        images = np.where(rng.random((count, 64)) < 0.5, patterns[labels], rng.random((count, 64)))
        sizes = np.array([2051, count, 8, 8], ">u4").tobytes()
        (folder / f"{part}-images-idx3-ubyte").write_bytes(sizes + (255 * images).astype(np.uint8).tobytes())
        sizes = np.array([2049, count], ">u4").tobytes()
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(sizes + labels.astype(np.uint8).tobytes())
    return folder
