"""Steps of large states keep what small ones compute twice; their numbers are the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import strang
from strang.integrators import words

CASES = [
    (strang.SGHMC(3.0), "chen:ABOBA"),
    (strang.SGHMC(3.0), "leimkuhler:BAOAB"),
    (strang.SGHMC(3.0), "ubu:UBU"),
    (strang.SGNHT(3.0), None),
    (strang.SGLD(), None),
]


@pytest.mark.parametrize(("dynamics", "word"), CASES)
def test_large_states_move_as_small_ones_do(dynamics, word, monkeypatch):
    step = words.spell(dynamics, word or dynamics.default_integrator)
    position = jnp.linspace(-1.0, 1.0, 12)
    state = dynamics.init(position, jnp.cos(position))
    noise = tuple(jnp.sin(k + position) for k in range(step.noises))

    def moved(h):
        return step(dynamics, state, h, lambda q: q**3 + q, noise)

    small = jax.jit(moved)(0.1)
    monkeypatch.setattr(words, "MAX_RECOMPUTED", 1)
    large = jax.jit(lambda h: moved(h))(0.1)
    for there, here in zip(jax.tree.leaves(small), jax.tree.leaves(large), strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-6, atol=1e-7)
    lost = jax.jit(lambda h: moved(h))(jnp.nan)  # a step that is not a number shows
    assert any(np.isnan(np.asarray(leaf)).any() for leaf in jax.tree.leaves(lost))
