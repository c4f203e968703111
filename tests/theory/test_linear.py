"""The linear analysis of the shipped steps against the closed forms of the Gaussian model."""

import numpy as np
import pytest
import scipy.linalg

import strang
from schemes import ALL, label, scheme
from strang.cli.schemes import integrators
from strang.theory.cubature import circle
from strang.theory.linear import covariance, linearise, spectral_radius, stability_limit, variance_ratio
from strang.util.errors import InputError

LINEAR = [tested for tested in ALL if tested.invariant is not None]


def sgld(K, D, h, V):
    return (1 + h * V / 2) / (1 - h * K / 2)


def averaged_noise(K, D, h, V):
    return 1 + h * V / (2 - h * K)


def euler_old(K, D, h, V):
    return (2 * D + h * V) * (2 - D * h + h * h * K) / ((D - h * K) * (4 - 2 * D * h + h * h * K))


def euler_new(K, D, h, V):
    return (1 + h * V / (2 * D)) / (1 - h * h * K / (4 - 2 * D * h))


def chen_aboba(K, D, h, V):
    return (D * h / 2) / np.sinh(D * h / 2) * (1 + h * V / (2 * D))


def leimkuhler_aboba(K, D, h, V):
    return 1 + h * h * V / (4 * np.tanh(D * h / 2))


CLOSED = {
    "euler": sgld,
    "averaged-noise": averaged_noise,
    "euler-old": euler_old,
    "euler-new": euler_new,
    "euler-position-first": euler_new,
    "chen:ABOBA": chen_aboba,
    "leimkuhler:ABOBA": leimkuhler_aboba,
}


def stable_draws(name: str, count: int = 20):
    """Random precision, friction, gradient noise, and a step size inside the scheme's stability."""
    rng = np.random.default_rng(7)
    for _ in range(count):
        K, D, V = np.exp(rng.uniform(np.log([0.1, 0.3, 0.1]), np.log([1000, 30, 1e5])))
        fastest = {"euler": 2 / K, "averaged-noise": 2 / K, "euler-old": min(D / K, 2 / D)}
        h = rng.uniform(0.01, 0.8) * fastest.get(name, min(1 / np.sqrt(K), 1 / D))
        yield float(K), float(D), float(h), float(V)


def dynamics_of(name: str, D: float, V: float = 0.0):
    return strang.SGLD() if name in strang.SGLD.steps else strang.SGHMC(friction=D, gradient_noise=V)


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms(name):
    step = scheme(name, (strang.SGLD, strang.SGHMC)).step
    for K, D, h, V in stable_draws(name):
        for noise in (0.0, V):
            ratio = variance_ratio(step, dynamics_of(name, D), K, h, noise)
            assert ratio == pytest.approx(CLOSED[name](K, D, h, noise), rel=1e-9)


@pytest.mark.parametrize("name", ["leimkuhler:BAOAB", "leimkuhler:BAOA", "nogin"])
def test_schemes_without_bias(name):
    step = scheme(name).step
    for K, D, h, V in stable_draws(name):
        assert variance_ratio(step, strang.SGHMC(friction=D), K, h) == pytest.approx(1, abs=1e-9)
        assert variance_ratio(step, strang.SGHMC(friction=D), K, h, V) > 1 + 1e-6


def test_known_gradient_noise_is_taken_out():
    for K, D, h, V in stable_draws("nogin"):
        known = strang.SGHMC(friction=D, gradient_noise=min(V, D / h))
        exact = variance_ratio(scheme("nogin").step, known, K, h, known.gradient_noise)
        assert exact == pytest.approx(1, abs=1e-9)
        left = variance_ratio(scheme("chen:ABOBA").step, known, K, h, known.gradient_noise)
        assert left == pytest.approx(chen_aboba(K, D, h, 0.0), rel=1e-9)


@pytest.mark.parametrize("name", CLOSED)
def test_the_continuation_to_complex_step_sizes_is_analytic(name):
    step, h = scheme(name, (strang.SGLD, strang.SGHMC)).step, circle(0.2)
    ratio = variance_ratio(step, dynamics_of(name, 1.3), 1.0, h, 0.5)
    np.testing.assert_allclose(ratio, CLOSED[name](1.0, 1.3, h, 0.5), rtol=1e-10)


