"""Two steps of h/2 and one of h on one Brownian path: the large step's normals are standard, and follow the others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import strang
from strang.dynamics.fields import example
from strang.integrators.coupling import combine, path_weights
from strang.integrators.words import spell

WORDS = [
    (strang.SGHMC, word)
    for word in (
        "chen:ABOBA", "chen:OBABO", "leimkuhler:BAOAB", "leimkuhler:BAOA", "leimkuhler:OBABO", "ubu:UBU", "ubu:BUB",
        ("leimkuhler", (("A", 0.5), ("O", 0.3), ("B", 1.0), ("O", 0.7), ("A", 0.5))), *strang.SGHMC.steps,
    )
] + [(strang.SGNHT, "chen:ABOBA"), (strang.SGNHT, "leimkuhler:BADODAB"), (strang.SGLD, "euler"),
     (strang.SGLD, "averaged-noise"), (strang.SGRLD, "cir"), (strang.SGRHMC, "chen:ABOBA")]  # fmt: skip


@pytest.mark.parametrize(("kind", "word"), WORDS, ids=lambda value: str(getattr(value, "__name__", value)))
@pytest.mark.parametrize("h", [1e-3, 0.3, 2.0])
def test_the_large_step_has_standard_normals(kind, word, h):
    """Rows of weights that are orthonormal make independent standard normals of independent standard normals."""
    with jax.enable_x64():
        dynamics = example(kind)
        weights = np.asarray(path_weights(spell(dynamics, word), dynamics, h))
    count = spell(dynamics, word).noises
    assert weights.shape == (count, 2 * count)
    np.testing.assert_allclose(weights @ weights.T, np.eye(count), atol=1e-12)


@pytest.mark.parametrize("word", ["ubu:UBU", "leimkuhler:OABAO", "chen:ABOBA", "quicsort"])
def test_without_a_force_the_large_step_is_the_two_small_ones(word):
    """Exactly where noise is solved exactly: U in position and momentum, O in the momentum. The others are close."""
    exact = {"ubu:UBU": (1e-12, 1e-12), "leimkuhler:OABAO": (np.inf, 1e-12), "chen:ABOBA": (np.inf, 0.2)}
    position_off, momentum_off = exact.get(word, (0.01, 0.02))
    with jax.enable_x64():
        dynamics, h = strang.SGHMC(1.7), 0.4
        step, rng = spell(dynamics, word), np.random.default_rng(0)
        first, second = (tuple(jnp.asarray(rng.normal(size=1000)) for _ in range(step.noises)) for _ in range(2))
        start = dynamics.init(jnp.asarray(rng.normal(size=1000)), jnp.asarray(rng.normal(size=1000)))

        def nothing(position):
            return jnp.zeros_like(position)

        fine = step(dynamics, step(dynamics, start, h / 2, nothing, first), h / 2, nothing, second)
        coarse = step(dynamics, start, h, nothing, combine(step, dynamics, h, first, second))
        alone = step(dynamics, start, h, nothing, first)  # negative control
        assert np.abs(fine.position - coarse.position).max() < position_off
        assert np.abs(fine.momentum - coarse.momentum).max() < momentum_off
        assert np.abs(fine.momentum - alone.momentum).max() > 0.5


@pytest.mark.parametrize("word", ["leimkuhler:BAOAB", "ubu:UBU", "chen:ABOBA", "quicsort", "opsi4o-yoshida"])
def test_both_stay_together_the_closer_the_smaller_the_step(word):
    """Along one path to time 4 in an anharmonic well; at half the step the distance is at most 0.7 of it."""
    with jax.enable_x64():
        dynamics = strang.SGHMC(1.0)
        step = spell(dynamics, word)

        def gradient(x):
            return x + x**3

        def distance(h, key):
            rng = np.random.default_rng(key)
            fine = coarse = dynamics.init(jnp.asarray(rng.normal(size=2000)), jnp.asarray(rng.normal(size=2000)))
            for _ in range(round(4 / h)):
                first, second = (tuple(jnp.asarray(rng.normal(size=2000)) for _ in range(step.noises)) for _ in "12")
                coarse = step(dynamics, coarse, h, gradient, combine(step, dynamics, h, first, second))
                fine = step(dynamics, step(dynamics, fine, h / 2, gradient, first), h / 2, gradient, second)
            return float(jnp.sqrt(jnp.mean((fine.position - coarse.position) ** 2)))

        near, far = distance(0.1, 0), distance(0.2, 1)
        assert near < 0.7 * far < 0.07
