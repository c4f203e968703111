"""Scores of predictive distributions of numbers against closed forms, quadrature and enumeration."""

import tracemalloc
from dataclasses import FrozenInstanceError
from itertools import product

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.special import logsumexp

from strang import calibration
from strang.calibration import Interval, NormalMixture, forecasts, normals
from strang.calibration.sorted_draws import SortedDraws
from strang.util.errors import InputError


def mixture(draws: int, rows: int, seed: int = 0, noise: float = 1.0) -> tuple[NormalMixture, np.ndarray]:
    """Means, unequal standard deviations, and responses drawn from the mixture."""
    rng = np.random.default_rng(seed)
    means, sds = rng.normal(size=(draws, rows)), noise * np.exp(0.3 * rng.normal(size=(draws, rows)))
    picked = rng.integers(0, draws, rows), np.arange(rows)
    return NormalMixture(means, sds), rng.normal(means[picked], sds[picked])


def by_quadrature(means: np.ndarray, sds: np.ndarray, y: float) -> float:
    """The definition of the CRPS: ∫ (F(x) − 1{x ≥ y})² dx."""
    left = quad(lambda x: stats.norm.cdf(x, means, sds).mean() ** 2, y - 30, y, epsabs=1e-13, limit=200)
    right = quad(lambda x: stats.norm.sf(x, means, sds).mean() ** 2, y, y + 30, epsabs=1e-13, limit=200)
    return left[0] + right[0]


