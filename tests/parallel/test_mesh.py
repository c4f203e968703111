"""Runs shared by devices and processes: no bit depends on who computes, and what is cut agrees with what is not."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import strang
from strang import gradients
from strang.parallel.launch import STRANG
from strang.storage.series import read_series
from strang.storage.store import named_leaves
from strang.util.errors import InputError

# What processes and devices are asked to compute: 4 chains of a logistic regression whose parts are short of rows.
CASE = """
import jax, jax.numpy as jnp, numpy as np, strang

rng = np.random.default_rng(0)
rows = rng.normal(size=(40, 3)).astype(np.float32), rng.choice([-1.0, 1.0], 40).astype(np.float32)
model = strang.Model(
    lambda q: -jnp.sum(q**2) / 2, lambda q, x: jax.nn.log_sigmoid(x[1] * (x[0] @ q)), init=np.zeros(3, np.float32)
)

def case(**changes):
    settings = {"step_size": 0.05, "steps": 300, "chains": 4, "average": None, "progress": False, **changes}
    return strang.sample(model, strang.data.arrays(rows, batch_size=7), strang.SGLD(), **settings)
"""
exec(CASE)


def same(one, other):
    assert list(one) == list(other)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def test_what_is_cut_agrees_to_rounding(numbers):
    plain = case()  # noqa: F821
    cut = case(parts=3)  # noqa: F821
    assert cut.job.program.parts == 3
    np.testing.assert_allclose(cut.chain.state.position, plain.chain.state.position, atol=1e-5)
    np.testing.assert_allclose(cut.chain.gradient_variance, plain.chain.gradient_variance, rtol=1e-3)
    other = case(parts=3, seed=1)  # noqa: F821
    assert np.abs(other.chain.state.position - plain.chain.state.position).max() > 0.1


def test_variance_reduction_and_thinning_in_parts(numbers):
    """Control variates exchange one gradient for two; draws of all chains stand side by side."""
    data = strang.data.arrays(numbers, batch_size=7)
    settings = {"step_size": np.array([0.01, 0.02]), "steps": 100, "chains": 2, "thin": 10, "progress": False}
    settings |= {"gradient": gradients.control_variate(), "average": None}
    runs = [
        strang.sample(strang.models.Gaussian(), data, strang.SGHMC(np.array([2.0, 3.0])), **settings, **cuts)
        for cuts in ({}, {"parts": 7})
    ]
    assert runs[1].samples.shape == (2, 10)
    np.testing.assert_allclose(runs[1].samples, runs[0].samples, rtol=1e-4)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"parts": 0}, "parts is 0; write a whole number from 1 to 7"),
        ({"parts": 8}, "parts is 8; write a whole number from 1 to 7"),
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
            strang.data.arrays(numbers, batch_order="full"),
            strang.SGLD(),
            step_size=0.01,
            steps=10,
            parts=2,
        )


def test_a_stored_run_keeps_its_cuts(tmp_path):
    whole = case(parts=3)  # noqa: F821
    case(parts=3, steps=130, store=tmp_path)  # noqa: F821
    with pytest.raises(InputError, match="was begun with parts=3, not 2; give the same, or leave it out"):
        case(parts=2, store=tmp_path)  # noqa: F821
    same(named_leaves(case(store=tmp_path).chain), named_leaves(whole.chain))  # noqa: F821


def start(command, **options):
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


SAVED = "from strang.storage.store import named_leaves\nnp.savez({}, **named_leaves({}.chain))\n"
DEVICES = (1, "2, 2", "1, 4", "4, 1")
# What processes tell each other between the blocks of a run must not meet what chains exchange as they run.
IN_TURN = """
for k in range(200):
    found = strang.parallel.processes.gather(np.full(166, jax.process_index() + k, np.float32))
    assert (found == np.arange(4)[:, None] + k).all()
"""
# All devices run one program, in which gradients are exchanged by XLA itself and Python is not called.
COMPILED = """
from strang.parallel import mesh
from strang.run.driver import runner_of
runner = runner_of(case(parts=3, devices=(1, 4), steps=2).job)
stop = runner.number(2)
program = runner.step.lower(runner.inputs, runner.chain, stop, None, stop).compile().as_text()
assert "all-gather" in program
assert "callback" not in program, program
"""
# Companions go with their chains.
COUPLED = """
from strang.storage.store import named_leaves
one, four = (
    named_leaves(case(parts=3, steps=90, coupled=2, average=lambda q: q[:2], devices=devices).chain)
    for devices in (1, (2, 2))
)
assert any(name.startswith(".companion") for name in one)
for name in one:
    np.testing.assert_array_equal(one[name], four[name], err_msg=name)
