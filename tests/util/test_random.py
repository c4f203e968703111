"""Draws are pure functions of (key, counter) with the right law. Sampling tests fail by chance once in 10^6 runs."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri

from strang.sampling.draws import materialise
from strang.util import random

LIMIT = 5.0  # |z| of a standard normal exceeds it with probability 6e-7


@pytest.fixture(scope="module")
def keys():
    return random.chain_keys(2026, 3).noise


def test_threefry_is_jax_own(keys):
    """The same bits as `jax.random` makes of the same key and counter."""
    with jax.threefry_partitionable(False):
        expected = jax.random.key_data(jax.random.split(random.jax_key(keys[0]), 4))
    counters = jnp.arange(8, dtype=jnp.uint32)
    first, second = random.threefry(keys[0], counters[:4], counters[4:])
    np.testing.assert_array_equal(np.concatenate([first, second]), np.asarray(expected).ravel())


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_normals_have_the_right_moments(keys, dtype):
    with jax.enable_x64(True):
        like = {"a": jax.ShapeDtypeStruct((301, 1000), dtype), "b": jax.ShapeDtypeStruct((), dtype)}
        drawn = jax.jit(lambda key: random.normals(key, jnp.uint32(5), like, 2))(keys[0])
    assert (
        jax.tree.map(lambda x: (x.shape, str(x.dtype)), drawn) == ({"a": ((301, 1000), dtype), "b": ((), dtype)},) * 2
    )
    z = np.concatenate([np.asarray(x, float).ravel() for x in jax.tree.leaves(drawn)])
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((z**power).mean() - moment) < LIMIT * math.sqrt(variance / z.size)
    assert abs((z * 1.1) ** 2).mean() - 1 > LIMIT * math.sqrt(2 / z.size)  # negative control: 10 % too strong
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < LIMIT / math.sqrt(z.size)


def test_the_distribution_function_is_inverted_at_every_cell():
    """Against SciPy in double precision, at all 2^24 of them."""
    cells = (np.arange(-(2**23), 2**23, dtype=np.float32) + np.float32(0.5)) * np.float32(2.0**-23)
    found = np.asarray(jax.jit(lambda x: random._normal(x, random._log(x)))(cells), float)
    expected = ndtri((cells.astype(float) + 1) / 2)
    middle = abs(cells) < 1e-3  # where ndtri itself loses digits, of a probability near 1/2
    np.testing.assert_allclose(found[~middle], expected[~middle], rtol=1e-5)
    np.testing.assert_allclose(found[middle], math.sqrt(math.pi / 2) * cells[middle].astype(float), rtol=2e-6)


def test_words_in_pairs_are_what_they_were():
    """Also where they look like floating-point numbers that are none, or denormal, on their way through memory."""
    words = np.array([0, 1, 0x7F800001, 0x7FC00000, 0xFFFFFFFF, 0xFF800000, 0x80000000, 0x00400000], np.uint32)
    kept = jax.jit(lambda a, b: materialise(a[1], lambda: random.pair_of((a, b))))(words, words[::-1])
    for found, expected in zip(jax.jit(random.words_of)(kept), (words, words[::-1]), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_draws_do_not_depend_on_what_was_drawn_before(keys):
    like = jax.ShapeDtypeStruct((7,), jnp.float32)
    alone = random.normals(keys[1], jnp.uint32(9), like, 1)[0]
    both = random.normals(keys[1], jnp.uint32(9), like, 2)
    np.testing.assert_array_equal(alone, both[0])
    assert not np.array_equal(both[0], both[1])
    assert not np.array_equal(alone, random.normals(keys[1], jnp.uint32(10), like, 1)[0])


@pytest.mark.parametrize("n", [3, 1000, 1 << 16, (1 << 16) + 1, 10**8, 2**31])
def test_indices_are_uniform(keys, n):
    drawn = np.asarray(jax.jit(lambda k: random.indices(k, jnp.uint32(1), 100_001, n))(keys), float)
    assert drawn.shape == (100_001, 3)
    assert drawn.min() >= 0
    assert drawn.max() < n
    scale = n / math.sqrt(12) * math.sqrt(1 - 1 / n**2) / math.sqrt(drawn.size)
    assert abs(drawn.mean() - (n - 1) / 2) < LIMIT * scale


@settings(max_examples=8, deadline=None)
@given(n=st.integers(1, 300), seed=st.integers(0, 2**64 - 1))
def test_permute_is_a_permutation(n, seed):
    keys = random.chain_keys(seed, 1).batch
    places = random.permute(random.salts(keys, n), jnp.arange(n, dtype=jnp.uint32)[:, None], n)
    np.testing.assert_array_equal(np.sort(np.asarray(places)[:, 0]), np.arange(n))


@pytest.mark.parametrize("n", [3, 4, 5, 6])
def test_permutations_are_uniform(keys, n):
    """Chi-square over all n! permutations, beyond its mean by no more than `LIMIT` standard deviations."""
    trials = 200_000
    chosen = random.fold(keys[0], jnp.arange(trials, dtype=jnp.uint32))
    index = jnp.arange(n, dtype=jnp.uint32)[:, None]
    places = np.asarray(jax.jit(lambda k: random.permute(random.salts(k, n), index, n))(chosen)).T
    code = {p: i for i, p in enumerate(itertools.permutations(range(n)))}
    lookup = np.full((n,) * n, -1)
    for permutation, i in code.items():
        lookup[permutation] = i
    counts = np.bincount(lookup[tuple(places.T)], minlength=len(code))
    expected, freedom = trials / len(code), len(code) - 1

    def excess(counts):
        return (((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom)

    assert excess(counts) < 6
    doubled = np.where(np.arange(len(code)) == 0, 2 * counts, counts)
    assert excess(doubled) > 6  # negative control: one permutation twice as often


def test_pairs_of_places_are_uniform(keys):
    n, trials = 100, 1_000_000
    chosen = random.fold(keys[0], jnp.arange(trials, dtype=jnp.uint32))
    for pair in ((0, 1), (0, 10), (3, 47)):
        index = jnp.array(pair, jnp.uint32)[:, None]
        first, second = np.asarray(jax.jit(lambda k, i=index: random.permute(random.salts(k, n), i, n))(chosen), int)
        counts = np.bincount(first * n + second, minlength=n * n).reshape(n, n)
        assert (np.diag(counts) == 0).all()
        expected, freedom = trials / (n * (n - 1)), n * (n - 1) - 1
        chi = ((counts[~np.eye(n, dtype=bool)] - expected) ** 2 / expected).sum()
        assert abs(chi - freedom) / math.sqrt(2 * freedom) < 6
