"""Reports on stored runs agree with the runs, while they run and afterwards."""

import io
import json
import os
import re
import shutil
import sys
import threading
import time
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import browser
import strang
from strang.cli.app import main
from strang.report.stored import describe, report, to_arviz
from strang.report.stored_page import page
from strang.report.watch import watch
from strang.storage import store
from strang.storage.manifest import checksum
from strang.storage.series import throughput
from strang.util import files
from strang.util.errors import InputError

NASTY = "<b>&'\"</b>"


def model():
    """Two coordinates by name, of which the second has only its prior."""
    return strang.Model(
        lambda q: -jnp.sum(q["a"] ** 2) / 2 - q["b"] ** 2 / 2,
        lambda q, x: -((x - q["a"][0]) ** 2) / 2,
        init={"a": jnp.zeros(2), "b": jnp.zeros(())},
    )


def average(position):
    return {NASTY: position["a"] ** 2, "b": position["b"]}


def run(steps, **settings):
    rows = np.linspace(-1, 2, 12, dtype=np.float32)
    chosen = {"step_size": 0.05, "chains": 4, "seed": 3, "average": average, "burn_in": 205, "progress": False}
    data = strang.data.arrays(rows, batch_order="full")  # which compiles fastest
    dynamics = settings.pop("dynamics", strang.SGHMC(3.0))
    return strang.sample(MODEL, data, dynamics, steps=steps, **{**chosen, **settings})


