"""The two problems that every peer gets, with the truth of their posterior variances. Needs NumPy only."""

import json
import resource
import sys
import time
from typing import NamedTuple

import numpy as np


class Problem(NamedTuple):
    """Data, sizes and settings; `variance` is the posterior variance of each coordinate."""

    name: str
    x: np.ndarray
    y: np.ndarray | None
    batch: int
    chains: int
    step_size: float
    friction: float
    variance: np.ndarray


def gaussian() -> Problem:
    """The paper's model: 1000 numbers around one unknown mean, batches of 10, 200 chains."""
    x = np.random.default_rng(0).normal(size=1000)
    x = (x - x.mean()) / x.std() + 0.5
    return Problem("gaussian", x.astype(np.float32), None, 10, 200, 2e-4, 50.0, np.array([1 / 1001]))


def logistic() -> Problem:
    """Logistic regression on 10,000 rows of 20 features, batches of 100, 8 chains.

    Its reference is Laplace's approximation, whose own error is of relative order 20/10,000 here.
    """
    random = np.random.default_rng(1)
    x = random.normal(size=(10_000, 20)) / np.sqrt(20)
    weights = random.normal(size=20)
    y = (random.uniform(size=10_000) < 1 / (1 + np.exp(-x @ weights))).astype(np.float32)
    mode = np.zeros(20)
    for _ in range(30):  # Newton's method
        p = 1 / (1 + np.exp(-x @ mode))
        hessian = np.eye(20) + (x * (p * (1 - p))[:, None]).T @ x
        mode -= np.linalg.solve(hessian, mode - x.T @ (y - p))
    return Problem("logistic", x.astype(np.float32), y, 100, 8, 2e-3, 50.0, np.diag(np.linalg.inv(hessian)))


PROBLEMS = {"gaussian": gaussian, "logistic": logistic}


def report(problem: Problem, peer: str, steps: int, seconds: float, mean, second) -> None:
    """One line of JSON: chain-steps per second, and the relative error of the posterior variance, chains averaged."""
    variance = np.mean(second, 0) - np.mean(mean, 0) ** 2
    error = float(np.mean(variance / problem.variance - 1))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rate = steps * problem.chains / seconds
    told = {"peer": peer, "problem": problem.name, "rate": rate, "variance_error": error, "peak_mb": peak}
    print(json.dumps(told), flush=True)


def timed(function):
    """The result of a second call, and how long that took: the first one compiles."""
    function()
    started = time.perf_counter()
    result = function()
    return result, time.perf_counter() - started


def chosen() -> Problem:
    """The problem named on the command line."""
    return PROBLEMS[sys.argv[1]]()