def test_crps_of_a_normal_is_its_closed_form():
    """σ (z (2Φ(z) − 1) + 2φ(z) − 1/√π): Gneiting & Raftery 2007, section 4.2."""
    rng = np.random.default_rng(0)
    mean, sd, y = rng.normal(size=50), rng.exponential(size=50), 3 * rng.normal(size=50)
    z = (y - mean) / sd
    closed = sd * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    np.testing.assert_allclose(calibration.crps(NormalMixture(mean, sd), y), closed, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("draws", [1, 2, 7, 300])
def test_crps_of_a_mixture_is_the_integral_that_defines_it(draws):
    forecast, y = mixture(draws, 3)
    exact = [by_quadrature(forecast.means[:, k], forecast.sds[:, k], y[k]) for k in range(3)]
    np.testing.assert_allclose(calibration.crps(forecast, y), exact, rtol=1e-10)


@pytest.mark.parametrize("spread", [0.0, 1e-3, 1.0, 20.0])
@pytest.mark.parametrize("ratio", [1.0, 3.0])
def test_both_ways_to_the_mean_distance_agree_to_rounding(spread, ratio):
    rng = np.random.default_rng(0)
    means, sds = 100 + spread * rng.normal(size=(4, 60)), rng.uniform(1, ratio, (4, 60))
    by_cdf = [normals.mean_distance_by_cdf(mean, sd) for mean, sd in zip(means, sds, strict=True)]
    np.testing.assert_allclose(by_cdf, normals.mean_distance_by_pairs(means, sds), rtol=1e-13)


def test_four_times_the_step_would_show():
    """Negative control of the step: the rule is exact because of it, and not for any step."""
    means, sds = np.zeros((1, 2)), np.ones((1, 2))
    exact = normals.mean_distance_by_pairs(means, sds)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(normals, "NODES_PER_SD", 0.5)
        assert abs(normals.mean_distance_by_cdf(means[0], sds[0]) - exact) > 1e-6


def test_the_faster_way_is_taken(monkeypatch):
    """In one block: a row whose integral needs few nodes, and one with a component too narrow for that."""
    means, sds = np.zeros((200, 2)), np.ones((200, 2))
    sds[0, 1] = 1e-6
    counted = []
    monkeypatch.setattr(normals, "mean_distance_by_pairs", lambda means, sds: counted.append(len(means)) or 0.0)
    calibration.crps(NormalMixture(means, sds), np.zeros(2))
    assert counted == [1]


def fair(draws: np.ndarray, y: float) -> float:
    m = len(draws)
    return np.abs(draws - y).mean() - np.abs(draws[:, None] - draws).sum() / (2 * m * (m - 1))


@pytest.mark.parametrize("draws", [2, 3, 50, 51])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_crps_of_draws_is_the_sum_over_all_pairs(draws, shift):
    rng = np.random.default_rng(0)
    x, y = np.round(rng.normal(size=(draws, 9)), 1) + shift, rng.normal(size=9) + shift
    pairs = [fair(x[:, k], y[k]) for k in range(9)]
    np.testing.assert_allclose(calibration.crps(x, y), pairs, rtol=1e-12, atol=2e-16 * shift + 1e-15)


def test_crps_of_draws_has_no_bias():
    """All outcomes of three draws from a law of three points, weighted: E|X − y| − E|X − X'|/2 of the law itself."""
    points, weights, y = np.array([0.0, 1.0, 5.0]), np.array([0.5, 0.3, 0.2]), 0.7
    outcomes = np.array(list(product(range(3), repeat=3)))
    mean = calibration.crps(points[outcomes].T, np.full(27, y)) @ weights[outcomes].prod(1)
    distances = np.abs(points[:, None] - points)
    np.testing.assert_allclose(mean, weights @ np.abs(points - y) - weights @ distances @ weights / 2, rtol=1e-14)


def test_nll_of_mixtures_by_scipy():
    forecast, y = mixture(40, 30)
    logs = stats.norm.logpdf(y, forecast.means, forecast.sds)
    np.testing.assert_allclose(calibration.nll(forecast, y), np.log(40) - logsumexp(logs, axis=0), rtol=1e-13)
    far = calibration.nll(NormalMixture([0.0], [1.0]), [1e4])
    np.testing.assert_allclose(far, 0.5e8 + 0.5 * np.log(2 * np.pi), rtol=1e-15)


@pytest.mark.parametrize("values", [2, 3])
def test_pit_of_draws_is_exactly_uniform(values):
    """All outcomes of a response and three draws from the same discrete law: the distribution function of PIT is t."""
    outcomes = np.array(list(product(range(values), repeat=4)), float)
    weights = np.array([0.6, 0.3, 0.1][:values])
    chance = (weights / weights.sum())[outcomes.astype(int)].prod(1)
    block, y = SortedDraws(outcomes[:, 1:]), outcomes[:, 0]
    low, high = block.pit(y, np.zeros(len(y))), block.pit(y, np.ones(len(y)))
    for t in np.linspace(0, 1, 21):
        assert abs(chance @ np.clip((t - low) / (high - low), 0, 1) - t) < 1e-14


@pytest.mark.parametrize("kind", ["normals", "draws", "whole numbers"])
def test_pit_is_uniform_if_and_only_if_the_forecast_is_calibrated(kind):
    """False alarms: 1 in 10,000 for each kind. The negative control is a forecast that is too narrow by a fifth."""
    rng = np.random.default_rng(1)
    rows, m = 4000, 30
    centre = rng.normal(size=rows)
    if kind == "normals":
        y, right, narrow = rng.normal(centre), NormalMixture(centre, 1.0), NormalMixture(centre, 0.8)
    elif kind == "draws":
        y, right, narrow = rng.normal(centre), *(rng.normal(centre, sd, (m, rows)) for sd in (1.0, 0.8))
    else:
        y, right = rng.poisson(4, rows), rng.poisson(4, (m, rows))
        narrow = np.round(4 + 0.8 * (right - 4))
    assert calibration.uniformity(calibration.pit(right, y)).p_value > 1e-4
    assert calibration.uniformity(calibration.pit(narrow, y)).p_value < 1e-6
    assert calibration.score_regression(narrow, y).uniformity.p_value < 1e-6


def test_uniformity_is_that_of_kolmogorov_and_smirnov():
    for size in (1, 10, 2000):
        values = np.random.default_rng(0).random(size) ** 1.1
        expected = stats.kstest(values, "uniform")
        np.testing.assert_allclose(calibration.uniformity(values), (expected.statistic, expected.pvalue), rtol=1e-9)


def test_intervals_of_draws_cover_exactly():
    """The response is equally likely in each of the m + 1 gaps between draws: 50 % and 90 % of 20 gaps are inside."""
    y = np.arange(20) - 0.5
    draws = np.repeat(np.arange(19.0)[:, None], 20, 1)
    half, most = calibration.coverage(draws, y, levels=(0.5, 0.9))
    assert half == Interval(0.5, 0.5, (0.25 / 20) ** 0.5, 10.0)
    assert most[:2] == (0.9, 0.9)
    assert most.width == 18.0


@pytest.mark.parametrize("level", [0.123, 0.5, 0.9, 0.95])
def test_intervals_of_draws_end_at_quantiles(level):
    draws = np.random.default_rng(0).normal(size=(6, 101))
    ends = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=1, method="weibull")
    np.testing.assert_allclose(SortedDraws(draws).interval(level), ends, rtol=1e-8)


