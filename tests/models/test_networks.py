"""Networks of Flax NNX and Equinox as models, against the networks themselves and models written by hand."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import strang
from strang.gradients.estimators import batch_gradient
from strang.models.networks import from_equinox, from_nnx
from strang.sampling.starts import first_positions
from strang.util import random
from strang.util.errors import InputError
from strang.util.trees import names_of

eqx = pytest.importorskip("equinox")
nnx = pytest.importorskip("flax.nnx")


class Perceptron(nnx.Module):
    """3 inputs, 5 hidden units, 4 classes."""

    def __init__(self, rngs, dtype=jnp.float32):
        widths = ((3, 5), (5, 4))
        self.layers = nnx.List([nnx.Linear(*width, param_dtype=dtype, rngs=rngs) for width in widths])
        self.calls = nnx.Variable(jnp.int32(0))

    def __call__(self, x):
        return self.layers[1](jnp.tanh(self.layers[0](x)))


class Blocks(nnx.Module):
    """What behaves in another way when a network is trained."""

    def __init__(self, rngs, *, rate=0.5, training=False):
        self.linear = nnx.Linear(3, 4, rngs=rngs)
        self.norm = nnx.BatchNorm(4, use_running_average=not training, rngs=rngs)
        self.drop = nnx.Dropout(rate, deterministic=not training, rngs=rngs)

    def __call__(self, x, **flags):
        return self.drop(self.norm(self.linear(x)), **flags)


class EquinoxBlocks(eqx.Module):
    linear: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    drop: eqx.nn.Dropout

    def __init__(self, rate=0.5):
        self.linear = eqx.nn.Linear(3, 4, key=jax.random.key(0))
        self.norm = eqx.nn.BatchNorm(4, "batch", mode="batch")
        self.drop = eqx.nn.Dropout(rate)

    def __call__(self, x, state):
        return self.drop(self.norm(self.linear(x), state)[0])


def class_density(net, row):
    return jax.nn.log_softmax(net(row[0]))[row[1]]


def total(net, x):
    return jnp.sum(net(x))


def perceptron(**settings):
    return Perceptron(nnx.Rngs(0), **settings)


def equinox_perceptron(key=0):
    return eqx.nn.MLP(3, 4, width_size=5, depth=1, activation=jnp.tanh, key=jax.random.key(key))


def deviations(model):
    """The standard deviation of each array's prior, if it is the same throughout: from the curvature of log_prior."""
    slope = jax.jit(jax.grad(model.log_prior))
    up, here = slope(jax.tree.map(lambda x: np.asarray(x) + 1, model.init)), slope(model.init)
    return jax.tree.map(lambda a, b: float(np.mean((np.asarray(b) - np.asarray(a)) ** -0.5)), up, here)


def means(model):
    """Where each array's prior is largest."""
    slope, sd = jax.jit(jax.grad(model.log_prior))(model.init), deviations(model)
    return jax.tree.map(lambda x, g, sd: float(np.mean(np.asarray(x) + sd**2 * np.asarray(g))), model.init, slope, sd)


@pytest.mark.parametrize("library", ["nnx", "equinox"])
def test_the_gradient_is_that_of_a_network_written_by_hand(library):
    """`BNN` has the same prior, and weights of (inputs, outputs)."""
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(20, 3)), rng.integers(0, 4, 20)
    by_hand = strang.models.BNN((3, 5, 4), prior_sd=0.7)
    with jax.enable_x64(True):
        if library == "nnx":
            model, weights, turn = (
                from_nnx(perceptron(dtype=jnp.float64), class_density, prior=0.7),
                "kernel",
                np.asarray,
            )
        else:
            model, weights, turn = from_equinox(equinox_perceptron(), class_density, prior=0.7), "weight", np.transpose
        batch = strang.data.arrays((x, labels), batch_order="full").get(None, 0)
        found = jax.jit(lambda position: batch_gradient(model, position, batch, None))(model.init)["layers"]
        layers = model.init["layers"]
        start = tuple({"weights": turn(layers[k][weights]), "biases": layers[k]["bias"]} for k in range(2))
        wanted = jax.jit(lambda position: batch_gradient(by_hand, position, batch, None))(start)
    for k, layer in enumerate(wanted):
        np.testing.assert_allclose(turn(found[k][weights]), layer["weights"], rtol=1e-9)
        np.testing.assert_allclose(found[k]["bias"], layer["biases"], rtol=1e-9)


