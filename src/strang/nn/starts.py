"""Optimised starts: AdamW from random positions, stopped early and with averaged weights, all in one compiled program.

What is minimised is the negative log likelihood alone: a deep ensemble, which sampling then begins from. Of a number,
each row counts by its noise (`BETA`): else a network explains by noise what it has not learnt yet, and then those rows
hardly count (Seitzer et al., "On the pitfalls of heteroscedastic uncertainty estimation", 2022).
After some steps the negative log likelihood of held-out rows is looked at, that of the
weights and that of their running mean; the best so far is kept, and the search ends where none has become better for
long. Minibatches are functions of (key, step), so that a search that was stopped goes on bit for bit.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from strang.data.batches import Data
from strang.gradients.full import log_likelihood
from strang.models.base import log_likelihoods
from strang.models.bnn import forecast
from strang.nn.network import Net
from strang.util.progress import bar
from strang.util.trees import Tree

HELD_OUT, FEW_HELD_OUT, MOST_HELD_OUT = 0.1, 50, 4096  # fraction of rows, and rows
BETA = 0.5  # between 0, the likelihood, and 1, least squares for the mean
CHUNK = 1024  # held-out rows that are looked at together
MIN_GAIN = 1e-3  # nats per held-out row by which a look must be better for the search to go on


@dataclass(frozen=True)
class Recipe:
    """How starts are optimised: what is compiled.

    Attributes:
        net: the network.
        batch_size: rows per step.
        rate: AdamW's learning rate.
        decay: its weight decay.
        every: steps between two looks at the held-out rows.
        window: steps over which weights are averaged.
    """

    net: Net
    batch_size: int
    rate: float
    decay: float
    every: int
    window: float

    @property
    def optimiser(self) -> Any:
        return optax.adamw(self.rate, weight_decay=self.decay)


class Search(NamedTuple):
    """Where all starts are; every array leads with them, but for the number of looks."""

    looks: jax.Array
    position: Tree
    optimiser: Any
    mean: Tree  # of the weights
    best: Tree
    loss: jax.Array  # of the best, per held-out row
    stale: jax.Array  # looks since it became clearly better


def held_out(size: int, seed: int) -> np.ndarray:
    """Numbers of the rows that no start learns from, sorted: a tenth, of few rows up to a fifth, of many 4,096."""
    few = min(FEW_HELD_OUT, size // 5)
    count = min(max(1, few, round(HELD_OUT * size)), MOST_HELD_OUT, size - 1)
    return np.sort(np.random.default_rng(seed).choice(size, count, replace=False)).astype(np.uint32)


@partial(jax.jit, static_argnums=0)
def begin(recipe: Recipe, positions: Tree) -> Search:
    """The search before its first step."""
    count = jax.tree.leaves(positions)[0].shape[0]
    optimiser = jax.vmap(recipe.optimiser.init)(positions)
    # Of the type that it has after a look: the search would be compiled for each.
    loss, stale = jnp.full(count, jnp.inf, jnp.result_type(*jax.tree.leaves(positions))), jnp.zeros(count, jnp.uint32)
    return Search(jnp.uint32(0), positions, optimiser, positions, positions, loss, stale)


@partial(jax.jit, static_argnums=0)
def advance(recipe: Recipe, data: Data, held, keys, search: Search) -> Search:
    """`recipe.every` steps of all starts, and a look at their held-out rows."""
    look = partial(one_look, recipe, data, search.looks, held)
    parts = search.position, search.optimiser, search.mean, search.best, search.loss, search.stale
    return Search(search.looks + 1, *jax.vmap(look)(keys, *parts))


def one_look(recipe: Recipe, data: Data, looks, held, key, position, optimiser, mean, best, loss, stale):
    """The same for one start."""
    learnt = data.size - len(held)

    def step(i, carry):
        position, optimiser, mean = carry
        own = jax.random.fold_in(key, looks * recipe.every + i)
        numbers = learnt_number(jax.random.randint(own, (recipe.batch_size,), 0, learnt).astype(jnp.uint32), held)
        gradient = jax.grad(objective)(position, recipe.net, data.take(numbers))
        updates, optimiser = recipe.optimiser.update(gradient, optimiser, position)
        position = optax.apply_updates(position, updates)
        mean = jax.tree.map(lambda m, x: m + (x - m) / recipe.window, mean, position)
        return position, optimiser, mean

    position, optimiser, mean = jax.lax.fori_loop(0, recipe.every, step, (position, optimiser, mean))
    losses = jnp.stack([held_out_loss(recipe.net.model, data, each, held) for each in (position, mean)])
    found = jnp.where(jnp.isnan(losses), jnp.inf, losses).min()
    better = found < loss
    chosen = jax.tree.map(lambda x, m: jnp.where(losses[1] <= losses[0], m, x), position, mean)
    best = jax.tree.map(lambda new, old: jnp.where(better, new, old), chosen, best)
    stale = jnp.where(found < loss - MIN_GAIN, 0, stale + 1)
    return position, optimiser, mean, best, jnp.minimum(found, loss), stale


def objective(position: Tree, net: Net, rows: tuple) -> jax.Array:
    """The mean over rows of their negative log likelihood; those of a number count by their noise to the power 2β."""
    losses = -log_likelihoods(net.model, position, rows)
    if net.output == "number":
        noise = jax.lax.stop_gradient(forecast(net.output, net.outputs(position, rows[0])).sd)
        losses *= noise ** (2 * BETA)
    return jnp.mean(losses)


def learnt_number(place, held):
    """The number of the row at this place among those that are not held out.

    >>> learnt_number(jnp.arange(3), jnp.asarray([1, 2])).tolist()
    [0, 3, 4]
    """
    before = held - jnp.arange(len(held), dtype=held.dtype)  # learnt rows before each held-out one
    return place + jnp.searchsorted(before, place, side="right").astype(place.dtype)


def held_out_loss(model, data: Data, position: Tree, held):
    """The negative log likelihood per held-out row, some rows at a time."""
    count = len(held)
    size = min(CHUNK, count)
    padded = jnp.pad(held, (0, -count % size), mode="edge").reshape(-1, size)
    weights = (jnp.arange(padded.size) < count).astype(jnp.float32).reshape(padded.shape)

    def one(chunk):
        numbers, weights = chunk
        return log_likelihood(model, position, data.take(numbers), weights)

    return -jnp.sum(jax.lax.map(one, (padded, weights))) / count


def searches(
    recipe: Recipe, data: Data, held: np.ndarray, keys, search: Search, *, patience: int, most: int
) -> Iterator[Search]:
    """The search after each look, until no start has become better for `patience` looks, or `most` were made."""
    while int(search.looks) < most and int(np.min(search.stale)) < patience:
        search = jax.block_until_ready(advance(recipe, data, held, keys, search))
        data.check()
        yield search


def optimise(
    recipe: Recipe,
    data: Data,
    positions: Tree,
    *,
    held: np.ndarray,
    seed: int,
    patience: int,
    most: int,
    deadline: float | None = None,
    saved: Any = None,
    progress: bool | None = None,
) -> Search:
    """Optimise all starts.

    Args:
        recipe: how.
        data: rows, in memory or not.
        positions: where the search begins, leading with starts.
        held: numbers of the rows that starts do not learn from, sorted.
        seed: of minibatches.
        patience: looks without a better one after which it ends.
        most: looks at most.
        deadline: a time of `time.perf_counter` at which it ends.
        saved: an object with `load(like)` and `save(search, done)`, which keeps the search; or None.
        progress: whether to show a progress bar; None: on a terminal.
    """
    starts = jax.tree.leaves(positions)[0].shape[0]
    keys = jax.vmap(lambda k: jax.random.fold_in(jax.random.key(seed), k))(jnp.arange(starts))
    search = begin(recipe, positions)
    done = False
    if saved is not None:
        search, done = saved.load(search)
    with bar(most, "optimising starts", progress) as show:
        show(int(search.looks))
        going = () if done else searches(recipe, data, held, keys, search, patience=patience, most=most)
        for search in going:
            show(int(search.looks), f"held-out NLL {float(np.mean(search.loss)):.4g}")
            if saved is not None:
                saved.save(search, False)
            if deadline is not None and time.perf_counter() > deadline:
                break
    if saved is not None and not done:
        saved.save(search, True)
    return search
