"""Estimates of ∇U from one batch. U = −log prior − Σ_i log likelihood_i, and a batch's sum is scaled by `batch.scale`.

An estimator has `prepare` (once per run: what all chains share), `start`, `refresh` and `visit` (what a chain carries
along, renewed now and then and by every batch) and `__call__` (the estimate at a position).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from strang.data.batches import Batch, CutBatch, Data
from strang.gradients.full import (
    batch_gradient,
    full_gradient,
    likelihood_gradient,
    log_likelihood,
    prior_gradient,
    sum_parts,
)
from strang.gradients.mode import find_mode
from strang.util import random
from strang.util.errors import InputError, whole
from strang.util.trees import Tree, add, alike, axpy, subtract, zeros


class Anchor(NamedTuple):
    """A position and the full gradient there."""

    position: Tree
    gradient: Tree


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
        if data.batch_order.full:
            return full_gradient(model, data, position, key)
        return batch_gradient(model, position, batch, key)


def corrected(model, anchor: Anchor, position: Tree, batch: Batch | CutBatch, key) -> Tree:
    """∇U(a) + ∇Ũ(θ) − ∇Ũ(a) on one batch: unbiased, and without noise at the anchor a."""

    def of_part(*given):
        there = likelihood_gradient(model, anchor.position, *given)
        return subtract(likelihood_gradient(model, position, *given), there)

    if isinstance(batch, CutBatch):  # one exchange for both
        prior = subtract(prior_gradient(model, position), prior_gradient(model, anchor.position))
        likelihood = sum_parts(model, batch, key, of_part, position)
        return add(anchor.gradient, axpy(-batch.scale, likelihood, prior))
    change = subtract(batch_gradient(model, position, batch, key), batch_gradient(model, anchor.position, batch, key))
    return add(anchor.gradient, change)


@dataclass(frozen=True, eq=False)
class ControlVariate(Minibatch):
    """Minibatch noise measured against a fixed anchor near the mode, found by L-BFGS where none is given.

    Compiled code is given the anchor as an input, so that those with different ones are equal to it.
    """

    anchor: Any = None
    iterations: int = 200
    tolerance: float = 1e-4

    def __eq__(self, other):
        return type(self) is type(other)

    def __hash__(self):
        return hash(type(self))

    def prepare(self, model, data: Data, position: Tree, progress: bool | None) -> Anchor:
        point = self.anchor
        if point is not None and hasattr(model, "unconstrain"):
            point = jax.jit(model.unconstrain)(jax.tree.map(jnp.asarray, point))
        if point is None:
            iterations, tolerance = self.iterations, self.tolerance
            point = find_mode(
                model, data, position, iterations=iterations, tolerance=tolerance, progress=progress, what="the anchor"
            )
        shapes = [[np.shape(leaf) for leaf in jax.tree.leaves(tree)] for tree in (point, position)]
        if not alike(point, position) or shapes[0] != shapes[1]:
            given, expected = (jax.tree.map(np.shape, tree) for tree in (point, position))
            raise InputError(f"the anchor has shape {given}; give a position like those of the chains, {expected}.")
        point = jax.tree.map(lambda value, like: jnp.asarray(value, like.dtype), point, position)
        if not all(np.isfinite(np.asarray(leaf, float)).all() for leaf in jax.tree.leaves(point)):
            raise InputError("the anchor is not finite; give a position near the mode, or leave it out.")
        return Anchor(point, jax.jit(full_gradient, static_argnums=0)(model, data, point, jnp.zeros(2, jnp.uint32)))

    def difference(self, model, anchor: Tree, position: Tree, rows: Tree) -> Tree:
        """What rows contribute at random: Σ ∇ log likelihood_i at a position, less what is known from the anchor."""
        there, here = (
            jax.grad(lambda theta: log_likelihood(model, theta, rows, None))(theta) for theta in (anchor, position)
        )
        return subtract(here, there)

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

    They are drawn at the position where a step begins, so that all gradients of a step see the same ones. The model
    has `first_hidden`, `draw_hidden` and `joint_gradient`.
    """

    def start(self, model, data: Data, position: Tree):
        return model.first_hidden(position, data.size, jax.random.key(0))

    def visit(self, model, carried, position: Tree, batch: Batch, key):
        drawn = model.draw_hidden(position, batch.rows, random.jax_key(key), carried[batch.numbers])
        return carried.at[batch.numbers].set(drawn)

    def __call__(self, model, data: Data, shared, carried, position: Tree, batch: Batch, key) -> Tree:
        weights = jnp.ones(len(batch.numbers)) if batch.weights is None else batch.weights
        likelihood = model.joint_gradient(position, batch.rows, carried[batch.numbers], weights)
        return axpy(-batch.scale, likelihood, prior_gradient(model, position))


def minibatch() -> Minibatch:
    """The plain minibatch gradient."""
    return Minibatch()


def control_variate(anchor: Tree = None, *, iterations: int = 200, tolerance: float = 1e-4) -> ControlVariate:
    """Control variates around `anchor`, by default the mode, sought by L-BFGS over all data."""
    return ControlVariate(anchor, iterations, tolerance)


def svrg(every: int = 100) -> SVRG:
    """Variance reduction against a full gradient that is renewed every `every` steps."""
    return SVRG(whole("every", every))


def latent() -> Latent:
    """Hidden causes that persist from visit to visit, for models such as `strang.sbn.SBN`."""
    return Latent()
