"""Gradients of many rows in chunks that fit into a core's cache.

The layers of a convolutional network are far larger than its inputs; for thousands of rows at once, each is written to
memory and read again. In chunks a gradient of 6,000 images takes half as long, and needs no memory to speak of.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from strang.util.trees import Tree, add

NUMBERS = 1 << 20  # of intermediate results in one chunk


def in_chunks(log_likelihoods: Callable) -> Callable:
    """The same function of (position, rows), which has one value for each row; its gradients are taken in chunks."""

    def length(position: Tree, rows: Tree) -> int:
        """Rows of a chunk."""
        count = len(jax.tree.leaves(rows)[0])
        one = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape[1:]), x.dtype), rows)
        most = max(1, NUMBERS // intermediate(jax.make_jaxpr(log_likelihoods)(position, one).jaxpr))
        return -(-count // -(-count // most))  # chunks of about the same length

    @jax.custom_vjp
    def chunked(position, rows):
        return log_likelihoods(position, rows)

    def forward(position, rows):
        return log_likelihoods(position, rows), (position, rows)  # the values are not computed where nobody uses them

    def backward(kept, weights):
        position, rows = kept
        each = length(position, rows)
        count = len(weights)

        def cut(x, **how):
            padded = jnp.pad(x, ((0, -count % each), *((0, 0),) * (x.ndim - 1)), **how)
            return padded.reshape(-1, each, *x.shape[1:])

        def step(total, chunk):
            part, weight = chunk
            pull_back = jax.vjp(lambda theta: log_likelihoods(theta, part), position)[1]
            return add(total, pull_back(weight)[0]), None

        # The last chunk is filled with copies of the last row, which count for nothing.
        chunks = jax.tree.map(lambda x: cut(x, mode="edge"), rows), cut(weights)
        return jax.lax.scan(step, jax.tree.map(jnp.zeros_like, position), chunks)[0], None

    chunked.defvjp(forward, backward)

    def whole_or_chunked(position, rows):
        few = length(position, rows) >= len(jax.tree.leaves(rows)[0])
        return (log_likelihoods if few else chunked)(position, rows)

    return whole_or_chunked


def intermediate(jaxpr) -> int:
    """How many numbers traced code computes on its way, those of the functions that it calls among them.

    >>> intermediate(jax.make_jaxpr(lambda x: jnp.sin(x) * 2)(jnp.ones(3)).jaxpr)
    6
    """
    total = 0
    for equation in jaxpr.eqns:
        inner = [getattr(p, "jaxpr", p) for p in equation.params.values() if hasattr(getattr(p, "jaxpr", p), "eqns")]
        total += sum(map(intermediate, inner)) if inner else sum(v.aval.size for v in equation.outvars)
    return total
