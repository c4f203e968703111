"""Processes launched together: they end together, say once what went wrong, and fewer of them go on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from strang.cli.app import main
from strang.lda.fitting import fit
from strang.lda.text.prepare import prepare
from strang.parallel.launch import STRANG, cause_rank
from strang.storage.series import read_series


def start(command, **options):
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def test_an_error_is_told_once(tmp_path, corpus):
    command = [*STRANG, "launch", "-n", "2", "--", "strang", "lda", "fit", str(corpus), "--store", str(tmp_path)]
    launched = start([*command, "--parts", "99", "--batch-size", "20", "--test-documents", "20"])
    _, errors = launched.communicate(timeout=120)
    assert launched.returncode == 2
    assert errors == "strang: parts is 99; write a whole number from 1 to 20.\n"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """60 documents of 20 words each, 40 of them to learn from."""
    folder = tmp_path_factory.mktemp("corpus")
    counts = np.random.default_rng(0).multinomial(20, np.full(12, 1 / 12), 60)
    rows, columns = np.nonzero(counts)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=60))])
    np.savez(folder / "bags.npz", indptr=indptr, indices=columns, counts=counts[rows, columns])
    (folder / "words.txt").write_text("".join(f"w{letter}\n" for letter in "abcdefghijkl"))
    prepare(folder / "bags.npz", folder / "it", vocabulary=folder / "words.txt", progress=False)
    return folder / "it"


def test_a_killed_process_ends_all_and_the_fit_goes_on_alone(tmp_path, corpus, capsys, monkeypatch):
    """Also a model that computes on the host, reading only its own documents."""
    settings = {
        "topics": 3,
        "passes": 100.0,
        "batch_size": 20,
        "samples": 10,
        "test_documents": 20,
        "sweeps": 2,
        "decay": 0,
    }
    options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    folder = tmp_path / "shared"
    command = [*STRANG, "launch", "-n", "2", "--", "strang", "lda", "fit", str(corpus), f"--store={folder}", *options]
    launched = start(command)
    while launched.poll() is None and not read_series(folder):
        time.sleep(0.01)
    ranks = Path(f"/proc/{launched.pid}/task/{launched.pid}/children")
    second = int(ranks.read_text().split()[1])
    os.kill(second, signal.SIGKILL)
    began = time.monotonic()
    said, errors = launched.communicate(timeout=60)
    assert time.monotonic() - began < 20
    assert (launched.returncode, said) == (137, "")
    assert "process 1 of 2 was ended by SIGKILL, and the others were ended with it. A stored run goes on" in errors
    assert json.loads((folder / "spec.json").read_text())["settings"]["parts"] == 2
    assert read_series(folder)[-1]["step"] < 200
    monkeypatch.setattr(sys, "argv", ["strang", "resume", str(folder), "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["finished"]
    fit(tmp_path / "alone", corpus, progress=False, parts=2, **settings)
    for name in ("chain.npz", "topics.npz"):
        shared, alone = (dict(np.load(tmp_path / which / name)) for which in ("shared", "alone"))
        assert list(shared) == list(alone)
        for key in shared:
            np.testing.assert_array_equal(shared[key], alone[key], err_msg=key)


def test_the_likeliest_cause_comes_first():
    assert sorted([1, -signal.SIGABRT, 2, -signal.SIGKILL], key=cause_rank) == [-signal.SIGKILL, 2, 1, -signal.SIGABRT]


def test_a_launched_process_imports_nothing_from_where_it_stands(tmp_path):
    (tmp_path / "typer.py").write_text("raise SystemExit('imported')")
    found = subprocess.run([*STRANG, "--version"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
