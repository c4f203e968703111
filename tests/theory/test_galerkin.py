"""Invariant averages of the shipped steps against closed forms, moment equations, transfer kernels and simulation."""

from dataclasses import replace
from functools import cache
from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import strang
from strang.data.orders import ORDERS
from strang.theory import closed, finite_time, galerkin
from strang.theory.galerkin import invariant_average
from strang.theory.linear import linearise, variance_ratio
from strang.util.errors import InputError

SWEEPS = ("reshuffled", "symmetric", "cyclic")
WORDS = ("chen:ABOBA", "leimkuhler:BAOAB", "nogin", "euler-old", "euler-new", "euler-position-first")
SGHMC = strang.SGHMC(1.7)


def affine(slopes, offsets):
    return [lambda q, k=k, c=c: k * q + c for k, c in zip(slopes, offsets, strict=True)]


def dynamics_of(name, gradient_noise=0.0):
    return strang.SGLD() if name in strang.SGLD.steps else replace(SGHMC, gradient_noise=gradient_noise)


# Affine gradients: exact to rounding.


@pytest.mark.parametrize(
    "name", [*WORDS, "ubu:UBU", "quicsort", "opsi4o-yoshida", "chen:OBABO", "euler", "averaged-noise"]
)
def test_additive_noise_has_the_linear_theorys_variance(name):
    dynamics, h, K, V = dynamics_of(name), 0.31, 1.3, 2.25
    step = strang.spell(dynamics, name)
    noisy = affine([K, K], [V**0.5, -(V**0.5)])
    for order, noise in (("full", 0.0), ("iid", V)):
        average = K * invariant_average(step, dynamics, noisy, step_size=h, batch_order=order)
        assert average == pytest.approx(variance_ratio(step, dynamics, K, h, noise), rel=1e-11)


@pytest.mark.parametrize("name", ["chen:ABOBA", "leimkuhler:ABOBA", "euler-old", "euler-new"])
def test_closed_forms(name):
    D, h, K, V = 1.7, 0.2, 1.3, 2.25
    x = D * h / 2
    ratio = {
        "chen:ABOBA": x / np.sinh(x) * (1 + h * V / (2 * D)),
        "leimkuhler:ABOBA": 1 + h * h * V / (4 * np.tanh(x)),
        "euler-old": (2 * D + h * V) * (2 - D * h + h * h * K) / ((D - h * K) * (4 - 2 * D * h + h * h * K)),
        "euler-new": (1 + h * V / (2 * D)) / (1 - h * h * K / (4 - 2 * D * h)),
    }[name]
    pull = affine([K, K], [1.5, -1.5])
    assert K * invariant_average(name, SGHMC, pull, step_size=h) == pytest.approx(ratio, rel=1e-12)
    step = strang.spell(SGHMC, name)
    strong = replace(step, function=lambda d, s, h, g, xi: step(d, s, h, g, (1.1 * xi[0],)))
    assert K * invariant_average(strong, SGHMC, pull, step_size=h) > 1.1 * ratio  # the check can fail


def test_known_gradient_noise_is_taken_out():
    K, V, h = 1.3, 2.25, 0.31
    pull, known = affine([K, K], [1.5, -1.5]), dynamics_of("nogin", V)
    assert K * invariant_average("nogin", known, pull, step_size=h) == pytest.approx(1, abs=1e-12)
    left = K * invariant_average("chen:ABOBA", known, pull, step_size=h)
    assert left == pytest.approx(
        K * invariant_average("chen:ABOBA", SGHMC, pull, step_size=h, batch_order="full"), rel=1e-12
    )


def moment_map(step, dynamics, slope, offset, h):
    """vec E[z z'] after a step from that before it, z = (1, x)."""
    transition, push, noise = linearise(step, dynamics, slope, h)
    n = len(push)
    one = np.block([[np.ones((1, 1)), np.zeros((1, n))], [push[:, None] * offset, transition]])
    wide = np.vstack([np.zeros((1, noise.shape[1])), noise])
    return np.kron(one, one) + np.outer((wide @ wide.T).ravel(), np.eye((n + 1) ** 2)[0])


def sequences(order, count):
    """All equally likely periods."""
    if order == "iid":
        return [(k,) for k in range(count)]
    if order == "cyclic":
        return [tuple(range(count))]
    return [p + p[::-1] if order == "symmetric" else p for p in permutations(range(count))]


