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

BLOCK = 1 << 22  # numbers of a block of rows at all draws
BISECTIONS = 60


@dataclass(frozen=True)
class Code:
    """What is compiled; equal ones share a compilation."""

    outputs: Any
    output: str


@partial(jax.jit, static_argnums=0)
def mean_probabilities(code: Code, draws: Tree, x):
    """Class probabilities, averaged over draws, which lead."""
    count = jax.tree.leaves(draws)[0].shape[0]

    def add(total, draw):
        return total + forecast(code.output, code.outputs(draw, x)), None

    like = jax.eval_shape(code.outputs, jax.tree.map(lambda leaf: leaf[0], draws), x)
    return jax.lax.scan(add, jnp.zeros(like.shape, like.dtype), draws)[0] / count


@partial(jax.jit, static_argnums=0)
def normals(code: Code, draws: Tree, x):
    """Mean and noise of the number at each draw, which leads."""
    return jax.lax.map(lambda draw: tuple(forecast(code.output, code.outputs(draw, x))), draws)


def blocks(rows: int, numbers: int) -> Iterator[slice]:
    """Blocks of rows, each of which takes so many numbers."""
    length = max(1, BLOCK // max(1, numbers))
    return (slice(start, min(start + length, rows)) for start in range(0, rows, length))


def probabilities(code: Code, draws: Tree, x: Any, prepare: Any) -> np.ndarray:
    """The predictive probabilities of each row; `prepare` standardises a block of x."""
    parts = [mean_probabilities(code, draws, prepare(x[block])) for block in blocks(len(x), 256)]
    found = np.concatenate([np.asarray(part, float) for part in parts])
    return found / found.sum(1, keepdims=True)


def mixtures(code: Code, draws: Tree, x: Any, prepare: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Means and standard deviations of the normals that predict each block of rows: draws first."""
    count = jax.tree.leaves(draws)[0].shape[0]
    for block in blocks(len(x), count):
        means, sds = normals(code, draws, prepare(x[block]))
        yield np.asarray(means, float), np.asarray(sds, float)


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
