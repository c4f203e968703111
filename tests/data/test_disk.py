"""A run on data from disk or from a loader is the run on the same numbers in memory, bit for bit."""

import itertools
import json
import os
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import strang
from strang import gradients
from strang.cli.app import main
from strang.data import disk
from strang.data.disk import Files
from strang.data.orders import make_order
from strang.gradients import full
from strang.gradients.variance import split_variance
from strang.report.stored import describe, report
from strang.run.driver import run_blocks
from strang.sampling import chain
from strang.storage import store
from strang.storage.series import read_series
from strang.util import random
from strang.util.errors import InputError

pytestmark = pytest.mark.usefixtures("optimised_file")  # bits of two programs are compared

ROWS, BATCH = 66, 7


@pytest.fixture(scope="module")
def pairs():
    generator = np.random.default_rng(0)
    return generator.normal(size=(ROWS, 3)).astype(np.float32), generator.integers(2, size=ROWS).astype(np.float32)


@pytest.fixture
def paths(pairs, tmp_path):
    """The features in shards of different lengths, the answers in one file with the other byte order."""
    folder = tmp_path / "x"
    folder.mkdir()
    for number, part in enumerate(np.split(pairs[0], [1, 40])):
        np.save(folder / f"{number}.npy", part)
    np.save(tmp_path / "y.npy", pairs[1].astype(">f8"))
    return str(folder), tmp_path / "y.npy"


@pytest.fixture(autouse=True)
def nothing_stays_in_memory(monkeypatch):
    """As with larger data."""
    monkeypatch.setattr(disk, "MAX_BYTES_IN_MEMORY", 0)


def run(data, steps, **changes):
    arguments = {"step_size": 0.02, "chains": 3, "seed": 5, "progress": False, **changes}
    return strang.sample(strang.models.Logistic(3), data, strang.SGHMC(friction=3.0), steps=steps, **arguments)


def same(one, other):
    first, second = (store.named_leaves(run.chain) for run in (one, other))
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], err_msg=name)


VARIANTS = [
    {"batch_order": "symmetric", "batch_size": BATCH},
    {"batch_order": "iid", "batch_size": BATCH, "replacement": False, "gradient": gradients.svrg(every=50)},
    {"batch_order": "reshuffled", "batch_size": BATCH, "parts": 3},
    {"batch_order": "full"},
]


@pytest.mark.parametrize("changes", VARIANTS, ids=lambda changes: changes["batch_order"])
def test_runs_on_disk_are_runs_in_memory(pairs, paths, tmp_path, monkeypatch, changes):
    """Also when stopped and resumed with other block lengths; full gradients read the files in chunks."""
    monkeypatch.setattr(full, "CHUNK_NUMBERS", 40)
    settings = {name: value for name, value in changes.items() if name in ("gradient", "parts")}
    how = {name: value for name, value in changes.items() if name not in settings}
    if changes["batch_order"] != "symmetric":  # one with averages is enough
        settings["average"] = None
    whole = run(strang.data.arrays(pairs, **how), 600, **settings)
    threads, read = [], Files.read

    def counted(self, request):
        threads.append(threading.current_thread().name)
        return read(self, request)

    monkeypatch.setattr(Files, "read", counted)
    run(strang.data.files(paths, **how), 411, store=tmp_path / "run", every=100, **settings)
    data = strang.data.files(paths, **how)
    resumed = run(data, 600, store=tmp_path / "run", every=250, **settings)
    same(whole, resumed)
    ahead = sum(name.startswith("strang-rows") for name in threads)
    assert ahead > (1000 if "parts" in changes else 3)  # rows are mostly read while the device computes
    assert data.source.max_pending == 2 * changes.get("parts", 1)
    assert 0 <= resumed.waiting <= 1
    assert "waiting for data" in str(resumed)
    assert all(0 <= entry["waiting"] <= 1 for entry in read_series(tmp_path / "run"))
    assert any("waiting for data" in line for line in describe(report(tmp_path / "run")))
    assert whole.waiting is None


