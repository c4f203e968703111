"""The paper's synthetic model: θ ~ N(0, prior_var), x_i ~ N(θ, noise_var). Its posterior is known."""

from dataclasses import dataclass

import jax
import numpy as np


@dataclass(frozen=True)
class Gaussian:
    """A Gaussian with known variance and unknown mean θ, whose posterior is known.

    Args:
        prior_var: variance of the prior, whose mean is 0.
        noise_var: variance of a datum.
        start_mean: mean of the normal distribution from which chains start.
        start_var: its variance.

    Example:
        >>> Gaussian().posterior([1.0, 2.0, 3.0])
        (1.5, 0.25)
    """

    prior_var: float = 1.0
    noise_var: float = 1.0
    start_mean: float = 0.0
    start_var: float = 1.0

    def log_prior(self, position):
        return -(position**2) / (2 * self.prior_var)

    def log_likelihood(self, position, datum):
        return -((datum - position) ** 2) / (2 * self.noise_var)

    def init(self, key):
        # Paper: "random initializations". We: θ0 ~ N(start_mean, start_var), as nothing more is said (erratum A23).
        return self.start_mean + self.start_var**0.5 * jax.random.normal(key)

    def posterior(self, data) -> tuple[float, float]:
        """Mean and variance of θ given the data."""
        data = np.asarray(data, float)
        precision = 1 / self.prior_var + data.size / self.noise_var
        return float(data.sum() / self.noise_var / precision), float(1 / precision)