def enumerated(maps, order, unit, read):
    """The mean of `read` over a period, by listing every order of the batches. The maps leave the mass `unit` alone."""
    periods = sequences(order, len(maps))
    products = [np.linalg.multi_dot([np.eye(len(unit)), *(maps[k] for k in p[::-1])]) for p in periods]
    mass = unit / (unit @ unit)
    start = np.linalg.solve(np.eye(len(unit)) - np.mean(products, axis=0) + np.outer(mass, unit), mass)
    seen = []
    for p in periods:
        now = start
        for k in p:
            now = maps[k] @ now
            seen.append(read @ now)
    return np.mean(seen)


def second_moment(maps, order):
    """E q² from the moments of (1, q, ...)."""
    unit = np.eye(len(maps[0]))
    return enumerated(maps, order, unit[0], unit[int(len(unit) ** 0.5) + 1])


SLOPES, OFFSETS = (0.4, 1.1, 3.0, 0.2), (0.9, -1.0, 0.5, 0.1)  # unequal precisions: the noise grows with q
PULLS = affine(SLOPES, OFFSETS)  # the same functions everywhere, to compile them once


@pytest.mark.parametrize("order", ["iid", *SWEEPS])
@pytest.mark.parametrize("name", [*WORDS, "ubu:UBU", "euler"])
def test_random_slopes_have_the_variance_of_the_moment_equations(name, order):
    dynamics, h = dynamics_of(name), 0.23
    step = strang.spell(dynamics, name)
    maps = [moment_map(step, dynamics, k, c, h) for k, c in zip(SLOPES, OFFSETS, strict=True)]
    average = invariant_average(step, dynamics, PULLS, step_size=h, batch_order=order)
    assert average == pytest.approx(second_moment(maps, order), rel=1e-10)


DATA, PRIOR_VAR, NOISE_VAR = np.array([-0.4, 0.3, 1.9, 4.0]), 2.0, 0.8
SHIFTED = affine([1 / PRIOR_VAR + 4 / NOISE_VAR] * 4, -4 * DATA / NOISE_VAR)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ["chen:ABOBA", "euler-old", "averaged-noise"])
def test_sweeps_agree_with_the_exact_finite_time_error(name, order):
    dynamics, settings = dynamics_of(name), {"step_size": 0.04, "batch_order": order}
    step = strang.spell(dynamics, name)
    model = {"data": DATA, "batch_size": 1, "prior_var": PRIOR_VAR, "noise_var": NOISE_VAR}
    run = finite_time(step, dynamics, steps=20_080, burn_in=20_000, **model, **settings)
    assert invariant_average(step, dynamics, SHIFTED, **settings) == pytest.approx(run.mean, rel=1e-9)


def test_the_order_of_products_matters(monkeypatch):
    settings = {"step_size": 0.3, "batch_order": "cyclic"}
    maps = [moment_map(strang.spell(SGHMC, "euler-old"), SGHMC, *one, 0.3) for one in zip(SLOPES, OFFSETS, strict=True)]
    right = second_moment(maps, "cyclic")
    assert invariant_average("euler-old", SGHMC, PULLS, **settings) == pytest.approx(right, rel=1e-10)

    def last_first(one, rest):
        return galerkin.Operator(rest.matrix @ one.matrix, one.value + one.matrix @ rest.value)

    monkeypatch.setattr(galerkin, "then", last_first)
    assert invariant_average("euler-old", SGHMC, PULLS, **settings) != pytest.approx(right, rel=1e-3)


def test_degree_scale_and_center_do_not_matter_for_affine_gradients():
    settings = {"step_size": 0.1, "batch_order": "symmetric"}
    first = invariant_average("chen:ABOBA", SGHMC, PULLS, **settings)
    for change in ({"degree": 5}, {"degree": (6, 3)}, {"center": 0.7, "scale": (2.0, 0.6)}):
        assert invariant_average("chen:ABOBA", SGHMC, PULLS, **settings, **change) == pytest.approx(first, rel=1e-9)