HARD = {
    "like one normal": ([0.0, 1e-9, 0.0], [1.0, 1.0, 1.0 + 1e-9]),
    "far apart": ([0.0, 1000.0, 1000.5], [1.0, 1.0, 1e-3]),
    "very unequal": ([0.0, 0.0, 3.0], [1e-6, 1e3, 1.0]),
    "far from zero": ([1e6, 1e6 + 1, 1e6 - 2], [1.0, 2.0, 0.1]),
}


@pytest.mark.parametrize("level", [0.01, 0.5, 0.9, 1 - 1e-9])
@pytest.mark.parametrize("name", HARD)
def test_intervals_of_mixtures_have_their_probability(name, level):
    means, sds = (np.array([values]) for values in HARD[name])
    (lower,), (upper,) = normals.Normals(means, sds).interval(level)
    tail = (1 - level) / 2
    rounding = 4e-16 * abs(lower) * stats.norm.pdf(lower, means, sds).mean()
    np.testing.assert_allclose(stats.norm.cdf(lower, means, sds).mean(), tail, rtol=1e-10, atol=rounding)
    np.testing.assert_allclose(stats.norm.sf(upper, means, sds).mean(), tail, rtol=1e-10, atol=rounding)


def test_a_single_normal_has_the_interval_of_tables():
    (interval,) = calibration.coverage(NormalMixture([0.0, 5.0], [1.0, 3.0]), [1.9, 11.0], levels=0.95)
    assert interval.coverage == 0.5  # 1.9 is inside 1.96, 11 is not inside 5 + 5.88
    np.testing.assert_allclose(interval.width, 2 * 1.959963984540054 * 2, rtol=1e-14)


@pytest.mark.parametrize("kind", ["normals", "draws"])
def test_coverage_is_the_level_of_calibrated_forecasts(kind):
    """To five standard errors, false alarms 1 in 10^6; intervals that are too narrow by a fifth are told apart."""
    rng = np.random.default_rng(2)
    y = rng.normal(size=20_000)
    for sd, calibrated in ((1.0, True), (0.8, False)):
        forecast = NormalMixture(np.zeros(y.size), sd) if kind == "normals" else rng.normal(0, sd, (39, y.size))
        for interval in calibration.coverage(forecast, y, levels=(0.5, 0.8, 0.95)):
            assert (abs(interval.coverage - interval.level) < 5 * interval.se) == calibrated


