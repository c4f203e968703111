"""A Dask cluster gives the numbers of one process, bit for bit; what is wrong with it is told."""

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import strang
from strang.cli.app import app
from strang.paper import measure, reproduce
from strang.paper.figure import Part
from strang.parallel import dask
from strang.run import cluster
from strang.sampling.request import prepare
from strang.storage import store
from strang.util.errors import InputError

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@contextmanager
def dask_cluster(folder, workers):
    """A scheduler, first, and its workers, each a process of its own; and the scheduler's address."""
    file = folder / "scheduler.json"
    common = ["--scheduler-file", str(file), "--no-dashboard"]
    commands = [["scheduler", "--host", "127.0.0.1", "--port", "0", *common]]
    commands += [["worker", *common, "--nthreads", "1", "--no-nanny", "--local-directory", str(folder)]] * workers
    started = []
    for name, *arguments in commands:
        command = [sys.executable, "-m", f"distributed.cli.dask_{name}", *arguments]
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        while not file.exists() and started[0].poll() is None:
            time.sleep(0.05)
    address = json.loads(file.read_text())["address"]
    with distributed.Client(address, set_as_default=False) as client:
        client.wait_for_workers(workers, timeout=60)
    yield started, address
    for process in reversed(started):
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    with dask_cluster(tmp_path_factory.mktemp("dask"), 2) as (_, address):
        yield address


def settings(**changes):
    x = np.linspace(-1, 2, 66, dtype=np.float32)
    base = {"step_size": 0.01, "steps": 600, "chains": 5, "seed": 3, "thin": 50, "progress": False}
    data = strang.data.arrays(x, batch_size=7)
    return {"model": strang.models.Gaussian(), "data": data, "dynamics": strang.SGHMC(5.0), **base, **changes}


def same(one, other):
    first, second = (store.named_leaves(run.chain) for run in (one, other))
    assert list(first) == list(second)
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], err_msg=name)
        assert array.dtype == second[name].dtype
    np.testing.assert_array_equal(one.samples, other.samples)


def test_chains_on_a_cluster_are_those_of_one_process(scheduler):
    scale = 0.5  # a number from outside goes along with the function
    chosen = settings(average=lambda q: scale * q**2)
    far = cluster.sample(scheduler, **chosen)
    near = cluster.sample(None, tasks=2, **chosen)
    same(near, far)
    np.testing.assert_array_equal(far.average, near.average)
    plain = strang.sample(**chosen)
    np.testing.assert_array_equal(plain.chain.keys.noise, far.chain.keys.noise)
    np.testing.assert_allclose(plain.samples, far.samples, rtol=1e-5)  # compiled for another number of chains
    assert far.more(100).steps == 700


def test_a_grid_on_a_cluster_is_that_of_one_process(scheduler):
    """Frictions and step sizes a chain, by a function of the step; the chain with the absurd step diverges alone. Three
    groups on two workers are the same three groups."""
    sizes = np.array([0.01, 0.02, 0.01, 1.0, 0.03], np.float32)
    chosen = settings(dynamics=strang.SGHMC(np.linspace(2, 6, 5)), step_size=lambda l: sizes / (1 + l / 1000), tasks=3)
    chosen["data"] = strang.data.arrays(
        np.linspace(-1, 2, 66, dtype=np.float32), batch_order="full"
    )  # compiles fastest
    with pytest.warns(strang.DivergenceWarning, match="chain 3 diverged"):
        far = cluster.sample(scheduler, **chosen)
    with pytest.warns(strang.DivergenceWarning):
        near = cluster.sample(None, **chosen)
    same(near, far)
    assert list(far.alive) == [True, True, True, False, True]


def test_the_command_line_on_a_cluster_prints_the_same(scheduler):
    options = ["sample", "gaussian", "--step-size", "0.01", "--steps", "600", "--chains", "6", "--batch-order", "full"]
    options += ["--data-size", "50", "--dtype", "float64", "--json"]
    near, far = (json.loads(CliRunner().invoke(app, [*options, *more]).stdout) for more in
                 (["--tasks", "2"], ["--scheduler", scheduler]))  # fmt: skip
    for name in ("seconds", "steps_per_second"):
        del near[name], far[name]
    assert near == far
    refused = CliRunner().invoke(app, [*options, "--scheduler", scheduler, "--store", "x"])
    assert "leave out --store" in str(refused.exception)


def test_parts_of_the_reproduction_are_made_on_a_cluster(scheduler, tmp_path, monkeypatch):
    class Figure:
        @staticmethod
        def parts(effort):
            curve = {"scale": 2.0, "friction": 3.0, "steps": [100, 200], "batch_order": "full", "target": "unit"}
            schemes = {word: [["sghmc", word, "fixed", 0.2]] for word in reproduce.unit.WORDS}
            return [Part(word, measure.exact_curves, {**curve, "schemes": each}) for word, each in schemes.items()]

        @staticmethod
        def figure(effort, results):
            return results

    monkeypatch.setattr(reproduce, "FIGURES", {"unit": Figure})
    on_cluster = partial(dask.spread, scheduler)
    assert reproduce.compute_elsewhere(on_cluster, ["unit"], reproduce.QUICK, tmp_path / "far", True, False) == 2
    far = reproduce.compute(["unit"], reproduce.QUICK, tmp_path / "far", False, False)
    assert far.reused == far.parts == 2
    near = reproduce.compute(["unit"], reproduce.QUICK, tmp_path / "near", False, False)
    assert near.figures == far.figures
    assert reproduce.compute_elsewhere(on_cluster, ["unit"], reproduce.QUICK, tmp_path / "far", False, False) == 0


