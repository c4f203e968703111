"""A stored run goes on bit for bit after a kill, refuses what is not its own, and loses nothing to damage."""

import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strang
from strang import gradients
from strang.cli.app import main
from strang.report.stored import report
from strang.run.driver import run_blocks
from strang.storage import draws as samples
from strang.storage import store
from strang.storage.series import read_series
from strang.util import files
from strang.util.errors import InputError


def square(position):
    return jax.tree.map(lambda x: x**2, position)


def run(numbers, steps, **changes):
    arguments = {
        "dynamics": strang.SGHMC(friction=3.0),
        "step_size": 0.02,
        "chains": 3,
        "seed": 5,
        "average": square,
        "batch_order": "iid",
    }
    arguments |= changes
    data = strang.data.arrays(arguments.pop("rows", numbers), batch_size=7, batch_order=arguments.pop("batch_order"))
    model = arguments.pop("model", strang.models.Gaussian())
    return strang.sample(model, data, arguments.pop("dynamics"), steps=steps, progress=False, **arguments)


def same(one, other):
    first, second = (store.named_leaves(run.chain) for run in (one, other))
    assert list(first) == list(second)
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], err_msg=name)


VARIANTS = [
    {},
    {"batch_order": "symmetric", "dynamics": strang.SGNHT(friction=3.0)},
    {"dynamics": strang.SGLD(), "step_size": strang.schedule.decreasing(0.01, 1 / 3), "burn_in": 350},
    {"gradient": gradients.svrg(every=50)},
    {"dynamics": strang.SGHMC(friction=np.array([2.0, 3.0, 4.0])), "integrator": "leimkuhler:BAOAB"},
]


@pytest.mark.parametrize("changes", VARIANTS)
def test_goes_on_bit_for_bit(numbers, tmp_path, changes):
    whole = run(numbers, 1000, **changes)
    run(numbers, 411, store=tmp_path, every=100, **changes)
    assert sorted(entry["step"] for entry in read_series(tmp_path)) == [100, 200, 300, 400, 411]
    resumed = run(numbers, 1000, store=tmp_path, every=250, **changes)
    same(whole, resumed)
    again = run(numbers, 1000, store=tmp_path, every=250, **changes)  # nothing is left to do
    same(whole, again)
    np.testing.assert_array_equal(again.average, whole.average)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"seed": 6}, "settings or starts differ"),
        ({"step_size": 0.01}, "settings or starts differ"),
        ({"dynamics": strang.SGHMC(friction=3.1)}, "settings or starts differ"),
        ({"init": jnp.float32(500.0)}, "settings or starts differ"),
        ({"model": strang.models.Gaussian(start_mean=500.0)}, "settings or starts differ"),
        ({"integrator": "leimkuhler:BAOAB"}, "integrator"),
        ({"average": jnp.sin}, "average"),
        ({"model": strang.models.Gaussian(prior_var=2.0)}, "the model"),
        ({"chains": 4}, "differ"),
        ({"rows": np.linspace(0, 1, 40, dtype=np.float32)}, "the data differ"),
    ],
)
def test_another_run_is_refused(numbers, tmp_path, changes, reason):
    first = run(numbers, 300, store=tmp_path)
    with pytest.raises(InputError, match=f"holds another run: .*{reason}"):
        run(numbers, 600, **{"store": tmp_path, **changes})
    same(first, run(numbers, 300, store=tmp_path))  # and the run there is as it was


def test_only_what_a_killed_save_left_is_cleared_away(numbers, tmp_path):
    theirs, ours = [".bashrc.bak.20240101", ".chain.npz.old"], [".chain.npz.123", ".spec.json.7"]
    run(numbers, 100, store=tmp_path)
    for name in theirs + ours:
        (tmp_path / name).touch()
    with pytest.raises(InputError, match="holds another run"):
        run(numbers, 100, store=tmp_path, seed=6)
    assert {path.name for path in tmp_path.glob(".*")} == {*theirs, *ours}  # a refused call changes nothing
    run(numbers, 100, store=tmp_path)
    assert {path.name for path in tmp_path.glob(".*")} == set(theirs)


def test_only_files_are_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # as a device would be
    for place in (tmp_path / "pipe", tmp_path, Path()):
        with pytest.raises(InputError, match="is no file to write to"):
            files.replace_file(place, b"new")
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "link").symlink_to("file")
    files.replace_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"


def test_fewer_steps_than_are_made_are_refused(numbers, tmp_path):
    first = run(numbers, 300, store=tmp_path)
    with pytest.raises(InputError, match="is at step 300 already, but steps is 200; write more"):
        run(numbers, 200, store=tmp_path)
    assert store.read_spec(tmp_path)["steps"] == 300
    same(first, run(numbers, 300, store=tmp_path))


