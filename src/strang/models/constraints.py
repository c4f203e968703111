"""Models whose parameters may not be any number: they are sampled as numbers without constraints, by the transforms of
`numpyro.distributions`, whose Jacobians are counted in the prior. What users give and get stays on its own scale."""

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import jax
import jax.numpy as jnp

from strang.models.base import Model, is_start_function, log_likelihoods
from strang.util.errors import InputError, first_line, need
from strang.util.trees import Tree


@dataclass(frozen=True)
class Unconstrained:
    """A model as a function of numbers without constraints.

    Attributes:
        model: the model, on its own scale.
        transforms: for each leaf of a position, from numbers without constraints to it; None: it has none.
    """

    model: Model
    transforms: tuple[Any, ...] = field(compare=False)

    @property
    def init(self) -> Any:
        """The model's own: starts are given on its scale."""
        return self.model.init

    def constrain(self, free: Tree) -> Tree:
        """The position on the model's scale."""
        return self._leaf_by_leaf(lambda transform, x: transform(x), free)

    def unconstrain(self, position: Tree) -> Tree:
        """The way back."""
        return self._leaf_by_leaf(lambda transform, y: transform.inv(y), position)

    def log_prior(self, free: Tree):
        """With the logarithm of the volume by which the transforms stretch."""
        position = self.constrain(free)
        parts = zip(self.transforms, jax.tree.leaves(free), jax.tree.leaves(position), strict=True)
        volumes = [jnp.sum(t.log_abs_det_jacobian(x, y)) for t, x, y in parts if t is not None]
        return self.model.log_prior(position) + sum(volumes)

    def log_likelihood(self, free: Tree, datum: Tree):
        return self.model.log_likelihood(self.constrain(free), datum)

    def batch_log_likelihood(self, free: Tree, rows: Tree):
        return self.natural_log_likelihoods(self.constrain(free), rows)

    def natural_log_likelihoods(self, position: Tree, rows: Tree):
        """The log likelihood of each row, at a position on the model's scale."""
        return log_likelihoods(self.model, position, rows)

    def _leaf_by_leaf(self, function, tree: Tree) -> Tree:
        leaves, structure = jax.tree.flatten(tree)
        pairs = zip(self.transforms, leaves, strict=True)
        return jax.tree.unflatten(structure, [x if t is None else function(t, x) for t, x in pairs])


def unconstrained(model: Model) -> Unconstrained:
    """The model over numbers without constraints.

    Raises:
        InputError: a name is no parameter's, or a constraint is none of NumPyro's or does not fit its parameter.
    """
    start = jax.eval_shape(model.init, jax.random.key(0)) if is_start_function(model.init) else model.init
    names = [name for name, _ in named_leaves(start)]
    wanted = by_name(model.constraints)
    for name in wanted:
        if not any(covers(name, each) for each in names):
            near = get_close_matches(name, names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; the parameters are {', '.join(names)}."
            raise InputError(f"constraints has {name!r}, which is no parameter{hint}")
    transforms = []
    for each in names:
        own = [(len(name), constraint) for name, constraint in wanted.items() if covers(name, each)]
        transforms.append(transform_of(each, max(own, key=lambda pair: pair[0])[1]) if own else None)
    return Unconstrained(model, tuple(transforms))


def by_name(constraints: Any, prefix: str = "") -> dict[str, Any]:
    """Constraints by the names of what they are on; dicts may be nested.

    >>> by_name({"a": {"b": 1}, "c.0": 2})
    {'a.b': 1, 'c.0': 2}
    """
    if not isinstance(constraints, dict):
        return {prefix: constraints}
    found: dict[str, Any] = {}
    for name, inner in constraints.items():
        found |= by_name(inner, f"{prefix}.{name}" if prefix else str(name))
    return found


def covers(name: str, leaf: str) -> bool:
    """Whether a name is that of a leaf, or of what it is in.

    >>> covers("layer", "layer.scale"), covers("layer", "layers"), covers("", "anything")
    (True, False, True)
    """
    return name in ("", leaf) or leaf.startswith(name + ".")


def transform_of(name: str, constraint: Any) -> Any:
    """The transform to what is allowed; None where everything is."""
    distributions = need("numpyro.distributions", "numpyro")
    kinds = distributions.constraints
    if isinstance(constraint, str) and hasattr(kinds, constraint):
        constraint = getattr(kinds, constraint)
    if not isinstance(constraint, kinds.Constraint):
        raise InputError(
            f"the constraint of {name or 'the position'} is {constraint!r}; write one of "
            "numpyro.distributions.constraints, such as constraints.positive, or its name."
        )
    if constraint is kinds.real or constraint is kinds.real_vector:
        return None
    try:
        return distributions.biject_to(constraint)
    except NotImplementedError as error:
        raise InputError(
            f"{name or 'the position'} cannot be sampled under {constraint!r}: {first_line(error)}"
        ) from None


def check_way_back(model: Any, positions: Tree, free: Tree) -> None:
    """Whether starts, chain first, are what the constraints allow: then they come back from where they were sent."""
    again = dict(named_leaves(jax.jit(jax.vmap(model.constrain))(free)))
    for name, y in named_leaves(positions):
        if name in again and not bool(jnp.all(jnp.abs(again[name] - y) <= 1e-3 * (1 + jnp.abs(y)))):
            raise InputError(f"the start of {name or 'the position'} is not what its constraint allows; give another.")
    for name, x in named_leaves(free):
        if not bool(jnp.isfinite(x).all()):
            raise InputError(
                f"the start of {name or 'the position'} is on the edge of what its constraint allows; give another."
            )


def named_leaves(tree: Tree) -> list[tuple[str, Any]]:
    """The leaves of a tree with their names."""
    places = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator="."), leaf) for path, leaf in places]
