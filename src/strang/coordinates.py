"""The change of variables in which a model is sampled: chains move z, and the model sees position = coordinates(z).

A constant mass matrix is a linear change of variables, so that no dynamics has to know of it: words, orders and
certificates stay as they are. Starts, averages, draws and estimators' anchors are positions; the state of a chain is z.
Coordinates are pytrees: their numbers are inputs of compiled code, and others of the same shapes share a compilation.
Where their arrays lead with chains, each chain has its own.
"""

from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from strang.data.batches import Batch, Data
from strang.gradients.mode import newton_mode
from strang.util.errors import InputError, choose
from strang.util.trees import Tree, add, multiply, names_of, on_device, same_shape, size, subtract

MAX_DENSE = 2000  # coordinates of which a dense scale is made
MIN_EIGENVALUE = 1e-10  # of a Hessian with ones on its diagonal, below which a direction is taken to be flat


class Coordinates(Protocol):
    """An invertible map from what chains move to positions; a frozen dataclass, registered as a pytree."""

    def __call__(self, z: Tree) -> Tree:
        """The position."""

    def inverse(self, position: Tree) -> Tree:
        """z, a tree like the position."""

    def pull_back(self, z: Tree, gradient: Tree) -> Tree:
        """∇U as a function of z, from that at the position; with −∇ log |det| where the map is not linear."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Diagonal:
    """position = centre + scale z, coordinate by coordinate.

    Attributes:
        centre: a tree like the position; or one for each chain along a leading axis, and all else too.
        scale: positive numbers like it, such as posterior standard deviations.

    Example:
        >>> coordinates = Diagonal(centre=jnp.asarray([1.0, 2.0]), scale=jnp.asarray([10.0, 0.1]))
        >>> coordinates(jnp.ones(2))
        Array([11. ,  2.1], dtype=float32)
    """

    centre: Tree
    scale: Tree

    def __call__(self, z: Tree) -> Tree:
        return add(self.centre, multiply(self.scale, z))

    def inverse(self, position: Tree) -> Tree:
        return jax.tree.map(jnp.divide, subtract(position, self.centre), self.scale)

    def pull_back(self, z: Tree, gradient: Tree) -> Tree:
        return multiply(self.scale, gradient)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Dense:
    """position = centre + factor z, all coordinates together.

    Attributes:
        centre: a tree like the position.
        factor: a square matrix, such as a root of the posterior's covariance matrix.
        inverse_factor: its inverse.
    """

    centre: Tree
    factor: Any
    inverse_factor: Any

    def __call__(self, z: Tree) -> Tree:
        return add(self.centre, self._times(self.factor, z))

    def inverse(self, position: Tree) -> Tree:
        return self._times(self.inverse_factor, subtract(position, self.centre))

    def pull_back(self, z: Tree, gradient: Tree) -> Tree:
        return self._times(self.factor.T, gradient)

    def _times(self, matrix, tree: Tree) -> Tree:
        vector, unravel = ravel_pytree(tree)
        return unravel((matrix @ vector).astype(vector.dtype))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Blocks:
    """Some leaves of a position mixed by a dense factor, the others each scaled: for more coordinates than a matrix can
    be made of.

    Attributes:
        dense: of a dict with some of the position's leaves.
        diagonal: of a dict with the others.
    """

    dense: Dense
    diagonal: Diagonal

    def __call__(self, z: dict) -> dict:
        return {**self.dense(_like(self.dense.centre, z)), **self.diagonal(_like(self.diagonal.centre, z))}

    def inverse(self, position: dict) -> dict:
        own = self.dense.inverse(_like(self.dense.centre, position))
        return {**own, **self.diagonal.inverse(_like(self.diagonal.centre, position))}

    def pull_back(self, z: dict, gradient: dict) -> dict:
        own, others = (_like(each.centre, gradient) for each in (self.dense, self.diagonal))
        return {**self.dense.pull_back(z, own), **self.diagonal.pull_back(z, others)}


def _like(part: dict, tree: dict) -> dict:
    """The leaves of a dict that a part of it has."""
    return {name: tree[name] for name in part}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Turned:
    """position = centre + unit Q (scale z), where Q turns the rows and the columns of matrices: nearly what a dense
    factor does for the weights of a network, at the price of some small products.

    Attributes:
        centre: a tree like the position; or one for each chain along a leading axis, and all else too.
        unit: positive numbers like it, such as the prior's standard deviations.
        scale: positive numbers like it, one for each turned direction.
        left: an orthogonal matrix for the rows of each block, or None where they are not turned.
        right: the same for its columns.
        blocks: the leaves of each block, by their numbers, one below the other; a leaf's last axis is its columns.
    """

    centre: Tree
    unit: Tree
    scale: Tree
    left: tuple[Any, ...]
    right: tuple[Any, ...]
    blocks: tuple[tuple[int, ...], ...] = field(metadata={"static": True})

    def __call__(self, z: Tree) -> Tree:
        return add(self.centre, multiply(self.unit, self.turn(multiply(self.scale, z))))

    def inverse(self, position: Tree) -> Tree:
        away = jax.tree.map(jnp.divide, subtract(position, self.centre), self.unit)
        return jax.tree.map(jnp.divide, self.turn(away, back=True), self.scale)

    def pull_back(self, z: Tree, gradient: Tree) -> Tree:
        return multiply(self.scale, self.turn(multiply(self.unit, gradient), back=True))

    def turn(self, tree: Tree, *, back: bool = False) -> Tree:
        """Q times a tree, or its transpose."""
        leaves, structure = jax.tree.flatten(tree)
        for block, left, right in zip(self.blocks, self.left, self.right, strict=True):
            matrix = block_matrix(leaves, block)
            if left is not None:
                matrix = (left.T if back else left) @ matrix
            if right is not None:
                matrix = matrix @ (right if back else right.T)
            begin = 0
            for number in block:
                leaf = leaves[number]
                end = begin + leaf.size // leaf.shape[-1]
                leaves[number] = matrix[begin:end].reshape(leaf.shape)
                begin = end
        return jax.tree.unflatten(structure, leaves)


def block_matrix(leaves: list, block: tuple[int, ...]):
    """The leaves of a block as one matrix."""
    return jnp.concatenate([leaves[number].reshape(-1, leaves[number].shape[-1]) for number in block])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Chained:
    """position = outer(inner(z)).

    Attributes:
        outer: such as a change of variables that is not linear.
        inner: such as scales for what it is a function of.
    """

    outer: Any
    inner: Any

    def __call__(self, z: Tree) -> Tree:
        return self.outer(self.inner(z))

    def inverse(self, position: Tree) -> Tree:
        return self.inner.inverse(self.outer.inverse(position))

    def pull_back(self, z: Tree, gradient: Tree) -> Tree:
        return self.inner.pull_back(z, self.outer.pull_back(self.inner(z), gradient))


def make(coordinates: Any, model, data: Data, positions: Tree, progress: bool | None) -> tuple[Any, bool]:
    """The coordinates that the caller meant: an object, or a name; None for those of the model itself; and whether its
    arrays lead with chains, each of which has its own. `positions` are the chains' starts."""
    if coordinates is None or (isinstance(coordinates, str) and coordinates == "none"):
        return None, False
    position = jax.tree.map(lambda x: on_device(np.asarray(x)[0]), positions)
    if isinstance(coordinates, str):
        if coordinates not in ("dense", "diagonal"):
            raise choose("coordinates", coordinates, ("dense", "diagonal", "none"))
        return whitened(model, data, position, dense=coordinates == "dense", progress=progress), False
    if isinstance(coordinates, type) or not all(hasattr(coordinates, name) for name in ("inverse", "pull_back")):
        raise InputError(
            f"coordinates is {coordinates!r}; write 'dense', 'diagonal', 'none', or "
            "strang.coordinates.Diagonal(centre=..., scale=...)."
        )
    coordinates = jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(float)), coordinates)
    own = leads_with_chains(coordinates, positions)
    check_inverse(coordinates, positions, own)
    return coordinates, own


