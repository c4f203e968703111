"""Repeated parts of a function are computed once, and nothing else changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strang.gradients.repeated import merge_repeated

X, Y = jnp.linspace(-1, 1, 12).reshape(4, 3), jnp.asarray([0.0, 1.0, 1.0, 0.0])


def twice(w):
    """A log likelihood as people write it, with x·w in it twice."""
    return jnp.sum(jax.vmap(lambda x, y: y * (x @ w) - jax.nn.softplus(x @ w))(X, Y))


def with_control_flow(w):
    total = jax.lax.fori_loop(0, 3, lambda k, s: s + jnp.sum(w[k] * X[k]), 0.0)
    return total + jax.lax.cond(jnp.sum(w) > 0, lambda: jnp.sum(w**2), lambda: jnp.sum(w)) + jnp.sum(w**2)


def with_literals(w):
    """Equal operations on unequal constants must stay apart."""
    return jnp.sum(w * 2.0 + w * 3.0 + jnp.clip(w, 0.0, 1.0) + jnp.clip(w, 0.0, 0.5))


def with_random(w):
    return jnp.sum(w * jax.random.normal(jax.random.key(0), (3,)) + jax.random.normal(jax.random.key(1), (3,)) * w)


@pytest.mark.parametrize("function", [twice, with_control_flow, with_literals, with_random])
def test_values_and_gradients_stay(function):
    w = jnp.asarray([0.3, -0.7, 1.1])
    for there, here in ((function, merge_repeated(function)), (jax.grad(function), jax.grad(merge_repeated(function)))):
        np.testing.assert_allclose(jax.jit(here)(w), jax.jit(there)(w), rtol=1e-6)


def test_one_product_forwards_and_one_backwards():
    counts = [
        str(jax.make_jaxpr(jax.grad(function))(jnp.ones(3))).count("dot_general[")
        for function in (twice, merge_repeated(twice))
    ]
    assert counts == [4, 2]


def test_pytrees_and_closed_over_tracers():
    def likelihood(position, scale):
        return jax.grad(merge_repeated(lambda q: scale * (q["a"] * q["b"] + jnp.sin(q["a"] * q["b"]))))(position)

    found = jax.jit(likelihood)({"a": 2.0, "b": 0.5}, 3.0)
    np.testing.assert_allclose(found["a"], 3 * 0.5 * (1 + np.cos(1.0)), rtol=1e-6)


def test_effects_are_not_merged(capsys):
    def told(w):
        jax.debug.print("seen")
        jax.debug.print("seen")
        return w

    jax.block_until_ready(merge_repeated(told)(jnp.ones(())))
    jax.effects_barrier()
    assert capsys.readouterr().out.count("seen") == 2
