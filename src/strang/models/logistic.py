"""Bayesian logistic regression: y ~ Bernoulli(s(x·w)), w ~ N(0, prior_var)."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp


@dataclass(frozen=True)
class Logistic:
    """`features` is the length of x; a datum is the pair (x, y) with y in {0, 1}."""

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