def test_other_functions():
    variance = closed.variance_ratio(strang.spell(SGHMC, "chen:ABOBA"), SGHMC, 1.3, 0.2) / 1.3
    settings = {"step_size": 0.2, "batch_order": "full"}
    pull = affine([1.3], [-1.3])  # around 1
    average = invariant_average("chen:ABOBA", SGHMC, pull, degree=4, function=lambda q: (q - 1) ** 4, **settings)
    assert average == pytest.approx(3 * variance**2, rel=1e-11)
    fine = {"degree": 30, "center": 1.0, "scale": (variance**0.5, 1.0)}
    average = invariant_average("chen:ABOBA", SGHMC, pull, function=lambda q: jnp.cos(q - 1), **fine, **settings)
    assert average == pytest.approx(np.exp(-variance / 2), rel=1e-11)


def test_an_unstable_step_has_infinite_averages():
    settings = {"batch_order": "full"}
    assert np.isfinite(invariant_average("euler-old", SGHMC, affine([2.0], [0.0]), step_size=0.84, **settings))
    assert invariant_average("euler-old", SGHMC, affine([2.0], [0.0]), step_size=0.86, **settings) == np.inf  # h = D/K
    slopes = affine([-6.0, 8.0], [0.0, 0.0])  # stable in the mean, not in the mean square
    assert invariant_average("euler", strang.SGLD(), slopes, step_size=0.02) < 2
    assert invariant_average("euler", strang.SGLD(), slopes, step_size=0.05) == np.inf  # E(1 - hk)² = 1 - 2h + 50h²
    assert (
        invariant_average("euler", strang.SGLD(), affine([2.0], [0.0]), step_size=1e300, batch_order="full") == np.inf
    )


# The double well U = q²/2 + 4 exp(-q²/2), in two halves U/2 ± (q - cos q).

FRICTION = strang.SGHMC(3.0)
FINE = {"degree": (64, 16), "scale": (0.85, 1.0)}


def slope(q):
    return q - 4 * q * jnp.exp(-(q**2) / 2)


HALVES = [lambda q: slope(q) + 2 * (1 + jnp.sin(q)), lambda q: slope(q) - 2 * (1 + jnp.sin(q))]
AROUND_ZERO = [lambda q: slope(q) + 2 * jnp.sin(q), lambda q: slope(q) - 2 * jnp.sin(q)]  # control variates at 0


@cache
def truth():
    """E q² under exp(-U); the trapezoidal rule is exact to rounding."""
    q = np.linspace(-12, 12, 2401)
    density = np.exp(-(q**2) / 2 - 4 * np.exp(-(q**2) / 2))
    return float(q**2 @ density / density.sum())


@cache
def well(order, h, halves="plain", word="chen:ABOBA"):
    gradients = {"plain": HALVES, "control": AROUND_ZERO}[halves]
    return invariant_average(word, FRICTION, gradients, step_size=h, batch_order=order, **FINE)


@pytest.mark.parametrize(("order", "h"), [("full", 0.02), ("symmetric", 0.4)])
def test_the_double_well_has_converged(order, h):
    settings = {"step_size": h, "batch_order": order}
    more = invariant_average("chen:ABOBA", FRICTION, HALVES, degree=(72, 18), scale=(0.82, 1.0), **settings)
    assert well(order, h) == pytest.approx(more, rel=5e-9)
    coarse = invariant_average("chen:ABOBA", FRICTION, HALVES, degree=(24, 16), scale=(0.85, 1.0), **settings)
    assert well(order, h) != pytest.approx(coarse, rel=1e-7)  # the check can fail


def test_the_double_well_goes_to_the_truth():
    coarse, middle, fine = (well("full", h) for h in (0.08, 0.04, 0.02))
    assert abs(coarse - truth()) > 1e-3
    twice = (4 * middle - coarse) / 3, (4 * fine - middle) / 3
    assert (16 * twice[1] - twice[0]) / 15 == pytest.approx(truth(), rel=1e-8)


@pytest.mark.parametrize(
    ("order", "halves", "expected"),
    [
        ("full", "plain", 2),
        ("iid", "plain", 1),
        ("iid", "control", 1),
        ("reshuffled", "plain", 2),
        ("symmetric", "plain", 2),
        ("cyclic", "plain", 2),
    ],
)
def test_orders_in_the_step_size(order, halves, expected):
    small, large = (abs(well(order, h, halves) - truth()) for h in (0.02, 0.04))
    assert np.log2(large / small) == pytest.approx(expected, abs=0.08)