@pytest.mark.parametrize("kind", ["normals", "draws"])
def test_all_scores_are_those_of_the_single_functions(kind):
    forecast, y = mixture(60, 40)
    if kind == "draws":
        forecast = np.random.default_rng(0).normal(forecast.means, forecast.sds)
    score = calibration.score_regression(forecast, y, levels=(0.5, 0.8))
    crps = calibration.crps(forecast, y)
    assert (score.rows, score.crps) == (40, crps.mean())
    np.testing.assert_allclose(score.crps_se, stats.sem(crps), rtol=1e-14)
    assert list(score.intervals) == calibration.coverage(forecast, y, levels=(0.5, 0.8))
    assert score.uniformity == calibration.uniformity(calibration.pit(forecast, y))
    centre = (forecast if kind == "draws" else forecast.means).mean(0)
    np.testing.assert_allclose(score.rmse, np.sqrt(((centre - y) ** 2).mean()), rtol=1e-14)
    if kind == "draws":
        assert score.nll is None
        assert score.nll_se is None
        assert "none: draws have no density" in str(score)
    else:
        assert score.nll == calibration.nll(forecast, y).mean()
        np.testing.assert_allclose(score.nll_se, stats.sem(calibration.nll(forecast, y)), rtol=1e-14)
    with pytest.raises(FrozenInstanceError):
        score.rmse = 0.0


def test_a_single_row_has_no_standard_error():
    score = calibration.score_regression(NormalMixture([0.0], 1.0), [0.5])
    assert np.isnan([score.nll_se, score.crps_se]).all()


def test_the_true_forecast_scores_best():
    """CRPS and NLL are proper: the truth beats what is shifted, too narrow and too wide, row by row to 5 se."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=20_000)
    right, shifted, *scaled = [NormalMixture(np.full(y.size, m), s) for m, s in ((0, 1), (0.3, 1), (0, 0.7), (0, 1.4))]
    for score in (calibration.nll, calibration.crps):
        for wrong in (shifted, *scaled):
            difference = score(wrong, y) - score(right, y)
            assert difference.mean() > 5 * stats.sem(difference)


def test_standard_deviations_are_repeated_over_draws_or_rows():
    means, y = np.arange(6.0).reshape(2, 3), np.zeros(3)
    for sds in (2.0, [[2.0], [3.0]], [[2.0, 3.0, 4.0]]):
        whole = np.broadcast_to(sds, (2, 3))
        np.testing.assert_array_equal(
            calibration.nll(NormalMixture(means, sds), y), calibration.nll(NormalMixture(means, whole), y)
        )


@pytest.mark.parametrize("kind", ["normals", "draws"])
def test_scores_do_not_depend_on_blocks(kind, monkeypatch):
    forecast, y = mixture(50, 33)
    forecast = forecast.means if kind == "draws" else forecast
    whole = calibration.score_regression(forecast, y), *calibration.crps(forecast, y)
    for size in (1, 50 * 7):
        monkeypatch.setattr(forecasts, "BLOCK_SIZE", size)
        assert (calibration.score_regression(forecast, y), *calibration.crps(forecast, y)) == whole


def test_memory_maps_are_read_in_blocks(tmp_path, monkeypatch):
    """A forecast of 8 MB, and never half of it in memory."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "draws.npy", rng.normal(size=(100, 20_000)).astype(np.float32))
    draws, y = np.load(tmp_path / "draws.npy", mmap_mode="r"), rng.normal(size=20_000)
    monkeypatch.setattr(forecasts, "BLOCK_SIZE", 2**14)
    calibration.score_regression(draws[:, :100], y[:100])  # imports
    for forecast in (draws, NormalMixture(draws, np.ones((100, 1)))):
        tracemalloc.start()
        calibration.coverage(forecast, y, levels=[0.9])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < draws.nbytes / 2


NAN = np.array([[0.0, 1.0], [0.0, np.nan]] * 10)


