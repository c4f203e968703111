"""Scores of predictive distributions of numbers, one function each.

A forecast is an array of draws of the responses, of shape (draws, rows), or a `NormalMixture`. Forecasts are read in
blocks of rows: memory maps need not fit into memory.
"""

from typing import NamedTuple

import numpy as np

from strang.calibration.forecasts import Forecast, numbers
from strang.calibration.normals import Normals
from strang.util.errors import InputError, whole


class Interval(NamedTuple):
    """How many responses central intervals hold.

    Attributes:
        level: the probability that the forecast gives to its interval.
        coverage: the fraction of responses inside.
        se: the binomial standard error that the coverage has if the forecast is calibrated.
        width: the mean width of the intervals, which is the sharpness of the forecast.
    """

    level: float
    coverage: float
    se: float
    width: float


class Uniformity(NamedTuple):
    """How uniform numbers between 0 and 1 are.

    Attributes:
        distance: the largest difference between the fraction of numbers below x and x (Kolmogorov-Smirnov).
        p_value: the probability that independent uniform numbers are at least as far off.
    """

    distance: float
    p_value: float


def nll(forecast, responses) -> np.ndarray:
    """Computes −log of the predictive density at each response, in nats: the negative log likelihood.

    Args:
        forecast: a `NormalMixture`. Draws have no density: estimates of it from draws depend on a bandwidth.
        responses: the numbers that were predicted, of shape (rows,).

    Returns:
        One number per row.

    Raises:
        InputError: the forecast is an array of draws, shapes do not fit, or a number is not finite.

    Example:
        >>> from strang.calibration import NormalMixture
        >>> nll(NormalMixture(means=[0.0, 1.0], sds=2.0), [0.0, 3.0])
        array([1.61208571, 2.11208571])
    """
    checked, responses = Forecast.checked(forecast, responses)
    if checked.law is not Normals:
        raise InputError("draws have no density; write nll(NormalMixture(means, sds), responses), or use crps.")
    return checked.by_rows(lambda block, y: block.nll(y), responses)


def crps(forecast, responses) -> np.ndarray:
    """Computes the continuous ranked probability score E|X − y| − E|X − X'|/2 of each response y; less is better.

    X and X' are independent and have the predictive distribution. For a forecast that is a point it is |X − y|.

    Args:
        forecast: draws of the responses, of shape (draws, rows), or a `NormalMixture`.
        responses: the numbers that were predicted, of shape (rows,).

    Returns:
        One number per row, in the unit of the response. For a mixture it is exact. For draws it is the fair estimate,
        without bias for independent draws from the forecast however few, and can be below 0.

    Raises:
        InputError: shapes do not fit, or a number is not finite.

    Example:
        >>> crps([[0.0, 5.0], [1.0, 5.0], [2.0, 5.0]], [1.0, 7.0])
        array([0., 2.])
    """
    checked, responses = Forecast.checked(forecast, responses)
    return checked.by_rows(lambda block, y: block.crps(y), responses)


def coverage(forecast, responses, levels=(0.5, 0.9)) -> list[Interval]:
    """Counts how many responses are in the central intervals of a forecast.

    Args:
        forecast: draws of the responses, of shape (draws, rows), or a `NormalMixture`.
        responses: the numbers that were predicted, of shape (rows,).
        levels: the probabilities of the intervals.

    Returns:
        Coverage, its standard error and the mean width for each level. If responses are whole numbers, intervals hold
        more than their level even if the forecast is calibrated; `pit` does not have this defect.

    Raises:
        InputError: shapes do not fit, a number is not finite, or there are too few draws for a level.

    Example:
        >>> draws = np.arange(19.0)[:, None] * [1, 2]
        >>> coverage(draws, [3.0, 40.0], levels=[0.9])
        [Interval(level=0.9, coverage=0.5, se=0.21213203435596423, width=27.0)]
    """
    checked, responses = Forecast.checked(forecast, responses)
    levels = checked_levels(levels, checked)
    ends = checked.by_rows(lambda block: np.stack([end for level in levels for end in block.interval(level)]))
    return intervals(levels, list(ends), responses)


