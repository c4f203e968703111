"""Chains: bitwise continuation, one compilation, grids, divergence, averages, gradients, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import strang
from strang import gradients
from strang.gradients import full
from strang.run.driver import run_blocks
from strang.sampling import averages as averages
from strang.sampling.chain import advance_alone
from strang.sampling.request import prepare
from strang.util import random

ORDERS = ("full", "iid", "reshuffled", "symmetric", "cyclic")
DYNAMICS = {
    "sgld": (strang.SGLD(), 1e-3),
    "sghmc": (strang.SGHMC(friction=5.0), 1e-2),
    "sgnht": (strang.SGNHT(friction=5.0), 1e-2),
    "sgnht-coordinate": (strang.SGNHT(friction=5.0, thermostat="coordinate"), 1e-2),
    "sgrhmc": (strang.SGRHMC(metric=lambda q: jax.tree.map(lambda x: 1 + x**2 / 4, q), friction=5.0), 1e-2),
}


def square(position):
    return jax.tree.map(jnp.square, position)


def same(first, second):
    return all(jax.tree.leaves(jax.tree.map(lambda a, b: np.array_equal(a, b), first, second)))


def settings(numbers, order="iid", **changes):
    data = strang.data.arrays(numbers, batch_size=7, batch_order=order)
    base = {"step_size": 1e-2, "steps": 1000, "chains": 3, "average": square, "seed": 4}
    return {"model": strang.models.Gaussian(), "data": data, "dynamics": strang.SGHMC(5.0), **base, **changes}


# Batches and dynamics know nothing of each other: every order once, every dynamics once.
@pytest.mark.parametrize(("name", "order"), [*zip(DYNAMICS, ORDERS, strict=True), ("sgrhmc", "symmetric")])
def test_continuation_is_bitwise(numbers, name, order):
    dynamics, h = DYNAMICS[name]
    chosen = settings(numbers, order, dynamics=dynamics, step_size=strang.schedule.decreasing(h, 0.3), burn_in=100)
    whole = strang.sample(**chosen)
    parts = strang.sample(**{**chosen, "steps": 311}).more(600).more(89)
    assert whole.steps == 1000
    assert same(whole.chain, parts.chain)


@pytest.mark.parametrize("estimator", [gradients.control_variate(), gradients.svrg(every=70)])
def test_continuation_is_bitwise_with_variance_reduction(numbers, estimator):
    chosen = settings(numbers, gradient=estimator)
    assert same(strang.sample(**chosen).chain, strang.sample(**{**chosen, "steps": 137}).more(863).chain)


def test_blocks_of_any_length_give_the_same_chain(numbers):
    chosen = settings(numbers)
    *_, last = strang.blocks(chosen.pop("model"), chosen.pop("data"), chosen.pop("dynamics"), every=97, **chosen)
    assert same(last, strang.sample(**settings(numbers)).chain)


def test_one_compilation_serves_all_blocks_and_settings(numbers):
    strang.sample(**settings(numbers, steps=300))
    before = advance_alone._cache_size()
    for h in (1e-3, 2e-2):
        run = strang.sample(**settings(numbers, steps=777, step_size=h, dynamics=strang.SGHMC(friction=1 / h), seed=9))
        run.more(50)
    assert advance_alone._cache_size() == before


def test_a_chain_does_not_depend_on_how_many_there_are(numbers):
    few, many = (strang.sample(**settings(numbers, chains=chains)) for chains in (2, 5))
    np.testing.assert_allclose(few.chain.state.position, many.chain.state.position[:2], rtol=1e-4)


def test_a_grid_is_its_points(numbers):
    """Chains with their own friction and step size move as they would alone with these."""
    frictions, sizes = jnp.array([2.0, 5.0, 9.0]), jnp.array([0.01, 0.02, 0.005])
    grid = strang.sample(**settings(numbers, dynamics=strang.SGHMC(frictions), step_size=sizes))
    for k in range(3):
        alone = strang.sample(
            **settings(numbers, dynamics=strang.SGHMC(float(frictions[k])), step_size=float(sizes[k]))
        )
        np.testing.assert_allclose(grid.chain.state.position[k], alone.chain.state.position[k], rtol=2e-3, atol=2e-4)


def test_a_schedule_may_give_a_python_number(numbers):
    runs = [strang.sample(**settings(numbers, steps=20, step_size=h)) for h in (1e-2, optax.constant_schedule(1e-2))]
    np.testing.assert_allclose(runs[0].chain.state.position, runs[1].chain.state.position, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_any_tree_and_dtype_is_a_position(dtype):
    with jax.enable_x64(dtype == "float64"):
        x = np.linspace(-1, 1, 12).reshape(6, 2).astype(dtype)
        model = strang.Model(
            lambda q: -jnp.sum(q["a"] ** 2) - q["b"][0] ** 2,
            lambda q, row: -jnp.sum((row - q["a"]) ** 2) * jnp.exp(q["b"][0]),
            init={"a": np.zeros(2, dtype), "b": (np.zeros((), dtype),)},
        )
        run = strang.sample(
            model,
            strang.data.arrays(x, batch_size=2),
            strang.SGHMC(2.0),
            step_size=0.02,
            steps=50,
            average=lambda q: {"sum": q["a"].sum(), "a": q["a"]},
        )
        assert {str(leaf.dtype) for leaf in jax.tree.leaves(run.chain.state)} == {dtype}
    assert run.average["a"].shape == (2,)
    np.testing.assert_allclose(run.average["sum"], run.average["a"].sum(), rtol=5e-3, atol=1e-3)
    assert run.diverged == 0


def test_divergence_is_a_result(numbers):
    with pytest.warns(strang.DivergenceWarning, match=r"chain 1 diverged at step \d+ with step_size 1"):
        run = strang.sample(**settings(numbers, step_size=jnp.array([0.01, 1.0, 0.01]), steps=200))
    assert run.diverged == 1
    assert list(run.alive) == [True, False, True]
    assert all(np.isfinite(np.asarray(leaf)[[0, 2]]).all() for leaf in jax.tree.leaves(run.chain.state))
    assert all(np.isfinite(x).all() for x in (run.average, run.error, run.temperature, run.gradient_noise))
    alone = strang.sample(**settings(numbers, step_size=0.01, steps=200))
    np.testing.assert_allclose(run.each.mean["average"][[0, 2]], alone.each.mean["average"][[0, 2]], rtol=1e-4)
    assert run.gradient_noise == pytest.approx(
        np.asarray(alone.chain.gradient_variance)[[0, 2]].mean()
    )  # at step 0, of the living
    assert 0 < int(run.chain.diverged_at[1]) < 200
    assert "diverged" in str(run)


def test_all_chains_may_diverge(numbers):
    with pytest.warns(strang.DivergenceWarning, match=r"chain \d \(and 2 more\) diverged"):
        run = strang.sample(**settings(numbers, step_size=1.0, steps=1_000_000))
    assert np.isnan([run.average, run.error, run.gradient_noise]).all()
    assert int(run.chain.diverged_at.max()) <= run.steps < 1_000_000  # it ends with its last chain
    assert "diverged" in str(run)


def test_averages_are_weighted_by_the_step_size(numbers):
    chosen = settings(numbers, steps=300, burn_in=20, thin=1, step_size=strang.schedule.decreasing(0.02, 0.5))
    run = strang.sample(**chosen)
    assert run.samples.shape == (3, 280)  # those after burn-in
    weights = np.arange(21, 301) ** -0.5
    expected = (weights * run.samples.astype(float) ** 2).sum(1) / weights.sum()
    np.testing.assert_allclose(run.each.mean["average"], expected, rtol=2e-6)
    np.testing.assert_array_equal(run.samples[:, -1], run.chain.state.position)


@pytest.mark.parametrize("thin", [3, 10])
def test_thinning_keeps_every_nth_position(numbers, thin):
    every, kept = (strang.sample(**settings(numbers, steps=100, thin=n, burn_in=0)).samples for n in (1, thin))
    np.testing.assert_array_equal(kept, every[:, thin - 1 :: thin][:, : 100 // thin])


def test_ten_million_single_precision_steps_do_not_drift():
    """The mean over 10^7 steps is that over 10^5 to eight digits, where a plain single-precision sum loses four."""
    value = jnp.float32(1 / 3)
    values = {"weight": jnp.ones(1), "average": value[None]}
    start = jax.vmap(averages.start, out_axes=averages.CHAIN_AXES)
    close = jax.vmap(averages.close_block, (averages.CHAIN_AXES,), averages.CHAIN_AXES)

    @jax.jit
    def book(steps):
        def block(_, average):
            sums = jax.lax.fori_loop(
                0, 64, lambda _, sums: averages.accumulate(sums, jnp.float32(0.1), values), averages.open_block(average)
            )
            return close(averages.put_back(average, sums))

        return jax.lax.fori_loop(0, steps // 64, block, start(values))

    def mean(steps):
        return averages.summarise(book(steps)).mean["average"][0]

    assert abs(mean(10_000_000) / mean(100_000) - 1) < 1e-8
    assert abs(mean(10_000_000) / float(value) - 1) < 1e-7
    plain = jax.jit(lambda n: jax.lax.fori_loop(0, n, lambda _, total: total + jnp.float32(0.1) * value, 0.0))
    assert abs(float(plain(10_000_000)) / 1e6 / float(value) - 1) > 1e-4  # negative control


def test_averages_in_double_precision(numbers):
    """The weights' sum as well: what is always 1 has the mean 1."""
    with jax.enable_x64():
        chosen = settings(numbers.astype(float), "full", steps=2000, step_size=1e-3, average=lambda q: 0 * q + 1.0)
        assert abs(strang.sample(**chosen).average - 1) < 1e-12


