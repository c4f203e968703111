"""The command line: JSON on standard output, one sentence and status 2 for bad input."""

import json
import subprocess
import sys

import numpy as np
import pytest

from command_line import call
from strang.lda.text.prepare import prepare

SMALL = ("sample", "gaussian", "--steps", "200", "--chains", "10", "--step-size", "0.001")


def test_sample_prints_one_json_object(capsys):
    status, out, _ = call(capsys, *SMALL, "--json")
    assert status == 0
    result = json.loads(out)
    keys = "bias bias_se mse mse_se mean truth exact diverged kinetic_temperature gradient_noise seconds"
    assert {*keys.split(), "steps_per_second"} <= set(result)
    assert set(result["exact"]) == {"bias", "mse"}
    assert result["truth"] == pytest.approx((500 / 1001) ** 2 + 1 / 1001, rel=1e-6)


def test_numbers_that_are_not_finite_are_null(capsys):
    status, out, _ = call(capsys, *SMALL[:-1], "1.0", "--json")
    assert status == 0
    result = json.loads(out)
    assert result["diverged"] == 10
    assert result["bias"] is None
    assert result["exact"]["bias"] is None


def test_people_read_lines(capsys):
    status, out, _ = call(capsys, *SMALL)
    assert status == 0
    assert "standard errors off" in out


def test_schedules_by_scale_and_alpha(capsys):
    options = ("sample", "gaussian", "--steps", "1000", "--chains", "5", "--scale", "0.033", "--alpha", "0.3333333333")
    fixed = json.loads(call(capsys, *options, "--json")[1])
    plain = json.loads(call(capsys, *options[:6], "--step-size", "0.0033", "--json")[1])
    assert fixed["exact"]["bias"] == pytest.approx(plain["exact"]["bias"], rel=1e-6)
    falling = json.loads(call(capsys, *options, "--schedule", "decreasing", "--json")[1])
    assert falling["exact"]["bias"] != pytest.approx(plain["exact"]["bias"], rel=1e-3)


def test_order_in_json(capsys):
    status, out, _ = call(capsys, "order", "leimkuhler:BAOAB", "--json")
    assert status == 0
    result = json.loads(out)
    mismatch = result.pop("mismatch")
    assert result.pop("density_imbalance") < 1e-12
    assert result == {
        "integrator": "leimkuhler:BAOAB",
        "dynamics": "sghmc",
        "batches": "full",
        "weak_order": 2,
        "invariant_order": "exact",
        "gradients_per_step": 2,
    }
    assert max(mismatch[:2]) < 1e-10 < 1e-4 < mismatch[2]


def test_integrators_are_listed(capsys):
    status, out, _ = call(capsys, "integrators", "--json")
    assert status == 0
    rows = {row["integrator"]: row for row in json.loads(out)["integrators"]}
    assert rows["chen:ABOBA"]["stability_limit"] == pytest.approx(0.0648694477, rel=1e-6)
    assert rows["quicsort"]["order"] == 3
    assert abs(rows["leimkuhler:BAOAB"]["variance_bias"]) < 1e-12


def test_a_scheme_that_cannot_be_resolved_has_a_minus_and_the_others_their_numbers(capsys):
    status, out, _ = call(capsys, "integrators", "--friction", "1e-13", "--step-size", "0.001")
    assert status == 0
    rows = {line.split()[0]: line.split()[3:] for line in out.splitlines()[2:]}
    assert rows["chen:ABOBA"][1:] == ["-", "-"]
    assert float(rows["chen:ABOBA"][0]) == pytest.approx(0.0632, rel=1e-3)
    assert rows["euler-old"][1:] == ["explodes", "explodes"]


@pytest.mark.parametrize("dynamics", ["sgld", "sgnht", "sgrhmc"])
def test_integrators_of_every_dynamics(capsys, dynamics):
    status, out, _ = call(capsys, "integrators", "--dynamics", dynamics)
    assert status == 0
    assert len(out.splitlines()) > 3


def test_rates(capsys):
    status, out, _ = call(capsys, "rates", "--order", "2", "--json")
    assert status == 0
    assert json.loads(out)["bias"]["alpha"] == pytest.approx(1 / 3)
    noisy = json.loads(call(capsys, "rates", "--order", "2", "--noise", "--json")[1])
    assert (noisy["effective_order"], noisy["mse"]["alpha"]) == (1, pytest.approx(1 / 3))