@pytest.mark.parametrize(("make", "net"), [(from_nnx, perceptron()), (from_equinox, equinox_perceptron())])
def test_the_likelihood_is_what_the_module_gives(make, net):
    model, x = make(net, class_density), jnp.array([0.3, -1.0, 2.0])
    np.testing.assert_array_equal(model.log_likelihood(model.init, (x, 2)), jax.nn.log_softmax(net(x))[2])
    np.testing.assert_array_equal(model.module(model.init)(x), net(x))
    doubled = jax.tree.map(lambda leaf: 2 * leaf, model.init)
    assert not np.allclose(model.module(doubled)(x), net(x))
    assert jax.tree.all(jax.tree.map(jnp.array_equal, model.position(model.module(doubled)), doubled))


@pytest.mark.parametrize(("make", "net"), [(from_nnx, perceptron()), (from_equinox, equinox_perceptron())])
def test_many_rows_at_once_are_the_rows_one_by_one(make, net):
    def densities(net, rows):
        outputs = (net if make is from_nnx else jax.vmap(net))(rows[0])
        return jnp.take_along_axis(jax.nn.log_softmax(outputs), rows[1][:, None], 1)[:, 0]

    rng = np.random.default_rng(0)
    rows = jnp.asarray(rng.normal(size=(6, 3)), jnp.float32), jnp.asarray(rng.integers(0, 4, 6))
    many, one = make(net, batch_log_likelihood=densities), make(net, class_density)
    wanted = [one.log_likelihood(one.init, (x, label)) for x, label in zip(*rows, strict=True)]
    np.testing.assert_allclose(many.batch_log_likelihood(many.init, rows), wanted, rtol=1e-6)
    np.testing.assert_allclose(many.log_likelihood(many.init, (rows[0][2], rows[1][2])), wanted[2], rtol=1e-6)


def test_later_changes_of_the_module_do_not_change_the_model():
    net, x = Blocks(nnx.Rngs(0)), jnp.array([0.3, -1.0, 2.0])
    model = from_nnx(net, total)
    before = model.log_likelihood(model.init, x)
    net.linear.kernel[...] = jnp.zeros((3, 4))
    net.norm.mean[...] = jnp.ones(4)
    net.train()
    np.testing.assert_array_equal(model.log_likelihood(model.init, x), before)
    assert float(jnp.abs(model.init["linear"]["kernel"]).max()) > 0


def test_what_is_not_a_float_parameter_stays():
    net = perceptron()
    net.table = nnx.Param(jnp.arange(3))
    model = from_nnx(net, lambda net, x: jnp.sum(net(x)) * net.table[1])
    assert model.init.keys() == {"layers"}
    assert jnp.isfinite(model.log_likelihood(model.init, jnp.ones(3)))


def test_tied_parameters_are_one():
    net = perceptron()
    net.again = net.layers[0]
    model = from_nnx(net, lambda net, x: jnp.sum(net.again(x) - net.layers[0](x)))
    assert model.init["layers"].keys() == {1}
    assert float(model.log_likelihood(jax.tree.map(lambda x: 3 * x, model.init), jnp.ones(3))) == 0


def test_names():
    names = names_of(from_nnx(perceptron(), total).init)
    assert [names[0], names[5], names[-1]] == ["layers.0.bias[0]", "layers.0.kernel[0,0]", "layers.1.kernel[4,3]"]
    names = names_of(from_equinox(equinox_perceptron(), total).init)
    assert [names[0], names[5], names[-1]] == ["layers.0.bias[0]", "layers.0.weight[0,0]", "layers.1.weight[3,4]"]


