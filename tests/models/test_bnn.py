"""Bayesian neural networks and calibration against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import strang
from strang import calibration
from strang.calibration import Bin
from strang.data import images
from strang.gradients.estimators import batch_gradient
from strang.sampling.request import prepare
from strang.sampling.starts import floats
from strang.util.errors import InputError


def test_without_hidden_layers_it_is_softmax_regression():
    """The gradient of U is x (softmax − one-hot) summed over the data, and the prior's."""
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(20, 3)), rng.integers(0, 4, 20)
    model = strang.models.BNN((3, 4), prior_sd=0.7)
    with jax.enable_x64(True):
        w, b = rng.normal(size=(3, 4)), rng.normal(size=4)
        data = strang.data.arrays((x, labels), batch_order="full")
        position = ({"weights": jnp.asarray(w), "biases": jnp.asarray(b)},)
        gradient = jax.jit(lambda position: batch_gradient(model, position, data.get(None, 0), None))(position)
    odds = np.exp(x @ w + b)
    residual = odds / odds.sum(1, keepdims=True) - np.eye(4)[labels]
    np.testing.assert_allclose(gradient[0]["weights"], x.T @ residual + 3 * w / 0.49, rtol=1e-12)
    np.testing.assert_allclose(gradient[0]["biases"], residual.sum(0) + b / 0.49, rtol=1e-12)


def test_the_gradient_of_two_layers_by_differences():
    with jax.enable_x64(True):
        model = strang.models.BNN((3, 5, 2))
        position, direction = jax.jit(lambda: [model.init(jax.random.key(k)) for k in (1, 2)])()
        datum = jnp.array([0.3, -1.0, 2.0]), jnp.int32(1)

        def along(t):
            moved = jax.tree.map(lambda p, d: p + t * d, position, direction)
            return model.log_likelihood(moved, datum) + model.log_prior(moved)

        both = jax.jit(lambda t: (along(t), jax.grad(along)(0.0)))
        (up, exact), (down, _) = both(1e-6), both(-1e-6)
        np.testing.assert_allclose(exact, (up - down) / 2e-6, rtol=1e-7)


@pytest.mark.parametrize("rows", [4, 30])
def test_many_rows_are_as_each_by_itself(rows):
    """Also where rows are more than units, and lie the other way round; with an activation that is not elementwise."""
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        model = strang.models.BNN((3, 5, 4, 2), activation=lambda u: u * jax.nn.softmax(u), output="number")
        position = jax.jit(model.init)(jax.random.key(0))
        data = jnp.asarray(rng.normal(size=(rows, 3))), jnp.asarray(rng.normal(size=rows))

        def each(position):
            return jnp.stack([model.log_likelihood(position, (x, y)) for x, y in zip(*data, strict=True)])

        def together(position):
            return model.batch_log_likelihood(position, data)

        for one, other in zip(*(jax.jit(jax.jacrev(f))(position) for f in (each, together)), strict=True):
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-13), one, other)
        np.testing.assert_allclose(each(position), together(position), rtol=1e-12)


def test_starts_have_the_scale_of_a_prior_with_sd_one():
    """Weights of variance 1/inputs, to five standard errors, whatever the prior."""
    start = jax.jit(strang.models.BNN((400, 100, 10), prior_sd=2.0).init)(jax.random.key(0))
    for layer, inputs in zip(start, (400, 100), strict=True):
        ratio = float((layer["weights"] ** 2).mean()) * inputs
        assert abs(ratio - 1) < 5 * (2 / layer["weights"].size) ** 0.5


def test_prediction_is_the_mean_over_all_draws():
    model, x = strang.models.BNN((3, 4, 2)), np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    draws = jax.jit(jax.vmap(jax.vmap(model.init)))(jax.random.split(jax.random.key(0), (6, 2)))
    draws = jax.tree.map(np.asarray, draws)
    each = np.asarray(jax.jit(jax.vmap(jax.vmap(lambda p: jax.nn.softmax(model.logits(p, x)))))(draws))
    np.testing.assert_allclose(model.predict(draws, x), each.mean((0, 1)), rtol=1e-6)
    one = jax.tree.map(lambda leaf: leaf[3, 1], draws)
    np.testing.assert_allclose(model.predict(one, x), each[3, 1], rtol=1e-6)


def test_a_label_that_is_not_a_class_has_no_likelihood():
    model = strang.models.BNN((2, 3))
    start = ({"weights": np.ones((2, 3), np.float32), "biases": np.zeros(3, np.float32)},)
    values = [jax.jit(model.log_likelihood)(start, (np.ones(2, np.float32), np.int32(k))) for k in (-1, 0, 2, 3)]
    np.testing.assert_array_equal(np.isnan(values), [True, False, False, True])


@pytest.mark.parametrize(("arguments", "text"), [({"widths": (3,)}, "widths"), ({"prior_sd": 0.0}, "prior_sd is 0.0")])
def test_bad_networks_are_refused(arguments, text):
    with pytest.raises(InputError, match=text):
        strang.models.BNN(**{"widths": (2, 3), **arguments})


