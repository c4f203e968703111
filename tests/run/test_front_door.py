"""What a newcomer meets: signatures that tell everything, errors that say what to write, types that a checker sees."""

import inspect
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import strang
from strang import gradients
from strang.theory.certificate.stationary import imbalance
from strang.util.errors import InputError

PUBLIC = {
    "sample": strang.sample,
    "tune": strang.tune,
    "blocks": strang.blocks,
    "resume": strang.resume,
    "cluster.sample": strang.cluster.sample,
    "glm": strang.glm,
    "lda.fit": strang.lda.fit,
    "sbn.fit": strang.sbn.fit,
    "data.arrays": strang.data.arrays,
    "data.files": strang.data.files,
    "data.stream": strang.data.stream,
    "Stepper": strang.Stepper,
}
BORROWED = ("blocks", "cluster.sample", "Stepper")  # which say that the other arguments are those of sample


@pytest.mark.parametrize("name", PUBLIC)
def test_every_argument_is_typed_and_explained(name):
    parameters = inspect.signature(PUBLIC[name]).parameters
    text = inspect.getdoc(PUBLIC[name]) or ""
    assert not any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters.values())
    assert all(p.annotation is not p.empty for p in parameters.values())
    if name in BORROWED:
        assert "strang.sample" in text + (inspect.getdoc(PUBLIC[name].__init__) or "")
        assert set(parameters) <= {*inspect.signature(strang.sample).parameters, "every", "scheduler", "tasks"}
    else:
        explained = re.findall(r"^    (\w+): ", text, re.MULTILINE)
        assert set(parameters) <= set(explained)
        assert "Returns:" in text
        assert "Raises:" in text


def test_the_public_face_is_what_all_says():
    assert set(strang.__all__) <= set(dir(strang))
    assert {"LDA", "lda", "sample", "Stepper"} <= set(dir(strang))
    for name in strang.__all__:
        assert getattr(strang, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'sampel'"):
        _ = strang.sampel


def chosen(**changes):
    base = {"model": strang.models.Gaussian(), "dynamics": strang.SGHMC(5.0), "step_size": 0.01, "steps": 20}
    base["data"] = strang.data.arrays(np.arange(9.0), batch_size=3)
    return {**base, "progress": False, **changes}


def fails(position):
    raise RuntimeError("no such thing")


@dataclass(frozen=True)
class Unregistered(strang.SGHMC):
    """What JAX has not been told of."""


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"stesp": 3}, "sample has no argument 'stesp'; did you mean steps?"),
        ({"batch_size": 3}, "sample has no argument 'batch_size'"),
        ({"model": None}, "model is None; give a model, such as strang.Model"),
        ({"model": "gaussian"}, "model is 'gaussian'; give a model"),
        ({"model": strang.models.Gaussian}, "model is the class Gaussian; give a model"),
        ({"data": np.zeros(3)}, "the data have no order of batches yet; write strang.data.arrays"),
        ({"data": "x.npy"}, "the data have dtype"),
        ({"tuning": 3}, "tuning is a int; give what strang.tune returned"),
        ({"error": -1}, "error is -1; write a positive number"),
        ({"seconds": "long"}, "seconds is 'long'; write a positive number"),
        ({"error": 0.1}, "error= is for both errors, and the bias is not measured; write coupled=4, say, with it"),
        ({"steps": None}, "steps is missing; write how many steps each chain is to make, or error=0.05, say"),
        ({"dynamics": strang.SGHMC}, "dynamics is the class SGHMC; give an instance, such as strang.SGHMC"),
        ({"dynamics": Unregistered(1.0)}, "JAX does not know the class Unregistered; write @jax.tree_util.register"),
        ({"dynamics": "sghmc"}, "dynamics is 'sghmc'; give an instance"),
        ({"dynamics": strang.SGHMC(None)}, "friction is None; it must be a positive number"),
        ({"dynamics": strang.SGHMC("10")}, "friction is '10'; it must be a number"),
        (
            {"dynamics": strang.SGHMC(1.0, "V")},
            "gradient_noise is 'V'; it must be a number, or one for each coordinate",
        ),
        ({"dynamics": strang.SGHMC(1.0, np.ones(3))}, "gradient_noise has shapes [(3,)]; write one number"),
        ({"gradient": "svrg"}, "gradient is 'svrg'; give an estimator, such as strang.gradients"),
        ({"gradient": gradients.latent()}, "Gaussian has no hidden causes to keep"),
        ({"gradient": gradients.control_variate(np.float32(np.nan))}, "anchor is not finite"),
        ({"average": 3}, "average is 3; give a function of the position, or None"),
        ({"average": fails}, "average fails on a position of shape .* (RuntimeError: no such thing)"),
        ({"init": lambda: 0.0}, "init fails when it is called with a key (TypeError"),
        ({"step_size": lambda l: None}, "step_size fails as a function of the step number"),
        ({"thin": 2**33}, "thin is 8589934592, but there are 20 steps: no position would be kept"),
        ({"chains": 2**40}, "chains is 1099511627776: .* GiB, and this machine has"),
        ({"store": 3}, "store is 3; write the path of a folder"),
        ({"every": 10}, "every says how often to save; write store=FOLDER"),
        (
            {"model": strang.Model(lambda q: jnp.log(q), lambda q, x: 0 * q, jnp.float32(0))},
            "log_prior is not finite at the start of chain 0",
        ),
        (
            {"model": strang.Model(lambda q: 0 * q, lambda q, x: jnp.log(x - 5 + q), jnp.float32(0))},
            "log_likelihood is not finite at the start of chain 0",
        ),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(changes, sentence):
    pattern = re.escape(sentence).replace(r"\.\*", ".*")
    with pytest.raises(InputError, match=pattern) as raised:
        strang.sample(**chosen(**changes))
    assert "\n" not in str(raised.value)


