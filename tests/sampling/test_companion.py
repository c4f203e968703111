"""Companions at twice the step size: exactly what a run at that step is, and nothing to the chains they follow."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import strang
from strang.integrators.coupling import combine
from strang.sampling import averages
from strang.sampling.chain import advance_alone
from strang.sampling.estimates import estimates
from strang.sampling.request import prepare
from strang.storage.store import named_leaves
from strang.util import random
from strang.util.errors import InputError

pytestmark = pytest.mark.usefixtures("optimised_file")  # bits of two programs are compared

X = np.random.default_rng(0).normal(0.5, 1.0, 60).astype(np.float32)
MODEL = strang.models.Gaussian()
ORDERS = ["full", "iid", "reshuffled", "symmetric"]
DYNAMICS = {
    "sghmc": (strang.SGHMC(8.0), "leimkuhler:BAOA"),
    "ubu": (strang.SGHMC(8.0), "ubu:UBU"),
    "sgnht": (strang.SGNHT(8.0), "chen:ABOBA"),
    "sgld": (strang.SGLD(), "euler"),
}


def square(q):
    """What is averaged; one function, so that tests share what is compiled."""
    return q**2


def data(order, rows=X):
    return strang.data.arrays(rows, batch_size=None if order == "full" else 7, batch_order=order)


def job(order="iid", dynamics="sghmc", **changes):
    kind, word = DYNAMICS[dynamics]
    settings = {"step_size": 0.01, "steps": 1000, "chains": 6, "coupled": 3, "seed": 5, "average": square}
    return prepare(MODEL, data(order), kind, integrator=word, **{**settings, **changes})


def advanced(job, *stops):
    chain = job.chain
    for stop in stops:
        chain, _ = advance_alone(job.program, job.inputs, chain, jnp.uint32(stop))
    return chain


def equal(one, other):
    one, other = named_leaves(one), named_leaves(other)
    return all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(("order", "dynamics"), [*((o, "sghmc") for o in ORDERS), ("iid", "sgnht"), ("iid", "sgld")])
def test_chains_do_not_notice_that_they_are_followed(order, dynamics):
    followed, alone = (advanced(job(order, dynamics, coupled=n, steps=300), 300) for n in (3, 0))
    assert equal(followed._replace(companion=()), alone)


@pytest.mark.parametrize("order", ORDERS)
def test_a_run_may_stop_anywhere(order):
    """Also between the two steps of a chain that are one of its companion, and while sums are under way."""
    one = job(order, burn_in=37)
    assert equal(advanced(one, 1000), advanced(one, 1, 2, 17, 311, 312, 1000))


@pytest.mark.parametrize(("order", "dynamics"), [("full", "sghmc"), *(("iid", name) for name in DYNAMICS)])
def test_companions_make_the_steps_of_a_run_at_twice_the_size(order, dynamics):
    """By hand: the step function at 2h, with combined normals and the batch of every second step."""
    one = job(order, dynamics)
    chain, number = advanced(one, 8), 2  # the third chain is the second with a companion
    kind, step, h = one.inputs.dynamics, one.program.step, 0.01
    state = jax.tree.map(lambda x: x[number], one.chain.state)
    key, batch_key = (getattr(one.chain.keys, name)[number] for name in ("noise", "batch"))

    @jax.jit
    def by_hand(state, l):
        first, second = (random.normals(key, l - k, state.position, step.noises) for k in (2, 1))
        rows = one.inputs.data if order == "full" else one.inputs.data.get(batch_key, l - 1)

        def gradient(position):
            if order == "full":
                return strang.gradients.full.full_gradient(MODEL, rows, position, None)
            return strang.gradients.full.batch_gradient(MODEL, position, rows, None)

        return step(kind, state, 2 * h, gradient, combine(step, kind, 2 * h, first, second))

    for l in (2, 4, 6, 8):
        state = by_hand(state, jnp.uint32(l))
    found = jax.tree.map(lambda x: x[number // 2], chain.companion.state)
    for one_leaf, other in zip(jax.tree.leaves(found), jax.tree.leaves(state), strict=True):
        np.testing.assert_allclose(one_leaf, other, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(("order", "batch"), [("full", None), ("iid", 30)])
@pytest.mark.parametrize("word", ["chen:ABOBA", "ubu:UBU"])
def test_the_bias_is_the_exact_one(order, batch, word):
    """Of the second moment of a Gaussian posterior, whose values at h and 2h are known: the difference within 4.5
    standard errors (a false alarm in 150,000), which are at most a third of it and below the Monte Carlo error."""
    rows = strang.data.arrays(X, batch_size=batch, batch_order=order)
    dynamics, h, precision = strang.SGHMC(8.0), 0.06, 61.0
    run = strang.sample(
        MODEL, rows, dynamics, integrator=word, step_size=h, steps=20_000, burn_in=200, chains=40, coupled=40,
        average=square, progress=False,
    )  # fmt: skip
    noise = 0.0 if order == "full" else 60**2 * X.astype(float).var() / batch
    step = strang.spell(dynamics, word)
    variances = [
        float(strang.theory.linear.variance_ratio(step, dynamics, precision, size, noise)) / precision
        for size in (h, 2 * h)
    ]
    order_used = 2 if order == "full" else 1
    exact = (variances[1] - variances[0]) / (2**order_used - 1)
    assert abs(run.bias - exact) < 4.5 * run.bias_error
    assert run.bias_error < abs(exact) / 3
    assert run.bias_error < run.error


def test_the_difference_has_a_fraction_of_the_noise():
    """At hV/2D = 0.2, where h is the companion's step, below a tenth of the variance of independent chains' difference
    (a 20th by the formula; 60 chains show a ratio of variances to a third, so half is 4 standard deviations off); and
    of full gradients below a hundredth."""
    noise, friction = 60**2 * X.astype(float).var() / 7, 8.0
    for rows, least in ((data("iid"), 10.0), (data("full"), 100.0)):
        run = strang.sample(
            MODEL, rows, strang.SGHMC(friction), integrator="leimkuhler:BAOA", step_size=0.2 * friction / noise,
            steps=20_000, burn_in=500, chains=60, coupled=60, progress=False,
        )  # fmt: skip
        difference = averages.means(run.chain.companion.difference)["average"]
        chains = averages.means(run.chain.average)["average"]
        assert 2 * chains.var() / difference.var() > least


def test_every_few_chains_one_is_followed():
    with_pairs = job(chains=200, coupled=16)
    assert with_pairs.program.stride == 13
    assert len(with_pairs.chain.companion.alive) == 16
    with pytest.raises(InputError, match="coupled is 7; write a whole number from 0 to 6"):
        job(coupled=7)


def test_a_companion_that_diverges_makes_the_bias_infinite():
    """Where twice the step is beyond the limit of stability, and the step itself is not."""
    run = strang.sample(
        MODEL, data("full"), strang.SGHMC(1.0), integrator="leimkuhler:BAOAB", step_size=0.2, steps=4000, chains=4,
        coupled=2, progress=False,
    )  # fmt: skip
    assert not run.diverged
    assert np.isinf(run.bias)
    assert run.reasons[0].startswith("a step of twice the size diverges") or "temperature" in run.reasons[0]
    assert any("a step of twice the size diverges" in reason for reason in run.reasons)


def test_steps_that_decrease_are_followed_too():
    """The weights are those of the steps, and the bias falls with them."""
    schedule = strang.schedule.decreasing(0.1, 0.5)
    run = strang.sample(
        MODEL, data("full"), strang.SGHMC(8.0), integrator="ubu:UBU", step_size=schedule, steps=4000, burn_in=100,
        chains=10, coupled=10, average=square, progress=False,
    )  # fmt: skip
    weight = averages.means(run.chain.companion.difference)["weight"]
    np.testing.assert_allclose(weight, 1, rtol=1e-5)
    assert 0 < abs(run.bias) < 0.05 / 61


def test_a_loader_s_batches_are_followed():
    batches = [X[k : k + 6] for k in range(0, 60, 6)]
    loader = strang.data.stream(lambda k: iter(batches[k % 10 :] + batches[: k % 10]), size=60)
    run = strang.sample(
        MODEL, loader, strang.SGHMC(8.0), step_size=0.01, steps=400, chains=4, coupled=2, progress=False
    )
    assert np.isfinite([run.bias, run.bias_error]).all()


def test_sums_of_differences_are_of_those_chains_only():
    """Estimates of some of the chains, as for a grid, take the companions of these."""
    one = job(chains=6, coupled=6, steps=2000)
    chain = advanced(one, 2000)
    which = np.arange(6) < 2
    some = estimates(one, chain, which)
    rows = jax.tree.map(lambda x: np.asarray(x)[:2], chain.companion.difference)
    expected = averages.means(rows)["average"].mean()
    assert some.mean.bias[0] == pytest.approx(expected, rel=1e-5)
    assert estimates(one, chain).mean.bias[0] != pytest.approx(expected, rel=1e-3)


def test_what_is_followed_costs_no_compilation_more_for_another_step():
    one = job()
    advanced(one, 10)
    before = advance_alone._cache_size()
    other = replace(one, inputs=one.inputs._replace(schedule=strang.schedule.Fixed(jnp.asarray(0.02, float))))
    advanced(other, 10)
    assert advance_alone._cache_size() == before