MODEL = model()  # one, to be compiled once


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run in two sessions, with every tenth position."""
    folder = tmp_path_factory.mktemp("run") / "folder"
    run(700, store=folder, every=100, thin=10)
    return folder, run(2000, store=folder, every=250, thin=10)


@pytest.fixture
def unfinished(made, tmp_path):
    """A copy of the run, of which twice as many steps had been asked for."""
    shutil.copytree(made[0], tmp_path / "copy")
    path = tmp_path / "copy" / "spec.json"
    spec = json.loads(path.read_text())
    del spec["sum"]
    spec["steps"] = 4000
    path.write_text(json.dumps({**spec, "sum": checksum(spec)}))
    return tmp_path / "copy"


def test_the_report_agrees_with_the_run(made):
    folder, outcome = made
    result = report(folder)
    assert (result["state"], result["step"], result["steps"], result["chains"]) == ("finished", 2000, 2000, 4)
    assert [each["name"] for each in result["averages"]] == [
        f"average[{NASTY!r}][0]",
        f"average[{NASTY!r}][1]",
        "average['b']",
    ]
    expected = [*outcome.average[NASTY], outcome.average["b"]]
    np.testing.assert_allclose([each["value"] for each in result["averages"]], expected, rtol=1e-12)
    np.testing.assert_allclose(result["temperature"], outcome.temperature, rtol=1e-12)
    assert (result["gradient_noise"], result["diverged"]) == (0, 0)
    assert result["settings"]["friction"] == 3
    assert result["settings"]["step_size"] == {"first": 0.05, "last": 0.05}
    assert result["settings"]["position"] == {"a": "float32[2]", "b": "float32[]"}
    assert result["versions"]["strang"] == strang.__version__
    assert [entry["step"] for entry in result["series"]] == [
        100,
        200,
        300,
        400,
        500,
        600,
        700,
        750,
        *range(1000, 2001, 250),
    ]
    json.dumps(result, allow_nan=False)
    text = "\n".join(describe(result))
    assert "finished at step 2,000 of 2,000" in text
    assert "worst of 3 coordinates: bulk ESS" in text


def test_mixing_is_measured_by_arviz(made):
    stats = pytest.importorskip("arviz_stats")
    folder, outcome = made
    mixing = report(folder)["mixing"]
    assert (mixing["draws"], mixing["chains"]) == (180, 4)  # steps 210 to 2000
    tree = outcome.to_arviz()
    expected = stats.ess(tree, method="bulk").ds if hasattr(stats.ess(tree), "ds") else stats.ess(tree, method="bulk")
    rows = {row["name"]: row for row in mixing["coordinates"]}
    assert rows["b"]["ess_bulk"] == pytest.approx(float(expected["b"]), rel=1e-6)
    assert rows["a[1]"]["ess_bulk"] == pytest.approx(float(expected["a"][1]), rel=1e-6)
    assert 0.9 < rows["a[0]"]["r_hat"] < 1.2


def test_a_data_tree_has_the_draws_after_burn_in(made):
    _, outcome = made
    tree = outcome.to_arviz()
    assert tree.posterior["a"].dims[:2] == ("chain", "draw")
    assert tree.posterior["a"].shape == (4, 180, 2)
    np.testing.assert_array_equal(tree.posterior["draw"], np.arange(210, 2001, 10))
    np.testing.assert_array_equal(tree.posterior["b"], outcome.samples["b"])
    assert not tree.sample_stats["diverging"].values.any()
    np.testing.assert_allclose(tree.sample_stats["step_size"], 0.05)


def test_a_folder_becomes_a_file_that_xarray_opens(made, tmp_path, monkeypatch, capsys):
    xarray = pytest.importorskip("xarray")
    folder, outcome = made
    monkeypatch.setattr(sys, "argv", ["strang", "report", str(folder), "--netcdf", str(tmp_path / "draws.nc")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("the draws are in ")
    assert [path.name for path in tmp_path.iterdir()] == ["draws.nc"]
    with xarray.open_datatree(tmp_path / "draws.nc", engine="h5netcdf") as tree:
        for group in ("posterior", "sample_stats"):
            xarray.testing.assert_allclose(tree[group].to_dataset(), outcome.to_arviz()[group].to_dataset())


def test_folders_without_draws(made, tmp_path):
    run(300, store=tmp_path / "none")
    with pytest.raises(InputError, match="holds no draws; write thin=10"):
        to_arviz(tmp_path / "none")
    run(300, store=tmp_path / "several", thin=10, step_size=np.array([0.01, 0.02, 0.03, 0.04]))
    assert list(to_arviz(tmp_path / "several").sample_stats) == ["diverging"]


def test_diverged_chains_are_marked_and_left_out(tmp_path):
    sizes = np.array([0.05, 3.0, 0.05, 0.05])
    with pytest.warns(strang.DivergenceWarning):
        outcome = run(600, dynamics=strang.SGHMC(0.1), step_size=sizes, thin=10, store=tmp_path, burn_in=0)
    diverging = outcome.to_arviz().sample_stats["diverging"].values
    assert list(diverging.any(1)) == [False, True, False, False]
    np.testing.assert_array_equal(diverging[1], np.arange(10, 601, 10) >= int(outcome.chain.diverged_at[1]))
    result = report(tmp_path)
    assert (result["diverged"], result["mixing"]["chains"]) == (1, 3)
    assert all(row["ess_bulk"] > 1 for row in result["mixing"]["coordinates"])
    assert "1 of 4 chains diverged" in "\n".join(describe(result))
    with pytest.raises(InputError, match="kept no positions; write thin=10"):
        replace(outcome, draws=None).to_arviz()


@pytest.mark.parametrize("module", ["arviz_base", "arviz_stats"])
def test_without_arviz(made, monkeypatch, module):
    folder, outcome = made
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "arviz_stats.base", raising=False)
    if module == "arviz_base":
        with pytest.raises(InputError, match=r"pip install 'strang\[arviz\]'"):
            outcome.to_arviz()
    else:
        result = report(folder)
        assert result["mixing"] is None
        assert "ESS and R-hat: This needs arviz_stats" in "\n".join(describe(result))


def test_throughput_is_per_session():
    lines = [(100, 2.0, 0), (300, 4.0, 0), (400, 5.0, 300), (450, 6.0, 300), (500, None, 450)]
    series = [{"step": s, "seconds": t, "since": w} if t else {"step": s, "since": w} for s, t, w in lines]
    assert throughput(series, 10) == [(100, 2.0, 500), (300, 2.0, 1000), (400, 5.0, 200), (450, 1.0, 500)]
    assert throughput([{"step": 5}], 1) == []


def test_the_page_in_a_browser(made, tmp_path):
    text = page(report(made[0]))
    assert NASTY not in text
    assert not re.search(r"<script|https?://(?!www.w3.org/2000/svg)", text)
    for heading in ("Traces and densities", "Averages", "Health", "How well the chains mix", "Settings", "Versions"):
        assert f"<h2>{heading}</h2>" in text
    assert (
        text.count("<svg") == 6 + 3 + 4
    )  # a trace and a density for each of three numbers; averages; temperature, noise, diverged, throughput
    path = tmp_path / "page.html"
    path.write_text(text, encoding="utf-8")
    with browser.chromium() as opened:
        assert browser.problems(opened, path) == []


def test_other_measurements_are_reported_too(unfinished):
    (unfinished / "chain.npz").unlink()
    (unfinished / "series.jsonl").write_text("")
    assert report(unfinished)["step"] == 0  # nothing saved yet
    shutil.rmtree(unfinished / "samples")
    with (unfinished / "series.jsonl").open("a") as file:
        file.write(store.line_of({"step": 10, "nll": 90.0, "temperature": None, "since": 0}))
    result = watch(unfinished, Console(file=io.StringIO()))
    assert result["others"] == {"nll": 90.0}
    assert "nll 90" in "\n".join(describe(result))


def watched(folder):
    """Runs `watch` in a thread; returns it, its output, and a list that gets its result."""
    output, ended = io.StringIO(), []
    console = Console(file=output, width=200)
    thread = threading.Thread(target=lambda: ended.append(watch(folder, console, 0.01)))
    thread.start()
    return thread, output, ended


def test_watching_a_run_until_it_ends(unfinished):
    held = files.hold(unfinished / "lock")
    thread, output, ended = watched(unfinished)
    time.sleep(0.1)
    assert thread.is_alive()
    with (unfinished / "series.jsonl").open("a") as file:
        file.write(store.line_of({"step": 4000, "average": [1.0, 2.0, 3.0], "error": [0.1] * 3, "diverged": 0}))
    thread.join(10)
    os.close(held)
    assert ended[0]["state"] == "finished"
    assert "finished at step 4,000 of 4,000" in output.getvalue()


def test_watching_a_run_whose_process_ends(unfinished):
    held = files.hold(unfinished / "lock")
    thread, output, ended = watched(unfinished)
    time.sleep(0.1)
    assert thread.is_alive()
    os.close(held)
    thread.join(10)
    assert ended[0]["state"] == "stopped"
    assert "stopped at step 2,000 of 4,000" in output.getvalue()
    assert "no process is running it; the same call of strang.sample continues it" in output.getvalue()


def test_watching_does_not_keep_a_run_from_starting(unfinished):
    """The lock is tried for a while, since watchers hold it for a moment."""
    stop = threading.Event()

    def look():
        while not stop.is_set():
            store.is_held(unfinished)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            os.close(files.hold(unfinished / "lock"))
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def command(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["strang", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code or 0, *capsys.readouterr()


def test_the_commands(made, tmp_path, monkeypatch, capsys):
    folder, file = made[0], tmp_path / "page.html"
    status, out, _ = command(monkeypatch, capsys, "report", folder, "--json")
    assert (status, json.loads(out)["state"]) == (0, "finished")
    status, out, _ = command(monkeypatch, capsys, "report", folder, "--html", file)
    assert f"the page is {file}" in out
    assert file.read_text().startswith("<!doctype html>")
    status, out, _ = command(monkeypatch, capsys, "watch", folder)
    assert (status, "finished at step 2,000" in " ".join(out.split())) == (0, True)
    for name in ("--html", "--netcdf"):
        status, _, err = command(monkeypatch, capsys, "report", folder, name, tmp_path)
        assert (status, err.count("\n"), "is no file to write to" in err) == (2, 1, True)
    for name in ("report", "watch"):
        status, out, err = command(monkeypatch, capsys, name, tmp_path / "none")
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert "holds no run" in err


def test_positions_of_a_run_of_the_command_line(tmp_path, monkeypatch, capsys):
    options = [
        "sample",
        "gaussian",
        "--step-size",
        "0.01",
        "--chains",
        "4",
        "--batch-order",
        "full",
        "--data-size",
        "12",
    ]
    folder = ["--store", tmp_path / "run", "--thin", "5", "--every", "100"]
    command(monkeypatch, capsys, *options, "--steps", 200, *folder)
    status, _, err = command(monkeypatch, capsys, "resume", tmp_path / "run", "--steps", 100)
    assert (status, err) == (0, "")
    assert np.load(tmp_path / "run" / "samples" / "position.npy").shape == (60, 4)
