"""A model is a prior and a likelihood over any pytree `position`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from strang.util.errors import InputError
from strang.util.trees import Tree


@runtime_checkable
class Posterior(Protocol):
    """What every model offers.

    A model may also have `batch_log_likelihood(position, rows)`, one number for each of many rows, which is used
    instead; and `unconstrained(rows, size)`, the same model over numbers without constraints (`models.constraints`),
    which is what is sampled; and `labels`, a dict from names as in summaries, such as `b[0]`, to what people call
    them. A latent-variable model, which has its own likelihood gradient, also has
    `likelihood_gradient(position, rows, weights, key)`: the gradient of Σ_i weights_i log p(row_i | position).
    """

    def log_prior(self, position: Tree): ...

    def log_likelihood(self, position: Tree, datum: Tree): ...

    def init(self, key) -> Tree: ...


@dataclass(frozen=True)
class OneOfBatch:
    """The log likelihood of one datum, by a function of many."""

    batch_log_likelihood: Callable

    def __call__(self, position: Tree, datum: Tree):
        return self.batch_log_likelihood(position, jax.tree.map(lambda x: jnp.asarray(x)[None], datum))[0]


@dataclass(frozen=True)
class Model:
    """A model made of functions.

    Args:
        log_prior: the log density of a position, up to a constant.
        log_likelihood: the log density of one datum, as a function of (position, datum), up to a constant.
        init: where chains start: a position, or a function from a `jax.random` key to one, so that chains start apart.
        constraints: what numbers parameters may be: a dict from names as in summaries, such as `"sigma"`, `"scale.0"`
            or `"layer"` for all in it, to one of `numpyro.distributions.constraints`; or a single one for all. Chains
            then move numbers without constraints; everything you give and get stays as it is. Needs the extra
            `numpyro`.
        batch_log_likelihood: in place of `log_likelihood`, the log densities of many rows at once, as a function of
            (position, rows), where rows are like a datum with a leading axis: one number for each row.

    Raises:
        InputError: the likelihood or the start is missing, or two likelihoods are given.

    Example:
        >>> import jax.numpy as jnp
        >>> model = Model(lambda t: -t**2 / 2, lambda t, x: -(x - t)**2 / 2, init=jnp.zeros(()))
        >>> model.log_likelihood(1.0, 3.0)
        -2.0
    """

    log_prior: Callable
    log_likelihood: Callable = None  # type: ignore[assignment]
    init: Callable | Tree = None
    constraints: Any = None
    batch_log_likelihood: Callable | None = None

    def __post_init__(self):
        many = self.batch_log_likelihood
        again = many is not None and self.log_likelihood == OneOfBatch(many)  # a copy, by dataclasses.replace
        if (self.log_likelihood is None) == (many is None) and not again:
            raise InputError("give a model log_likelihood, or batch_log_likelihood: one of the two.")
        if self.init is None:
            raise InputError("give a model a start: init=jnp.zeros(3), say, or a function of a jax.random key.")
        if many is not None:
            object.__setattr__(self, "log_likelihood", OneOfBatch(many))

    def unconstrained(self, rows: Tree = None, size: int | None = None) -> Any:
        """The same model over numbers without constraints, which is what is sampled."""
        if self.constraints is None:
            return self
        from strang.models.constraints import unconstrained

        return unconstrained(self)

    def __hash__(self):
        return hash((self.log_prior, self.log_likelihood))

    def __eq__(self, other):
        # A subclass is another model: equal ones share a compilation.
        return (
            type(self) is type(other)
            and self.log_likelihood == other.log_likelihood
            and all(getattr(self, name) is getattr(other, name) for name in ("log_prior", "init", "constraints"))
        )


def is_start_function(init: Any) -> bool:
    """Whether a start is a function of a key; a module that can be called is a position all the same."""
    return callable(init) and jax.tree_util.all_leaves([init])


def log_likelihoods(model, position: Tree, rows: Tree):
    """The log likelihood of each row."""
    many = getattr(model, "batch_log_likelihood", None)
    if many is not None:
        return many(position, rows)
    return jax.vmap(lambda datum: model.log_likelihood(position, datum))(rows)


def natural(model, position: Tree) -> Tree:
    """What a user sees of a position: what a model without constraints sees itself."""
    return model.constrain(position) if hasattr(model, "constrain") else position


natural_now = jax.jit(natural, static_argnums=0)  # of numbers that are there: op by op it would take far longer


def from_natural(model, position: Tree) -> Tree:
    """The way back."""
    return model.unconstrain(position) if hasattr(model, "unconstrain") else position