@pytest.mark.parametrize("parts", [8, 9, 16])
def test_what_is_read_ahead_is_used(numbers, monkeypatch, parts):
    """Of a run in parts only the first step's rows are read when they are asked for; nothing is read twice."""
    source, threads, read = Files(disk.open_column(numbers)), [], Files.read

    def counted(self, request):
        threads.append(threading.current_thread().name)
        return read(self, request)

    monkeypatch.setattr(Files, "read", counted)
    source.expect(parts, 20)
    for at in range(20 * parts):
        request, ahead = (np.array([number, number // ROWS]) for number in (at, at + parts))
        (rows,) = source.take([request % ROWS], [ahead % ROWS])
        np.testing.assert_array_equal(rows, numbers[request % ROWS])
    source.pool.shutdown()
    ahead = sum(name.startswith("strang-rows") for name in threads)
    assert (len(threads) - ahead, ahead) == (parts, 20 * parts)  # of which the last step's were not needed


def test_many_threads_may_ask_at_once(numbers):
    """As devices do. They get the rows they asked for, whatever is read ahead and dropped again."""
    source, wrong = Files(disk.open_column(numbers)), []

    def ask(first):
        for at in range(first, first + 1500):
            (row,) = source.take([np.array([at % ROWS])], [np.array([(at + 1 + at % 3) % ROWS])])
            if row != numbers[at % ROWS]:
                wrong.append(at)

    threads = [threading.Thread(target=ask, args=(7 * number,)) for number in range(8)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    source.check()
    assert not wrong


@pytest.mark.parametrize("chunk", [40, 1 << 22])
def test_the_potential_and_its_slope_over_all_files(pairs, paths, monkeypatch, chunk):
    """As control variates and the search for their anchor compute them."""
    monkeypatch.setattr(full, "CHUNK_NUMBERS", chunk)
    model, theta = strang.models.Logistic(3), jnp.array([0.3, -1.0, 0.2])
    results = [
        jax.jit(jax.value_and_grad(lambda theta, data: full.full_potential(model, data, theta)))(theta, data)
        for data in (strang.data.files(paths, batch_order="full"), strang.data.arrays(pairs, batch_order="full"))
    ]
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_mapped_arrays_stay_on_disk_and_share_a_compilation(pairs, paths, tmp_path):
    """Sources of one layout are one program to JAX, and yet each run has its own data."""
    np.save(tmp_path / "x.npy", pairs[0])
    mapped = strang.data.arrays((np.load(tmp_path / "x.npy", mmap_mode="r"), pairs[1]), batch_size=BATCH)
    assert mapped.source is not None
    first = run(mapped, 100, average=None)
    compiled = chain.advance_alone._cache_size()
    same(first, run(strang.data.files(paths, batch_size=BATCH), 100, average=None))
    np.save(paths[1], 1 - pairs[1])
    other = run(strang.data.files(paths, batch_size=BATCH), 100, average=None)
    assert chain.advance_alone._cache_size() == compiled
    assert (np.asarray(other.chain.state.position) != np.asarray(first.chain.state.position)).all()


def test_only_changed_files_are_checked_again(pairs, paths, tmp_path, monkeypatch):
    def go_on(steps):
        return run(strang.data.files(paths, batch_size=BATCH), steps, store=tmp_path / "run", average=None)

    go_on(50)
    checked: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr("strang.data.disk.check_numbers", lambda *args: checked.append(args[2]))
        go_on(60)
        assert not checked
        content = paths[1].read_bytes()
        os.utime(paths[1])  # a copy has other times, but the same content
        go_on(70)
        assert len(checked) == 4
    before = paths[1].stat()
    paths[1].write_bytes(content[:-1] + bytes([content[-1] ^ 1]))  # one bit, and the time turned back
    os.utime(paths[1], ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(InputError, match="holds another run: the data differ"):
        go_on(80)
    paths[1].write_bytes(content)
    same(run(strang.data.arrays(pairs, batch_size=BATCH), 80, average=None), go_on(80))


def test_a_file_cut_under_a_run_ends_it_with_an_error(pairs, paths, tmp_path):
    data = strang.data.files(paths, batch_size=BATCH)
    job = strang.sampling.request.prepare(
        strang.models.Logistic(3), data, strang.SGHMC(3.0), step_size=0.02, steps=600, chains=3, average=None
    )
    blocks = run_blocks(job, 100)
    next(blocks)
    os.truncate(paths[1], 300)
    with pytest.raises(InputError, match=r"y.npy was changed while it was in use"):
        list(blocks)
    np.save(paths[1], pairs[1].astype(">f8"))
    again = run(strang.data.files(paths, batch_size=BATCH), 100, average=None)
    same(run(strang.data.arrays(pairs, batch_size=BATCH), 100, average=None), again)


def test_numbers_that_are_not_finite_are_an_error_before_a_run(paths):
    bad = np.load(paths[1])
    bad[50] = np.inf
    np.save(paths[1], bad)
    for start in (
        lambda data: run(data, 10),
        lambda data: next(strang.blocks(None, data, None, step_size=0.1, steps=10)),
    ):
        with pytest.raises(InputError, match=r"y.npy is not finite: inf in row 50"):
            start(strang.data.files(paths, batch_size=BATCH))


@pytest.mark.parametrize("size", [1_000_000, 999_983])
def test_permutations_are_bijections(size):
    salts = random.salts(random.chain_keys(0, 1).batch[0], size)
    sent = jax.jit(lambda i: random.permute(salts, i, size))(jnp.arange(size, dtype=jnp.uint32))
    np.testing.assert_array_equal(np.sort(sent), np.arange(size))


@pytest.mark.parametrize("size", [10**8, 10**8 - 11])
def test_sweeps_of_a_hundred_million_rows(size):
    """Distant batches of a sweep share no rows and are spread over all data; the way back visits the same batches."""
    data = strang.data.Data(jnp.zeros(1), make_order(size, 1000, "symmetric"))
    forth = 503 * np.arange(200)
    l = jnp.asarray(np.concatenate([forth, 2 * data.batch_order.epoch - 1 - forth]), jnp.uint32)[:, None, None]
    rows = np.asarray(
        jax.jit(lambda key: data.batch_order.indices(data.batch_order.salt(key, l), l))(random.chain_keys(3, 1).batch)
    )[:, :, 0]
    there, back = rows[:200], rows[200:]
    np.testing.assert_array_equal(there, back)
    assert len(np.unique(there)) == there.size
    assert there.max() < size
    counts = np.bincount(there.reshape(-1) // (size // 100 + 1), minlength=100)
    assert abs((counts - 2000) ** 2 / 2000).sum() < 99 + 6 * (2 * 99) ** 0.5  # χ², 6 standard deviations


def batches(rows):
    """A loader function of the rows in their order."""
    parts = [rows[at : at + BATCH] for at in range(0, len(rows), BATCH)]
    return lambda start: iter(parts[start % len(parts) :])


def sampled(data, steps, **changes):
    arguments = {"step_size": 0.02, "chains": 3, "seed": 5, "progress": False, "average": None, **changes}
    return strang.sample(strang.models.Gaussian(), data, strang.SGHMC(friction=3.0), steps=steps, **arguments)


def test_a_loader_in_the_order_of_the_data_is_cyclic(numbers, tmp_path):
    """As a function of the batch number, and as a list; each stopped and resumed."""
    cyclic = sampled(strang.data.arrays(numbers, batch_size=BATCH, batch_order="cyclic"), 411)
    made, loader = [], batches(numbers)

    def counted(start):
        made.append(start)
        return loader(start)

    for name, source in (("function", counted), ("list", list(loader(0)))):
        sampled(strang.data.stream(source, size=ROWS, ragged=True), 300, store=tmp_path / name, every=77)
        resumed = sampled(strang.data.stream(source, size=ROWS, ragged=True), 411, store=tmp_path / name)
        np.testing.assert_array_equal(resumed.chain.state.position, cyclic.chain.state.position)
        np.testing.assert_array_equal(resumed.chain.state.momentum, cyclic.chain.state.momentum)
    assert 300 in made  # a function is called with the batch where the run goes on
    with pytest.raises(InputError, match="holds another run: the data differ"):
        sampled(strang.data.stream(batches(numbers + 1), size=ROWS, ragged=True), 500, store=tmp_path / "list")
    assert "if the loader's batches are independent" in str(resumed)


def test_a_loader_may_end_with_the_run(numbers):
    """It has exactly as many batches as there are steps."""
    parts = list(itertools.islice(itertools.cycle(batches(numbers)(0)), 60))[:54]
    whole = [part for part in parts if len(part) == BATCH]
    left = len(whole)
    ends = strang.data.stream(lambda start: iter(whole[start:]), size=ROWS)
    assert sampled(ends, left).steps == left
    with pytest.raises(InputError, match=f"no batch number {left}, also when begun again"):
        sampled(ends, left + 1)
    assert ends.scale == ROWS / BATCH


def test_a_loader_is_not_read_beyond_the_run(numbers):
    """A loader that waits for more batches would keep Python from ending."""
    made = []

    def loader(start):
        for number in itertools.count(start):
            made.append(number)
            yield numbers[:BATCH]

    data = strang.data.stream(loader, size=ROWS)
    run = sampled(data, 300)
    data.source.pool.shutdown()
    assert made == list(range(300))
    run.more(5)  # without a thread, since nothing is to be read ahead
    assert made == list(range(305))


def failing(start):
    for number in itertools.count(start):
        if number == 40:
            raise OSError("the disk is gone")
        yield np.zeros(BATCH, np.float32)


@pytest.mark.parametrize(
    ("loader", "reason"),
    [
        (failing, r"failed at batch number 40 \(OSError: the disk is gone\)"),
        (lambda start: itertools.repeat(np.full(BATCH, np.nan, np.float32)), "batch number 0 is not finite"),
        ([np.zeros(BATCH), np.zeros(BATCH - 1)], "number 1 has shape .6,., not .7,.; write ragged=True"),
        ([np.zeros(BATCH), (np.zeros(BATCH),)], "number 1 has another structure"),
        ([np.array(["a"] * BATCH)], "give arrays of numbers"),
        ([np.zeros(())], "leading axes"),
        ([], "no batch number 0"),
        (iter([]), "cannot be read from the start again"),
        (7, "int cannot be read"),
    ],
)
def test_bad_loaders_are_refused(loader, reason):
    with pytest.raises(InputError, match=reason):
        sampled(strang.data.stream(loader, size=ROWS), 100)


def test_ctrl_c_while_waiting_for_rows(numbers):
    """It ends the run with the steps so far, and a loader that was interrupted is read from the start."""
    epochs = itertools.count(1)

    class Interrupted:
        def __iter__(self):
            interrupted = next(epochs) == 28
            for number, batch in enumerate(batches(numbers)(0)):
                if interrupted and number == 4:
                    raise KeyboardInterrupt
                yield batch

    stopped = sampled(strang.data.stream(Interrupted(), size=ROWS, ragged=True), 600)
    assert stopped.interrupted
    assert 0 < stopped.steps < 600
    ended = stopped.more(600 - stopped.steps)
    cyclic = sampled(strang.data.arrays(numbers, batch_size=BATCH, batch_order="cyclic"), 600)
    np.testing.assert_array_equal(ended.chain.state.position, cyclic.chain.state.position)


def test_what_a_loader_cannot_do(numbers):
    data = strang.data.stream(batches(numbers), size=ROWS, ragged=True)
    for estimator in (gradients.svrg(), gradients.control_variate()):
        with pytest.raises(InputError, match="cannot be gone through at will"):
            sampled(data, 10, gradient=estimator)
    with pytest.raises(InputError, match="size is 0"):
        strang.data.stream(batches(numbers), size=0)


def test_halves_of_a_batch_estimate_the_gradient_variance():
    """Over all batches of two rows, with replacement, the mean is the variance exactly; one row gives no estimate."""
    x, n = np.array([0.3, -1.0, 2.0, 0.7], np.float32), 2
    model, estimator, theta = strang.models.Gaussian(), gradients.minibatch(), jnp.float32(0.4)
    all_batches = [x[list(rows)] for rows in itertools.product(range(4), repeat=n)]
    data = strang.data.stream(all_batches, size=4)
    key = jnp.zeros(2, jnp.uint32)
    measure = jax.jit(lambda l: split_variance(estimator, model, data, (), (), theta, l, key).variance)
    variances = [measure(jnp.uint32(l)) for l in range(len(all_batches))]
    slopes = [4 / n * (theta - rows).sum() for rows in all_batches]
    assert np.mean(variances) == pytest.approx(np.var(slopes), rel=1e-5)
    alone = sampled(strang.data.stream([x[:1]], size=4), 5)
    assert int(alone.chain.measured.sum()) == 0
    assert np.isnan(alone.gradient_noise)
    assert "nan" not in str(alone)


@pytest.mark.parametrize("kind", ["torch", "grain"])
def test_loaders_of_other_libraries(numbers, kind):
    if kind == "torch":
        torch = pytest.importorskip("torch")
        loader = torch.utils.data.DataLoader(torch.as_tensor(numbers), batch_size=BATCH)
    else:
        grain = pytest.importorskip("grain.python")
        loader = grain.MapDataset.source(numbers).batch(BATCH).to_iter_dataset()
    cyclic = sampled(strang.data.arrays(numbers, batch_size=BATCH, batch_order="cyclic"), 100)
    streamed = sampled(strang.data.stream(loader, size=ROWS, ragged=True), 100)
    np.testing.assert_array_equal(streamed.chain.state.position, cyclic.chain.state.position)


def test_the_command_line_takes_data_on_disk(numbers, tmp_path, monkeypatch, capsys):
    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["strang", *map(str, arguments)])
        with pytest.raises(SystemExit):
            main()
        return capsys.readouterr()

    np.save(tmp_path / "x.npy", numbers)
    how = ["--step-size", "0.01", "--chains", 20, "--batch-order", "full", "--json"]
    options = ["sample", "gaussian", "--data", "x.npy", *how, "--store", tmp_path / "run"]
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path)  # it is resumed from another folder
        result = json.loads(command(*options, "--steps", 300).out)
    assert result["data_size"] == ROWS
    assert result["truth"] == pytest.approx(strang.paper.gaussian.truth(strang.models.Gaussian(), numbers))
    assert abs(result["bias"] - result["exact"]["bias"]) < 5 * result["bias_se"]
    more = json.loads(command("resume", tmp_path / "run", "--steps", 100, "--json").out)
    assert more["steps"] == 400
    monkeypatch.setattr(strang.paper.gaussian, "EXACT_ROWS", 10)
    many = json.loads(command("resume", tmp_path / "run", "--json").out)
    assert (many["exact"]["bias"], many["truth"]) == (None, pytest.approx(result["truth"]))
    np.save(tmp_path / "wide.npy", np.zeros((5, 2)))
    assert "one number per row" in command("sample", "gaussian", "--data", tmp_path / "wide.npy", *how).err