def test_a_certificate_of_a_class_that_is_not_registered_says_so():
    with pytest.raises(InputError, match="JAX does not know the class Unregistered"):
        imbalance(Unregistered)


def plane(**changes):
    """A standard normal in two coordinates, started off its symmetries."""
    model = strang.Model(lambda q: -0.5 * jnp.sum(q * q), lambda q, x: 0.0 * x, init=jnp.array([0.5, 1.5]))
    return strang.sample(**chosen(model=model, step_size=0.05, **changes))


METRICS = [
    (strang.SGRHMC(metric=lambda q: 1.2 + jnp.sum(q * q)), r"metric gives shape \(\) for a position of shape \(2,\)"),
    (strang.SGRHMC(metric=lambda q: {"a": q}), "one 2 x 2 matrix"),
    (strang.SGRHMC(metric=lambda q: -jnp.ones_like(q)), "metric is not positive"),
    (strang.SGRHMC(metric=lambda q: jnp.array([[1.0, 0.5], [0.1, 1.0]])), "metric is not positive"),
    (strang.SGRHMC(metric=lambda q: 1 + q * q, iterations=0), "iterations is 0; write a whole number, at least 1"),
    (strang.SGRLD(inverse_metric=lambda q: 1.0), r"inverse_metric gives shape \(\)"),
    (strang.SGRLD(inverse_metric=lambda q: jnp.full_like(q, 1 / (1 + jnp.sum(q * q)))), "mixes coordinates"),
    (strang.SGRLD(inverse_metric=lambda q: 1 + 0.1 * q[::-1] ** 2), "mixes coordinates"),
]


@pytest.mark.parametrize(("dynamics", "sentence"), METRICS)
def test_a_metric_that_the_code_would_not_honour_is_refused(dynamics, sentence):
    """Run all the same, the first gives a variance of 1.5 instead of 1, and the mixed one of SGRLD 1.35."""
    with pytest.raises(InputError, match=sentence):
        plane(dynamics=dynamics)


@pytest.mark.parametrize(
    "dynamics",
    [
        strang.SGRHMC(metric=lambda q: 1 + jnp.full_like(q, jnp.sum(q * q))),
        strang.SGRHMC(metric=lambda q: (1 + jnp.sum(q * q)) * jnp.eye(2)),
        strang.SGRLD(inverse_metric=lambda q: 1 / (1.2 + 0.4 * q * q)),
        strang.SGRLD(inverse_metric=jnp.ones_like),
        strang.SGRLD(),
    ],
)
def test_metrics_of_the_right_form_are_taken(dynamics):
    assert plane(dynamics=dynamics).steps == 20


def test_what_cannot_be_kept_is_refused(tmp_path):
    with pytest.raises(InputError, match="about cannot be kept"):
        strang.sample(**chosen(store=tmp_path, about={"f": fails}))
    with pytest.raises(InputError, match="every is nan; write a whole number"):
        gradients.svrg(every=float("nan"))


def test_missing_arguments_are_named():
    with pytest.raises(InputError, match="missing a required argument: 'data'; see help"):
        strang.sample(strang.models.Gaussian())


def test_nothing_averaged_is_said():
    run = strang.sample(**chosen(average=None))
    with pytest.raises(InputError, match="the run averaged nothing"):
        _ = run.average


def test_a_run_shows_itself_in_a_line_and_a_table():
    run = strang.sample(**chosen(chains=3, average=lambda q: {"q": q, "square": q**2}))
    line = r"<Run: SGHMC chen:ABOBA, iid batches of 3 of 9: 20 steps of 3 chains in .* steps/s\)>"
    assert re.fullmatch(line, repr(run))
    table = run._repr_html_()
    assert table.count("<tr>") == 3
    assert "<td>square</td>" in table
    assert "temperature" in table


ROOT = Path(__file__).parents[2]
SCRIPT = """
import numpy as np
import strang

data = strang.data.arrays(np.zeros(3), batch_size=1)
run = strang.sample(strang.models.Gaussian(), data, strang.SGHMC(10.0), step_size=0.1, {argument}=10)
reveal_type(run.average)
strang.spell(strang.SGHMC, "chen:ABOBA").order + 1
"""


def test_a_type_checker_sees_the_signature(tmp_path):
    pytest.importorskip("mypy")
    for argument in ("steps", "stesp"):
        (tmp_path / f"{argument}.py").write_text(SCRIPT.format(argument=argument))
    command = [sys.executable, "-m", "mypy"]  # in the project, since lint has filled its cache
    right, wrong = (
        subprocess.run([*command, tmp_path / f"{argument}.py"], cwd=ROOT, capture_output=True, text=True)
        for argument in ("steps", "stesp")
    )
    assert right.returncode == 0, right.stdout
    assert wrong.returncode == 1
    assert 'Unexpected keyword argument "stesp" for "sample"' in wrong.stdout