@pytest.mark.parametrize("tested", LINEAR, ids=label)
def test_the_covariance_is_that_of_scipys_lyapunov_equation(tested):
    maps = linearise(tested.step, tested.dynamics, 1.0, np.array([0.05, 0.3, 0.6]))
    for transition, push, noise, solution in zip(*maps, covariance(maps, 0.4), strict=True):
        drive = noise @ noise.T + 0.4 * np.outer(push, push)
        np.testing.assert_allclose(
            solution, scipy.linalg.solve_discrete_lyapunov(transition, drive), rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize(
    ("name", "friction", "limit"),
    [
        ("euler-old", 10.0, 0.010),
        ("euler-old", 20.0, 0.020),
        ("euler-old", 30.0, 0.030),
        ("euler-new", 10.0, 0.0541),
        ("euler-new", 20.0, 0.0464),
        ("euler-new", 30.0, 0.0400),
        ("chen:ABOBA", 10.0, 0.0649),
        ("chen:ABOBA", 20.0, 0.0711),
        ("chen:ABOBA", 30.0, 0.0918),
        ("euler", None, 0.0020),
    ],
)
def test_first_unstable_step_sizes_of_the_papers_model(name, friction, limit):
    step = scheme(name, (strang.SGLD, strang.SGHMC)).step
    dynamics, K = dynamics_of(name, friction), 1001.0
    computed = stability_limit(step, dynamics, K)
    assert np.ceil(computed * 1e4) / 1e4 == pytest.approx(limit, abs=1e-9)  # the first unstable multiple of 1e-4
    inside, outside = spectral_radius(step, dynamics, K, np.array([0.999, 1.001]) * computed)
    assert inside < 1 < outside


@pytest.mark.parametrize("D", [0.5, 3.0])
def test_stability_limits_with_a_formula(D):
    K = 2.5
    aboba = stability_limit(scheme("chen:ABOBA").step, strang.SGHMC(friction=D), K)
    assert aboba**2 * K == pytest.approx(4 * np.cosh(D * aboba / 2), rel=1e-9)
    old = stability_limit(scheme("euler-old").step, strang.SGHMC(friction=D), K)
    assert old == pytest.approx(D / K, rel=1e-9)
    assert stability_limit(scheme("leimkuhler:BAOAB").step, strang.SGHMC(friction=D), K) == pytest.approx(2 / K**0.5)


def test_a_step_size_below_the_limit_has_none():
    assert stability_limit(scheme("leimkuhler:BAOAB").step, strang.SGHMC(friction=1.0), 1.0, largest=1.5) == float(
        "inf"
    )


def test_a_thermostat_is_refused():
    with pytest.raises(InputError, match="a thermostat's step is not linear"):
        variance_ratio(scheme("chen:ABOBA", strang.SGNHT).step, strang.SGNHT(), 1.0, 0.1)


@pytest.mark.parametrize(
    ("precision", "friction", "h"), [(1e-300, 1e300, 0.005), (1e-30, 1.0, 1e300), (1.0, 1e-300, 0.1), (1.0, 1.0, 1e-15)]
)
def test_numbers_beyond_double_precision_are_refused(precision, friction, h):
    with pytest.raises(InputError, match="double precision cannot resolve"):
        variance_ratio(scheme("chen:ABOBA").step, strang.SGHMC(friction=friction), precision, h)


def test_stability_limits_far_from_one_over_root_K():
    assert stability_limit(scheme("euler", strang.SGLD).step, strang.SGLD(), 1e-6) == pytest.approx(2e6, rel=1e-9)
    stiff = stability_limit(scheme("euler-old").step, strang.SGHMC(friction=1e9), 1.0)
    assert stiff == pytest.approx(2e-9, rel=1e-9)


@pytest.mark.parametrize("K", [1e-300, 1.0, 1e300])
@pytest.mark.parametrize("D", [1e-300, 1e300])
@pytest.mark.parametrize("h", [1e-300, 0.1, 1e300])
def test_strang_integrators_ends_with_a_table_or_one_sentence(K, D, h, capsys):
    try:
        integrators(dynamics="sghmc", precision=K, friction=D, step_size=h, gradient_noise=1e300)
        sentence = ""
    except InputError as error:
        sentence = str(error)
    table = capsys.readouterr().out
    assert ("write" in sentence and not table) or ("chen:ABOBA" in table and "nan" not in table)
