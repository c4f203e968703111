"""Short runs before the real one: they settle the chains, improve the coordinates, and find a step size whose bias, as
companions measure it, is below the target. They use the compiled code of the run that follows."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from strang.coordinates import Blocks, Chained, Dense, Diagonal
from strang.models.base import from_natural
from strang.sampling.chain import advance_alone
from strang.sampling.estimates import Estimates, estimates
from strang.sampling.job import Job, empty_trace
from strang.sampling.record import Chain, Companion
from strang.util.trees import Tree, size

SETTLING = 16.0  # time, in units of the posterior's scale, for chains to forget where they started
WINDOW = 64.0  # of time in which chains settle, from which coordinates are improved
MEASUREMENT = 256.0  # of time in which the bias is measured: the run that follows does so again, with more patience
SMALLEST_STEP = 1 / 128
MAX_ROUNDS = 8
DRAWS_PER_COORDINATE = 10  # effective ones, from which on coordinates are improved by draws
ROUND = 2.0  # ratio of a variance to 1, above or below which they are
CLEAR = 2.0  # standard errors


@dataclass(frozen=True)
class Trial:
    """What one pilot run found.

    Attributes:
        step_size: h.
        steps: of each chain.
        bias: the largest of all biases of means and standard deviations, in posterior standard deviations; infinite
            where a companion diverged.
        bias_error: its standard error.
        diverged: how many chains diverged.
    """

    step_size: float
    steps: int
    bias: float
    bias_error: float
    diverged: int


class Pilot:
    """Runs of jobs that `make(step_size, coordinates, positions)` prepares."""

    def __init__(self, make: Callable[[float, Any, Tree], Job], *, order: int, target: float, show: Callable):
        self.make, self.order, self.target, self.show = make, order, target, show
        self.trials: list[Trial] = []
        self.steps = 0

    def settle(self, h: float, coordinates: Any, positions: Tree) -> tuple[float, Any, Tree]:
        """A step size at which no chain diverges, coordinates that fit the draws, and chains that have settled."""
        for _ in range(MAX_ROUNDS):
            job = self.make(h, coordinates, positions)
            burn, window = round(SETTLING / h), round(WINDOW / h)
            chain, draws = self.advance(job, burn + window, thin=max(1, round(0.5 / h)))
            lost = int((~np.asarray(chain.alive)).sum())
            lost += int((~np.asarray(chain.companion.alive)).sum()) if isinstance(chain.companion, Companion) else 0
            if lost:
                self.trials.append(Trial(h, burn + window, np.inf, 0.0, lost))
                h /= 2
                if h < SMALLEST_STEP:
                    break
                continue
            settled = burn // max(1, round(0.5 / h))
            better = improved(coordinates, draws[settled:], effective=len(chain.alive) * WINDOW / 4)
            positions = last_positions(job, chain)
            if better is None:
                return h, coordinates, positions
            coordinates = better
        return h, coordinates, positions

    def find_step(self, h: float, coordinates: Any, positions: Tree, fixed: bool) -> tuple[float, Tree, bool]:
        """A step size whose bias is not clearly above the target, and whether there is one."""
        for _ in range(MAX_ROUNDS):
            trial, positions = self.measure(h, coordinates, positions)
            self.trials.append(trial)
            if not trial.bias - CLEAR * trial.bias_error > self.target:
                return h, positions, True
            if fixed or h <= SMALLEST_STEP:
                break
            excess = trial.bias / self.target
            h = max(h * (0.5 if np.isinf(excess) else max(0.25, 0.8 * excess ** (-1 / self.order))), SMALLEST_STEP)
        return h, positions, False

    def measure(self, h: float, coordinates: Any, positions: Tree) -> tuple[Trial, Tree]:
        """The bias at this step size."""
        job, stop = self.make(h, coordinates, positions), round((SETTLING + MEASUREMENT) / h)
        chain, _ = self.advance(job, stop)
        lost = int((~np.asarray(chain.alive)).sum())
        if lost:
            return Trial(h, stop, np.inf, 0.0, lost), positions
        return Trial(h, stop, *worst_bias(estimates(job, chain)), 0), last_positions(job, chain)

    def advance(self, job: Job, stop: int, thin: int | None = None) -> tuple[Chain, np.ndarray]:
        """The chains after a step, and draws of z on the way: draw, chain, coordinate."""
        trace, rows, room = empty_trace(job), [], len(jax.tree.leaves(empty_trace(job))[0])
        chain, each = job.chain, thin or max(1, stop)
        while int(chain.step) < stop:
            upto = min(stop, int(chain.step) + each * room)
            count = (upto - int(chain.step)) // each
            chain, trace = advance_alone(job.program, job.inputs, chain, np.uint32(upto), trace, np.uint32(each))
            jax.block_until_ready(chain)
            job.inputs.data.check()
            if thin:
                rows.append(in_coordinates(job.program.model, job.inputs.coordinates, first(count, trace)))
            self.show()
        self.steps += stop - int(job.chain.step)
        return chain, np.concatenate(rows) if rows else np.zeros((0, 0, 0))


def worst_bias(found: Estimates) -> tuple[float, float]:
    """The bias of a mean or standard deviation that is surely largest, and its error, in standard deviations."""
    assert found.sd is not None
    scale = np.where(found.sd.value > 0, found.scale, np.nan)
    bias = np.concatenate([np.abs(each.bias) / scale for each in (found.mean, found.sd)])
    error = np.concatenate([each.bias_error / scale for each in (found.mean, found.sd)])
    if np.isinf(bias).any() or not np.isfinite(bias).any():
        return np.inf, 0.0
    worst = int(np.nanargmax(bias - CLEAR * error))
    return float(bias[worst]), float(error[worst])


def improved_blocks(coordinates: Blocks, draws: np.ndarray, effective: float) -> Blocks | None:
    """Both parts, each by its own numbers of the draws."""
    parts: dict[str, Any] = {"dense": coordinates.dense, "diagonal": coordinates.diagonal}
    leaves = {**coordinates.dense.centre, **coordinates.diagonal.centre}
    sizes = [(name in coordinates.dense.centre, size(leaves[name])) for name in sorted(leaves)]
    dense = np.concatenate([np.full(count, own) for own, count in sizes])
    found = {"dense": draws[..., dense], "diagonal": draws[..., ~dense]}
    better = {name: improved(part, found[name], effective) for name, part in parts.items()}
    if all(part is None for part in better.values()):
        return None
    return replace(coordinates, **{name: part for name, part in better.items() if part is not None})


def last_positions(job: Job, chain: Chain) -> Tree:
    """Where the chains are, before coordinates."""
    return in_model(job.inputs.coordinates, chain.state.position)


@jax.jit
def in_model(coordinates, z: Tree) -> Tree:
    """The positions of the model at which chains are, from their coordinates; the way back is `in_coordinates`."""
    return jax.vmap(coordinates)(z)


def first(count: int, tree: Tree) -> Tree:
    """So many entries of arrays, cut on the host: cuts of each length would be programs of their own."""
    return jax.tree.map(lambda x: np.asarray(x)[:count], tree)


@partial(jax.jit, static_argnums=0)
def in_coordinates(model, coordinates, positions: Tree):
    """Positions, draw, then chain, as vectors z."""

    def one(position):
        return ravel_pytree(coordinates.inverse(from_natural(model, position)))[0]

    return jax.vmap(jax.vmap(one))(positions)


def improved(coordinates: Any, draws: np.ndarray, effective: float) -> Any:
    """Coordinates in which the draws have unit variance, if they have not and there are enough of them; else None."""
    if isinstance(coordinates, Chained):
        inner = improved(coordinates.inner, draws, effective)
        return None if inner is None else replace(coordinates, inner=inner)
    if isinstance(coordinates, Blocks):
        return improved_blocks(coordinates, draws, effective)
    if type(coordinates) not in (Dense, Diagonal):  # someone's own, which are theirs to improve
        return None
    vectors = np.asarray(draws, float).reshape(-1, draws.shape[-1])
    vectors = vectors[np.isfinite(vectors).all(1)]  # a draw on its own scale may be rounded to the edge
    if len(vectors) < 0.9 * draws[..., 0].size:
        return None
    dimension = vectors.shape[1]
    dense = isinstance(coordinates, Dense)
    if dense and effective < DRAWS_PER_COORDINATE * dimension:
        return None
    mean = vectors.mean(0)
    covariance = np.cov(vectors.T).reshape(dimension, dimension) if dense else np.diag(vectors.var(0))
    prior = dimension if dense else 10.0  # so many draws' worth of what was believed before
    covariance = (effective * covariance + prior * np.eye(dimension)) / (effective + prior)
    values, rotation = np.linalg.eigh(covariance) if dense else (np.diag(covariance), np.eye(dimension))
    if values.max() < ROUND and values.min() > 1 / ROUND:
        return None
    centre, unravel = ravel_pytree(coordinates.centre)
    if not dense:
        old = np.asarray(ravel_pytree(coordinates.scale)[0], float)
        scale = unravel(jnp.asarray(old * np.sqrt(values), centre.dtype))
        return Diagonal(unravel(jnp.asarray(np.asarray(centre, float) + old * mean, centre.dtype)), scale)
    factor = np.asarray(coordinates.factor, float)
    moved = np.asarray(centre, float) + factor @ mean
    inverse = (rotation * values**-0.5).T @ np.asarray(coordinates.inverse_factor, float)
    factor = factor @ (rotation * values**0.5)
    dtype = coordinates.factor.dtype
    return Dense(unravel(jnp.asarray(moved, centre.dtype)), jnp.asarray(factor, dtype), jnp.asarray(inverse, dtype))
