"""A model is a prior and a one-datum likelihood over any pytree `position`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from strang.util.trees import Tree


@runtime_checkable
class Posterior(Protocol):
    """What every model offers. A latent-variable model, which has its own likelihood gradient, also has
    `likelihood_gradient(position, rows, weights, key)`: the gradient of Σ_i weights_i log p(row_i | position)."""

    def log_prior(self, position: Tree): ...

    def log_likelihood(self, position: Tree, datum: Tree): ...

    def init(self, key) -> Tree: ...


@dataclass(frozen=True)
class Model:
    """A model made of functions.

    Args:
        log_prior: the log density of a position, up to a constant.
        log_likelihood: the log density of one datum, as a function of (position, datum), up to a constant.
        init: where chains start: a position, or a function from a `jax.random` key to one, so that chains start apart.

    Example:
        >>> import jax.numpy as jnp
        >>> model = Model(lambda t: -t**2 / 2, lambda t, x: -(x - t)**2 / 2, init=jnp.zeros(()))
        >>> model.log_likelihood(1.0, 3.0)
        -2.0
    """

    log_prior: Callable
    log_likelihood: Callable
    init: Callable | Tree

    def __hash__(self):
        return hash((self.log_prior, self.log_likelihood))

    def __eq__(self, other):
        # A subclass is another model: equal ones share a compilation.
        return type(self) is type(other) and all(
            getattr(self, name) is getattr(other, name) for name in ("log_prior", "log_likelihood", "init")
        )
