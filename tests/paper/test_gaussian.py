"""`strang sample gaussian` agrees with its own exact values for every integrator, schedule and minibatch order.

Each check is two z-scores, of bias and MSE, over 1000 chains. |z| < 4.5 fails by chance once in 150,000; the seeds are
fixed, so a failure stays one.
"""

import itertools

import numpy as np
import pytest

import strang
from strang import schedule
from strang.paper import figure1
from strang.paper import gaussian as experiment
from strang.run.driver import run_blocks

ORDERS = ("iid", "reshuffled", "symmetric", "cyclic", "full")
SHAPES = ("fixed", "decreasing")
# Compiling takes nearly all the time here, so only the default is run with every minibatch order; a word of each other
# alphabet, and steps that are not words, get full gradients, except where both gradients of a step share a batch or the
# step has noise of its own to take out. The Eulers are compared in test_reproduce; certificates test all words.
FULL = ("leimkuhler:BAOA", "ubu:UBU", "quicsort", "opsi4o-mclachlan-splitting")
STEPS = [
    *((strang.SGHMC, word, "full") for word in FULL),
    *((strang.SGHMC, word, "iid") for word in ("nogin", "leimkuhler:BAOAB")),  # nogin with fixed steps, as below
    (strang.SGLD, "averaged-noise", "iid"),
]
CASES = [(strang.SGHMC, "chen:ABOBA", *case) for case in zip(ORDERS, itertools.cycle(SHAPES), strict=False)]
CASES += [(*step, shape) for step, shape in zip(STEPS, itertools.cycle(SHAPES), strict=False)]


def test_every_step_is_compared_with_exact_values():
    compared = {(kind, word) for kind, word, *_ in CASES} | {(strang.SGLD, "euler")}
    compared |= {(strang.SGHMC, word) for word in figure1.EULERS}
    compared |= {(strang.SGHMC, f"opsi4o-{name}") for name in ("yoshida", "mclachlan")}  # other times, the same code
    assert {(kind, name) for kind in (strang.SGHMC, strang.SGLD) for name in kind.steps} <= compared


def z_scores(result):
    return [(result[name] - result["exact"][name]) / result[f"{name}_se"] for name in ("bias", "mse")]


def run(kind, word, batch_order, shape, **changes):
    scale = 0.004 if kind is strang.SGLD else 0.03
    settings = {
        "dynamics": kind,
        "integrator": word,
        "friction": 3.7,
        "step_size": schedule.decreasing(2 * scale, 0.3) if shape == "decreasing" else scale,
        "steps": 333,
        "chains": 1000,
        "batch_order": batch_order,
        "batch_size": 9,
        "data_size": 70,  # ragged: the last batch of a sweep has seven rows
        "data_mean": -0.3,
        "burn_in": 31,
        "seed": 5,
        "init_mean": 0.7,
        "init_var": 0.4,
    }
    return experiment.gaussian(**{**settings, **changes})


@pytest.mark.parametrize(("kind", "word", "batch_order", "shape"), CASES)
def test_simulation_agrees_with_exact_values(kind, word, batch_order, shape):
    result = run(kind, word, batch_order, shape)
    assert result["diverged"] == 0
    assert np.abs(z_scores(result)).max() < 4.5


@pytest.mark.parametrize(
    "changes",
    [
        {"replacement": False, "batch_size": 40, "dtype": "float64"},
        {"gradient": "control-variate"},
        {"gradient": "svrg"},
        {"gradient_noise": 70**2 / 9, "friction": 9.0},
        {"gradient_noise": 70**2 / 9, "friction": 9.0, "word": "nogin"},
        {"batch_size": 1, "init_var": 0.0},
    ],
)
def test_options_agree_with_exact_values(changes):
    asked = {"kind": strang.SGHMC, "word": "chen:ABOBA", "batch_order": "iid", "shape": "fixed", **changes}
    result = run(**asked)
    assert np.abs(z_scores(result)).max() < 4.5


def test_the_check_can_fail():
    """A friction that differs from the exact calculation's by a third is detected."""
    right = run(strang.SGHMC, "chen:ABOBA", "iid", "fixed")
    other = run(strang.SGHMC, "chen:ABOBA", "iid", "fixed", friction=3.7 * 1.33)
    assert np.abs(z_scores({**right, "exact": other["exact"]})).max() > 4.5


def test_after_ctrl_c_the_exact_values_are_those_of_the_steps_made(monkeypatch):
    settings = {"kind": strang.SGHMC, "word": "chen:ABOBA", "batch_order": "full", "shape": "fixed"}
    short = run(**settings, steps=64)

    def interrupted(job, *_):
        yield next(iter(run_blocks(job, 64)))
        raise KeyboardInterrupt

    monkeypatch.setattr(strang.run.driver, "run_blocks", interrupted)
    result = run(**settings)
    assert (result["steps"], result["interrupted"], short["interrupted"]) == (64, True, False)
    assert result["exact"] == short["exact"]
    assert "steps/s), interrupted" in experiment.describe(result)[0]
    early = run(**settings, burn_in=64)
    assert early["exact"] == {"bias": None, "mse": None}
    assert "no exact value: no step was averaged" in "\n".join(experiment.describe(early))


def test_uneven_or_very_many_batches_have_no_exact_value(monkeypatch):
    sweep = {"kind": strang.SGHMC, "word": "chen:ABOBA", "batch_order": "cyclic", "shape": "decreasing"}
    uneven = run(**sweep, gradient="svrg")
    assert uneven["exact"] == {"bias": None, "mse": None}
    assert "uneven batches" in "\n".join(experiment.describe(uneven))
    assert run(**sweep)["exact"]["bias"] is not None
    monkeypatch.setattr(experiment, "EXACT_BATCHES", 2)
    assert run(**sweep)["exact"]["bias"] is None


def test_a_thermostat_has_no_exact_value():
    result = run(strang.SGNHT, None, "iid", "fixed", friction=9.0)
    assert result["exact"] == {"bias": None, "mse": None}
    assert result["diverged"] == 0


def test_the_description_names_the_stability_limit():
    result = run(strang.SGHMC, "chen:ABOBA", "iid", "fixed", step_size=1.0)
    assert result["diverged"] == 1000
    assert "chen:ABOBA is stable below" in "\n".join(experiment.describe(result))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"gradient": "exact"}, "choose one of: minibatch, control-variate, svrg"),
        ({"dtype": "int8"}, "choose one of: float32, float64"),
        ({"init_var": -1.0}, "not negative"),
        ({"data_size": 1}, "two data at least"),
        ({"gradient_noise": -1.0}, "a variance is not negative"),
        ({"gradient_noise": 1e9}, "gradient_noise 1e.09 is more than"),
        ({"dynamics": strang.SGRHMC}, "needs a metric"),
        ({"tasks": 2, "parts": 3}, "leave out --store, --every and --parts"),
        ({"tasks": 2, "every": 100}, "leave out --store, --every and --parts"),
        ({"dynamics": strang.SGLD, "integrator": None, "gradient_noise": 1.0}, "sgld has no gradient noise"),
    ],
)
def test_bad_settings_are_refused(changes, text):
    with pytest.raises(strang.InputError, match=text):
        run(strang.SGHMC, "chen:ABOBA", "iid", "fixed", **changes)