def test_gradient_noise_is_measured(numbers):
    """V = N² s²/n with replacement, times (N − n)/(N − 1) without; none with full gradients or control variates."""
    n, size = 7, len(numbers)
    expected = size**2 * numbers.var() / n
    run = strang.sample(**settings(numbers, steps=30_000, chains=20))
    count = int(np.asarray(run.chain.measured).sum())
    assert abs(run.gradient_noise / expected - 1) < 5 * np.sqrt(2 / count)
    swept = strang.sample(**settings(numbers, "reshuffled", steps=30_000, chains=20))
    assert abs(swept.gradient_noise / (expected * (size - n) / (size - 1)) - 1) < 5 * np.sqrt(2 / count)
    assert strang.sample(**settings(numbers, "full", steps=10)).gradient_noise == 0
    for estimator in (gradients.control_variate(), gradients.svrg(100)):
        quiet = strang.sample(**settings(numbers, gradient=estimator)).gradient_noise
        assert quiet < 1e-6 * expected


def test_full_gradient_in_chunks(monkeypatch, numbers):
    model, theta = strang.models.Gaussian(), jnp.float32(0.3)
    data = strang.data.arrays(numbers, batch_order="full")
    whole = full.full_gradient(model, data, theta, None)
    monkeypatch.setattr(full, "CHUNK_NUMBERS", 7)
    np.testing.assert_allclose(full.full_gradient(model, data, theta, None), whole, rtol=1e-6)
    np.testing.assert_allclose(whole, theta + (theta - numbers).sum(), rtol=1e-5)