def leads_with_chains(coordinates: Any, positions: Tree) -> bool:
    """Whether coordinates, of whatever kind, fit the positions only where each chain has its part of their arrays."""

    fits = partial(fits_shapes, *map(shapes, (coordinates, positions)))
    return not fits(False) and fits(True)


class Shapes(NamedTuple):
    """What the arrays of a tree are like, as a key."""

    structure: Any
    arrays: tuple[tuple[tuple[int, ...], Any], ...]

    def tree(self) -> Any:
        return jax.tree.unflatten(self.structure, [jax.ShapeDtypeStruct(*array) for array in self.arrays])


def shapes(tree: Any) -> Shapes:
    leaves, structure = jax.tree.flatten(tree)
    return Shapes(structure, tuple((np.shape(x), jnp.result_type(x)) for x in leaves))


@lru_cache(maxsize=64)  # JAX remembers what it traced, but not what failed
def fits_shapes(coordinates: Shapes, positions: Shapes, own: bool) -> bool:
    """Whether there is a way back from positions like these, each chain with its part of the coordinates or not."""
    try:
        comes_back.eval_shape(own, coordinates.tree(), positions.tree())
        return True
    except (TypeError, ValueError):
        return False


def whitened(model, data: Data, position: Tree, *, dense: bool, progress: bool | None = None) -> Diagonal | Dense:
    """Coordinates with unit curvature at the posterior's mode, which is sought from a position.

    Args:
        model: what is sampled; its log likelihood is differentiated twice.
        data: rows; they are gone through some ten to hundred times.
        position: where the search begins.
        dense: whether coordinates are mixed, for at most 2000 of them, or each only scaled.
        progress: whether to show a progress bar; None: on a terminal.

    Raises:
        InputError: there is no mode, or a direction in which the posterior is flat there.
    """
    count = size(position)
    if hasattr(model, "likelihood_gradient"):
        raise InputError(f"{type(model).__name__} has a gradient of its own; write coordinates='none', or an object.")
    if data.batch_order.shared and not data.batch_order.full:
        raise InputError("a loader's data cannot be gone through at will; write coordinates='none', or an object.")
    if count > MAX_DENSE:
        raise InputError(f"there are {count:,} coordinates, more than the {MAX_DENSE:,} whose curvature is computed.")
    found = newton_mode(model, data, position, progress=progress)
    return from_curvature(found.position, found.hessian, dense=dense)


