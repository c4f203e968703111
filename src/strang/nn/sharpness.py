"""The sharpness of forecasts of classes: the power of their probabilities under which those rows are most likely that
the forecasts have not learnt from. An average over draws of several chains, each of them calibrated, is less sure than
it should be.

At the posterior's own temperature, every row is such a row, if it is left out of its own forecast, by weights: a draw
counts the less, the more likely it makes the row's class. The largest weights are smoothed (Vehtari, Simpson, Gelman,
Yao & Gabry 2024). At lower temperatures there are no such weights, and the temperature itself has been chosen for how
sure its forecasts are.
"""

from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from strang.nn.network import Net
from strang.nn.predictive import Code, as_single, blocks, chances_of, mean_probabilities, sharpened
from strang.util.errors import need
from strang.util.trees import Tree

SPREAD, MOST = 0.2, 2.0  # of its logarithm: how far few rows can move it, and its bounds
MOST_LEFT_OUT = 8192  # rows that are left out in turn, by which it is known to 0.02
ALIKE, SHORTEST_TAIL = 1e-3, 5  # logarithms of weights that differ by less, or are fewer, are not smoothed


def left_out_in_turn(net: Net, draws: Tree, x: Any, y: np.ndarray) -> float:
    """The sharpness for the rows of a fit at temperature 1, each left out of its own forecast."""
    rows = np.linspace(0, len(x) - 1, min(MOST_LEFT_OUT, len(x))).round().astype(int)
    x, y = x[rows], y[rows]
    return best_power(without_own_row(Code(net.outputs, net.output), draws, x, y), y)


def without_own_row(code: Code, draws: Tree, x: Any, y: np.ndarray) -> np.ndarray:
    """The class probabilities of each row as draws would predict them that had not learnt from it."""
    found = []
    for block, (real, rows) in enumerate(blocks(x, as_single)):
        own = np.resize(y[block * len(rows) :][:real], len(rows))
        chances = np.asarray(chances_of(code, draws, rows, own), float)  # draw, row
        weights = leaving_out(np.log(np.maximum(chances, np.finfo(np.float32).tiny)))
        found.append(np.asarray(mean_probabilities(code, draws, rows, weights), float)[:real])
    together = np.concatenate(found)
    return together / together.sum(1, keepdims=True)


def leaving_out(log_likelihoods: np.ndarray) -> np.ndarray:
    """For each row, along the second axis, the weights of draws with which they have not learnt from it, of mean 1.

    >>> leaving_out(np.log([[0.2], [0.4], [0.4]])).ravel().round(3).tolist()  # too few to be smoothed
    [1.5, 0.75, 0.75]
    """
    weights, count = -log_likelihoods, len(log_likelihoods)
    tail = int(min(count / 5, 3 * count**0.5))  # of the smoothing
    if tail >= SHORTEST_TAIL:
        largest = np.sort(weights, axis=0)[-tail:]
        rows = largest[-1] - largest[0] > ALIKE
        smooth = need("arviz_stats.base", "sklearn").array_stats.psislw
        weights[:, rows] = smooth(log_likelihoods[:, rows].T)[0].T
    weights = np.exp(weights - weights.max(0))
    return weights / weights.mean(0)


def best_power(forecast: np.ndarray, y: np.ndarray) -> float:
    """The power of each row's probabilities that is most probable given its class, with a log-normal prior about 1.

    >>> rows = np.repeat([[0.6, 0.4]], 1000, axis=0)  # as sure as 0.6 of what happens in 8 of 10 cases
    >>> power = best_power(rows, np.arange(1000) % 5 // 4)
    >>> round(power, 2), float(sharpened(rows, power)[0, 0].round(2))
    (2.0, 0.69)
    """
    chances = np.maximum(forecast, np.finfo(np.float32).tiny)

    def loss(log_power: float) -> float:
        chosen = sharpened(chances, np.exp(log_power))[np.arange(len(y)), y]
        return -float(np.sum(np.log(chosen))) + (log_power / SPREAD) ** 2 / 2

    bound = float(np.log(MOST))
    return float(np.exp(minimize_scalar(loss, bounds=(-bound, bound), method="bounded").x))
