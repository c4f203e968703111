"""A stored run goes on bit for bit after a kill, refuses what is not its own, and loses nothing to damage."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strang
from strang import gradient, store
from strang.errors import InputError
from strang.run import run_blocks


def square(position):
    return jax.tree.map(lambda x: x**2, position)


def run(numbers, steps, **changes):
    arguments = {
        "dynamics": strang.SGHMC(friction=3.0),
        "step_size": 0.02,
        "chains": 3,
        "seed": 5,
        "average": square,
        "order": "iid",
    }
    arguments |= changes
    data = strang.data.arrays(arguments.pop("rows", numbers), batch=7, order=arguments.pop("order"))
    model = arguments.pop("model", strang.models.Gaussian())
    return strang.sample(model, data, arguments.pop("dynamics"), steps=steps, progress=False, **arguments)


def same(one, other):
    first, second = (store.named_leaves(run.chain) for run in (one, other))
    assert list(first) == list(second)
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], err_msg=name)


VARIANTS = [
    {},
    {"order": "symmetric", "dynamics": strang.SGNHT(friction=3.0)},
    {"dynamics": strang.SGLD(), "step_size": strang.schedule.decreasing(0.01, 1 / 3), "burn_in": 350},
    {"gradient": gradient.svrg(every=50)},
    {"dynamics": strang.SGHMC(friction=np.array([2.0, 3.0, 4.0])), "integrator": "leimkuhler:BAOAB"},
]


@pytest.mark.parametrize("changes", VARIANTS)
def test_goes_on_bit_for_bit(numbers, tmp_path, changes):
    whole = run(numbers, 1000, **changes)
    run(numbers, 411, store=tmp_path, every=100, **changes)
    assert sorted(entry["step"] for entry in store.read_series(tmp_path)) == [100, 200, 300, 400, 411]
    resumed = run(numbers, 1000, store=tmp_path, every=250, **changes)
    same(whole, resumed)
    again = run(numbers, 1000, store=tmp_path, every=250, **changes)  # nothing is left to do
    same(whole, again)
    np.testing.assert_array_equal(again.average, whole.average)


def test_a_small_float_is_kept(numbers, tmp_path):
    model = strang.Model(
        lambda q: -jnp.sum(q["a"].astype(jnp.float32) ** 2) / 2,
        lambda q, x: -((x - q["a"][0].astype(jnp.float32)) ** 2) / 2,
        init={"a": jnp.zeros(2, jnp.bfloat16)},
    )
    whole = run(numbers, 300, model=model, average=None)
    run(numbers, 100, model=model, average=None, store=tmp_path)
    same(whole, run(numbers, 300, model=model, average=None, store=tmp_path))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"seed": 6}, "settings differ"),
        ({"step_size": 0.01}, "settings differ"),
        ({"dynamics": strang.SGHMC(friction=3.1)}, "settings differ"),
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
    return rows, run(rows, 300, store=folder, every=100), folder


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(["chain.npz", "spec.json", "series.jsonl"]), st.booleans(), st.floats(0, 1), st.integers(0, 7))
def test_damage_is_an_error_or_does_no_harm(finished, name, cut, place, bit):
    rows, whole, folder = finished
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        content = bytearray((folder / name).read_bytes())
        at = min(int(place * len(content)), len(content) - 1)
        if cut:
            content = content[:at]
        else:
            content[at] ^= 1 << bit
        (Path(copy) / name).write_bytes(content)
        try:
            again = run(rows, 300, store=copy, every=100)
        except InputError:
            return
        same(whole, again)


def test_a_full_disk_leaves_the_last_save(numbers, tmp_path, monkeypatch):
    saved = run(numbers, 300, store=tmp_path)

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device", "chain.npz")

    with monkeypatch.context() as patch:
        patch.setattr(store.os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            run(numbers, 600, store=tmp_path)
    assert not list(tmp_path.glob(".*"))
    same(saved, run(numbers, 300, store=tmp_path))
    same(run(numbers, 600), run(numbers, 600, store=tmp_path))


def test_an_interrupted_run_is_saved(numbers, tmp_path, monkeypatch):
    def interrupted(job, every, most=None):
        yield next(iter(run_blocks(job, 64)))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(strang.run, "run_blocks", interrupted)
        assert run(numbers, 300, store=tmp_path, every=1000).interrupted
    assert [entry["step"] for entry in store.read_series(tmp_path)] == [64]
    same(run(numbers, 300), run(numbers, 300, store=tmp_path))


def test_one_process_at_a_time(numbers, tmp_path):
    held = store.hold(tmp_path / "lock")
    with pytest.raises(InputError, match="another process"):
        run(numbers, 100, store=tmp_path)
    os.close(held)
    run(numbers, 100, store=tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"every": 10}, "write store="), ({"store": "x", "every": 0}, "every is 0"), ({"store": "x", "thin": 2}, "thin=")],
)
def test_bad_requests(numbers, tmp_path, monkeypatch, changes, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        run(numbers, 100, **changes)


COMMAND = [sys.executable, "-c", "from strang.cli import main; main()"]
OPTIONS = ["sample", "gaussian", "--scale", "0.03", "--alpha", "0.33", "--steps", "100000", "--chains", "20"]
OPTIONS += ["--batches", "reshuffled", "--every", "2000", "--json"]


def strang_command(*arguments):
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True)


def test_kills_do_not_show(tmp_path):
    """A run killed again and again, at random moments, and resumed, ends with the bytes of one that was not."""
    whole = json.loads(strang_command(*OPTIONS, "--store", tmp_path / "whole").stdout)
    dice, kills = random.Random(0), 0
    arguments = [*OPTIONS, "--store", str(tmp_path / "killed")]
    while kills < 3:
        process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        wanted = len(store.read_series(tmp_path / "killed")) + dice.randint(1, 5)
        while process.poll() is None and len(store.read_series(tmp_path / "killed")) < wanted:
            time.sleep(0.01 * dice.random())
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
        arguments = ["resume", str(tmp_path / "killed"), "--json"]
    ended = json.loads(strang_command("resume", tmp_path / "killed", "--json").stdout)
    for key in ("seconds", "steps_per_second"):
        del whole[key], ended[key]
    assert ended == whole
    one, other = (np.load(tmp_path / name / "chain.npz") for name in ("killed", "whole"))
    assert all((one[name] == other[name]).all() for name in other.files)
    more = json.loads(strang_command("resume", tmp_path / "killed", "--steps", "1000", "--json").stdout)
    assert more["steps"] == 101_000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "holds no run"),
        ("{", "damaged"),
        ("[]", "damaged"),
        ('{"format": 2}', "damaged"),
        ('{"format": 1, "steps": 1, "hashes": {"code": "", "numbers": "", "data": ""}, "about": {}}', "from Python"),
    ],
)
def test_resuming_what_is_no_run(tmp_path, content, message):
    if content is not None:
        (tmp_path / "spec.json").write_text(content)
    ended = strang_command("resume", tmp_path)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert ended.stderr.count("\n") == 1
