"""Closed forms against linear algebra, and optimal rates against the exact optima on a Gaussian."""

import numpy as np
import pytest

import strang
from strang import theory
from strang.theory import linear
from strang.theory.closed import CLOSED
from strang.theory.exact import finite_time
from strang.theory.optimal import GOALS

NAMES = [f"{kind.__name__}-{name}" for kind, name in CLOSED]
every_form = pytest.mark.parametrize(("kind", "name"), list(CLOSED), ids=NAMES)
# Precision 1 with all data; with batches of one, gradients ±3/2 about the true one.
QUIET = {"data": np.zeros(2), "prior_var": 2.0, "noise_var": 4.0, "batch_order": "full"}
NOISY = {"data": np.array([-3.0, 3.0]), "prior_var": 2.0, "noise_var": 4.0, "batch_order": "iid", "batch_size": 1}
SGHMC = strang.SGHMC(3.0)
ABOBA = strang.spell(SGHMC, "chen:ABOBA")


def random_dynamics(kind, rng, known=0.0):
    return kind() if kind is strang.SGLD else kind(friction=rng.uniform(0.5, 20), gradient_noise=known)


@every_form
def test_variance_ratio_is_the_lyapunov_solution(kind, name):
    rng = np.random.default_rng(0)
    for _ in range(20):
        dynamics, precision = random_dynamics(kind, rng), rng.uniform(0.2, 50)
        step = strang.spell(dynamics, name)
        limit = min(theory.stability_limit(step, dynamics, precision), 3.0)
        h, noise = rng.uniform(0.05, 0.9) * limit, rng.uniform(0, 30)
        expected = linear.variance_ratio(step, dynamics, precision, h, noise)
        assert theory.variance_ratio(step, dynamics, precision, h, noise) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", [name for (_, name), form in CLOSED.items() if form.corrected])
def test_known_noise_is_taken_out(name):
    dynamics, precision, h = strang.SGHMC(4.0, gradient_noise=3.0), 2.0, 0.2
    step = strang.spell(dynamics, name)
    for noise in (0.0, 3.0, 5.0):
        expected = linear.variance_ratio(step, dynamics, precision, h, noise)
        assert theory.variance_ratio(step, dynamics, precision, h, noise) == pytest.approx(expected, rel=1e-9)
    clean = linear.variance_ratio(step, strang.SGHMC(4.0), precision, h)
    assert theory.variance_ratio(step, dynamics, precision, h, 3.0) == pytest.approx(clean, rel=1e-9)


@every_form
@pytest.mark.parametrize(("friction", "precision"), [(10.0, 1001.0), (1.0, 2.0), (9.0, 2.0), (30.0, 1001.0)])
def test_stability_limit_is_the_spectral_one(kind, name, friction, precision):
    dynamics = kind() if kind is strang.SGLD else kind(friction)
    step = strang.spell(dynamics, name)
    limit = theory.stability_limit(step, dynamics, precision)
    if limit == np.inf:  # up to rounding: the slow eigenvalue tends to 1
        assert linear.spectral_radius(step, dynamics, precision, np.geomspace(1e-3, 100, 200)).max() < 1 + 1e-12
    else:
        assert limit == pytest.approx(linear.stability_limit(step, dynamics, precision), rel=1e-9)


def test_overdamped_chen_is_always_stable():
    assert theory.stability_limit(ABOBA, strang.SGHMC(9.0), 2.0) == np.inf
    assert np.isfinite(theory.stability_limit(ABOBA, strang.SGHMC(1.0), 2.0))


def test_steps_without_closed_form_are_named():
    with pytest.raises(strang.InputError, match="'ubu:UBU' is unknown; choose one of: euler-old, euler-new"):
        theory.variance_ratio(strang.spell(SGHMC, "ubu:UBU"), SGHMC, 1.0, 0.1)


def test_rates():
    assert theory.rates(2) == (2, 1 / 3, 2 / 3, 1 / 5, 4 / 5, True)
    assert theory.rates(2, noise=True) == theory.rates(1) == (1, 1 / 2, 1 / 2, 1 / 3, 2 / 3, True)
    for order in (1, 2, 3, 4):
        best = theory.rates(order)
        for alpha in np.linspace(0.01, 0.99, 99):
            bias, mse = theory.exponents(order, alpha)
            assert bias <= best.bias_rate + 1e-12
            assert mse <= best.mse_rate + 1e-12
        assert theory.exponents(order, best.bias_alpha)[0] == pytest.approx(best.bias_rate)
        assert theory.exponents(order, best.mse_alpha)[1] == pytest.approx(best.mse_rate)
    with pytest.raises(strang.InputError, match="order is 0"):
        theory.rates(0)


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("noise", [False, True])
def test_best_step_size_minimises_the_bound(goal, noise):
    best = theory.best_step_size(2, 5000, noise=noise, goal=goal, transient=0.7, discretisation=1.9)
    power = (1 if noise else 2) * (1 if goal == "bias" else 2)

    def bound(h):
        return 0.7 / (5000 * h) + (1.9 if goal == "bias" else 1.9**2) * h**power

    assert best.error == pytest.approx(bound(best.step_size), rel=1e-12)
    assert bound(best.step_size * 0.999) > best.error < bound(best.step_size * 1.001)
    with pytest.raises(strang.InputError, match="goal 'variance' is unknown"):
        theory.best_step_size(2, 10, goal="variance")
    with pytest.raises(strang.InputError, match="all must be > 0"):
        theory.best_step_size(2, 0)


