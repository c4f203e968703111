"""What is averaged may be a function with arrays of its own, which are numbers of a run and not code."""

import jax
import jax.numpy as jnp
import numpy as np

import strang
from strang.sampling import request


def powers(rows, position):
    return rows * position**2


def run_with(average):
    data = strang.data.arrays(np.arange(8.0, dtype=np.float32), batch_size=2)
    return strang.sample(
        strang.models.Gaussian(), data, strang.SGHMC(friction=1.0), step_size=0.05, steps=64, average=average, thin=4,
        progress=False,
    )  # fmt: skip


def test_it_is_what_a_closure_would_be():
    rows = np.array([1.0, 3.0], np.float32)
    bound, closed = run_with(jax.tree_util.Partial(powers, rows)), run_with(lambda position: rows * position**2)
    np.testing.assert_array_equal(bound.average, closed.average)
    assert str(bound.summary()) == str(closed.summary())


def test_other_arrays_need_no_other_compilation():
    sizes = []
    for row in (1.0, 2.0):
        found = run_with(jax.tree_util.Partial(powers, jnp.full(2, row)))
        sizes.append(request.averaged_at._cache_size())
        assert jax.tree.leaves(found.job.inputs.bound)[0][0] == row
    assert sizes[0] == sizes[1]
    run_with(lambda position: position**2)
    assert request.averaged_at._cache_size() == sizes[0] + 1  # as a function of its own needs one


def test_what_is_no_array_stays_code():
    def power(how, position):
        return position ** {"square": 2}[how]

    np.testing.assert_array_equal(
        run_with(jax.tree_util.Partial(power, "square")).average, run_with(lambda position: position**2).average
    )
