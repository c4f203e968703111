"""Scores of forecasts that are mixtures of normals with equal weights, to rounding."""

import numpy as np
from scipy.special import erf, logsumexp, ndtr, ndtri

MAX_ITERATIONS = 100  # bisection alone needs about 60
REACH = 8.5  # standard deviations beyond which a normal's tail is below rounding
NODES_PER_SD = 2  # see mean_distance_by_cdf
NODE_BLOCK_SIZE = 2**20  # numbers that are held at once in an integral


class Normals:
    """Means and standard deviations of the mixtures of a block of rows, rows first."""

    def __init__(self, means: np.ndarray, sds: np.ndarray):
        self.means, self.sds = means, sds

    def mean(self) -> np.ndarray:
        return self.means.mean(1)

    def nll(self, responses: np.ndarray) -> np.ndarray:
        z = (responses[:, None] - self.means) / self.sds
        logs = -0.5 * z**2 - np.log(self.sds)
        return 0.5 * np.log(2 * np.pi) + np.log(logs.shape[1]) - logsumexp(logs, axis=1)

    def pit(self, responses: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """The distribution function at the response; it has no jumps, so positions within them do not matter."""
        return ndtr((responses[:, None] - self.means) / self.sds).mean(1)

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """The ends of the central interval; the upper one is the lower one of the mirrored mixture, as precise."""
        tail = (1 - level) / 2
        return lower_quantile(self.means, self.sds, tail), -lower_quantile(-self.means, self.sds, tail)

    def crps(self, responses: np.ndarray) -> np.ndarray:
        """E|X − y| − E|X − X'|/2 with X and X' from the mixture (Grimit et al. 2006)."""
        to_response = mean_absolute(responses[:, None] - self.means, self.sds).mean(1)
        return to_response - 0.5 * mean_distance(self.means, self.sds)


def mean_absolute(mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """E|X| of a normal X."""
    z = mean / (np.sqrt(2) * sd)
    return mean * erf(z) + np.sqrt(2 / np.pi) * sd * np.exp(-(z**2))


def mean_distance(means: np.ndarray, sds: np.ndarray) -> np.ndarray:
    """E|X − X'| of two independent draws from each row's mixture, by whichever of two exact ways is faster."""
    width = (means + REACH * sds).max(1) - (means - REACH * sds).min(1)
    by_cdf = NODES_PER_SD * width / sds.min(1) < means.shape[1]
    distance = np.empty(len(means))
    distance[~by_cdf] = mean_distance_by_pairs(means[~by_cdf], sds[~by_cdf])
    for row in np.flatnonzero(by_cdf):
        distance[row] = mean_distance_by_cdf(means[row], sds[row])
    return distance


def mean_distance_by_pairs(means: np.ndarray, sds: np.ndarray) -> np.ndarray:
    """The closed form: the mean over pairs of components of E|X − X'|. Pairs at the same distance in the list of
    components are taken together, so that memory is that of the list."""
    m = means.shape[1]
    total = (sds / np.sqrt(np.pi)).sum(1)  # half of what a component has with itself
    for lag in range(1, m):
        sd = np.hypot(sds[:, lag:], sds[:, :-lag])
        total += mean_absolute(means[:, lag:] - means[:, :-lag], sd).sum(1)
    return 2 * total / m**2


def mean_distance_by_cdf(means: np.ndarray, sds: np.ndarray) -> float:
    """One row's 2 ∫ F (1 − F) dx by the trapezoidal rule, which is exact to rounding here.

    By Poisson's summation formula the rule with step h errs by the Fourier transform of F (1 − F) at multiples of 2π/h.
    It falls like exp(−k² s²/4), s being the smallest standard deviation: below exp(−39) for h = s/2.
    """
    step = sds.min() / NODES_PER_SD
    nodes = np.arange((means - REACH * sds).min(), (means + REACH * sds).max() + step, step)
    total = 0.0
    for part in np.array_split(nodes, -(-nodes.size * means.size // NODE_BLOCK_SIZE)):
        cdf = ndtr((part[:, None] - means) / sds).mean(1)
        total += (cdf * (1 - cdf)).sum()
    return 2 * step * total


def lower_quantile(means: np.ndarray, sds: np.ndarray, tail: float) -> np.ndarray:
    """The quantile of each row's mixture, by Newton's method within a bracket, which is halved where that is safer."""
    centre = means.mean(1)
    means = means - centre[:, None]
    ends = means + ndtri(tail) * sds
    low, high = ends.min(1), ends.max(1)  # the mixture's quantile is between those of its components
    sd, narrowest = np.sqrt((sds**2).mean(1) + means.var(1)), sds.min(1)
    quantile, last_step = np.clip(ndtri(tail) * sd, low, high), high - low
    rows = np.flatnonzero(high > low)
    for _ in range(MAX_ITERATIONS):
        if not rows.size:
            break
        x = quantile[rows]
        z = (x[:, None] - means[rows]) / sds[rows]
        excess = ndtr(z).mean(1) - tail
        density = (np.exp(-0.5 * z**2) / sds[rows]).mean(1) / np.sqrt(2 * np.pi)
        low[rows] = np.where(excess <= 0, x, low[rows])
        high[rows] = np.where(excess >= 0, x, high[rows])
        newton = x - excess / np.maximum(density, np.finfo(float).tiny)
        safe = (low[rows] <= newton) & (newton <= high[rows]) & (np.abs(newton - x) <= 0.5 * last_step[rows])
        quantile[rows] = np.where(safe, newton, 0.5 * (low[rows] + high[rows]))
        last_step[rows] = np.abs(quantile[rows] - x)
        rows = rows[last_step[rows] > np.maximum(1e-12 * narrowest[rows], np.spacing(np.abs(x)))]
    return centre + quantile
