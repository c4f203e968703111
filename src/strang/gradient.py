"""Estimates of ∇U from one batch. U = −log prior − Σ_i log likelihood_i, and a batch's sum is scaled by `batch.scale`.

An estimator has `prepare` (once a run: what all chains share), `start`, `refresh` and `visit` (what a chain carries
along, renewed now and then and by every batch) and `__call__` (the estimate at a position).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from . import random
from .data import Batch, Data, Slices
from .errors import InputError
from .progress import track
from .share import total
from .tree import Tree, add, alike, axpy, size, subtract, zeros

CHUNK_NUMBERS = 1 << 22  # numbers of data that a full gradient looks at together


class Anchor(NamedTuple):
    """A position and the full gradient there."""

    position: Tree
    gradient: Tree


def log_likelihood(model, position: Tree, rows: Tree, weights):
    """Σ_i w_i log likelihood_i."""
    terms = jax.vmap(lambda datum: model.log_likelihood(position, datum))(rows)
    return jnp.sum(terms if weights is None else jnp.where(weights > 0, terms * weights, 0))


def potential(model, position: Tree, batch: Batch):
    """−log prior − scale Σ_i w_i log likelihood_i."""
    total = log_likelihood(model, position, batch.rows, batch.weights)
    return -(model.log_prior(position) + batch.scale * total)


def prior_gradient(model, position: Tree) -> Tree:
    return jax.grad(lambda theta: -model.log_prior(theta))(position)


def likelihood_gradient(model, position: Tree, batch: Batch, key) -> Tree:
    """The gradient of `log_likelihood`, by the model's own where it has one."""
    if not hasattr(model, "likelihood_gradient"):
        return jax.grad(lambda theta: log_likelihood(model, theta, batch.rows, batch.weights))(position)
    rows = jax.tree.leaves(batch.rows)[0].shape[0]
    weights = jnp.ones(rows) if batch.weights is None else batch.weights
    return model.likelihood_gradient(position, batch.rows, weights, random.jax_key(key))


def batch_gradient(model, position: Tree, batch: Batch | Slices, key) -> Tree:
    """The gradient of `potential`, by the model's own likelihood gradient where it has one."""
    if isinstance(batch, Slices):
        likelihood = sliced(model, batch, key, lambda *given: likelihood_gradient(model, position, *given), position)
    elif hasattr(model, "likelihood_gradient"):
        likelihood = likelihood_gradient(model, position, batch, key)
    else:
        return jax.grad(lambda theta: potential(model, theta, batch))(position)
    return axpy(-batch.scale, likelihood, prior_gradient(model, position))


def sliced(model, batch: Slices, key, gradient, position: Tree) -> Tree:
    """Σ_k gradient(slice k, key k), a tree like the position; each slice has a model key of its own."""

    def one(k):
        own = random.fold(key, k) if hasattr(model, "likelihood_gradient") else None
        return gradient(batch.get(k), own)

    return total(batch.cuts, batch.portion, one, position)


def full_gradient(model, data: Data, position: Tree, key) -> Tree:
    """∇U over all data, accumulated in chunks so that only one chunk's intermediate results exist at a time."""

    def term(rows, weights, k):
        own = random.fold(key, k) if hasattr(model, "likelihood_gradient") else None
        return batch_gradient(model, position, Batch(rows, weights, 1.0), own)

    return _sweep(data, term, prior_gradient(model, position))


def full_potential(model, data: Data, position: Tree):
    """U over all data, in chunks."""
    return _sweep(
        data,
        lambda rows, weights, k: potential(model, position, Batch(rows, weights, 1.0)),
        -model.log_prior(position),
    )