def test_a_number_is_divided_by_the_root_of_the_inputs():
    found = deviations(from_nnx(perceptron(), total, prior=2.0))["layers"]
    np.testing.assert_allclose([found[0]["kernel"], found[1]["kernel"]], [2 / 3**0.5, 2 / 5**0.5], rtol=1e-4)
    np.testing.assert_allclose([found[0]["bias"], found[1]["bias"]], 2, rtol=1e-4)


def test_the_longest_part_of_a_name_counts():
    prior = {"kernel": 0.3, "layers/0/kernel": 0.7, "*": 3.0}
    found = deviations(from_nnx(perceptron(), total, prior=prior))["layers"]
    wanted = {0: {"bias": 3.0, "kernel": 0.7}, 1: {"bias": 3.0, "kernel": 0.3}}
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), found, wanted)
    found = deviations(from_equinox(equinox_perceptron(), total, prior={"layers.1.weight": 0.7}))["layers"]
    wanted = {0: {"bias": 1.0, "weight": 3**-0.5}, 1: {"bias": 1.0, "weight": 0.7}}  # the default for what nothing fits
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), found, wanted)


def test_a_function_gives_a_standard_deviation_or_one_for_each_number():
    columns = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
    model = from_nnx(
        perceptron(), total, prior=lambda name, array: columns if name == "layers.0.kernel" else array.ndim
    )
    zero = jax.tree.map(jnp.zeros_like, model.init)
    one = {"layers": {**zero["layers"], 0: {"bias": zero["layers"][0]["bias"], "kernel": jnp.ones((3, 5))}}}
    difference = model.log_prior(zero) - model.log_prior(one)
    np.testing.assert_allclose(difference, 3 * (columns**-2).sum() / 2, rtol=1e-6)
    assert deviations(model)["layers"][1] == pytest.approx({"bias": 1, "kernel": 2}, rel=1e-4)


def test_scales_of_normalisation_layers_have_mean_one():
    """Also where training has moved them."""
    net = nnx.Sequential(nnx.LayerNorm(3, rngs=nnx.Rngs(0)), nnx.Linear(3, 2, rngs=nnx.Rngs(0)))
    net.layers[0].scale[...] = jnp.full(3, 1.7)
    found = means(from_nnx(net, total))["layers"]
    assert found[0] == pytest.approx({"bias": 0, "scale": 1}, abs=1e-4)
    assert found[1] == pytest.approx({"bias": 0, "kernel": 0}, abs=1e-4)
    net = eqx.nn.Sequential([eqx.nn.LayerNorm((2, 3)), eqx.nn.Linear(3, 2, key=jax.random.key(0))])
    model = from_equinox(net, total)
    assert means(model)["layers"][0] == pytest.approx({"bias": 0, "weight": 1}, abs=1e-4)
    assert means(model)["layers"][1] == pytest.approx({"bias": 0, "weight": 0}, abs=1e-4)
    assert deviations(model)["layers"][0] == pytest.approx({"bias": 1, "weight": 1}, rel=1e-4)


def many(make, library):
    """Three layers in one, as scanned networks have them."""
    mapped = nnx.vmap(make) if library is nnx else eqx.filter_vmap(make)
    return mapped(jax.random.split(jax.random.key(0), 3))


RNGS, KEY = nnx.Rngs(0), jax.random.key(0)


