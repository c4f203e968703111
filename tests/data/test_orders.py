"""Batch l is a pure function of (key, l), and every order gives unbiased estimates of sums over all data."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import strang
from strang.data.batches import arrays
from strang.data.orders import ORDERS
from strang.gradients.full import batch_gradient
from strang.util import random

# Whole numbers are the same at any level of optimisation, and compiling takes all the time here.
quick = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def batches(data, count, seed=0, chains=1):
    keys = random.chain_keys(seed, chains).batch
    l = jnp.arange(count, dtype=jnp.uint32)[:, None, None]
    return np.asarray(quick(lambda k: data.batch_order.indices(data.batch_order.salt(k, l), l))(keys))


@pytest.mark.parametrize(
    ("order", "size", "batch"),
    [
        *(("reshuffled", *sizes) for sizes in [(12, 3), (13, 4), (7, 7), (1000, 10), (5, 1)]),
        ("symmetric", 13, 4),  # the same permutations, forwards and backwards
        ("cyclic", 13, 4),
    ],
)
def test_an_epoch_holds_every_row_once(order, size, batch):
    data = arrays(np.arange(float(size)), batch_size=batch, batch_order=order)
    rows = batches(data, 4 * data.batch_order.epoch)[:, :, 0].reshape(4, -1)
    for epoch in rows:
        np.testing.assert_array_equal(np.sort(epoch[epoch < size]), np.arange(size))


def test_each_order_visits_rows_as_documented():
    size, batch = 12, 3
    epochs = {
        order: batches(arrays(np.arange(12.0), batch_size=batch, batch_order=order), 16)[:, :, 0].reshape(4, 4, 3)
        for order in ("reshuffled", "symmetric", "cyclic")
    }
    np.testing.assert_array_equal(epochs["cyclic"], np.broadcast_to(np.arange(size).reshape(4, 3), (4, 4, 3)))
    np.testing.assert_array_equal(epochs["symmetric"][0], epochs["symmetric"][1][::-1])
    assert not np.array_equal(epochs["symmetric"][0], epochs["symmetric"][2])
    assert not np.array_equal(epochs["reshuffled"][0], epochs["reshuffled"][1])


@pytest.mark.parametrize("replacement", [True, False])
def test_iid_batches_repeat_rows_only_with_replacement(replacement):
    rows = batches(arrays(np.arange(6.0), batch_size=4, replacement=replacement), 500, chains=3)
    distinct = np.array([len(set(batch)) for batch in np.moveaxis(rows, 1, 2).reshape(-1, 4)])
    assert (distinct == 4).all() == (not replacement)


def test_one_chain_does_not_depend_on_the_others():
    data = arrays(np.arange(100.0), batch_size=7, batch_order="reshuffled")
    np.testing.assert_array_equal(batches(data, 30, chains=5)[:, :, :2], batches(data, 30, chains=2))
    single = quick(data.get)(random.chain_keys(0, 2).batch[1], jnp.uint32(17))
    np.testing.assert_array_equal(single.rows, batches(data, 30, chains=2)[17, :, 1])


@pytest.mark.parametrize(
    ("order", "size", "batch"), [("reshuffled", 4, 2), ("reshuffled", 5, 2), ("symmetric", 5, 2), ("cyclic", 5, 2)]
)
def test_scale_is_unbiased_over_an_epoch(order, size, batch):
    """Every epoch's mean gradient is the full gradient exactly, ragged or not."""
    x = np.array([0.3, -1.0, 2.0, 0.7, 1.1])[:size].astype(np.float32)
    data = arrays(x, batch_size=batch, batch_order=order)
    key = random.chain_keys(1, 1).batch[0]
    model, theta = strang.models.Gaussian(), jnp.float32(0.4)
    part = quick(lambda l: batch_gradient(model, theta, data.get(key, l), None))
    parts = [part(jnp.uint32(l)) for l in range(2 * data.batch_order.epoch)]
    np.testing.assert_allclose(np.mean(parts), theta + (theta - x).sum(), rtol=1e-5, atol=1e-5)


def test_scale_is_unbiased_over_all_iid_batches():
    x = np.array([0.3, -1.0, 2.0, 0.7])
    theta = 0.4
    data = arrays(x, batch_size=2)
    means = [data.scale * sum(theta - x[i] for i in rows) for rows in itertools.product(range(4), repeat=2)]
    np.testing.assert_allclose(np.mean(means), (theta - x).sum(), rtol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"rows": np.zeros(5), "batch_size": 6}, "batch_size is 6, but there are 5 rows"),
        ({"rows": np.zeros(5), "batch_size": 0}, "batch_size is 0; write a whole number, at least 1"),
        ({"rows": np.zeros(5), "batch_size": 2.5}, "batch_size is 2.5; write a whole number"),
        ({"rows": np.zeros(5), "batch_order": "iid"}, "needs a batch size"),
        ({"rows": np.array([1.0, np.nan]), "batch_size": 1}, "a data array is not finite: nan in row 1"),
        ({"rows": np.array([0.0, 1e39]), "batch_size": 1}, r"not finite: 1e\+39 in row 1"),  # in single precision
        ({"rows": np.array([2**40 + 5, 1]), "batch_size": 1}, "does not fit int32: 1099511627781 in row 0"),
        ({"rows": np.array(["a"]), "batch_size": 1}, "convert them to numbers"),
        ({"rows": np.zeros(()), "batch_size": 1}, "leading axis must count"),
        ({"rows": (np.zeros(3), np.zeros(4)), "batch_size": 1}, r"\[3, 4\] rows"),
        ({"rows": np.zeros(3), "batch_size": 1, "batch_order": "sorted"}, "choose one of: " + ", ".join(ORDERS)),
        ({"rows": (), "batch_size": 1}, "hold no array"),
    ],
)
def test_bad_data_are_refused(arguments, text):
    with pytest.raises(strang.InputError, match=text):
        arrays(**arguments)


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i8", np.longdouble])
def test_any_byte_order_and_precision_is_read(dtype):
    x = np.array([1, 2, 3], dtype)
    np.testing.assert_array_equal(arrays(x, batch_order="full").rows, [1, 2, 3])
