"""The properties of a step follow from its word, its cost is as claimed, and bad words have clear errors."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import strang
from schemes import ALL, label, scheme
from strang.dynamics.sgnht import adapt, damp_and_noise, drift
from strang.integrators.schemes import named
from strang.integrators.words import Step, Substep, spell
from strang.theory.linear import linearise, variance_ratio
from strang.util.errors import InputError


@pytest.mark.parametrize(
    ("dynamics", "word", "order", "gradients", "noises"),
    [
        (strang.SGHMC, "chen:ABOBA", 2, 1, 1),
        (strang.SGHMC, "chen:OBABO", 2, 2, 2),
        (strang.SGHMC, "chen:bOA", 1, 1, 1),
        (strang.SGHMC, "chen:AbObA", 1, 1, 1),
        (strang.SGHMC, "chen:ABoBA", 2, 1, 1),  # o has no Euler step of its own: it is exact
        (strang.SGHMC, "leimkuhler:ABOBA", 2, 1, 1),
        (strang.SGHMC, "leimkuhler:BAOAB", 2, 2, 1),
        (strang.SGHMC, "leimkuhler:BAOA", 1, 1, 1),
        (strang.SGHMC, "leimkuhler:OBABO", 2, 2, 2),
        (strang.SGHMC, "ubu:UBU", 2, 1, 4),
        (strang.SGHMC, "ubu:BUB", 2, 2, 2),
        (strang.SGHMC, "ubu:uB", 1, 1, 2),
        (strang.SGNHT, "leimkuhler:BADODAB", 2, 2, 1),
        (strang.SGNHT, "leimkuhler:BAODOAB", 2, 2, 2),
        (strang.SGHMC, ("ubu", (("U", 0.3), ("B", 1), ("U", 0.7))), 1, 1, 4),
        (strang.SGHMC, ("ubu", (("U", 0.2), ("B", 0.5), ("U", 0.6), ("B", 0.5), ("U", 0.2))), 2, 2, 6),
    ],
)
def test_properties_are_read_off_the_word(dynamics, word, order, gradients, noises):
    step = spell(dynamics, word)
    assert (step.order, step.gradients, step.noises) == (order, gradients, noises)


def published_quicsort(friction, precision, h):
    """The linear map of QUICSORT on a Gaussian, from the formulas of Scott, O'Kane, Jelinčič & Foster."""
    sigma, gauss = np.sqrt(2 * friction), [(3 - np.sqrt(3)) / 6, (3 + np.sqrt(3)) / 6]

    def move(x, p, w, area, bend):
        pushed, force = p + sigma * (area + 6 * bend), sigma * (w - 12 * bend) / h

        def coast(t):
            lever = (np.exp(-friction * t) + friction * t - 1) / friction**2
            return x + (1 - np.exp(-friction * t)) / friction * pushed + lever * force

        first = precision * coast(gauss[0] * h)
        second = precision * (coast(gauss[1] * h) - h * (1 - np.exp(-friction * h / 3)) / friction * first)
        left = [np.exp(-friction * h * c) for c in reversed(gauss)]
        x = coast(h) - h / 2 * sum((1 - e) / friction * g for e, g in zip(left, (first, second), strict=True))
        p = np.exp(-friction * h) * pushed + (1 - np.exp(-friction * h)) / friction * force
        p = p - h / 2 * sum(e * g for e, g in zip(left, (first, second), strict=True))
        return np.array([x, p - sigma * (area - 6 * bend)])

    scales = np.diag([1.0, 1.0, np.sqrt(h), np.sqrt(h / 12), np.sqrt(h / 720)])
    return np.stack([move(*column) for column in scales], axis=1)


@pytest.mark.parametrize(("friction", "precision", "h"), [(1.3, 1.0, 0.4), (10.0, 1.0, 0.5), (10.0, 1001.0, 0.02)])
def test_quicsort_is_the_published_one(friction, precision, h):
    maps = linearise(spell(strang.SGHMC, "quicsort"), strang.SGHMC(friction=friction), precision, h)
    shipped = np.concatenate([maps.transition, maps.noise], axis=1)
    np.testing.assert_allclose(shipped, published_quicsort(friction, precision, h), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("friction", "precision", "h"), [(10.0, 1001.0, 0.005), (10.0, 1001.0, 0.02), (1.0, 1.0, 0.3)])
