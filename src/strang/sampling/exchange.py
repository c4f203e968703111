"""How the parts of a minibatch's gradient are added up, and which chains are computed here.

The core is handed an `Exchange` and does not know who else computes. This one is alone; that of a mesh of devices is
in `strang.parallel.mesh`. Both add the parts in their order, so that the bits of a sum depend on the number of parts
and on nothing else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from strang.util.trees import Tree


@dataclass(frozen=True)
class Exchange:
    """One device computes all chains and all parts."""

    def own(self, per_chain: Any) -> Any:
        """Of an array that leads with all chains, those that are computed here."""
        return per_chain

    def range(self, count) -> tuple[Any, Any]:
        """The parts that are computed here: from the first up to, but without, the last."""
        return jnp.zeros_like(count), count

    def add(self, summands):
        """The sum of the rows of a matrix, one per part, of which each device has filled its own."""
        return add_in_order(summands)

    def reduce(self, parts: int, count, function: Callable, like: Tree) -> Tree:
        """Σ_k function(k) over k = 0 ... parts − 1, in this order, a tree like `like`.

        `count` is the same number as `parts`, but known at run time only: XLA compiles a loop whose length it does not
        know in one way, however many of the parts are computed here.
        """
        flat, unflatten = ravel_pytree(like)

        def fill(k, summands):
            return summands.at[k].set(ravel_pytree(function(k))[0])

        return unflatten(self.add(lax.fori_loop(*self.range(count), fill, jnp.zeros((parts, flat.size), flat.dtype))))


def add_in_order(rows):
    """rows[0] + rows[1] + ..., which XLA does not reassociate."""
    total = rows[0]
    for k in range(1, len(rows)):
        total = total + rows[k]
    return total
