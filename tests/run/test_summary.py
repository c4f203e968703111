"""What a run says of itself: its averages and their errors to the last digit, gradient noise, the bias to expect."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import strang
from strang.data.orders import ORDERS
from strang.run import summary
from strang.sampling import averages as averages
from strang.sampling.chain import advance_alone
from strang.sampling.request import prepare

WEIGHTS = {"w": np.full(50, 3.0), "b": np.asarray(103.0)}


def settings(numbers, **changes):
    base = {"step_size": 1e-2, "steps": 600, "chains": 3, "seed": 4, "progress": False}
    data = strang.data.arrays(numbers, batch_size=7)
    return {"model": strang.models.Gaussian(), "data": data, "dynamics": strang.SGHMC(5.0), **base, **changes}


def test_a_constant_is_its_own_average_in_single_precision(numbers):
    """Plain sums of 256 equal terms are off by 1e-6, always to the same side."""
    run = strang.sample(**settings(numbers, step_size=2e-4, steps=5120, average=lambda q: 1e6 + 0 * q))
    assert abs(float(run.average) - 1e6) <= 0.0625  # which are neighbours
    assert float(run.error) < 0.01
    wide = strang.sample(
        **settings(numbers, steps=300, average=lambda q: jnp.full(averages.MAX_COMPENSATED_SIZE + 1, 5.0) + 0 * q)
    )
    np.testing.assert_allclose(wide.average, 5.0, rtol=5e-6)


def test_what_does_not_count_may_be_no_number():
    values = {"weight": jnp.float32(1), "average": jnp.float32(jnp.nan)}
    empty = averages.start(values)
    partial, slip = averages.accumulate(empty.partial, empty.partial_compensation, jnp.float32(0), values)
    assert [float(x) for x in (*partial.values(), *slip.values())] == [0] * 4
    partial, _ = averages.accumulate(empty.partial, empty.partial_compensation, jnp.float32(0.1), values)
    assert np.isnan(partial["average"])


def test_chains_that_share_their_batches_are_one_where_errors_are_concerned(numbers):
    """All chains made the same: three of them are worth one from a loader, three with batches of their own."""
    ours = strang.sample(**settings(numbers))
    theirs = strang.sample(**settings(numbers, data=strang.data.stream([numbers[:7], numbers[7:14]], size=66)))
    for run, worth in ((ours, 3), (theirs, 1)):
        equal = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape) if x.ndim else x, run.chain.average)
        same = replace(run, chain=run.chain._replace(average=equal))
        assert float(same.error) == pytest.approx(same.each.error["average"][0] / np.sqrt(worth), rel=1e-9)


def test_gradient_noise_is_that_after_burn_in():
    """Squared residuals, and with them V, are far larger where these chains start."""
    x = np.tile([1.0, 2.0], 20).astype(np.float32)
    model = strang.Model(lambda q: -(q**2) / 2e4, lambda q, x: -((10 * x - q * x) ** 2) / 2, jnp.zeros(()))
    chosen = settings(x, model=model, dynamics=strang.SGLD(), step_size=2e-3, steps=1100, burn_in=1000)
    near, far = (float(strang.sample(**chosen, init=jnp.float32(start)).gradient_noise) for start in (10.0, -40.0))
    assert far == pytest.approx(near, rel=0.5)
    early = float(strang.sample(**{**chosen, "burn_in": 0}, init=jnp.float32(-40.0)).gradient_noise)
    assert early > 100 * near


def run_with(dynamics, schedule=None, steps=20_000, burn_in=100, order="iid", model=None, grid=False):
    inputs = SimpleNamespace(
        dynamics=dynamics,
        schedule=schedule or strang.schedule.fixed(0.01),
        burn_in=burn_in,
        data=SimpleNamespace(batch_order=ORDERS[order](10, 2)),
    )
    job = SimpleNamespace(inputs=inputs, program=SimpleNamespace(grid=grid, model=model))
    return SimpleNamespace(job=job, steps=steps, gradient_noise=WEIGHTS)


def test_the_step_to_expect_a_bias_from_is_the_average_s():
    numbers = np.arange(101.0, 20_001)
    h = 1e-3 * numbers**-0.5
    found = summary.mean_step(run_with(None, strang.schedule.decreasing(1e-3, 0.5)))
    assert found == pytest.approx((h**2).sum() / h.sum(), rel=0.01)
    assert np.isnan(summary.mean_step(run_with(None, steps=100)))


@pytest.mark.parametrize("grid", [False, True])
def test_known_noise_is_counted_coordinate_by_coordinate(grid):
    known = jax.tree.map(lambda x: np.broadcast_to(x, (3, *x.shape)), WEIGHTS) if grid else WEIGHTS
    assert summary.known_noise(run_with(strang.SGHMC(1.0, known), grid=grid)) == pytest.approx((150 + 103) / 51)
    (line,) = summary.expected_bias(run_with(strang.SGHMC(1.0, known), grid=grid))
    assert "about 0 % too large" in line
    (line,) = summary.expected_bias(run_with(strang.SGHMC(2.0)))
    assert f"about {100 * 0.01 * 253 / 51 / 4:.3g} % too large" in line


def test_no_bias_is_foretold_where_it_is_not_known():
    assert summary.expected_bias(run_with(strang.SGRLD())) == []
    (line,) = summary.expected_bias(run_with(strang.SGHMC(1.0), order="symmetric", model=strang.sbn.SBN(2)))
    assert "does not cancel" in line


def test_speed_counts_the_steps_of_this_call(numbers):
    run = strang.sample(**settings(numbers))
    assert run.speed == pytest.approx(3 * 600 / run.seconds)
    assert run.more(0).speed == 0


def test_the_last_steps_that_can_be_counted_are_made(numbers):
    job = prepare(**settings(numbers, step_size=1e-3))
    start, stop = 2**32 - 300, 2**32 - 1
    chain, _ = advance_alone(job.program, job.inputs, job.chain._replace(step=jnp.uint32(start)), jnp.uint32(stop))
    assert int(chain.step) == stop
    assert bool(chain.alive.all())