def test_the_splitting_of_mclachlan_has_a_fifth_of_the_error_of_his_leapfrogs(friction, precision, h):
    names = ("opsi4o-mclachlan", "opsi4o-mclachlan-splitting")
    steps = [spell(strang.SGHMC, name) for name in names]
    assert [step.gradients for step in steps] == [5, 5]
    leapfrogs, splitting = (
        abs(float(variance_ratio(step, strang.SGHMC(friction=friction), precision, h)) - 1) for step in steps
    )
    assert splitting < leapfrogs / 4.9


def test_one_kick_per_step_is_badodab_with_its_gradient_kept():
    """BADODAB as published computes one gradient per position, which the last half kick of a step and the first of the
    next share. The two are one kick of BADODA, so that positions are the same on any minibatches."""
    dynamics, h, rng = strang.SGNHT(friction=1.3, gain=0.7), 0.3, np.random.default_rng(0)
    shifts, normals = rng.normal(size=(6, 2)), rng.normal(size=(6, 2))

    def gradient(l, q):
        return 1.5 * q + q**3 + shifts[l]

    with jax.enable_x64(True):
        kept = dynamics.init(jnp.array([0.4, -1.1]), jnp.array([0.3, 0.8]))
        slope = gradient(0, kept.position)
        ours = kept._replace(momentum=kept.momentum + h / 2 * slope)  # its first kick is a whole one
        for l in range(5):
            kept = kept._replace(momentum=kept.momentum - h / 2 * slope)
            for piece, time in ((drift, h / 2), (adapt, h / 2), (damp_and_noise, h), (adapt, h / 2), (drift, h / 2)):
                kept = piece(dynamics, kept, Substep(time, None, (jnp.asarray(normals[l]),), h))
            slope = gradient(l + 1, kept.position)
            kept = kept._replace(momentum=kept.momentum - h / 2 * slope)
            step = spell(dynamics, "leimkuhler:BADODA")
            ours = step(dynamics, ours, h, partial(gradient, l), (jnp.asarray(normals[l]),))
            np.testing.assert_allclose(ours.position, kept.position, rtol=1e-12)
            np.testing.assert_allclose(ours.thermostat, kept.thermostat, rtol=1e-12)
    assert step.gradients == 1
    assert "leimkuhler:BADODA" in named(strang.SGNHT)


@pytest.mark.parametrize("tested", ALL, ids=label)
def test_a_step_asks_for_the_gradients_it_claims(tested):
    calls = 0

    def gradient(position):
        nonlocal calls
        calls += 1
        return position

    q = jnp.zeros(2)
    normals = (q,) * tested.step.noises
    jax.eval_shape(lambda: tested.step(tested.dynamics, tested.dynamics.init(q, q), 0.1, gradient, normals))
    assert calls == tested.step.gradients


@pytest.mark.parametrize("tested", [s for s in ALL if s.invariant is not None], ids=label)
def test_a_step_uses_every_normal_it_asks_for(tested):
    maps = linearise(tested.step, tested.dynamics, 1.0, np.array([0.05, 0.3, 0.6]))
    used = np.abs(maps.noise).max(axis=(0, 1)) > 1e-4
    assert used.sum() == tested.step.noises - tested.letters.count("u")  # the Euler step of U leaves one alone


def test_letters_act_in_the_order_of_the_word():
    """chen:AbO moves the position with the old momentum, chen:bOA with the new."""
    q, p = jnp.asarray(1.0), jnp.asarray(2.0)
    state, normals = strang.SGHMC.init(strang.SGHMC(), q, p), (jnp.asarray(0.0),)
    dynamics, h = strang.SGHMC(friction=3.0), 0.1
    first = spell(dynamics, "chen:AbO")(dynamics, state, h, lambda q: 5 * q, normals)
    last = spell(dynamics, "chen:bOA")(dynamics, state, h, lambda q: 5 * q, normals)
    np.testing.assert_allclose(first, (1.2, 2 * 0.7 - 0.1 * 5 * 1.2), rtol=1e-6)
    np.testing.assert_allclose(last, (1 + 0.1 * (2 * 0.7 - 0.5), 2 * 0.7 - 0.5), rtol=1e-6)


