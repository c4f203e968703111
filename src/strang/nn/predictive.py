"""The forecast of a fit: averages over the draws of all chains, in blocks of rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr

from strang.models.bnn import forecast
from strang.util.trees import Tree

ROWS = 256  # that are predicted together
BISECTIONS = 60


@dataclass(frozen=True)
class Code:
    """What is compiled; equal ones share a compilation."""

    outputs: Any
    output: str


@partial(jax.jit, static_argnums=0)
def mean_probabilities(code: Code, draws: Tree, x, weights=None):
    """Class probabilities, averaged over draws, which lead; `weights` are those of each draw in each row."""
    count = jax.tree.leaves(draws)[0].shape[0]

    def add(total, each):
        draw, weight = each
        found = forecast(code.output, code.outputs(draw, x))
        return total + (found if weight is None else weight[:, None] * found), None

    like = jax.eval_shape(code.outputs, jax.tree.map(lambda leaf: leaf[0], draws), x)
    return jax.lax.scan(add, jnp.zeros(like.shape, like.dtype), (draws, weights))[0] / count


@partial(jax.jit, static_argnums=0)
def chances_of(code: Code, draws: Tree, x, classes):
    """What each draw, which leads, gives each row's class."""
    return jax.lax.map(lambda draw: forecast(code.output, code.outputs(draw, x))[jnp.arange(len(x)), classes], draws)


@partial(jax.jit, static_argnums=0)
def normals(code: Code, draws: Tree, x):
    """Mean and noise of the number at each draw, which leads."""
    return jax.lax.map(lambda draw: tuple(forecast(code.output, code.outputs(draw, x))), draws)


def as_single(rows: Any) -> np.ndarray:
    """Rows that need no standardising."""
    return np.asarray(rows, np.float32)


def blocks(x: Any, prepare: Any) -> Iterator[tuple[int, np.ndarray]]:
    """Blocks of standardised rows, the last one filled up, and how many are real. All are of one length: one
    compilation serves all, and what is predicted for a row does not depend on the others."""
    for start in range(0, len(x), ROWS):
        part = prepare(x[start : start + ROWS])
        yield len(part), np.concatenate([part, np.repeat(part[-1:], ROWS - len(part), 0)])


def probabilities(code: Code, draws: Tree, x: Any, prepare: Any) -> np.ndarray:
    """The predictive probabilities of each row; `prepare` standardises a block of x."""
    parts = [np.asarray(mean_probabilities(code, draws, rows), float)[:real] for real, rows in blocks(x, prepare)]
    found = np.concatenate(parts)
    return found / found.sum(1, keepdims=True)


def sharpened(chances: np.ndarray, power: float) -> np.ndarray:
    """Probabilities of each row, taken to a power: surer where it is above 1.

    >>> sharpened(np.array([[0.5, 0.25, 0.25]]), 2.0).round(3).tolist()
    [[0.667, 0.167, 0.167]]
    """
    found = chances**power
    return found / found.sum(1, keepdims=True)


def mixtures(code: Code, draws: Tree, x: Any, prepare: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Means and standard deviations of the normals that predict each block of rows: draws first."""
    for real, rows in blocks(x, prepare):
        means, sds = normals(code, draws, rows)
        yield np.asarray(means, float)[:, :real], np.asarray(sds, float)[:, :real]


def mixture_moments(means: np.ndarray, sds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of a mixture of normals: noise and the spread of the means, by the law of total
    variance.

    >>> [float(x[0]) for x in mixture_moments(np.array([[0.0], [2.0]]), np.array([[1.0], [1.0]]))]
    [1.0, 1.4142135623730951]
    """
    return means.mean(0), np.sqrt((sds**2).mean(0) + means.var(0))


def mixture_quantile(means: np.ndarray, sds: np.ndarray, level: float) -> np.ndarray:
    """The quantile of a mixture of normals, by bisection of its distribution function.

    >>> mixture_quantile(np.zeros((1, 1)), np.ones((1, 1)), 0.975).round(6)
    array([1.959964])
    """
    reach = 40 * sds.max(0)
    low, high = means.min(0) - reach, means.max(0) + reach
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        below = ndtr((middle - means) / sds).mean(0) < level
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2
