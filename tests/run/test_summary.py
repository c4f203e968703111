"""What a run says of itself: its averages and their errors to the last digit, gradient noise, speed."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import strang
from strang.sampling import averages
from strang.sampling.chain import advance_alone
from strang.sampling.request import prepare


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
    values = {"weight": jnp.ones(1), "average": jnp.full(1, jnp.nan)}
    empty = averages.open_block(jax.vmap(averages.start, out_axes=averages.CHAIN_AXES)(values))
    (partial,), (slip,) = averages.accumulate(empty, jnp.float32(0), values)
    assert np.ravel([partial, slip]).tolist() == [0] * 4
    (partial,), _ = averages.accumulate(empty, jnp.float32(0.1), values)
    assert np.isnan(partial).any()


def test_chains_that_share_their_batches_are_one_where_errors_are_concerned(numbers):
    """All chains made the same: those from a loader are worth one of them, those with batches of their own more."""
    ours = strang.sample(**settings(numbers))
    theirs = strang.sample(**settings(numbers, data=strang.data.stream([numbers[:7], numbers[7:14]], size=66)))
    for run in (ours, theirs):
        equal = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape) if x.ndim else x, run.chain.average)
        same = replace(run, chain=run.chain._replace(average=equal))
        ratio = float(same.error) / same.each.error["average"][0]
        assert ratio == pytest.approx(1) if run is theirs else ratio < 0.9


def test_gradient_noise_is_that_after_burn_in():
    """Squared residuals, and with them V, are far larger where these chains start."""
    x = np.tile([1.0, 2.0], 20).astype(np.float32)
    model = strang.Model(lambda q: -(q**2) / 2e4, lambda q, x: -((10 * x - q * x) ** 2) / 2, jnp.zeros(()))
    chosen = settings(x, model=model, dynamics=strang.SGLD(), step_size=2e-3, steps=1100, burn_in=1000)
    near, far = (float(strang.sample(**chosen, init=jnp.float32(start)).gradient_noise) for start in (10.0, -40.0))
    assert far == pytest.approx(near, rel=0.5)
    early = float(strang.sample(**{**chosen, "burn_in": 0}, init=jnp.float32(-40.0)).gradient_noise)
    assert early > 100 * near


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