@pytest.mark.parametrize(
    ("make", "module", "place", "inputs"),
    [
        (from_nnx, nnx.Conv(4, 6, (3, 5), feature_group_count=2, rngs=RNGS), "kernel", 3 * 5 * 2),
        (from_nnx, nnx.LinearGeneral((2, 3), (4, 5), axis=(-2, -1), rngs=RNGS), "kernel", 6),
        (from_nnx, nnx.LinearGeneral((2, 3), (4, 5), axis=(-2, -1), rngs=RNGS), "bias", 1),
        (from_nnx, nnx.MultiHeadAttention(2, 6, rngs=RNGS), "query.kernel", 6),
        (from_nnx, nnx.Embed(10, 4, rngs=RNGS), "embedding", 1),
        (from_nnx, nnx.PReLU(), "negative_slope", 1),
        (from_nnx, many(lambda key: nnx.Linear(2, 5, rngs=nnx.Rngs(key)), nnx), "kernel", 2),
        (from_equinox, eqx.nn.Conv2d(4, 6, 3, groups=2, key=KEY), "weight", 9 * 2),
        (from_equinox, eqx.nn.Conv2d(4, 6, 3, key=KEY), "bias", 1),
        (from_equinox, eqx.nn.Embedding(10, 4, key=KEY), "weight", 1),
        (from_equinox, eqx.nn.LSTMCell(2, 3, key=KEY), "weight_hh", 3),
        (from_equinox, eqx.nn.MultiheadAttention(2, 4, key=KEY), "query_proj.weight", 4),
        (from_equinox, many(lambda key: eqx.nn.Linear(2, 5, key=key), eqx), "weight", 2),
    ],
)
def test_the_inputs_of_a_layer(make, module, place, inputs):
    found = deviations(make(module, total))
    for key in place.split("."):
        found = found[key]
    np.testing.assert_allclose(found, inputs**-0.5, rtol=1e-4)


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (
            Blocks(nnx.Rngs(0), rate=0.0, training=True),
            r"norm is a BatchNorm in training mode, which changes .* write module.eval",
        ),
        (nnx.Sequential(nnx.Linear(3, 4, rngs=RNGS), nnx.Dropout(0.5, rngs=RNGS)), r"layers.1 is a Dropout .* random"),
        (nnx.MultiHeadAttention(2, 4, dropout_rate=0.1, deterministic=False, rngs=RNGS), "needs random numbers"),
    ],
)
def test_training_mode_is_refused_and_evaluation_mode_is_not(module, text):
    with pytest.raises(InputError, match=text):
        from_nnx(module, total)
    module.eval()
    from_nnx(module, total)


def test_dropout_that_drops_nothing_is_no_obstacle():
    net = Blocks(nnx.Rngs(0), rate=0.0)
    net.drop.deterministic = False
    from_nnx(net, total)
    from_equinox(eqx.nn.MultiheadAttention(2, 4, key=KEY), total)  # which has one


def test_batch_statistics_are_frozen():
    net, x = Blocks(nnx.Rngs(0)), jnp.array([0.3, -1.0, 2.0])
    net.norm.mean[...], net.norm.var[...] = jnp.arange(4.0), jnp.full(4, 4.0)
    model = from_nnx(net, total)
    assert model.init["norm"].keys() == {"bias", "scale"}
    np.testing.assert_allclose(
        model.log_likelihood(model.init, x), jnp.sum((net.linear(x) - jnp.arange(4)) / 2), rtol=1e-4
    )


def test_equinox_layers_with_a_state():
    net, state = eqx.nn.make_with_state(EquinoxBlocks)()
    for module, text in (
        (net, "norm is a BatchNorm .* state"),
        (eqx.nn.Sequential([net.drop]), "is a Dropout .* random"),
    ):
        with pytest.raises(InputError, match=rf"{text}.*; write module = eqx.nn.inference_mode\(module\) first"):
            from_equinox(module, total)
    net, x = eqx.nn.inference_mode(net), jnp.array([0.3, -1.0, 2.0])
    model = from_equinox(net, lambda net, x: jnp.sum(net(x, state)))
    assert model.init["norm"].keys() == {"bias", "weight"}
    np.testing.assert_allclose(model.log_likelihood(model.init, x), jnp.sum(net(x, state)))
    bare = from_equinox(eqx.nn.inference_mode(EquinoxBlocks()), total)  # which still has the start of its state
    assert bare.init["norm"].keys() == {"bias", "weight"}