def test_a_closed_over_number_is_code(numbers, tmp_path):
    def model(scale):
        table = jnp.full(3, scale)
        return strang.Model(lambda q: -(q**2) / 2, lambda q, x: -table[0] * (x - q) ** 2 / 2, init=jnp.zeros(()))

    run(numbers, 300, model=model(1.0), store=tmp_path)
    run(numbers, 400, model=model(1.0), store=tmp_path)  # another function of the same meaning
    with pytest.raises(InputError, match="the model"):
        run(numbers, 500, model=model(1.1), store=tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run and its folder, to be copied and damaged."""
    folder = tmp_path_factory.mktemp("finished")
    rows = np.linspace(-1, 2, 40, dtype=np.float32)
    return rows, run(rows, 300, store=folder, every=100, thin=4), folder


def damaged(path, cut, place, bit):
    """One bit turned, or the end cut off."""
    content = bytearray(path.read_bytes())
    at = min(int(place * len(content)), len(content) - 1)
    if cut:
        content = content[:at]
    else:
        content[at] ^= 1 << bit
    path.write_bytes(content)


FILES = ["chain.npz", "spec.json", "series.jsonl", "samples/position.npy"]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(FILES), st.booleans(), st.floats(0, 1), st.integers(0, 7))
def test_damage_is_an_error_or_does_no_harm(finished, name, cut, place, bit):
    rows, whole, folder = finished
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        damaged(Path(copy) / name, cut, place, bit)
        try:
            told = report(copy)
        except InputError:
            told = None
        try:
            again = run(rows, 300, store=copy, every=100, thin=4)
        except InputError:
            return
        same(whole, again)
        np.testing.assert_array_equal(again.samples, whole.samples)
        if told is not None and name != "series.jsonl":  # of which the end may be missing
            right = report(folder)
            for key in ("state", "step", "steps", "averages", "mixing", "settings", "diverged"):
                assert told[key] == right[key], key


def test_a_full_disk_leaves_the_last_save(numbers, tmp_path, monkeypatch):
    saved = run(numbers, 300, store=tmp_path)

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device", "chain.npz")

    with monkeypatch.context() as patch:
        patch.setattr(store.os, "fsync", full)
        with pytest.raises(InputError, match=r"cannot write in .*No space left.* nothing was run"):
            run(numbers, 600, store=tmp_path)
    assert not list(tmp_path.glob(".*"))
    same(saved, run(numbers, 300, store=tmp_path))
    same(run(numbers, 600), run(numbers, 600, store=tmp_path))


def test_a_disk_that_fills_during_the_run_leaves_the_last_save(numbers, tmp_path):
    """The system refuses to let a file grow beyond a limit, as a full disk would."""
    whole = run(numbers, 3000, thin=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))  # 1656 draws of three chains, and the chain
    try:
        with pytest.raises(OSError, match="File too large; the run is kept up to step 1,600"):
            run(numbers, 3000, store=tmp_path, every=100, thin=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    resumed = run(numbers, 3000, store=tmp_path, every=100, thin=1)
    same(whole, resumed)
    np.testing.assert_array_equal(resumed.samples, whole.samples)


@pytest.mark.parametrize(("thin", "first", "then"), [(1, 100, 250), (7, 100, 250), (300, 1000, 64)])
def test_thinned_positions_do_not_depend_on_blocks(numbers, tmp_path, thin, first, then):
    """They are those after steps thin, 2 thin, ..., in a file that NumPy opens, wherever the run was cut."""
    every_one = run(numbers, 1000, thin=1)
    run(numbers, 411, store=tmp_path, every=first, thin=thin)
    with (tmp_path / "samples" / "position.npy").open("ab") as file:
        file.write(b"what a killed process had not yet counted")
    resumed = run(numbers, 1000, store=tmp_path, every=then, thin=thin)
    same(every_one, resumed)
    np.testing.assert_array_equal(resumed.samples, every_one.samples[:, thin - 1 :: thin])
    assert isinstance(resumed.draws, np.memmap)
    np.testing.assert_array_equal(np.load(tmp_path / "samples" / "position.npy"), resumed.draws)
    with pytest.raises(InputError, match=f"was begun with thin={thin}, not 9"):
        run(numbers, 1000, store=tmp_path, thin=9)


def test_blocks_go_to_the_disk_and_are_forgotten(numbers, tmp_path, monkeypatch):
    seen, alive = [], []
    append = samples.Draws.append

    def watched(self, positions):
        alive.append(sum(each() is not None for each in seen))
        seen.append(weakref.ref(positions))
        append(self, positions)

    monkeypatch.setattr(samples.Draws, "append", watched)
    assert run(numbers, 5000, store=tmp_path, every=200, thin=1).draws.shape == (5000, 3)
    assert len(seen) >= 25
    assert max(alive) <= 1


def test_trees_are_files_by_name(numbers, tmp_path):
    model = strang.Model(
        lambda q: -jnp.sum(q["a"] ** 2) / 2 - q["b"][0] ** 2,
        lambda q, x: -((x - q["a"][0]) ** 2) / 2,
        init={"a": jnp.zeros(2), "b": (jnp.zeros(()),)},
    )
    whole = run(numbers, 100, model=model, average=None, thin=10)
    run(numbers, 50, model=model, average=None, thin=10, store=tmp_path)
    kept = run(numbers, 100, model=model, average=None, thin=10, store=tmp_path)
    np.testing.assert_array_equal(kept.samples["a"], whole.samples["a"])
    np.testing.assert_array_equal(np.load(tmp_path / "samples" / "b.0.npy"), whole.draws["b"][0])


def test_an_interrupted_run_is_saved(numbers, tmp_path, monkeypatch):
    def interrupted(job, *_):
        yield next(iter(run_blocks(job, 64)))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(strang.run.driver, "run_blocks", interrupted)
        assert run(numbers, 300, store=tmp_path, every=1000).interrupted
    assert [entry["step"] for entry in read_series(tmp_path)] == [64]
    same(run(numbers, 300), run(numbers, 300, store=tmp_path))


@pytest.mark.parametrize("late", [False, True])
def test_ctrl_c_between_the_draws_and_the_chain(numbers, tmp_path, monkeypatch, late):
    whole, keep = run(numbers, 1000, thin=1), store.Store.keep

    def interrupted(self, positions):
        if self.samples.count >= 400 and not late:
            raise KeyboardInterrupt
        keep(self, positions)
        if self.samples.count > 400:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store.Store, "keep", interrupted)
        first = run(numbers, 1000, store=tmp_path, every=100, thin=1)
    assert first.interrupted
    assert first.draws.shape == (first.steps, 3) == (400, 3)
    resumed = run(numbers, 1000, store=tmp_path, every=100, thin=1)
    same(whole, resumed)
    np.testing.assert_array_equal(resumed.samples, whole.samples)


def test_one_process_at_a_time(numbers, tmp_path):
    held = files.hold(tmp_path / "lock")
    with pytest.raises(InputError, match="another process"):
        run(numbers, 100, store=tmp_path)
    os.close(held)
    run(numbers, 100, store=tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"every": 10}, "write store="),
        ({"store": "x", "every": 0}, "every is 0"),
        ({"store": "/proc/self/x"}, "cannot write in /proc/self/x .* nothing was run"),
    ],
)
def test_bad_requests(numbers, tmp_path, monkeypatch, changes, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        run(numbers, 100, **changes)


COMMAND = [sys.executable, "-c", "from strang.cli import main; main()"]
OPTIONS = ["sample", "gaussian", "--step-size", "0.01", "--steps", "100000", "--chains", "20"]
OPTIONS += ["--batch-order", "full", "--data-size", "50", "--every", "500", "--json"]  # which compiles fastest


def strang_command(*arguments):
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True)


def in_process(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["strang", *map(str, arguments)])
    with pytest.raises(SystemExit):
        main()
    return capsys.readouterr()


def test_kills_do_not_show(tmp_path, monkeypatch, capsys):
    """A run killed again and again, at random moments, and resumed, ends with the bytes of one that was not."""
    whole = json.loads(in_process(monkeypatch, capsys, *OPTIONS, "--store", tmp_path / "whole").out)
    dice, kills = random.Random(0), 0
    arguments = [*OPTIONS, "--store", str(tmp_path / "killed")]
    while kills < 2:
        process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        wanted = len(read_series(tmp_path / "killed")) + dice.randint(1, 5)
        while process.poll() is None and len(read_series(tmp_path / "killed")) < wanted:
            time.sleep(0.01 * dice.random())
        assert store.is_held(tmp_path / "killed") or process.poll() is not None
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not store.is_held(tmp_path / "killed")
        kills += process.returncode == -signal.SIGKILL
        arguments = ["resume", str(tmp_path / "killed"), "--json"]
    ended = json.loads(strang_command("resume", tmp_path / "killed", "--json").stdout)
    for key in ("seconds", "steps_per_second"):
        del whole[key], ended[key]
    assert ended == whole
    one, other = (np.load(tmp_path / name / "chain.npz") for name in ("killed", "whole"))
    assert all((one[name] == other[name]).all() for name in other.files)
    more = json.loads(in_process(monkeypatch, capsys, "resume", tmp_path / "killed", "--steps", 1000, "--json").out)
    assert more["steps"] == 101_000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "holds no run"),
        ("{", "damaged"),
        ("[]", "damaged"),
        ("null", "damaged"),
        ('"x"', "damaged"),
        ('{"format": 2}', "damaged"),
        ('{"format": 1, "steps": 1, "hashes": {"code": "", "numbers": "", "data": ""}, "about": {}}', "from Python"),
    ],
)
def test_resuming_what_is_no_run(tmp_path, monkeypatch, capsys, content, message):
    if content is not None:
        (tmp_path / "spec.json").write_text(content)
    told = in_process(monkeypatch, capsys, "resume", tmp_path)
    assert message in told.err
    assert told.err.count("\n") == 1


def test_the_precision_of_products_is_part_of_a_stored_run():
    """On some devices it decides how many digits products keep."""
    from strang.sampling.request import prepare
    from strang.storage.manifest import fingerprint

    data = strang.data.arrays((np.ones((6, 2), np.float32), np.ones(6, np.float32)), batch_size=3)
    job = prepare(strang.models.Logistic(2), data, strang.SGHMC(), step_size=0.1, steps=10)
    usual = fingerprint(job)
    with jax.default_matmul_precision("highest"):
        other = fingerprint(job)
    assert usual["code"] != other["code"]
    assert usual == fingerprint(job)