def test_anchor_is_the_mode(numbers):
    estimator = gradients.control_variate()
    model, data = strang.models.Gaussian(), strang.data.arrays(numbers, batch_size=7)
    anchor = estimator.prepare(model, data, jnp.float32(3.0), False)
    assert abs(anchor.position - model.posterior(numbers)[0]) < 1e-4


def test_own_gradient_of_a_model(numbers):
    """A model with a likelihood gradient of its own is used through it."""

    class Noisy(strang.models.Gaussian):
        def likelihood_gradient(self, position, rows, weights, key):
            return jnp.sum(weights * (rows - position))

    plain = strang.sample(**settings(numbers))
    own = strang.sample(**settings(numbers, model=Noisy()))
    for estimator in (gradients.svrg(10), gradients.control_variate(jnp.float32(0.5))):  # whose errors would stay
        with pytest.raises(strang.InputError, match="Noisy has a gradient of its own, which may be random"):
            prepare(**settings(numbers, model=Noisy(), gradient=estimator))
    np.testing.assert_allclose(own.chain.state.position, plain.chain.state.position, rtol=1e-3, atol=1e-4)


def test_own_gradients_have_a_key_per_chain_and_step(numbers):
    """What a gradient that is nothing but noise adds to each step of Euler's scheme is its key's normal."""

    class Noise(strang.Model):
        def likelihood_gradient(self, position, rows, weights, key):
            return jax.random.normal(key)

    h, steps = 0.01, 20
    chosen = settings(numbers, dynamics=strang.SGLD(), step_size=h, steps=steps, thin=1)
    flat = strang.Model(lambda q: 0.0 * q, lambda q, x: 0.0 * q, jnp.float32(0))
    still = strang.sample(**{**chosen, "model": flat})
    noisy = strang.sample(**{**chosen, "model": Noise(flat.log_prior, flat.log_likelihood, flat.init)})
    shaken = np.diff(noisy.samples - still.samples, prepend=0) / (h * chosen["data"].scale)
    keys = [random.fold(noisy.chain.keys.model, l) for l in range(steps)]
    expected = np.stack([jax.vmap(lambda key: jax.random.normal(random.jax_key(key)))(key) for key in keys], 1)
    np.testing.assert_allclose(shaken, expected, atol=1e-3)
    assert np.unique(expected).size == 3 * steps