def test_training_mode_in_the_call_is_refused():
    net, data = Blocks(nnx.Rngs(0)), strang.data.arrays(np.ones((4, 3), np.float32), batch_order="full")
    calls = {
        "uses random numbers": lambda net, x: jnp.sum(net(x, deterministic=False)),
        "changes its batch statistics": lambda net, x: jnp.sum(
            net.norm(net.linear(x)[None], use_running_average=False)
        ),
    }
    for text, function in calls.items():
        with pytest.raises(InputError, match=f"the module {text} when it is called; write module.eval"):
            strang.sample(from_nnx(net, function), data, strang.SGHMC(), step_size=0.1, steps=1)


def test_random_numbers_that_are_drawn_and_not_used_are_no_obstacle():
    """Recurrent layers draw some for their start, which is 0."""
    net, x = nnx.RNN(nnx.LSTMCell(2, 3, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(1)), jnp.ones((1, 4, 2))
    model = from_nnx(net, total)
    np.testing.assert_allclose(jax.jit(model.log_likelihood)(model.init, x), jnp.sum(net(x)), rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "module", "text"),
    [
        (from_nnx, Perceptron, r"the class Perceptron; give an instance, such as Network\(rngs=nnx.Rngs\(0\)\)"),
        (from_nnx, equinox_perceptron(), "write from_equinox for a module of Equinox"),
        (from_nnx, {"weights": 1.0}, "module is a dict; give an instance of nnx.Module"),
        (from_nnx, nnx.Dropout(0.5, deterministic=True), "has no parameters"),
        (from_equinox, eqx.nn.Linear, "the class Linear; give an instance"),
        (from_equinox, perceptron(), "write from_nnx for a module of Flax"),
        (from_equinox, None, "module is a NoneType; give an instance of eqx.Module"),
        (from_equinox, eqx.nn.Lambda(jnp.tanh), "has no parameters"),
    ],
)
def test_wrong_modules_are_refused(make, module, text):
    with pytest.raises(InputError, match=text):
        make(module, total)


def test_modules_of_linen_are_told_the_way():
    linen = pytest.importorskip("flax.linen")
    with pytest.raises(InputError, match=r"for Flax Linen, write from_nnx\(nnx.bridge.ToNNX"):
        from_nnx(linen.Dense(4), total)
    x = jnp.ones((1, 3))
    model = from_nnx(nnx.bridge.ToNNX(linen.Dense(4), rngs=nnx.Rngs(0)).lazy_init(x), total)
    assert jnp.isfinite(model.log_likelihood(model.init, x[0]))


@pytest.mark.parametrize(
    ("prior", "text"),
    [
        (0.0, "prior is 0.0; write a positive number, or a dict or a function"),
        ("wide", "prior is 'wide'"),
        (np.ones(2), "prior is array"),
        (
            {"kernal": 1.0},
            "prior has 'kernal', which is no part of a name; the names are layers.0.bias, layers.0.kernel",
        ),
        ({"kern": 1.0}, "'kern', which is no part of a name"),
        ({"kernel": -1.0}, "prior of layers.0.kernel is -1.0; write a positive number"),
        ({"*": None}, "prior of layers.0.bias is None"),
        (
            {"0": 1.0, "kernel": 2.0},
            "prior has '0' and 'kernel', and both fit layers.0.kernel; write 'layers.0.kernel'",
        ),
        (lambda name, array: np.ones(7), r"prior of layers.0.bias is .* that fits its shape \(5,\)"),
        (lambda name, array: np.nan, "prior of layers.0.bias is nan"),
    ],
)
def test_wrong_priors_are_refused(prior, text):
    with pytest.raises(InputError, match=text):
        from_nnx(perceptron(), total, prior=prior)


def test_wrong_likelihoods_and_starts_are_refused():
    with pytest.raises(InputError, match="log_likelihood is of type int; give a function of"):
        from_nnx(perceptron(), 3)
    with pytest.raises(InputError, match="log_likelihood, or batch_log_likelihood"):
        from_equinox(equinox_perceptron())
    with pytest.raises(InputError, match="other arrays than the one"):
        from_nnx(perceptron(), total).position(nnx.Linear(2, 3, rngs=nnx.Rngs(0)))


