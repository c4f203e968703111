"""Gradients in chunks are those of all rows at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strang.nn import chunks


def log_likelihoods(position, rows):
    x, y = rows
    return -jnp.square(y - jnp.tanh(x @ position["w"]) @ position["v"])


@pytest.fixture
def given():
    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    return {"w": draw(2, 3, 4), "v": draw(2, 4)}, (draw(7, 3), draw(7)), draw(7)


@pytest.mark.parametrize("each", [1, 2, 3, 7])
def test_gradients_and_curvature_are_those_of_all_rows(given, each, monkeypatch):
    positions, rows, weights = given
    one = jax.tree.map(lambda x: x[0], positions)
    numbers = chunks.intermediate(jax.make_jaxpr(log_likelihoods)(one, jax.tree.map(lambda x: x[:1], rows)).jaxpr)
    monkeypatch.setattr(chunks, "NUMBERS", each * numbers)

    def found(function):
        gradient = jax.grad(lambda position: weights @ function(position, rows))
        return jax.vmap(lambda q: (function(q, rows), gradient(q), jax.jvp(gradient, (q,), (q,))[1]))(positions)

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
        found(log_likelihoods),
        found(chunks.in_chunks(log_likelihoods)),
    )


def test_rows_are_cut_only_where_they_are_many(given, monkeypatch):
    position, rows, _ = jax.tree.map(lambda x: x[0], given[0]), *given[1:]

    def traced():
        return str(jax.make_jaxpr(jax.grad(lambda q: chunks.in_chunks(log_likelihoods)(q, rows).sum()))(position))

    assert "scan" not in traced()
    monkeypatch.setattr(chunks, "NUMBERS", 1)
    assert "scan" in traced()