"""
# The draws are those that the first process writes.
THINNED = """
drawn = case(parts=3, steps=20, thin=5, store='thinned').samples
assert drawn.shape == (4, 4, 3)  # chains, draws, coordinates
np.save(f"drawn{jax.process_index()}.npy", drawn)
"""


def test_devices_and_processes_change_no_bit(tmp_path, optimised):
    """Up to four devices on meshes of every shape; four processes, of which two share the chains and two the
    minibatches; and a run that two devices began, four processes went on with, one of them idle, and one ends."""
    (tmp_path / "devices.py").write_text(
        f"import jax\njax.config.update('jax_num_cpu_devices', 4)\n{CASE}\n"
        + "".join(SAVED.format(f"'{mesh}.npz'", f"case(parts=3, devices=({mesh}))") for mesh in DEVICES)
        + "case(parts=3, devices=(1, 2), steps=130, store='stored')\n"
        + COUPLED
        + COMPILED
        + "mesh.MIN_SAVED_BYTES = 0  # by coordinates, as large gradients are exchanged\nmesh.compiled.cache_clear()\n"
        + SAVED.format("'by coordinates.npz'", "case(parts=3, devices=(1, 4))")
    )
    joining = f"import strang\nstrang.parallel.start()\n{CASE}\n"
    name = "f'process{jax.process_index()}.npz'"
    (tmp_path / "grid.py").write_text(
        f"{joining}{IN_TURN}case(steps=250, store='stored')\n{THINNED}"
        + SAVED.format(name, "case(parts=3, devices=2)")
        + "print('grid', strang.parallel.processes.rank())"
    )
    subprocess.run([sys.executable, "devices.py"], cwd=tmp_path, check=True)
    launched = start([*STRANG, "launch", "-n", "4", "--", sys.executable, "grid.py"], cwd=tmp_path)
    said, errors = launched.communicate(timeout=300)
    assert (launched.returncode, said) == (0, "grid 0\n"), errors
    assert read_series(tmp_path / "stored")[-1]["step"] == 250
    expected = named_leaves(case(parts=3).chain)  # noqa: F821
    same(named_leaves(case(store=tmp_path / "stored").chain), expected)  # noqa: F821
    for name in (*DEVICES, "by coordinates", "process0", "process3"):
        same(dict(np.load(tmp_path / f"{name}.npz")), expected)
    drawn = case(parts=3, steps=20, thin=5).samples  # noqa: F821
    for rank in range(4):
        np.testing.assert_array_equal(np.load(tmp_path / f"drawn{rank}.npy"), drawn)


HOST = """
import jax
jax.config.update("jax_num_cpu_devices", 2)
import numpy as np, strang
from strang.storage.store import named_leaves

rng = np.random.default_rng(0)
np.save("x.npy", rng.normal(size=200).astype(np.float32))
words = [f"w{k}" for k in range(30)]
corpus = strang.lda.from_csr(np.arange(0, 101, 5), rng.integers(30, size=100), np.ones(100, int), words)
topics = strang.lda.TopicModel(3, 30, parametrisation="expanded-mean", documents=corpus)

def leaves(devices, model, data, dynamics):
    settings = {"step_size": 1e-3, "steps": 30, "average": None, "parts": 2, "devices": devices, "progress": False}
    return named_leaves(strang.sample(model, data, dynamics, **settings).chain)

for case in (
    (strang.models.Gaussian(), strang.data.files("x.npy", batch_size=10), strang.SGHMC(friction=10.0)),
    (topics, strang.data.arrays(np.arange(20, dtype=np.uint32), batch_size=4), strang.SGRLD()),
):
    one, two = leaves(1, *case), leaves((1, 2), *case)
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)
"""


def test_devices_of_one_process_call_the_host(tmp_path):
    """Rows on disk and topic models, with a single thread for all of XLA: none of the devices waits for the other's."""
    environment = {**os.environ, "NPROC": "1"}
    subprocess.run([sys.executable, "-c", HOST], cwd=tmp_path, check=True, timeout=120, env=environment)


def test_a_launched_process_must_join(monkeypatch):
    monkeypatch.setenv("STRANG_COORDINATOR", "127.0.0.1:1")
    with pytest.raises(InputError, match=r"write strang.parallel.start\(\) at the top"):
        case()  # noqa: F821
    with pytest.raises(InputError, match="not how many processes meet there"):
        strang.parallel.start()
    assert not jax.distributed.is_initialized()
