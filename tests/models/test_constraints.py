"""Constrained parameters: the law is exact, and everything users give and get is on its own scale."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import constraints as kinds

import strang
from strang.models.base import log_likelihoods

ROWS = np.random.default_rng(0).normal(3.0, 2.0, 60).astype(np.float32)


def log_prior(q):
    return -(q["mu"] ** 2) / 200 - q["sigma"] ** 2 / 50


def log_likelihood(q, x):
    return -0.5 * ((x - q["mu"]) / q["sigma"]) ** 2 - jnp.log(q["sigma"])


START = {"mu": 0.0, "sigma": 1.5}
POSITIVE = strang.Model(log_prior, log_likelihood, init=START, constraints={"sigma": kinds.positive})


def settings(**more):
    data = strang.data.arrays(ROWS, batch_size=10, batch_order="iid")
    return {"data": data, "dynamics": strang.SGHMC(2.0), "step_size": 0.02, "steps": 300, "chains": 4, **more}


@pytest.mark.parametrize(
    ("constraint", "value"),
    [
        (kinds.positive, [0.3, 2.0]),
        (kinds.interval(-1.0, 3.0), [0.3, 2.0]),
        (kinds.unit_interval, 0.2),
        (kinds.greater_than(1.0), 4.0),
        (kinds.ordered_vector, [-1.0, 0.5, 0.7]),
        (kinds.simplex, [0.2, 0.5, 0.3]),
        (kinds.positive_ordered_vector, [0.1, 0.4]),
    ],
)
def test_the_volume_is_that_of_the_transform(constraint, value):
    value = jnp.asarray(value)
    model = strang.Model(lambda q: 0.0 * q.sum(), lambda q, x: 0.0, init=value, constraints=constraint).unconstrained()
    free = model.unconstrain(value)
    assert jnp.allclose(model.constrain(free), value, atol=1e-5)
    matrix = jnp.atleast_2d(jax.jacfwd(model.constrain)(free))
    matrix = matrix[: matrix.shape[1]]  # of a simplex, all but the last, which follows from them
    assert np.isclose(model.log_prior(free), jnp.linalg.slogdet(matrix)[1], rtol=1e-4, atol=1e-5)


def test_densities_over_numbers_without_constraints_integrate_to_one():
    gamma = strang.Model(
        lambda s: 2 * jnp.log(s) - s - jnp.log(2.0), lambda s, x: 0.0, init=1.0, constraints="positive"
    )
    grid = jnp.linspace(-15.0, 6.0, 20_001)
    total = jnp.trapezoid(jnp.exp(jax.vmap(gamma.unconstrained().log_prior)(grid)), grid)
    assert total == pytest.approx(1.0, rel=1e-4)


def written_by_hand():
    def on_the_line(u):
        return {"mu": u["mu"], "sigma": jnp.exp(u["sigma"])}

    return strang.Model(
        lambda u: log_prior(on_the_line(u)) + u["sigma"],
        lambda u, x: log_likelihood(on_the_line(u), x),
        init={"mu": 0.0, "sigma": np.float32(np.log(1.5))},
    )


def test_draws_are_those_of_the_model_written_by_hand():
    ours = strang.sample(POSITIVE, **settings(thin=50))
    theirs = strang.sample(written_by_hand(), **settings(thin=50))
    assert np.allclose(ours.samples["mu"], theirs.samples["mu"], atol=1e-5)
    assert np.allclose(ours.samples["sigma"], np.exp(theirs.samples["sigma"]), rtol=1e-5)
    assert np.allclose(ours.positions["sigma"], np.exp(theirs.positions["sigma"]), rtol=1e-5)
    assert ours.summary().names == ["mu", "sigma"]
    assert ours.average["sigma"] == pytest.approx(np.exp(theirs.samples["sigma"]).mean(), rel=0.3)
    assert not np.allclose(ours.average["sigma"], theirs.average["sigma"])  # which is of the logarithm


def test_averages_are_of_positions_on_their_own_scale():
    run = strang.sample(POSITIVE, **settings(average=lambda q: {"variance": q["sigma"] ** 2}, thin=1))
    assert run.average["variance"] == pytest.approx(float((run.samples["sigma"] ** 2).mean()), rel=1e-4)


def test_a_stored_run_goes_on_bit_for_bit_and_keeps_a_simplex(tmp_path):
    counts = np.random.default_rng(0).choice(3, 200, p=[0.2, 0.5, 0.3])
    model = strang.Model(
        lambda p: jnp.sum(jnp.log(p)), lambda p, k: jnp.log(p[k]), init=jnp.ones(3) / 3, constraints=kinds.simplex
    )
    data = strang.data.arrays(counts, batch_size=20)
    given = {"data": data, "dynamics": strang.SGHMC(2.0), "step_size": 0.05, "chains": 3, "thin": 20}
    whole = strang.sample(model, **given, steps=200, store=tmp_path / "whole")
    strang.sample(model, **given, steps=100, store=tmp_path / "part")
    again = strang.sample(model, **given, steps=200, store=tmp_path / "part")
    assert whole.samples.shape == (3, 10, 3)
    assert np.allclose(whole.samples.sum(-1), 1.0, atol=1e-5)
    assert np.array_equal(whole.samples, again.samples)
    assert whole.chain.state.position.shape == (3, 2)
    from strang.report.stored import report, to_arviz

    assert to_arviz(tmp_path / "whole").posterior["position"].shape == (3, 10, 3)
    assert report(tmp_path / "whole")["mixing"]["draws"] == 10


def test_tuning_and_its_saved_form_are_on_the_models_scale(tmp_path):
    run = strang.sample(POSITIVE, ROWS, error=0.1, store=tmp_path)
    assert run.tuning.mode["sigma"] == pytest.approx(ROWS.std(), rel=0.1)
    again = strang.sample(POSITIVE, ROWS, error=0.1, store=tmp_path)
    assert np.array_equal(run.average["sigma"], again.average["sigma"])
    assert again.tuning.step_size == run.tuning.step_size


def test_anchors_and_starts_are_given_on_the_models_scale():
    anchor = {"mu": jnp.float32(3.0), "sigma": jnp.float32(2.0)}
    run = strang.sample(POSITIVE, **settings(gradient=strang.gradients.control_variate(anchor), init=anchor, steps=1))
    assert np.isclose(run.job.inputs.shared.position["sigma"], np.log(2.0))
    each = {"mu": jnp.arange(4.0), "sigma": jnp.asarray([1.0, 2.0, 3.0, 4.0])}
    moved = strang.sample(POSITIVE, **settings(init=each, steps=1, step_size=1e-6))
    assert np.allclose(moved.positions["mu"], each["mu"], atol=1e-3)
    assert np.allclose(moved.positions["sigma"], each["sigma"], rtol=1e-3)
    onward = strang.sample(POSITIVE, **settings(init=moved.positions, steps=1, step_size=1e-6))
    assert np.allclose(onward.positions["sigma"], each["sigma"], rtol=1e-3)
    with pytest.raises(strang.InputError, match="starts for 4 chains, but there are 2"):
        strang.sample(POSITIVE, **settings(init=each, chains=2))


@pytest.mark.parametrize(
    ("constraints", "init", "message"),
    [
        ({"sigm": kinds.positive}, START, "did you mean 'sigma'"),
        ({"tau": kinds.positive}, START, "the parameters are mu, sigma"),
        ({"sigma": "positiv"}, START, "constraints.positive"),
        ({"sigma": kinds.nonnegative_integer}, START, "cannot be sampled"),
        ({"sigma": kinds.positive}, {"mu": 0.0, "sigma": -1.0}, "sigma is not what its constraint allows"),
        ({"sigma": kinds.positive}, {"mu": 0.0, "sigma": 0.0}, "sigma is on the edge"),
    ],
)
def test_mistakes_are_explained(constraints, init, message):
    model = strang.Model(log_prior, log_likelihood, init=init, constraints=constraints)
    with pytest.raises(strang.InputError, match=message):
        strang.sample(model, **settings())


def test_dynamics_of_positive_numbers_are_refused():
    with pytest.raises(strang.InputError, match="leave out constraints"):
        strang.sample(POSITIVE, **settings(dynamics=strang.SGRLD()))


def test_names_may_be_nested_and_of_all_that_is_in_them():
    start = {"a": {"x": jnp.ones(2), "y": jnp.ones(())}, "b": [jnp.ones(()), jnp.ones(())]}
    model = strang.Model(
        lambda q: 0.0, lambda q, x: 0.0, init=start, constraints={"a": {"x": "positive"}, "b": "positive"}
    )
    assert [t is not None for t in model.unconstrained().transforms] == [True, False, True, True]


def test_likelihoods_of_whole_batches_give_the_same_draws():
    def many(q, x):
        return log_likelihood(q, x)

    model = strang.Model(log_prior, batch_log_likelihood=many, init=START, constraints={"sigma": kinds.positive})
    one, other = (strang.sample(m, **settings(thin=100)) for m in (POSITIVE, model))
    assert np.allclose(one.samples["sigma"], other.samples["sigma"], rtol=1e-5)
    assert np.allclose(log_likelihoods(model, START, ROWS), [model.log_likelihood(START, x) for x in ROWS], rtol=1e-5)


@pytest.mark.parametrize("value", [lambda q, x: jnp.sum(x - q["mu"]), lambda q, x: x[:, None] - q["mu"]])
def test_a_likelihood_of_a_batch_gives_one_number_for_each_row(value):
    model = strang.Model(log_prior, batch_log_likelihood=value, init=START)
    with pytest.raises(strang.InputError, match="one number for each of 3 rows"):
        strang.sample(model, **settings())


def test_a_model_has_one_likelihood_and_a_start():
    with pytest.raises(strang.InputError, match="one of the two"):
        strang.Model(log_prior, init=START)
    with pytest.raises(strang.InputError, match="one of the two"):
        strang.Model(log_prior, log_likelihood, START, batch_log_likelihood=log_likelihood)
    with pytest.raises(strang.InputError, match="a start"):
        strang.Model(log_prior, log_likelihood)
