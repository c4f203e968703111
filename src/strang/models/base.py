"""A model is a prior and a one-datum likelihood over any pytree `position`. It knows nothing of sampling."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from strang.util.trees import Tree


@runtime_checkable
class Posterior(Protocol):
    """What every model offers. One with a likelihood gradient of its own (a latent-variable model) also has
    `likelihood_gradient(position, rows, weights, key)`: the gradient of Σ_i weights_i log p(row_i | position)."""

    def log_prior(self, position: Tree): ...

    def log_likelihood(self, position: Tree, datum: Tree): ...

    def init(self, key) -> Tree: ...


@dataclass(frozen=True)
class Model:
    """A model of one's own: two log densities, up to constants, and a start.

    `init` is a position, or a function from a `jax.random` key to one so that chains start apart.

    >>> import jax.numpy as jnp
    >>> model = Model(lambda t: -t**2 / 2, lambda t, x: -(x - t)**2 / 2, init=jnp.zeros(()))
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
