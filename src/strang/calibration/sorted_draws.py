"""Scores of forecasts that are draws of the response, exact for any number of draws that are exchangeable with it."""

import numpy as np


class SortedDraws:
    """Draws of the responses of a block of rows, rows first."""

    def __init__(self, draws: np.ndarray):
        self.draws = np.sort(draws, axis=1)

    def mean(self) -> np.ndarray:
        return self.draws.mean(1)

    def pit(self, responses: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """The response's rank among draws, at this position (0 to 1) of the ranks and the gap that ties leave to it."""
        below = (self.draws < responses[:, None]).sum(1)
        equal = (self.draws == responses[:, None]).sum(1)
        return (below + positions * (equal + 1)) / (self.draws.shape[1] + 1)

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """The ends of the central interval, by order statistics.

        A response that is exchangeable with m draws lies between the k-th smallest and the k-th largest with
        probability 1 − 2k/(m + 1), whatever the law; between whole k the ends are interpolated, as by
        `np.quantile(..., method="weibull")`.
        """
        place = round((1 - level) / 2 * (self.draws.shape[1] + 1), 9) - 1  # whole numbers stay whole
        k, fraction = int(place), place - int(place)
        up, down = self.draws, self.draws[:, ::-1]
        lower, upper = (x[:, k] + fraction * (x[:, k + 1] - x[:, k]) for x in (up, down))
        return lower, upper

    def crps(self, responses: np.ndarray) -> np.ndarray:
        """The fair CRPS, mean |x − y| − Σ_{i<j} |xᵢ − xⱼ| / (m (m − 1)), whose sum over pairs is one over ranks."""
        m = self.draws.shape[1]
        weights = (2 * np.arange(m) + 1 - m) / (m * (m - 1))
        centred = self.draws - self.draws[:, [m // 2]]  # the weights sum to 0: only rounding is less
        return np.abs(self.draws - responses[:, None]).mean(1) - (centred * weights).sum(1)