@pytest.mark.parametrize("arguments", [(), ("lda",)])
def test_nothing_asked_for_shows_the_help_alone(capsys, arguments):
    status, out, err = call(capsys, *arguments)
    assert (status, err) == (2, "")
    assert "Usage" in out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("order", "ABOBA"), "write 'chen:ABOBA'"),
        (("order", "chen:AB"), "never applies O"),
        (("order", "chen:ABOBA", "--dynamics", "hmc"), "choose one of: sghmc, sgld, sgnht, sgrhmc"),
        (("order", "chen:ABOBA", "--batch-order", "some"), "choose one of"),
        (("rates", "--order", "0"), "order"),
        (("sample", "cauchy"), "Choose one of: gaussian"),
        (("sampel",), "Choose one of"),
        ((*SMALL[:-1], "-0.1"), "must be a positive number"),
        ((*SMALL, "--chains", "0"), "chains is 0"),
        ((*SMALL, "--batch-size", "5000"), "there are 1000 rows"),
        ((*SMALL, "--steps", "many"), "Invalid value for '--steps'"),
        ((*SMALL, "--scale", "1"), "write either --step-size H"),
        ((*SMALL, "--dtype", "complex64"), "choose one of: float32, float64"),
        ((*SMALL, "--integrator", "euler"), "euler-old"),
        (("reproduce", "fig99"), "choose one of: fig1"),
        (("reproduce", "fig1", "--out", "/proc/nowhere"), "cannot write or read /proc/nowhere"),
        ((*SMALL, "--seed", "-1"), "seed is -1"),
        ((*SMALL, "--friction", "inf"), "must be a positive number"),
        ((*SMALL, "--gradient-noise", "nan"), "a variance is not negative"),
        (("integrators", "--friction", "nan"), "must be positive"),
    ],
)
def test_bad_input_ends_with_2_and_one_sentence(capsys, tmp_path, monkeypatch, arguments, text):
    monkeypatch.chdir(tmp_path)
    status, out, err = call(capsys, *arguments)
    assert status == 2
    assert out == ""
    assert text in err
    assert err.startswith("strang: ")
    assert len(err.strip().splitlines()) == 1


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A network, its pictures, a corpus and its topics, all small."""
    folder = tmp_path_factory.mktemp("small")
    rng = np.random.default_rng(0)
    np.savez(folder / "pictures.npz", train=rng.integers(0, 2, (40, 4)), test=rng.integers(0, 2, (20, 4)))
    np.savez(folder / "net.npz", W=np.zeros((4, 2)), b=np.zeros(2), c=np.zeros(4))
    np.savez(folder / "counts.npz", indptr=np.arange(0, 121, 6), indices=np.tile(np.arange(6), 20), counts=np.ones(120))
    (folder / "words.txt").write_text("".join(f"word{n}\n" for n in range(6)))
    prepare(folder / "counts.npz", folder / "corpus", vocabulary=folder / "words.txt", progress=False)
    np.save(folder / "topics.npy", np.full((6, 2), 1 / 6))
    return folder


LARGE, HUGE = str(10**18), str(10**23)
BASES = {
    "gaussian": "sample gaussian --step-size 0.001 --steps 20 --chains 3",
    "net": "sbn fit --store {0}/run --data {0}/pictures.npz --steps 4 --batch-size 10 --validation 5",
    "score": "sbn score {0}/net.npz --data {0}/pictures.npz",
    "topics": "lda fit {0}/corpus --store {0}/fit --topics 2 --test-documents 5",
    "completion": "lda score {0}/topics.npy {0}/corpus --words 3",
    "corpus": "lda prepare {0}/counts.npz {0}/again --vocabulary {0}/words.txt",
}
ABSURD = {
    "gaussian": ["--steps", "--chains", "--seed", "--data-size", "--burn-in", "--thin", "--parts"],
    "net": ["--steps", "--hidden", "--chains", "--seed", "--sweeps", "--parts", "--validation"],
    "score": ["--images", "--particles", "--temperatures", "--seed"],
    "topics": ["--topics", "--sweeps", "--seed", "--passes", "--test-documents", "--parts"],
    "completion": ["--test-documents", "--sweeps", "--words", "--every"],
    "corpus": ["--workers"],
}


@pytest.mark.parametrize("value", [LARGE, HUGE, "0"])
@pytest.mark.parametrize(("base", "option"), [(base, option) for base, options in ABSURD.items() for option in options])
def test_absurd_numbers_end_in_one_sentence(capsys, small, base, option, value):
    """They gave tracebacks, an abort inside XLA, or runs without end."""
    if (option == "--seed" and value == LARGE) or (value == "0" and option in ("--seed", "--burn-in", "--validation")):
        return  # which are fine
    status, _, error = call(capsys, *BASES[base].format(small).split(), option, value)
    assert status == 2
    assert error.startswith("strang: ")
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("command", ["sample gaussian --step-size 0.001 --data-size", "sbn fit --store no --hidden"])
def test_the_memory_that_it_would_take_is_given(capsys, small, command):
    extra = ["--data", f"{small}/pictures.npz", "--validation", "5"] if command.startswith("sbn") else []
    assert "GiB, and this machine has" in call(capsys, *command.split(), LARGE, *extra)[2]


def test_help_does_without_jax_and_numba():
    code = "import sys; import strang.cli; print({'jax', 'numba', 'scipy', 'matplotlib'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
