"""All scores of a predictive distribution of numbers, in one pass over the forecast."""

from dataclasses import dataclass

import numpy as np

from strang.calibration.forecasts import Forecast
from strang.calibration.normals import Normals
from strang.calibration.scores import Interval, Uniformity, checked_levels, intervals, random_positions, uniformity


@dataclass(frozen=True)
class RegressionScore:
    """How good a forecast of numbers is; `print` shows it as a table.

    Attributes:
        rows: the number of responses.
        nll: the mean of −log of the predictive density at the response, in nats. None for draws, which have no density.
        nll_se: its standard error over rows.
        crps: the mean continuous ranked probability score, in the unit of the response.
        crps_se: its standard error over rows.
        rmse: the root of the mean squared difference between predictive mean and response.
        intervals: coverage and mean width of central intervals, by level.
        uniformity: how uniform the PIT values are.
    """

    rows: int
    nll: float | None
    nll_se: float | None
    crps: float
    crps_se: float
    rmse: float
    intervals: tuple[Interval, ...]
    uniformity: Uniformity

    def __str__(self) -> str:
        log_score = "none: draws have no density" if self.nll is None else f"{self.nll:.4g} ± {self.nll_se:.2g} nats"
        lines = [
            f"{'rows':14}{self.rows:,}",
            f"{'nll':14}{log_score}",
            f"{'crps':14}{self.crps:.4g} ± {self.crps_se:.2g}",
            f"{'rmse':14}{self.rmse:.4g}",
        ]
        for level, coverage, se, width in self.intervals:
            name = f"{100 * level:g} % interval"
            lines.append(f"{name:14}holds {100 * coverage:.1f} ± {100 * se:.2g} %, mean width {width:.4g}")
        distance, p_value = self.uniformity
        return "\n".join([*lines, f"{'pit':14}differs from uniform by {distance:.2g}, p-value {p_value:.2g}"])


def score_regression(forecast, responses, *, levels=(0.5, 0.9), seed: int | None = 0) -> RegressionScore:
    """Computes log score, CRPS, RMSE, coverage and width of intervals, and uniformity of PIT values of a forecast.

    Args:
        forecast: draws of the responses, of shape (draws, rows), or a `NormalMixture`.
        responses: the numbers that were predicted, of shape (rows,).
        levels: the probabilities of the central intervals.
        seed: seeds the positions of PIT values between draws; see `pit`.

    Returns:
        The scores, which `nll`, `crps`, `coverage`, `pit` and `uniformity` compute one by one. Standard errors assume
        that rows are independent.

    Raises:
        InputError: shapes do not fit, a number is not finite, or there are too few draws for a level.

    Example:
        >>> from strang.calibration import NormalMixture
        >>> responses = np.linspace(-2, 2, 81)
        >>> print(score_regression(NormalMixture(np.zeros((1, 81)), 1.0), responses))
        rows          81
        nll           1.602 ± 0.068 nats
        crps          0.6925 ± 0.043
        rmse          1.169
        50 % interval holds 33.3 ± 5.6 %, mean width 1.349
        90 % interval holds 80.2 ± 3.3 %, mean width 3.29
        pit           differs from uniform by 0.1, p-value 0.36
    """
    checked, responses = Forecast.checked(forecast, responses)
    levels = checked_levels(levels, checked)
    scorable = checked.law is Normals

    def table(block, responses, positions):
        log_score = [block.nll(responses)] if scorable else []
        ends = [end for level in levels for end in block.interval(level)]
        rows = [block.crps(responses), block.pit(responses, positions), block.mean() - responses, *ends, *log_score]
        return np.stack(rows)

    crps, pit, error, *rest = checked.by_rows(table, responses, random_positions(seed, len(responses)))
    log_score = rest.pop() if scorable else None
    return RegressionScore(
        rows=len(responses),
        nll=None if log_score is None else float(log_score.mean()),
        nll_se=None if log_score is None else standard_error(log_score),
        crps=float(crps.mean()),
        crps_se=standard_error(crps),
        rmse=float(np.sqrt((error**2).mean())),
        intervals=tuple(intervals(levels, rest, responses)),
        uniformity=uniformity(pit),
    )


def standard_error(values: np.ndarray) -> float:
    """The standard error of the mean of independent values; NaN for a single one."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