def pit(forecast, responses, *, seed: int | None = 0) -> np.ndarray:
    """Computes the probability integral transform: the predictive probability of numbers below each response.

    It is uniform between 0 and 1 if the forecast is calibrated. Too many values near 0 and 1 mean that the forecast is
    too narrow, too many near 1/2 that it is too wide.

    Args:
        forecast: draws of the responses, of shape (draws, rows), or a `NormalMixture`.
        responses: the numbers that were predicted, of shape (rows,).
        seed: for draws, seeds a random position between the draws next to the response and among those equal to it:
            values are then exactly uniform for any number of draws, and for whole numbers too. None puts them in the
            middle.

    Returns:
        One number per row.

    Raises:
        InputError: shapes do not fit, or a number is not finite.

    Example:
        >>> pit([[0, 0], [1, 0], [2, 0]], [1, 5], seed=None)
        array([0.5  , 0.875])
    """
    checked, responses = Forecast.checked(forecast, responses)
    positions = random_positions(seed, len(responses))
    return checked.by_rows(lambda block, y, position: block.pit(y, position), responses, positions)


def uniformity(values) -> Uniformity:
    """Measures how uniform PIT values are.

    Args:
        values: numbers between 0 and 1.

    Returns:
        The Kolmogorov-Smirnov distance to the uniform distribution, and its p-value for independent values.

    Raises:
        InputError: the values are not numbers between 0 and 1.

    Example:
        >>> uniformity([0.125, 0.375, 0.625, 0.875])
        Uniformity(distance=0.125, p_value=1.0)
    """
    from scipy.stats import kstwo  # takes half a second to import

    values = np.sort(numbers("values", values), axis=None).astype(float)
    if not values.size or not (values[0] >= 0 and values[-1] <= 1):  # NaN sorts last
        raise InputError("values must be numbers between 0 and 1, without NaN; give the output of pit.")
    steps = np.arange(values.size + 1) / values.size
    distance = float(max((steps[1:] - values).max(), (values - steps[:-1]).max()))
    return Uniformity(distance, float(kstwo.sf(distance, values.size)))


def intervals(levels: list[float], ends: list[np.ndarray], responses: np.ndarray) -> list[Interval]:
    """Compares responses with lower and upper ends, which alternate."""
    counted = []
    for level, lower, upper in zip(levels, ends[::2], ends[1::2], strict=True):
        inside = float(((lower <= responses) & (responses <= upper)).mean())
        se = float(np.sqrt(level * (1 - level) / len(responses)))
        counted.append(Interval(level, inside, se, float((upper - lower).mean())))
    return counted


def checked_levels(levels, forecast: Forecast) -> list[float]:
    """Checks that levels are probabilities, and that there are enough draws to have an interval's ends among them."""
    levels = [float(level) for level in numbers("levels", levels).ravel()]
    draws = forecast.shape[0]
    if not levels:
        raise InputError("there are no levels; write levels=[0.9], say.")
    for level in levels:
        if not 0 < level < 1:
            raise InputError(f"level {level:g} is not between 0 and 1; write 0.9 for 90 %.")
        needed = int(np.ceil(round(2 / (1 - level), 6))) - 1
        if forecast.law is not Normals and draws < needed:
            raise InputError(
                f"an interval of level {level:g} needs {needed:,} draws and there are {draws:,}; write levels=[...] "
                f"up to {1 - 2 / (draws + 1):.3g}, or give more draws."
            )
    return levels


def random_positions(seed: int | None, rows: int) -> np.ndarray:
    """Uniform numbers, or 1/2 without a seed."""
    return np.full(rows, 0.5) if seed is None else np.random.default_rng(whole("seed", seed, 0)).random(rows)
