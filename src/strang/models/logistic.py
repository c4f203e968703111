"""Bayesian logistic regression: y ~ Bernoulli(s(x·w)), w ~ N(0, prior_var)."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp


@dataclass(frozen=True)
class Logistic:
    """Logistic regression with a normal prior; a datum is the pair (x, y) with y in {0, 1}.

    Args:
        features: the length of x.
        prior_var: variance of a weight.

    Example:
        >>> float(Logistic(2).log_likelihood(jnp.zeros(2), (jnp.ones(2), 1)))  # log 1/2
        -0.6931471824645996
    """

    features: int
    prior_var: float = 1.0

    def log_prior(self, position):
        return -jnp.sum(position**2) / (2 * self.prior_var)

    def log_likelihood(self, position, datum):
        x, y = datum
        logit = x @ position
        return y * logit - jax.nn.softplus(logit)

    def init(self, key):
        return jnp.zeros(self.features)