def test_a_group_whose_worker_dies_is_run_on_another(scheduler, tmp_path):
    """The first to come takes its worker with it; this is the last test with this cluster."""
    mark = str(tmp_path / "mark")

    def deadly(item):
        if item == 0:
            try:
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return -1
            os._exit(1)
        return item

    assert sorted(dask.spread(scheduler, deadly, [0, 1, 2], "tasks", False)) == [(0, -1), (1, 1), (2, 2)]


def test_a_scheduler_that_dies_is_told_in_a_sentence(tmp_path, caplog):
    def slow(item):
        time.sleep(60 * item)
        return item

    with dask_cluster(tmp_path, 1) as (processes, address):
        results = dask.spread(address, slow, [0, 1], "tasks", False)
        assert next(results) == (0, 0)
        processes[0].kill()
        with pytest.raises(InputError, match=r"scheduler went away \(.*\) after 1 of 2 tasks; start it again"):
            list(results)
    assert not caplog.records


@pytest.mark.parametrize(("chains", "count"), [(5, 2), (7, 3), (4, 4), (200, 7)])
def test_groups_cover_all_chains_in_order(chains, count):
    groups = cluster.contiguous(chains, count)
    assert [k for group in groups for k in range(chains)[group]] == list(range(chains))
    sizes = [group.stop - group.start for group in groups]
    assert len(groups) == count
    assert max(sizes) - min(sizes) <= 1


def test_cutting_and_joining_gives_the_job_back():
    job = prepare(**settings(dynamics=strang.SGNHT(np.linspace(2, 6, 5)), step_size=np.linspace(1, 2, 5) / 100))
    parts = [cluster.some_chains(cluster.host(job), own) for own in cluster.contiguous(5, 2)]
    whole = cluster.together([part.chain for part in parts])
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(job.chain), strict=True):
        np.testing.assert_array_equal(one, other)
    assert [part.program.chains for part in parts] == [2, 3]
    np.testing.assert_array_equal(parts[1].inputs.dynamics.friction, job.inputs.dynamics.friction[2:])
    np.testing.assert_array_equal(parts[1].inputs.schedule.size, job.inputs.schedule.size[2:])


@pytest.mark.parametrize("tasks", [0, 6, 1.5])
def test_bad_numbers_of_tasks_are_refused(tasks):
    with pytest.raises(InputError, match=f"tasks is {tasks}; write a whole number from 1 to 5"):
        cluster.sample(None, tasks=tasks, **settings(steps=50))


def test_data_on_disk_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(9, np.float32))
    with pytest.raises(InputError, match="they must be in memory"):
        cluster.sample(None, **settings(data=strang.data.files(tmp_path / "x.npy", batch_size=3)))


def test_no_scheduler_is_told(monkeypatch):
    monkeypatch.setattr(dask, "PATIENCE", 0.3)
    with pytest.raises(InputError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        cluster.sample("tcp://127.0.0.1:9", **settings(steps=50))
    with pytest.raises(InputError, match="no Dask scheduler answers at nonsense"):
        cluster.sample("nonsense", **settings(steps=50))


def test_other_versions_are_refused():
    class Client:
        def run(self, function, on_error):
            return {"tcp://a": dask.versions(), "tcp://b": {**dask.versions(), "jax": "0.1"}}

    with pytest.raises(InputError, match=r"worker tcp://b has jax 0\.1 instead of"):
        dask.check_workers(Client())


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"pip install 'strang\[dask\]'"):
        cluster.sample("tcp://127.0.0.1:9", **settings(steps=50))


@pytest.mark.parametrize(("chains", "coupled", "tasks"), [(8, 4, 3), (10, 4, 2)])
def test_companions_go_with_their_chains(chains, coupled, tasks):
    """Also where the last companion has fewer chains to itself."""
    numbers = np.random.default_rng(0).normal(size=60).astype(np.float32)
    given = (strang.models.Gaussian(), strang.data.arrays(numbers, batch_size=6), strang.SGHMC(8.0))
    settings = {"step_size": 0.01, "steps": 200, "chains": chains, "coupled": coupled, "progress": False}
    here, there = strang.sample(*given, **settings), cluster.sample(None, *given, tasks=tasks, **settings)
    assert len(there.chain.companion.alive) == len(here.chain.companion.alive)
    np.testing.assert_allclose(there.bias, here.bias, rtol=1e-5)
    np.testing.assert_allclose(there.average, here.average, rtol=1e-6)