def test_unequal_fractions_reach_the_flows():
    dynamics, q = strang.SGHMC(friction=3.0), jnp.asarray(1.0)
    equal = spell(dynamics, ("leimkuhler", [("A", 0.5), ("B", 1), ("O", 1), ("A", 0.5)]))
    other = spell(dynamics, ("leimkuhler", (("A", 0.4), ("B", 1), ("O", 1), ("A", 0.6))))
    word = spell(dynamics, "leimkuhler:ABOA")
    moved = [step(dynamics, dynamics.init(q, q), 0.1, jnp.sin, (q,)).position for step in (equal, word, other)]
    assert moved[0] == moved[1] != moved[2]


def test_a_step_is_its_own_spelling():
    step = Step("mine", lambda dynamics, state, h, gradient, noise: state, order=0, gradients=0, noises=0)
    assert spell(strang.SGHMC, step) is step
    assert spell(strang.SGHMC, "nogin") is strang.SGHMC.steps["nogin"]
    assert spell(strang.SGHMC(friction=2.0), "chen:ABOBA") == spell(strang.SGHMC, "chen:ABOBA")


def test_the_three_eulers_are_three():
    q, p, noise = jnp.asarray(1.0), jnp.asarray(2.0), (jnp.asarray(0.5),)
    dynamics = strang.SGHMC(friction=3.0)
    names = ("euler-old", "euler-new", "euler-position-first")
    ends = {tuple(map(float, scheme(name).step(dynamics, dynamics.init(q, p), 0.1, jnp.sin, noise))) for name in names}
    assert len(ends) == 3
    assert [scheme(name).step.name for name in names] == list(names)


@pytest.mark.parametrize(
    ("dynamics", "word", "text"),
    [
        (
            strang.SGHMC,
            "ABOBA",
            "'ABOBA' is ambiguous for SGHMC: write 'chen:ABOBA' (B friction, O kick+noise) "
            "or 'leimkuhler:ABOBA' (B kick, O friction+noise).",
        ),
        (strang.SGHMC, "UBU", "'UBU' needs its alphabet for SGHMC: write 'ubu:UBU'."),
        (strang.SGHMC, "XYZ", "'XYZ' is no integrator of SGHMC; choose one of: euler-old, nogin, quicsort"),
        (strang.SGLD, "euler-old", "'euler-old' is no integrator of SGLD; choose one of: euler, averaged-noise."),
        (
            strang.SGHMC,
            "chem:ABOBA",
            "SGHMC has no alphabet 'chem' (in 'chem:ABOBA'); choose one of: chen, leimkuhler",
        ),
        (strang.SGHMC, "leimkuhler:BAB", "'leimkuhler:BAB' never applies O (friction+noise): it would not sample."),
        (strang.SGNHT, "leimkuhler:ABOBA", "'leimkuhler:ABOBA' never applies D (thermostat): it would not sample."),
        (strang.SGHMC, "chen:ABXBA", "'chen:ABXBA' uses 'X', which is not among A, B, O."),
        (
            strang.SGHMC,
            ("chen", (("A", 0.5), ("B", 1), ("O", 1))),
            "'chen:A(0.5) B(1) O(1)' applies A (drift) for 0.5 h; the fractions must add to 1.",
        ),
        (
            strang.SGHMC,
            ("chen", (("A", 1), ("B", 1), ("O", 1.5), ("O", -0.5))),
            "runs O (kick+noise) backwards; noise has no negative time.",
        ),
        (strang.SGHMC, 5, "5 is no integrator; write 'alphabet:LETTERS' such as 'chen:ABOBA', or ('alphabet', "),
        (strang.SGHMC, ("chen", "ABOBA"), "('chen', 'ABOBA') is no integrator; write 'alphabet:LETTERS'"),
    ],
)
def test_errors_say_what_to_write_instead(dynamics, word, text):
    with pytest.raises(InputError) as caught:
        spell(dynamics, word)
    assert text in str(caught.value)