def test_reliability_by_hand():
    probabilities = [[0.95, 0.05], [0.05, 0.95], [0.55, 0.45], [0.6, 0.4], [1.0, 0.0]]
    bins = calibration.reliability(probabilities, [0, 0, 1, 0, 0], bins=10)
    assert [each.cases for each in bins] == [1, 1, 3]
    np.testing.assert_allclose([each.confidence for each in bins], [0.55, 0.6, 2.9 / 3])
    np.testing.assert_allclose([each.accuracy for each in bins], [0, 1, 2 / 3])
    scored = calibration.score(probabilities, [0, 0, 1, 0, 0], bins=10)
    assert scored.accuracy == 0.6
    np.testing.assert_allclose(scored.ece, (0.55 + 0.4 + 0.9) / 5)
    np.testing.assert_allclose(scored.nll, -np.log([0.95, 0.05, 0.45, 0.6, 1]).mean())


def test_a_calibrated_forecast_has_no_error_and_an_overconfident_one_has():
    """Labels drawn from the forecast itself: the error is of the order of its sampling, 1/sqrt(40000) per bin."""
    rng = np.random.default_rng(0)
    forecast = rng.dirichlet([1, 1, 1], 40_000)
    labels = (rng.random((40_000, 1)) > forecast.cumsum(1)).sum(1)
    assert calibration.score(forecast, labels).ece < 0.01
    sharp = forecast**3 / (forecast**3).sum(1, keepdims=True)
    assert calibration.score(sharp, labels).ece > 0.1
    assert calibration.score(sharp, labels).nll > calibration.score(forecast, labels).nll


@pytest.mark.parametrize(
    ("probabilities", "labels", "text"),
    [
        ([[0.5, 0.5]], [0, 1], "a row and a label per case"),
        ([[2.0, -3.0]], [0], "does not sum to 1"),
        ([[0.5, 0.5]], [2], "from 0 to 1"),
        ([[0.5, 0.5]], [0.5], "whole numbers"),
    ],
)
def test_bad_forecasts_are_refused(probabilities, labels, text):
    with pytest.raises(InputError, match=text):
        calibration.score(probabilities, labels)


def test_bins_are_plain_numbers():
    assert calibration.reliability([[1.0, 0.0]], [0]) == [Bin(1.0, 1.0, 1)]


def test_digits_are_images_with_labels(tmp_path):
    grey = np.arange(24, dtype=np.uint8)
    for part in ("train", "t10k"):
        sizes = np.array([2051, 6, 2, 2], ">u4").tobytes()
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(sizes + grey.tobytes())
        sizes = np.array([2049, 6], ">u4").tobytes()
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(sizes + bytes(range(6)))
    digits = images.digits(tmp_path)
    np.testing.assert_array_equal(digits.train[0].ravel(), np.float32(grey) / 255)
    np.testing.assert_array_equal(digits.test[1], range(6))
    path = tmp_path / "t10k-labels-idx1-ubyte"
    whole = path.read_bytes()
    for wrong in (whole[:-1], whole[:6], np.array([2051, 6], ">u4").tobytes() + bytes(6)):
        path.write_bytes(wrong)
        with pytest.raises(InputError, match="cut short or not an IDX file of labels"):
            images.digits(tmp_path)
    path.write_bytes(np.array([2049, 5], ">u4").tobytes() + bytes(5))
    with pytest.raises(InputError, match="6 t10k images, but 5 labels"):
        images.digits(tmp_path)


class Module:
    """A pytree that can be called, as modules of neural-network libraries are."""

    def __init__(self, *leaves):
        self.leaves = leaves

    def __call__(self, x):
        raise AssertionError("a module is a position, not a function of a key")


jax.tree_util.register_pytree_node(Module, lambda m: (m.leaves, None), lambda _, leaves: Module(*leaves))


def test_a_module_that_can_be_called_is_a_position():
    model = strang.Model(lambda m: -jnp.sum(m.leaves[0] ** 2), lambda m, x: m.leaves[0][0] * x, init=Module(np.ones(2)))
    data = strang.data.arrays(np.ones(3, np.float32), batch_order="full")
    job = prepare(model, data, strang.SGLD(), step_size=0.1, steps=1, chains=3)
    np.testing.assert_array_equal(job.chain.state.position.leaves[0], np.ones((3, 2)))


@pytest.mark.parametrize(
    ("position", "text"),
    [
        ({"a": np.zeros(2, np.float32), "f": jnp.tanh}, r"holds a .* at \['f'\], which cannot be sampled"),
        ({"a": "text"}, r"holds a str at \['a'\]"),
        ({"a": np.zeros(2, int)}, r"dtype int32 at \['a'\]; positions must be floating-point"),
        ((), "holds no numbers"),
    ],
)
def test_errors_name_the_leaf_that_cannot_be_sampled(position, text):
    with pytest.raises(InputError, match=text):
        floats(position)