def from_curvature(mode: Tree, hessian: np.ndarray, *, dense: bool, least: float | None = None) -> Diagonal | Dense:
    """Coordinates with unit curvature at a mode, where this is the matrix of second derivatives. A direction whose
    relative curvature is below `least` is taken to have that much; without it, to be flat.

    Raises:
        InputError: a direction is flat there, or rises.
    """
    flat, unravel = ravel_pytree(jax.tree.map(on_device, mode))
    curvature = np.diag(hessian)
    if least is not None and np.isfinite(hessian).all():
        some = least * (np.abs(curvature).max() or 1 / least)  # parameters may be of any scale: only none is replaced
        hessian = hessian + np.diag(np.where(curvature > 0, 0.0, some - curvature))
        curvature = np.diag(hessian)
    if not np.isfinite(hessian).all() or not (curvature > 0).all():
        worst = names_of(mode)[int(np.argmin(np.nan_to_num(curvature, nan=-np.inf)))]
        raise InputError(
            f"the posterior has no curvature along {worst} at the mode that was found: the data and the prior leave it "
            "free; give it a prior, or write coordinates='none'."
        )
    scale = curvature**-0.5
    if not dense:
        return Diagonal(mode, unravel(jnp.asarray(scale, flat.dtype)))
    values, vectors = np.linalg.eigh(hessian * scale * scale[:, None])  # ones on the diagonal: rounded least
    values = values if least is None else np.maximum(values, least * values.max())
    if values.min() < MIN_EIGENVALUE * values.max():
        which = main_names(mode, vectors[:, 0] * scale)
        raise InputError(
            f"the posterior is flat in a direction at the mode that was found, that of {which}: only a combination of "
            "them matters; leave one out, or give them a prior."
        )
    factor = scale[:, None] * vectors * values**-0.5
    inverse = (vectors * values**0.5).T / scale
    return Dense(mode, jnp.asarray(factor, flat.dtype), jnp.asarray(inverse, flat.dtype))


def main_names(position: Tree, direction: np.ndarray) -> str:
    """The parameters that a direction is mostly made of."""
    names, parts = names_of(position), np.abs(direction) / np.abs(direction).max()
    order = np.argsort(-parts, kind="stable")
    main = [names[k] for k in order[:4] if parts[k] > 0.2]
    return ", ".join(main) + (", ..." if (parts > 0.2).sum() > 4 else "")


def check_inverse(coordinates: Any, positions: Tree, own: bool) -> None:
    """Whether there is a way back, at these positions."""
    try:
        near = comes_back(own, coordinates, positions)
    except (TypeError, ValueError) as error:
        message = str(error).splitlines()[0]
        raise InputError(f"coordinates do not fit the position ({type(error).__name__}: {message}).") from error
    if not all(np.asarray(leaf).all() for leaf in jax.tree.leaves(near)):
        raise InputError("coordinates cannot be inverted at the start; give positive scales, or a factor of full rank.")


@partial(jax.jit, static_argnums=0)
def comes_back(own: bool, coordinates: Any, positions: Tree) -> Tree:
    """Which numbers of the positions are what they were, there and back."""

    def there_and_back(change, position):
        again = change(change.inverse(position))
        if not same_shape(again, position):
            raise ValueError("what they give has another shape")
        return jax.tree.map(lambda x, y: jnp.all(jnp.abs(x - y) <= 1e-3 * (1 + jnp.abs(y))), again, position)

    return jax.vmap(there_and_back, (0 if own else None, 0))(coordinates, positions)


@dataclass(frozen=True)
class InCoordinates:
    """An estimator of the gradient as a function of z; what it carries and shares is in the model's own variables."""

    estimator: Any
    coordinates: Any

    def start(self, model, data: Data, z: Tree):
        return self.estimator.start(model, data, self.coordinates(z))

    def visit(self, model, carried, z: Tree, batch: Batch, key):
        return self.estimator.visit(model, carried, self.coordinates(z), batch, key)

    def refresh(self, model, data: Data, carried, z: Tree, l):
        return self.estimator.refresh(model, data, carried, self.coordinates(z), l)

    def __call__(self, model, data: Data, shared, carried, z: Tree, batch: Batch, key) -> Tree:
        gradient = self.estimator(model, data, shared, carried, self.coordinates(z), batch, key)
        return self.coordinates.pull_back(z, gradient)
