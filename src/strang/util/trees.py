"""Vector arithmetic on pytrees. Every operation keeps the dtype of the leaves it updates."""

from typing import Any

import jax
import jax.numpy as jnp

Tree = Any


def cast(number, like):
    """`number` in the dtype of `like`, so that a float64 step size does not promote a float32 position."""
    return jnp.asarray(number).astype(like.dtype)


def axpy(a, x: Tree, y: Tree) -> Tree:
    """y + a x.

    >>> float(axpy(2.0, jnp.float32(3), jnp.float32(1)))
    7.0
    """
    return jax.tree.map(lambda x, y: y + cast(a, y) * x, x, y)


def scale(a, x: Tree) -> Tree:
    """a x."""
    return jax.tree.map(lambda x: cast(a, x) * x, x)


def add(x: Tree, y: Tree) -> Tree:
    """x + y."""
    return jax.tree.map(jnp.add, x, y)


def subtract(x: Tree, y: Tree) -> Tree:
    """x - y."""
    return jax.tree.map(jnp.subtract, x, y)


def multiply(x: Tree, y: Tree) -> Tree:
    """x y, coordinate by coordinate."""
    return jax.tree.map(jnp.multiply, x, y)


def dot(x: Tree, y: Tree):
    """Sum of products over all coordinates, in single precision at least, never conjugated: the certificate evaluates
    it at complex points."""
    leaves = zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True)
    wide = [(jnp.promote_types(a.dtype, jnp.float32), a, b) for a, b in leaves]
    return sum(jnp.sum(a.astype(dtype) * b.astype(dtype)) for dtype, a, b in wide)


def size(x: Tree) -> int:
    """Number of coordinates."""
    return sum(leaf.size for leaf in jax.tree.leaves(x))


def mean(x: Tree) -> float:
    """The mean over all coordinates.

    >>> mean({"a": jnp.ones(3), "b": jnp.asarray(5.0)})
    2.0
    """
    return float(sum(leaf.sum() for leaf in jax.tree.leaves(x))) / size(x)


def zeros(x: Tree) -> Tree:
    """Zeros like x."""
    return jax.tree.map(jnp.zeros_like, x)


def alike(x: Tree, y: Tree) -> bool:
    """Whether two trees have the same structure."""
    return bool(jax.tree.structure(x) == jax.tree.structure(y))  # type: ignore[operator]


def spread(value, like: Tree) -> Tree:
    """A tree shaped like `like`: `value` itself if it has that structure, else the one number `value` at every leaf."""
    if alike(value, like):
        return value
    return jax.tree.map(lambda _: value, like)
