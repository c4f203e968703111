"""The gradient of U = −log prior − Σ_i log likelihood_i on one batch, and over all data in chunks."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from strang.data.batches import Batch, CutBatch, Data
from strang.gradients.repeated import merge_repeated
from strang.models.base import log_likelihoods
from strang.util import random
from strang.util.trees import Tree, add, axpy, size, subtract

CHUNK_NUMBERS = 1 << 22  # numbers of data that a full gradient looks at together
HESSIAN_ROWS = 16  # of a matrix of second derivatives that are computed together


def log_likelihood(model, position: Tree, rows: Tree, weights):
    """Σ_i w_i log likelihood_i."""
    terms = log_likelihoods(model, position, rows)
    return jnp.sum(terms if weights is None else jnp.where(weights > 0, terms * weights, 0))


def potential(model, position: Tree, batch: Batch):
    """−log prior − scale Σ_i w_i log likelihood_i."""
    total = log_likelihood(model, position, batch.rows, batch.weights)
    return -(model.log_prior(position) + batch.scale * total)


def gradient_of(function, position: Tree) -> Tree:
    """Its gradient at a position, with what it repeats computed once."""
    return jax.grad(merge_repeated(function))(position)


def prior_gradient(model, position: Tree) -> Tree:
    return jax.grad(lambda theta: -model.log_prior(theta))(position)


def likelihood_gradient(model, position: Tree, batch: Batch, key) -> Tree:
    """The gradient of `log_likelihood`, by the model's own where it has one."""
    if not hasattr(model, "likelihood_gradient"):
        return gradient_of(lambda theta: log_likelihood(model, theta, batch.rows, batch.weights), position)
    rows = jax.tree.leaves(batch.rows)[0].shape[0]
    weights = jnp.ones(rows) if batch.weights is None else batch.weights
    return model.likelihood_gradient(position, batch.rows, weights, random.jax_key(key))


def batch_gradient(model, position: Tree, batch: Batch | CutBatch, key) -> Tree:
    """The gradient of `potential`, by the model's own likelihood gradient where it has one."""
    if isinstance(batch, CutBatch):
        likelihood = sum_parts(model, batch, key, lambda *given: likelihood_gradient(model, position, *given), position)
    elif hasattr(model, "likelihood_gradient"):
        likelihood = likelihood_gradient(model, position, batch, key)
    else:
        return gradient_of(lambda theta: potential(model, theta, batch), position)
    return axpy(-batch.scale, likelihood, prior_gradient(model, position))


def sum_parts(model, batch: CutBatch, key, gradient, position: Tree) -> Tree:
    """Σ_k gradient(part k, key k), a tree like the position; each part has a model key of its own."""

    def one(k):
        own = random.fold(key, k) if hasattr(model, "likelihood_gradient") else None
        return gradient(batch.part(k), own)

    return batch.reduce(one, position)


def full_gradient(model, data: Data, position: Tree, key) -> Tree:
    """∇U over all data, accumulated in chunks so that only one chunk's intermediate results exist at a time."""

    def term(rows, weights, k):
        own = random.fold(key, k) if hasattr(model, "likelihood_gradient") else None
        return batch_gradient(model, position, Batch(rows, weights, 1.0), own)

    return sweep(data, term, prior_gradient(model, position))


def full_potential(model, data: Data, position: Tree):
    """U over all data, in chunks."""
    return sweep(
        data,
        lambda rows, weights, k: potential(model, position, Batch(rows, weights, 1.0)),
        -model.log_prior(position),
    )


def full_hessian(model, data: Data, position: Tree):
    """The matrix of second derivatives of U over all data, in chunks; coordinates in the order of `ravel_pytree`."""
    flat, unravel = ravel_pytree(position)

    def matrix(potential):
        slope = jax.grad(lambda vector: potential(unravel(vector)))
        unit = jnp.eye(len(flat), dtype=flat.dtype)
        return jax.lax.map(lambda e: jax.jvp(slope, (flat,), (e,))[1], unit, batch_size=HESSIAN_ROWS)

    return sweep(
        data,
        lambda rows, weights, k: matrix(lambda theta: potential(model, theta, Batch(rows, weights, 1.0))),
        matrix(lambda theta: -model.log_prior(theta)),
    )


def sweep(data: Data, term, prior):
    """Σ over chunks of term(rows, weights, number), each of which counts the prior once, and one prior in all."""
    row = size(data.datum)
    count = -(-data.size // max(1, CHUNK_NUMBERS // max(row, 1)))
    chunk = -(-data.size // count)  # of about the same length: the last one is filled up
    if count == 1:
        return term(data.all_rows(), None, jnp.uint32(0))

    def places(k):
        return k * jnp.uint32(chunk) + jnp.arange(chunk, dtype=jnp.uint32)

    def body(total, k):
        place = places(k)
        last = jnp.uint32(data.size - 1)
        rows = data.take(*(jnp.minimum(p, last) for p in (place, places((k + 1) % jnp.uint32(count)))))
        part = term(rows, (place <= last).astype(jnp.float32), k)
        return add(total, subtract(part, prior)), None

    return jax.lax.scan(body, prior, jnp.arange(count, dtype=jnp.uint32))[0]


def rows_with_finite_gradients(model, data: Data, position: Tree) -> np.ndarray:
    """Row by row, whether the gradient of its log likelihood is finite."""

    @jax.jit
    def finite(rows):
        gradients = jax.vmap(lambda datum: jax.grad(model.log_likelihood)(position, datum))(rows)
        parts = [jnp.isfinite(leaf).reshape(leaf.shape[0], -1).all(1) for leaf in jax.tree.leaves(gradients)]
        return jnp.stack(parts).all(0)

    each = max(1, CHUNK_NUMBERS // max(1, size(data.datum) + size(position)))
    found = []
    for start in range(0, data.size, each):
        numbers = jnp.arange(start, min(start + each, data.size), dtype=jnp.uint32)
        found.append(np.asarray(finite(jax.jit(data.take)(numbers))))
        data.check()
    return np.concatenate(found)
