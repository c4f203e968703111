"""Runs shared by devices and processes: no bit depends on who computes, and what is cut agrees with what is not."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import strang
from strang import gradient
from strang.cli import main
from strang.errors import InputError
from strang.launch import STRANG, blame
from strang.lda import learning
from strang.lda.prepare import prepare
from strang.share import Meeting, add_up
from strang.store import named_leaves, read_series

# What processes and devices are asked to compute: 4 chains of a logistic regression whose slices are short of rows.
CASE = """
import jax, jax.numpy as jnp, numpy as np, strang

rng = np.random.default_rng(0)
rows = rng.normal(size=(40, 3)).astype(np.float32), rng.choice([-1.0, 1.0], 40).astype(np.float32)
model = strang.Model(
    lambda q: -jnp.sum(q**2) / 2, lambda q, x: jax.nn.log_sigmoid(x[1] * (x[0] @ q)), init=np.zeros(3, np.float32)
)

def case(**changes):
    settings = {"step_size": 0.05, "steps": 300, "chains": 4, "average": None, "progress": False, **changes}
    return strang.sample(model, strang.data.arrays(rows, batch=7), strang.SGLD(), **settings)
"""
exec(CASE)


def same(one, other):
    assert list(one) == list(other)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def test_what_is_cut_agrees_to_rounding(numbers):
    plain = case()  # noqa: F821
    cut = case(parts=3, groups=2)  # noqa: F821
    assert (cut.job.program.cuts.parts, cut.job.program.cuts.groups) == (3, 2)
    np.testing.assert_allclose(cut.chain.state.position, plain.chain.state.position, atol=1e-5)
    np.testing.assert_allclose(cut.chain.noise, plain.chain.noise, rtol=1e-3)
    other = case(parts=3, groups=2, seed=1)  # noqa: F821
    assert np.abs(other.chain.state.position - plain.chain.state.position).max() > 0.1


def test_variance_reduction_and_thinning_in_parts(numbers):
    """Control variates exchange one gradient for two; draws of all groups stand side by side."""
    data = strang.data.arrays(numbers, batch=7)
    settings = {"step_size": np.array([0.01, 0.02]), "steps": 100, "chains": 2, "thin": 10, "progress": False}
    settings |= {"gradient": gradient.control_variate(), "average": None}
    runs = [
        strang.sample(strang.models.Gaussian(), data, strang.SGHMC(np.array([2.0, 3.0])), **settings, **cuts)
        for cuts in ({}, {"parts": 7, "groups": 2})
    ]
    assert runs[1].samples.shape == (10, 2)
    np.testing.assert_allclose(runs[1].samples, runs[0].samples, rtol=1e-4)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"parts": 0}, "parts is 0; write a whole number from 1 to 7"),
        ({"parts": 8}, "parts is 8; write a whole number from 1 to 7"),
        ({"groups": 5}, "groups is 5; write a whole number from 1 to 4"),
        ({"groups": 3}, "4 chains in 3 groups cannot be shared evenly by 1 devices"),
        ({"devices": 99}, "devices is 99; write how many are to share the chains"),
        ({"devices": (1, 99)}, r"devices is \(1, 99\); write how many are to share the chains"),
        ({"devices": (1, 1, 1)}, r"devices is \(1, 1, 1\); write how many are to share the chains"),
        ({"devices": 0}, "devices is 0; write a whole number"),
        ({"devices": "two"}, "devices is two; write a whole number"),
        ({"devices": ()}, r"devices is \(\); write how many are to share the chains"),
    ],
)
def test_what_cannot_be_shared_is_refused(changes, reason):
    with pytest.raises(InputError, match=reason):
        case(**changes)  # noqa: F821


def test_full_gradients_are_not_cut(numbers):
    with pytest.raises(InputError, match="full gradients, a loader's batches and hidden causes"):
        strang.sample(
            strang.models.Gaussian(),
            strang.data.arrays(numbers, order="full"),
            strang.SGLD(),
            step_size=0.01,
            steps=10,
            parts=2,
        )


def test_a_stored_run_keeps_its_cuts(tmp_path):
    whole = case(parts=3, groups=2)  # noqa: F821
    case(parts=3, groups=2, steps=130, store=tmp_path)  # noqa: F821
    with pytest.raises(InputError, match="was begun with parts=3, not 2; give the same, or leave it out"):
        case(parts=2, store=tmp_path)  # noqa: F821
    same(named_leaves(case(store=tmp_path).chain), named_leaves(whole.chain))  # noqa: F821


def start(command, **options):
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


SAVED = "from strang.store import named_leaves\nnp.savez({}, **named_leaves({}.chain))\n"
DEVICES = (1, "2, 2", "1, 4")
# What chains exchange as they run must not meet what processes tell each other in between.
IN_TURN = """
for k in range(200):
    strang.distributed.agree(k)
    found = strang.distributed.exchange(np.full(166, jax.process_index() + k, np.float32), 4)
    assert (found == np.arange(4)[:, None] + k).all()