# The start has no spread where the bias of the transient shall have the sign of the discretisation's.
RATES = [("mse", QUIET, 4.0, False), ("bias", QUIET, 0.0, False), ("mse", NOISY, 4.0, True), ("bias", NOISY, 4.0, True)]


@pytest.mark.parametrize(("goal", "model", "init_var", "noise"), RATES)
def test_exact_optima_follow_the_rates(goal, model, init_var, noise):
    """Facts 1 and 7: a step of order 2 has the rates of K = 2 with full gradients, of K = 1 with independent noise."""
    few, many = (
        theory.best_exact_step_size(ABOBA, SGHMC, steps=steps, goal=goal, init_var=init_var, **model)
        for steps in (10**6, 10**8)
    )
    expected = theory.rates(ABOBA.order, noise)
    alpha = np.log(few.step_size / many.step_size) / np.log(100)
    rate = np.log(few.error / many.error) / np.log(100)
    assert alpha == pytest.approx(getattr(expected, f"{goal}_alpha"), abs=0.01)
    assert rate == pytest.approx(getattr(expected, f"{goal}_rate"), abs=0.01)


def test_best_exact_step_size_beats_a_dense_grid():
    settings = {**QUIET, "steps": 2000, "init_var": 4.0}
    grid = np.geomspace(0.05, 3, 150)
    for goal, shape in (("mse", None), ("bias", None), ("mse", lambda l: l**-0.2)):
        best = theory.best_exact_step_size(ABOBA, SGHMC, goal=goal, shape=shape, largest=3.0, **settings)
        sizes = grid if shape is None else [lambda l, c=c: c * l**-0.2 for c in grid]
        errors = [abs(getattr(finite_time(ABOBA, SGHMC, step_size=h, **settings), goal)) for h in sizes]
        assert best.error <= min(errors)
        if goal == "mse":
            assert best.step_size == pytest.approx(grid[np.argmin(errors)], rel=0.04)
    with pytest.raises(strang.InputError, match="one-dimensional"):
        theory.best_exact_step_size(ABOBA, SGHMC, **{**settings, "data": [[1.0]]})


@pytest.mark.parametrize(("noise", "before", "after"), [(0.0, 2, 4), (5.0, 1, 2)])
def test_richardson_raises_the_order(noise, before, after):
    """Fact 9, on the invariant measure: from 2 to 4 with full gradients, from 1 to 2 under independent noise."""

    def bias(h):
        return theory.variance_ratio(ABOBA, SGHMC, 1.0, h, noise) - 1

    def extrapolated(h):
        return theory.richardson(bias(h), bias(h / 2), before)

    assert np.log2(bias(0.02) / bias(0.01)) == pytest.approx(before, abs=0.05)
    assert np.log2(extrapolated(0.05) / extrapolated(0.025)) == pytest.approx(after, abs=0.05)


def test_power_sums_need_the_integral_up_to_the_end():
    """Erratum A17: the paper's upper bound, with the integral up to L - 1, fails."""
    for alpha in (0.2, 0.5, 1.0, 1.5):
        for steps in (2, 10, 1000):
            low, high = theory.power_sum_bounds(alpha, steps)
            assert low < (np.arange(1.0, steps + 1) ** -alpha).sum() < high
    assert (np.arange(1.0, 11) ** -0.5).sum() > 1 + theory.power_sum_bounds(0.5, 9)[0]


@pytest.mark.parametrize(
    ("schedule", "verdict"),
    [
        (lambda l: l**-0.2, (True, True, True)),
        (lambda l: 0.1 * l ** (-1 / 3), (True, True, True)),
        (lambda l: l**-1.0, (True, True, True)),
        (lambda l: l**-1.2, (False, False, False)),
        (lambda l: 0.1 + 0 * l, (True, False, True)),
        (lambda l: 0.5, (True, False, True)),
        (lambda l: np.maximum(0.01, 0.1 * l**-0.5), (True, False, True)),
        (lambda l: 0.1 * (1 + l / 1000) ** -0.5, (True, True, True)),
    ],
)
def test_verdicts_on_schedules(schedule, verdict):
    sums = theory.schedule_sums(schedule, 2, 10**6)
    assert (sums["sum_diverges"], sums["bias_vanishes"], sums["noise_vanishes"]) == verdict
    assert sums["consistent"] == all(verdict)


def test_schedule_sums_have_the_logarithm_of_erratum_16():
    """At alpha = 1/(K+1), Σh^(K+1)/S_L is L^(-K alpha) times log L; below, it is not."""
    for alpha, grows in ((1 / 3, True), (1 / 4, False)):
        sums = theory.schedule_sums(lambda l, alpha=alpha: l**-alpha, 2, 10**6)
        scaled = sums["bias_ratio"] * np.array(sums["steps"], float) ** (2 * alpha)
        assert sums["steps"] == [10, 100, 1000, 10**4, 10**5, 10**6]
        gain = np.diff(scaled)[-2:]
        if grows:
            assert gain == pytest.approx(np.log(10) * (1 - alpha), rel=0.05)
        else:
            assert abs(gain[1]) < 0.6 * abs(gain[0])
    l = np.arange(1.0, 1235)
    sums = theory.schedule_sums(lambda l: l**-0.5, 2, 1234)
    assert sums["steps"] == [12, 123, 1234]
    assert sums["sum"][-1] == pytest.approx((l**-0.5).sum())
    assert sums["noise_ratio"][-1] == pytest.approx((1 / l).sum() / (l**-0.5).sum() ** 2)
    with pytest.raises(strang.InputError, match="three decades"):
        theory.schedule_sums(lambda l: l, 2, 999)
