"""Vector arithmetic on pytrees. Every operation keeps the dtype of the leaves it updates."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Tree = Any

add = partial(jax.tree.map, jnp.add)
subtract = partial(jax.tree.map, jnp.subtract)
multiply = partial(jax.tree.map, jnp.multiply)  # coordinate by coordinate
zeros = partial(jax.tree.map, jnp.zeros_like)
LARGE = 1 << 24  # bytes of which another copy takes longer than to compile a program


def on_device(x) -> jax.Array:
    """An array of the host on the device; unless it is large, without the program that `jnp.asarray` compiles for each
    of its shapes. It is a copy: a device that is a CPU would else share memory with what it is given.

    >>> host = np.zeros(1024, np.float32)
    >>> there = on_device(host)
    >>> host[0] = 1
    >>> float(there[0])
    0.0
    """
    small = isinstance(x, np.ndarray | np.generic) and x.nbytes < LARGE
    return jax.device_put(np.array(x)) if small else jnp.asarray(x)


def flat_vector(tree: Tree) -> np.ndarray:
    """All numbers of a tree, on the host and in double precision.

    >>> flat_vector({"a": 1.0, "b": [2.0, 3.0]})
    array([1., 2., 3.])
    """
    return np.concatenate([np.ravel(np.asarray(leaf, float)) for leaf in jax.tree.leaves(tree)])


def cast(number, like):
    """Converts a number to the dtype of `like`, so that a float64 step size does not promote a float32 position."""
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


def dot(x: Tree, y: Tree):
    """x·y over all coordinates, in single precision at least, and never conjugated: the certificate evaluates it at
    complex points."""
    leaves = zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True)
    wide = [(jnp.promote_types(a.dtype, jnp.float32), a, b) for a, b in leaves]
    return sum(jnp.sum(a.astype(dtype) * b.astype(dtype)) for dtype, a, b in wide)


def size(x: Tree) -> int:
    """Number of coordinates."""
    return sum(leaf.size for leaf in jax.tree.leaves(x))


def mean(x: Tree) -> float:
    """Mean over all coordinates.

    >>> mean({"a": jnp.ones(3), "b": jnp.asarray(5.0)})
    2.0
    """
    return float(sum(leaf.sum() for leaf in jax.tree.leaves(x))) / size(x)


def alike(x: Tree, y: Tree) -> bool:
    """Whether two trees have the same structure."""
    return bool(jax.tree.structure(x) == jax.tree.structure(y))  # type: ignore[operator]


def shapes(tree: Tree) -> Tree:
    """The shape of every leaf."""
    return jax.tree.map(jnp.shape, tree)


def same_shape(x: Tree, y: Tree) -> bool:
    """Whether two trees have the same structure and leaves of the same shapes."""
    return alike(x, y) and bool(shapes(x) == shapes(y))


def spread(value, like: Tree) -> Tree:
    """Repeats `value` at every leaf of `like`, unless it already has that structure."""
    return value if alike(value, like) else jax.tree.map(lambda _: value, like)


def names_of(tree: Tree, alone: str = "position") -> list[str]:
    """A name for each number of a tree; `alone` is that of a tree which is one array.

    >>> names_of({"w": jnp.zeros((1, 2)), "b": 0.0, "deep": [jnp.zeros(1)]})
    ['b', 'deep.0[0]', 'w[0,0]', 'w[0,1]']
    >>> names_of(jnp.zeros(2))
    ['position[0]', 'position[1]']
    """
    names = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        place = jax.tree_util.keystr(path, simple=True, separator=".") or alone
        indices = np.ndindex(jnp.shape(leaf))
        names += [f"{place}[{','.join(map(str, index))}]" if index else place for index in indices]
    return names