def test_half_precision_is_refused_by_sample():
    model, data = (
        from_nnx(perceptron(dtype=jnp.bfloat16), total),
        strang.data.arrays(np.ones((4, 3)), batch_order="full"),
    )
    with pytest.raises(InputError, match=r"bfloat16 at \['layers'\]\[0\]\['bias'\], in which small steps"):
        strang.sample(model, data, strang.SGHMC(), step_size=0.1, steps=1)


@pytest.mark.parametrize(
    ("name", "make", "extra"), [("flax.nnx", from_nnx, "flax"), ("equinox", from_equinox, "equinox")]
)
def test_a_library_that_is_not_there_is_named(monkeypatch, name, make, extra):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=rf"This needs {extra}.*pip install 'strang\[{extra}\]'"):
        make(perceptron(), total)


def test_two_models_are_two():
    one, two = (from_nnx(perceptron(), total) for _ in range(2))
    assert one == one
    assert one != two
    assert len({one, two}) == 2


def test_chains_can_start_apart():
    model, keys = from_nnx(perceptron(), total), random.chain_keys(0, 3)
    starts = {"module": None, "key": lambda key: model.position(Perceptron(nnx.Rngs(key)))}
    kernel = {name: first_positions(model, init, keys)["layers"][0]["kernel"] for name, init in starts.items()}
    assert np.ptp(kernel["module"], axis=0).max() == 0
    assert np.ptp(kernel["key"], axis=0).min() > 0


def test_a_stored_run_goes_on_with_a_module_made_again(tmp_path):
    data = strang.data.arrays(np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32), batch_order="full")

    def run(steps, seed=0):
        model = from_nnx(nnx.Linear(3, 1, rngs=nnx.Rngs(seed)), total)
        return strang.sample(model, data, strang.SGLD(), step_size=0.01, steps=steps, chains=2, store=tmp_path / "run")

    assert run(3).steps == 3
    again = run(5)
    assert (again.steps, again.chain.step) == (5, 5)
    with pytest.raises(InputError, match="settings or starts differ from what it began with"):
        run(5, seed=1)


@pytest.mark.parametrize("library", ["nnx", "equinox"])
def test_a_layer_alone_is_linear_regression(library):
    """One draw of each of a thousand chains. The posterior is normal, which `leimkuhler:BAOA` samples without bias, so
    means and variances are within five standard errors of the closed form, with one false alarm in 10^5 runs. Negative
    control: priors 1.5 times as wide."""
    chains, rng = 1000, np.random.default_rng(0)
    x, y = rng.normal(size=(6, 3)), rng.normal(size=6)

    def density(net, row):
        return -jnp.sum((row[1] - net(row[0])) ** 2) / 2

    if library == "nnx":
        model = from_nnx(nnx.Linear(3, 1, rngs=nnx.Rngs(0)), density)
    else:
        model = from_equinox(eqx.nn.Linear(3, "scalar", key=jax.random.key(0)), density)
    run = strang.sample(
        model,
        strang.data.arrays((x.astype(np.float32), y.astype(np.float32)), batch_order="full"),
        strang.SGHMC(friction=2.0),
        integrator="leimkuhler:BAOA",
        step_size=0.2,
        steps=300,
        chains=chains,
        average=None,
    )
    draws = np.concatenate(
        [np.asarray(leaf).reshape(chains, -1) for leaf in jax.tree.leaves(run.chain.state.position)], 1
    )
    design = np.column_stack([np.ones(6), x])  # the bias comes first

    def standard_errors_away(scale):
        """Of means and variances, from those with priors of this scale."""
        covariance = np.linalg.inv(design.T @ design + np.diag([1.0, 3.0, 3.0, 3.0]) / scale**2)
        centre, variance = covariance @ design.T @ y, np.diag(covariance)
        off_mean = (draws.mean(0) - centre) / np.sqrt(variance / chains)
        off_variance = (draws.var(0, ddof=1) / variance - 1) / np.sqrt(2 / (chains - 1))
        return np.abs([off_mean, off_variance])

    assert standard_errors_away(1.0).max() < 5
    assert standard_errors_away(1.5).max() > 5