def _sweep(data: Data, term, prior):
    """Σ over chunks of term(rows, weights, number), each of which counts the prior once, and one prior in all."""
    row = size(data.datum)
    chunk = min(data.size, max(1, CHUNK_NUMBERS // max(row, 1)))
    count = -(-data.size // chunk)
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


@dataclass(frozen=True)
class Minibatch:
    """The plain estimate from one batch; all data at once (in chunks) under the order `full`."""

    def prepare(self, model, data: Data, position: Tree, progress: bool | None):
        return ()

    def start(self, model, data: Data, position: Tree):
        return ()

    def visit(self, model, carried, position: Tree, batch: Batch, key):
        return carried

    def refresh(self, model, data: Data, carried, position: Tree, l):
        return carried

    def __call__(self, model, data: Data, shared, carried, position: Tree, batch: Batch, key) -> Tree:
        if data.order == "full":
            return full_gradient(model, data, position, key)
        return batch_gradient(model, position, batch, key)


def corrected(model, anchor: Anchor, position: Tree, batch: Batch | Slices, key) -> Tree:
    """∇U(a) + ∇Ũ(θ) − ∇Ũ(a) on one batch: unbiased, and without noise at the anchor a."""

    def of_slice(*given):
        there = likelihood_gradient(model, anchor.position, *given)
        return subtract(likelihood_gradient(model, position, *given), there)

    if isinstance(batch, Slices):  # one exchange for both
        prior = subtract(prior_gradient(model, position), prior_gradient(model, anchor.position))
        likelihood = sliced(model, batch, key, of_slice, position)
        return add(anchor.gradient, axpy(-batch.scale, likelihood, prior))
    change = subtract(batch_gradient(model, position, batch, key), batch_gradient(model, anchor.position, batch, key))
    return add(anchor.gradient, change)


@dataclass(frozen=True)
class ControlVariate(Minibatch):
    """Minibatch noise measured against a fixed anchor near the mode, found by L-BFGS where none is given."""

    anchor: Any = None
    iterations: int = 200
    tolerance: float = 1e-4

    def __hash__(self):
        return hash((id(self.anchor), self.iterations, self.tolerance))

    def prepare(self, model, data: Data, position: Tree, progress: bool | None) -> Anchor:
        point = find_mode(model, data, position, self, progress) if self.anchor is None else self.anchor
        shapes = [[np.shape(leaf) for leaf in jax.tree.leaves(tree)] for tree in (point, position)]
        if not alike(point, position) or shapes[0] != shapes[1]:
            given, expected = (jax.tree.map(np.shape, tree) for tree in (point, position))
            raise InputError(f"the anchor has shape {given}; give a position like those of the chains, {expected}.")
        point = jax.tree.map(lambda value, like: jnp.asarray(value, like.dtype), point, position)
        return Anchor(point, jax.jit(full_gradient, static_argnums=0)(model, data, point, jnp.zeros(2, jnp.uint32)))

    def __call__(self, model, data: Data, shared: Anchor, carried, position: Tree, batch: Batch, key) -> Tree:
        return corrected(model, shared, position, batch, key)


@dataclass(frozen=True)
class SVRG(Minibatch):
    """Minibatch noise measured against the chain's own position of up to `every` steps ago."""

    every: int = 100

    def start(self, model, data: Data, position: Tree) -> Anchor:
        return Anchor(position, zeros(position))

    def refresh(self, model, data: Data, carried: Anchor, position: Tree, l) -> Anchor:
        """A new anchor before steps 1, 1 + every, 1 + 2 every, ..."""
        key = jnp.zeros(2, jnp.uint32)
        return jax.lax.cond(
            l % jnp.uint32(self.every) == 1 % self.every,
            lambda: Anchor(position, full_gradient(model, data, position, key)),
            lambda: carried,
        )

    def __call__(self, model, data: Data, shared, carried: Anchor, position: Tree, batch: Batch, key) -> Tree:
        return corrected(model, carried, position, batch, key)


@dataclass(frozen=True)
class Latent(Minibatch):
    """Every datum keeps the hidden causes of its last visit, from which the next visit's draw goes on.

    They are drawn at the position where a step begins, so that all gradients of a step see the same ones. The data are
    pairs (row, its number); the model has `first_hidden`, `draw_hidden` and `joint_gradient`.
    """

    def start(self, model, data: Data, position: Tree):
        return model.first_hidden(position, data.size, jax.random.key(0))

    def visit(self, model, carried, position: Tree, batch: Batch, key):
        rows, numbers = batch.rows
        drawn = model.draw_hidden(position, rows, random.jax_key(key), carried[numbers])
        return carried.at[numbers].set(drawn)

    def __call__(self, model, data: Data, shared, carried, position: Tree, batch: Batch, key) -> Tree:
        rows, numbers = batch.rows
        weights = jnp.ones(len(numbers)) if batch.weights is None else batch.weights
        likelihood = model.joint_gradient(position, rows, carried[numbers], weights)
        return axpy(-batch.scale, likelihood, prior_gradient(model, position))


def minibatch() -> Minibatch:
    """The plain minibatch gradient."""
    return Minibatch()


def control_variate(anchor: Tree = None, *, iterations: int = 200, tolerance: float = 1e-4) -> ControlVariate:
    """Control variates around `anchor`, by default the mode, sought by L-BFGS over all data."""
    return ControlVariate(anchor, iterations, tolerance)


def svrg(every: int = 100) -> SVRG:
    """Variance reduction against a full gradient renewed every so many steps."""
    if every < 1:
        raise InputError(f"svrg(every={every}) never renews its anchor; write a positive number of steps.")
    return SVRG(every)


def latent() -> Latent:
    """Hidden causes that persist from visit to visit; the data are pairs (row, number), `arrays((x, np.arange(N)))`."""
    return Latent()


def find_mode(model, data: Data, start: Tree, settings: ControlVariate, progress: bool | None) -> Tree:
    """A position where the full gradient is `tolerance` of what it was, or after `iterations` of L-BFGS."""
    solver = optax.lbfgs()

    @jax.jit
    def iterate(point, state, data):
        value, slope = jax.value_and_grad(lambda theta: full_potential(model, data, theta))(point)
        updates, state = solver.update(
            slope, state, point, value=value, grad=slope, value_fn=lambda theta: full_potential(model, data, theta)
        )
        return optax.apply_updates(point, updates), state, optax.tree.norm(slope)

    point, state, first = start, solver.init(start), None
    for _ in track(range(settings.iterations), "seeking the control variates' anchor", progress):
        moved, state, norm = jax.block_until_ready(iterate(point, state, data))
        data.check()
        first = norm if first is None else first
        if not np.isfinite(norm):
            raise InputError("the search for an anchor left the finite numbers; write control_variate(anchor=...).")
        if norm <= settings.tolerance * first or norm == 0:
            break
        point = moved
    return point
