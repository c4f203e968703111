"""Posteriors for the comparison with NUTS: a log prior, the log likelihood of one row, a start, and rows."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Problem(NamedTuple):
    """What both samplers are given."""

    log_prior: Any
    log_likelihood: Any
    init: Any
    rows: Any


def with_ones(x):
    return np.column_stack([np.ones(len(x)), x]).astype(np.float32)


def standard(x):
    return (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1)


def logistic(x, y, scale):
    """Weights with standard deviation 2.5 per standard deviation of their column."""
    x, scale = with_ones(x), jnp.asarray(scale, jnp.float32)
    signs = np.where(y > 0, 1, -1).astype(np.float32)
    return Problem(
        lambda q: -jnp.sum((q["w"] * scale) ** 2) / (2 * 2.5**2),
        lambda q, row: jax.nn.log_sigmoid(row[1] * (row[0] @ q["w"])),
        {"w": np.zeros(x.shape[1], np.float32)},
        (x, signs),
    )


def linear(x, y):
    """Normal errors; weights N(0, 100²) on standardised columns, the error's sd half-Cauchy(100)."""
    x = with_ones(standard(x))
    return Problem(
        lambda q: -jnp.sum(q["w"] ** 2) / 2e4 - jnp.log1p(jnp.exp(2 * q["log_sd"]) / 1e4) + q["log_sd"],
        lambda q, row: -(((row[1] - row[0] @ q["w"]) * jnp.exp(-q["log_sd"])) ** 2) / 2 - q["log_sd"],
        {"w": np.zeros(x.shape[1], np.float32), "log_sd": np.float32(np.log(y.std()))},
        (x, y.astype(np.float32)),
    )


def softmax(x, y):
    """Weights N(0, 1) on standardised columns."""
    x, classes = with_ones(standard(x)), int(y.max()) + 1
    return Problem(
        lambda q: -jnp.sum(q["w"] ** 2) / 2,
        lambda q, row: jax.nn.log_softmax(row[0] @ q["w"])[row[1]],
        {"w": np.zeros((x.shape[1], classes), np.float32)},
        (x, y.astype(np.int32)),
    )


def large(rows: int, columns: int = 50):
    """Logistic regression on correlated columns of unequal scale."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(columns, columns)) * 0.3 + np.eye(columns)
    x = (rng.normal(size=(rows, columns)) @ mixing) * np.exp(2 * rng.normal(size=columns))
    weights = 0.3 * rng.normal(size=columns) / x.std(0)
    y = rng.random(rows) < 1 / (1 + np.exp(-(0.3 + x @ weights)))
    return logistic(x, y, np.append(1.0, x.std(0)))


def problem(name: str) -> Problem:
    """The problem by its name: a data set of scikit-learn, or `large-` and a number of rows."""
    if name.startswith("large-"):
        return large(int(float(name.removeprefix("large-"))))
    from sklearn import datasets

    x, y = getattr(datasets, f"load_{name.split('-')[0]}")(return_X_y=True)
    if name == "breast_cancer-raw":
        return logistic(x, y, np.append(1.0, x.std(0)))
    if name == "breast_cancer":
        return logistic(standard(x), y, np.ones(x.shape[1] + 1))
    return linear(x, y) if name == "diabetes" else softmax(x, y)