def test_further_steps_are_checked(numbers):
    run = strang.sample(**settings(numbers, steps=50, thin=10))
    assert run.more(5e1).steps == 100
    for steps in (-5, 2.5, None, 2**32 - 50):
        with pytest.raises(strang.InputError, match=f"steps is {steps}; write a whole number from 0 to 4294967245"):
            run.more(steps)
    falling = strang.sample(**settings(numbers, steps=50, step_size=lambda l: 1e-2 - 1e-4 * l))
    with pytest.raises(strang.InputError, match="must be a positive number throughout"):
        falling.more(100)


def test_memory_of_the_record_does_not_grow(numbers):
    sizes = [
        sum(x.nbytes for x in jax.tree.leaves(strang.sample(**settings(numbers, steps=n)).chain)) for n in (10, 9999)
    ]
    assert sizes[0] == sizes[1]


def test_interrupt_returns_what_there_is(numbers, monkeypatch):
    def interrupted(job, *_):
        yield next(iter(run_blocks(job, 64)))
        raise KeyboardInterrupt

    monkeypatch.setattr(strang.run.driver, "run_blocks", interrupted)
    run = strang.sample(**settings(numbers))
    assert run.interrupted
    assert run.steps == 64
    assert "interrupted" in str(run)


def test_the_report_says_what_gradients_do(numbers):
    assert "gradient noise makes the temperature" in str(strang.sample(**settings(numbers)))
    assert "the bias of the integrator was not measured" in str(strang.sample(**settings(numbers, "full")))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"data": np.zeros(3)}, r"wrap it first: strang.data.arrays"),
        ({"steps": 0}, "steps is 0; write a whole number from 1 to"),
        ({"steps": None}, "steps is None; write a whole number"),
        ({"steps": float("inf")}, "steps is inf; write a whole number"),
        ({"seed": -1}, "seed is -1; write a whole number from 0"),
        ({"thin": "3"}, "thin is 3; write a whole number"),
        ({"chains": 0}, "chains is 0"),
        ({"steps": 2.5}, "steps is 2.5"),
        ({"burn_in": 1000}, "leaves nothing to average"),
        ({"step_size": -1.0}, "must be a positive number"),
        ({"step_size": float("nan")}, "must be a positive number"),
        ({"step_size": jnp.ones(5)}, r"shape \(5,\)"),
        ({"step_size": "small"}, "write a number"),
        ({"step_size": None}, "step_size is None; write a number"),
        ({"dynamics": strang.SGHMC(-1.0)}, "friction is -1.0"),
        ({"dynamics": strang.SGHMC(np.ones(4))}, r"friction has shape \(4,\)"),
        ({"integrator": "ABOBA"}, "is ambiguous for SGHMC"),
        ({"init": 3}, "must be floating-point"),
        ({"init": np.array(np.inf, np.float32)}, "not finite"),
        (
            {"dynamics": strang.SGHMC(1.0, gradient_noise=1e4)},
            "gradient_noise 10000 is more than the .* 'chen:ABOBA'",
        ),
        (
            {"dynamics": strang.SGHMC(100.0, gradient_noise=5000.0), "integrator": "nogin", "step_size": 0.035},
            "gradient_noise 5000 is more than the 3073.88 that 'nogin'",
        ),
        ({"dynamics": strang.SGHMC(9.0, gradient_noise=1.0), "integrator": "ubu:UBU"}, "does not correct for"),
        ({"model": strang.Model(lambda q: q, lambda q, x: q * np.ones(2), 0.0)}, "must give one number"),
        ({"model": strang.models.Logistic(3), "init": np.zeros(3)}, "log_likelihood fails on shapes"),
        ({"gradient": gradients.svrg(3), "order": "full"}, "no noise to reduce"),
        ({"average": lambda q: jnp.exp(1j * q)}, "average gives complex numbers"),
        ({"dynamics": strang.SGHMC(5.0, gradient_noise=-5.0)}, "gradient_noise is -5.0; a variance is not negative"),
        ({"gradient": gradients.control_variate(np.zeros(3))}, r"anchor has shape \(3,\); give a position .*, \(\)"),
        ({"gradient": gradients.control_variate({"a": 0.0})}, r"anchor has shape {'a': \(\)}"),
    ],
)
def test_bad_requests_are_refused(numbers, changes, text):
    with pytest.raises(strang.InputError, match=text):
        prepare(**settings(numbers, **changes))