"""
# The draws are those that the first process writes.
THINNED = """
drawn = case(parts=3, groups=2, steps=20, thin=5, store='thinned').samples
assert drawn.shape == (4, 4, 3)
np.save(f"drawn{jax.process_index()}.npy", drawn)
"""


def test_devices_and_processes_change_no_bit(tmp_path):
    """Up to four devices on meshes of every shape; four processes, of which two share the chains and two the
    minibatches; and a run that two devices began, four processes went on with, one of them idle, and one ends."""
    (tmp_path / "devices.py").write_text(
        f"import jax\njax.config.update('jax_num_cpu_devices', 4)\n{CASE}\n"
        + "".join(SAVED.format(f"'{mesh}.npz'", f"case(parts=3, groups=2, devices=({mesh}))") for mesh in DEVICES)
        + "case(parts=3, groups=2, devices=(1, 2), steps=130, store='stored')\n"
    )
    joining = f"import strang\nstrang.distributed.start()\n{CASE}\n"
    name = "f'process{jax.process_index()}.npz'"
    (tmp_path / "grid.py").write_text(
        f"{joining}{IN_TURN}case(steps=250, store='stored')\n{THINNED}"
        + SAVED.format(name, "case(parts=3, groups=2, devices=2)")
        + "print('grid', strang.distributed.rank())"
    )
    subprocess.run([sys.executable, "devices.py"], cwd=tmp_path, check=True)
    launched = start([*STRANG, "launch", "-n", "4", "--", sys.executable, "grid.py"], cwd=tmp_path)
    said, errors = launched.communicate(timeout=300)
    assert (launched.returncode, said) == (0, "grid 0\n"), errors
    assert read_series(tmp_path / "stored")[-1]["step"] == 250
    expected = named_leaves(case(parts=3, groups=2).chain)  # noqa: F821
    same(named_leaves(case(store=tmp_path / "stored").chain), expected)  # noqa: F821
    for name in (*DEVICES, "process0", "process3"):
        same(dict(np.load(tmp_path / f"{name}.npz")), expected)
    drawn = case(parts=3, groups=2, steps=20, thin=5).samples  # noqa: F821
    for rank in range(4):
        np.testing.assert_array_equal(np.load(tmp_path / f"drawn{rank}.npy"), drawn)


def test_a_meeting_adds_in_order_and_nobody_waits_in_vain():
    parts = np.random.default_rng(0).normal(size=(2, 5, 7)).astype(np.float32)  # chains, slices, coordinates
    meeting, threads, sums = Meeting(3), [], []
    for place in range(3):
        own = np.zeros_like(parts)
        own[:, 2 * place : 2 * place + 2] = parts[:, 2 * place : 2 * place + 2]
        given = np.array([[place, 3, meeting.number]] * 2, np.int32)
        threads.append(threading.Thread(target=lambda own=own, given=given: sums.append(add_up(own, given))))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = add_up(parts, np.array([0, 1, 0]))
    assert [each.tobytes() for each in sums] == [alone.tobytes()] * 3
    assert alone.tobytes() != add_up(parts[:, ::-1], np.array([0, 1, 0])).tobytes()  # the order tells
    meeting.leave()
    with pytest.raises(threading.BrokenBarrierError):
        meeting.add_up(0, parts)


def test_an_error_is_told_once(tmp_path, corpus):
    command = [*STRANG, "launch", "-n", "2", "--", "strang", "lda", "fit", str(corpus), "--store", str(tmp_path)]
    launched = start([*command, "--parts", "99", "--batch", "20", "--test-documents", "20"])
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
    settings = {"topics": 3, "passes": 100.0, "batch": 20, "samples": 10, "test_documents": 20, "sweeps": 2, "decay": 0}
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
    learning.fit(tmp_path / "alone", corpus, progress=False, parts=2, **settings)
    for name in ("chain.npz", "topics.npz"):
        same(*(dict(np.load(tmp_path / which / name)) for which in ("shared", "alone")))


def test_who_is_to_blame():
    assert sorted([1, -signal.SIGABRT, 2, -signal.SIGKILL], key=blame) == [-signal.SIGKILL, 2, 1, -signal.SIGABRT]


def test_a_launched_process_must_join(monkeypatch):
    monkeypatch.setenv("STRANG_COORDINATOR", "127.0.0.1:1")
    with pytest.raises(InputError, match=r"write strang.distributed.start\(\) at the top"):
        case()  # noqa: F821
    with pytest.raises(InputError, match="not how many processes meet there"):
        strang.distributed.start()
    assert not jax.distributed.is_initialized()


def test_a_launched_process_imports_nothing_from_where_it_stands(tmp_path):
    (tmp_path / "typer.py").write_text("raise SystemExit('imported')")
    found = subprocess.run([*STRANG, "--version"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