@pytest.mark.parametrize(
    ("forecast", "responses", "text"),
    [
        (np.zeros((3, 2)), np.zeros((2, 1)), r"responses have shape \(2, 1\); give one number per row"),
        (np.zeros((3, 0)), [], r"responses have shape \(0,\)"),
        (np.zeros((3, 2)), [0.0, np.nan], "responses hold nan in row 1; leave out that row"),
        (np.zeros((3, 2)), ["a", "b"], "responses have dtype <U1; give an array of real numbers"),
        (np.zeros((3, 2)), np.zeros(3), r"draws have shape \(3, 2\) and there are 3 responses; write draws.T"),
        (np.zeros((4, 3, 2)), np.zeros(2), r"join chains and draws: write draws.reshape\(-1, 2\)"),
        (np.zeros(2), np.zeros(2), r"one number per row is no distribution: write NormalMixture\(means, sds\)"),
        (np.zeros((3, 5)), np.zeros(2), r"give shape \(draws, 2\)"),
        (np.zeros((0, 2)), np.zeros(2), r"give shape \(draws, 2\)"),
        (np.zeros((1, 2)), np.zeros(2), "there is 1 draw; give 2 or more"),
        ([[0.0, 1.0], [0.0]], np.zeros(2), "draws have rows of unequal length"),
        (np.zeros((3, 2), complex), np.zeros(2), "draws have dtype complex128"),
        (NAN, np.zeros(2), "draws hold nan in row 1"),
        (NormalMixture(NAN, 1.0), np.zeros(2), "means hold nan in row 1"),
        (NormalMixture(np.zeros(3), 1.0), np.zeros(2), r"means have shape \(1, 3\) and there are 2 responses"),
        (NormalMixture(np.zeros((3, 2)), np.inf), np.zeros(2), "sds hold inf in row 0"),
        (NormalMixture(np.zeros((3, 2)), [[1.0, 0.0]]), np.zeros(2), "sds hold 0 in row 1; .* must be above 0"),
        (NormalMixture(np.zeros((3, 2)), np.ones(3)), np.zeros(2), r"sds\[:, None\] for one per draw, sds\[None\]"),
        (NormalMixture(np.zeros((2, 2)), np.ones(2)), np.zeros(2), r"sds\[:, None\] for one per draw, sds\[None\]"),
        (NormalMixture(np.zeros((3, 2)), np.ones((2, 3))), np.zeros(2), "write one per mean, or one number"),
    ],
)
def test_bad_forecasts_are_refused(forecast, responses, text):
    for function in (calibration.crps, calibration.coverage, calibration.pit, calibration.score_regression):
        with pytest.raises(InputError, match=text):
            function(forecast, responses)


def test_what_draws_cannot_tell_is_refused():
    draws, y = np.zeros((18, 2)), np.zeros(2)
    with pytest.raises(InputError, match=r"level 0.9 needs 19 draws and there are 18; .* up to 0.895"):
        calibration.coverage(draws, y)
    calibration.coverage(np.zeros((19, 2)), y)
    with pytest.raises(InputError, match=r"draws have no density; write nll\(NormalMixture"):
        calibration.nll(draws, y)


@pytest.mark.parametrize(
    ("levels", "text"),
    [(90, "level 90 is not between 0 and 1; write 0.9"), ([], "there are no levels"), ("most", "levels have dtype")],
)
def test_bad_levels_are_refused(levels, text):
    with pytest.raises(InputError, match=text):
        calibration.coverage(NormalMixture([0.0], 1.0), [0.0], levels)


@pytest.mark.parametrize("values", [[], [0.5, np.nan], [1.1], [-0.1]])
def test_values_that_are_no_probabilities_are_refused(values):
    with pytest.raises(InputError, match="give the output of pit"):
        calibration.uniformity(values)


def test_positions_between_draws():
    draws, y = np.arange(4.0)[:, None] * np.ones(5), np.full(5, 1.5)
    np.testing.assert_array_equal(calibration.pit(draws, y, seed=None), np.full(5, 0.5))
    first, again, other = (calibration.pit(draws, y, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()
    assert ((first >= 0.4) & (first < 0.6)).all()
    with pytest.raises(InputError, match="seed is -1"):
        calibration.pit(draws, y, seed=-1)