def test_fewer_nodes_for_several_normals_are_enough(monkeypatch):
    settings = {"step_size": 0.3, "batch_order": "iid", "degree": (32, 12), "scale": (0.85, 1.0)}
    few = invariant_average("opsi4o-yoshida", FRICTION, HALVES, **settings)
    monkeypatch.setitem(galerkin.MAX_NODES, 2, 20)
    assert few == pytest.approx(invariant_average("opsi4o-yoshida", FRICTION, HALVES, **settings), rel=1e-9)
    monkeypatch.setitem(galerkin.MAX_NODES, 2, 4)
    assert few != pytest.approx(invariant_average("opsi4o-yoshida", FRICTION, HALVES, **settings), rel=1e-9)


def test_control_variates_have_a_smaller_constant():
    plain, control = (well("iid", 0.02, halves) - truth() for halves in ("plain", "control"))
    assert 0 < control < plain / 3


def test_two_cyclic_batches_are_the_full_gradient_for_baoab():
    """The last half kick of a step and the first of the next are at one position, on two batches: their mean."""
    assert well("cyclic", 0.3, word="leimkuhler:BAOAB") == pytest.approx(
        well("full", 0.3, word="leimkuhler:BAOAB"), rel=5e-9
    )
    assert well("cyclic", 0.3) != pytest.approx(well("full", 0.3), rel=1e-4)


@pytest.mark.parametrize("order", ["full", "iid", "symmetric", "cyclic"])
def test_sgld_has_the_law_of_its_transfer_kernel(order):
    """The density after a step is a Gaussian integral of that before it; the trapezoidal rule is exact to rounding."""
    h, q = 0.15, np.linspace(-9, 9, 361)
    with jax.enable_x64(True):
        pulls = [np.asarray(gradient(jnp.asarray(q))) for gradient in ([slope] if order == "full" else HALVES)]
    kernels = [np.exp(-((q[:, None] - q + h * pull) ** 2) / (4 * h)) for pull in pulls]
    kernels = [kernel / kernel.sum(0) for kernel in kernels]
    exact = enumerated(kernels, "iid" if order == "full" else order, np.ones(len(q)), q**2)
    average = invariant_average(
        "euler", strang.SGLD(), HALVES, step_size=h, batch_order=order, degree=90, scale=(0.85, 1.0)
    )
    assert average == pytest.approx(exact, rel=1e-9)


def test_simulation():
    """|z| < 4.5: one false alarm in 150 000. Independent batches' value is far away."""
    h, chains = 0.3, 3000
    model = strang.Model(
        log_prior=lambda q: 0 * q,
        log_likelihood=lambda q, side: -(q**2 / 4 + 2 * jnp.exp(-(q**2) / 2) + side * (q - jnp.cos(q))),
        init=jnp.ones(()),
    )
    data = strang.data.arrays(np.array([1.0, -1.0], np.float32), batch_size=1, batch_order="cyclic")
    settings = {"step_size": h, "steps": 1200, "burn_in": 200, "chains": chains, "seed": 3}
    run = strang.sample(model, data, FRICTION, integrator="chen:ABOBA", average=lambda q: q**2, **settings)
    each = np.asarray(run.each.mean["average"], float)
    error = each.std(ddof=1) / chains**0.5
    assert abs(each.mean() - well("cyclic", h)) < 4.5 * error
    assert abs(each.mean() - well("iid", h)) > 10 * error


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"batch_order": "random"}, "batch_order 'random' is unknown"),
        ({"batch_order": "reshuffled", "gradients": affine([1.0] * 11, [0.0] * 11)}, "10 or fewer"),
        ({"gradients": []}, "one for each batch"),
        ({"gradients": [3.0]}, "one for each batch"),
        ({"step_size": 0.0}, "positive"),
        ({"step_size": np.nan}, "positive"),
        ({"degree": 1}, "from 2 on"),
        ({"degree": (4, 6)}, "from 2 on"),
        ({"scale": (1.0, 0.0)}, "two positive numbers"),
        ({"dynamics": strang.SGNHT()}, "use SGHMC or SGLD"),
        ({"dynamics": strang.SGHMC(1.0, gradient_noise=100.0)}, "smaller step_size or gradient_noise"),
        ({"step": "ABOBA"}, "ambiguous"),
    ],
)
def test_bad_input_is_refused(change, text):
    good = {"step": "chen:ABOBA", "dynamics": SGHMC, "gradients": affine([1.0], [0.0]), "step_size": 0.1}
    with pytest.raises(InputError, match=text):
        invariant_average(**(good | change))
