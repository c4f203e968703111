"""Local sampling about optimised starts, by Strang's own engine: one chain per start, in coordinates of its own."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.tree_util import Partial

from strang.data.batches import Data, arrays, files
from strang.dynamics.sghmc import SGHMC
from strang.models.bnn import Normal, forecast
from strang.nn.local import MOST_PLACES, Frame, frame
from strang.nn.network import Net, layer_name
from strang.run.api import request
from strang.run.goal import GoalObserver
from strang.run.result import Run, finish
from strang.sampling import averages
from strang.sampling.job import Job
from strang.storage.store import Store
from strang.util.progress import bar
from strang.util.trees import Tree

Probe = Callable[[Tree], Tree]
WORD = "leimkuhler:BAOA"  # one gradient per step
SHORTEST_STEP, LONGEST_STEP = 0.01, 0.35  # of a unit of time in which the stiffest direction turns by one radian
CALMER, BOLDER = 0.4, 1.5  # by which steps change after a part of settling
MARGIN = 0.6  # of the longest step at which settling chains stayed cool: long ones come to stiffer places
HOT = 1.15  # temperature of a layer, beyond its error, at which the step is made smaller
BOILING = 2.0  # temperature of a layer at which a chain is not used
FALLING = 10.0  # the same for a chain of high friction, which is hot also where it falls
PHASES, ATTEMPTS = 5, 5  # of settling, at least, and how many more there may be until no chain is hot
SHORTEST_LEG, MOST_LEGS = 2500, 16  # steps of each chain; a fit of few steps is one leg
NETWORK, SCALES = map(jax.tree_util.DictKey, ("network", "log_scale"))  # of positions with scales that are learnt
FROZEN = 1e-9  # how far such scales can move once chains have settled
LEAP = 1.5  # of the logarithm of a layer's scale in one part of settling
SHORTEST = 64  # steps of a part of settling: in fewer, no temperature shows
VISITED = MOST_PLACES - 1  # positions of a chain's last part that its coordinates are measured at, beside where it is
QUENCH = 1.0  # the friction of the first part of settling, and of chains that were hot
LEAST_FRICTION = 0.05  # with less, the heat of steps where curvature is larger than it was is not carried off


@dataclass(frozen=True)
class Plan:
    """What is asked of the chains."""

    steps: int  # of each chain that are averaged
    settling: int  # before
    draws: int  # of each chain that are kept
    temperature: float | tuple[float, ...]  # or of each chain
    seed: int
    batch_size: int | None = None  # None: all rows

    @property
    def thin(self) -> int:
        return max(1, self.steps // self.draws)

    def legs(self) -> list[int]:
        """The steps of each leg: those of whole numbers of draws, but for what is left over.

        >>> Plan(steps=3000, settling=0, draws=100, temperature=1.0, seed=0).legs()
        [3000]
        >>> Plan(steps=8000, settling=0, draws=100, temperature=1.0, seed=0).legs()
        [2720, 2720, 2560]
        """
        count = int(np.clip(self.steps // SHORTEST_LEG, 1, MOST_LEGS))
        each = -(-self.draws // count) * self.thin
        rest = self.steps % each
        return [self.steps] if count == 1 else [each] * (self.steps // each) + [rest] * (rest >= self.thin)


def data_of(rows: tuple[np.ndarray, np.ndarray], batch_size: int | None) -> Data:
    """Rows in memory, or on disk where the inputs are."""
    order: dict[str, Any] = {"batch_order": "full"}
    if batch_size is not None:
        order = {"batch_order": "symmetric", "batch_size": batch_size}
    x, y = rows
    return files((x, y), **order) if isinstance(x, np.memmap) else arrays((x, y), **order)


class Settled(NamedTuple):
    """Where the averaged part begins, and all that is frozen in it."""

    frame: Frame
    step_size: np.ndarray  # of each chain
    friction: float
    heat: dict[str, float]  # the temperature of each layer, in the last phase

    @property
    def positions(self) -> Tree:
        return self.frame.coordinates.centre


@dataclass(frozen=True)
class Forecast:
    """The forecast at some rows; equal ones share a compilation."""

    outputs: Callable
    output: str

    def __call__(self, rows, position: Tree):
        found = forecast(self.output, self.outputs(position, rows))
        return {"mean": found.mean, "sd": found.sd} if isinstance(found, Normal) else {"probability": found}


def probe_of(net: Net, rows: np.ndarray) -> Probe:
    """What is averaged on the way: the forecast at a few rows, by which chains are compared."""
    return Partial(Forecast(net.outputs, net.output), np.asarray(rows, np.float32))


def friction_of(width: np.ndarray) -> float:
    """The friction with which a chain crosses the prior about as fast as it can, and with which it stays cool."""
    return float(np.clip(1 / np.median(width), LEAST_FRICTION, 1.0))


def job_of(
    net: Net,
    data: Data,
    plan: Plan,
    probe: Probe,
    place: Frame,
    h: np.ndarray,
    steps: int,
    seed: int,
    friction: Any,
    burn_in: int = 0,
) -> Job:
    """The chains from these positions on; averages leave out the first `burn_in` steps."""
    positions = place.coordinates.centre
    chains = jax.tree.leaves(positions)[0].shape[0]
    return request(
        net.model,
        data,
        SGHMC(friction=friction, temperature=np.asarray(plan.temperature, np.float32)),
        integrator=WORD,
        step_size=h,
        steps=steps,
        burn_in=burn_in,
        chains=chains,
        seed=seed,
        average=probe,
        init=positions,
        coordinates=place.coordinates,
        coupled=1,
        thin=min(plan.thin, steps),
        progress=False,
    )


def layer_heat(run: Run) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The kinetic temperature of each layer, chain by chain, and about its standard error."""
    means = averages.means(run.chain.average)
    heat = means["heat"] if "heat" in means else means["leaf_heat"]  # of a large network, array by array
    friction = np.asarray(run.job.inputs.dynamics.friction, float)
    h = np.asarray(run.job.inputs.schedule(1.0), float)
    independent = 1 + friction * h * (run.steps - int(run.job.inputs.burn_in))
    sizes = [leaf[0].size for leaf in jax.tree.leaves(run.chain.state.position)]
    totals: dict[str, Any] = {}
    for (path, leaf), size in zip(jax.tree_util.tree_leaves_with_path(heat), sizes, strict=True):
        if path[0] == SCALES:
            continue  # they are few, and warm as long as they are on their way
        name = layer_name(path[1:] if path[0] == NETWORK else path)
        total, count = totals.get(name, (0.0, 0))
        mean = np.asarray(leaf, float).reshape(len(leaf), -1).mean(1)
        totals[name] = total + size * mean, count + size
    return {
        name: (total / count, np.broadcast_to(np.sqrt(2 / (count * independent)), total.shape))
        for name, (total, count) in totals.items()
    }


def usable(run: Run) -> np.ndarray:
    """Which chains neither diverged nor boiled; where all boil, those that did not diverge."""
    cool = ~hot_chains(run, BOILING)
    return cool if cool.any() else run.alive


def hot_chains(run: Run, limit: float = HOT) -> np.ndarray:
    """Which chains diverged, or have a layer that is warmer than this by more than chance."""
    found = ~run.alive
    for mean, error in layer_heat(run).values():
        found = found | ~(mean - 3 * error <= limit)  # also where it is no number
    return found


def settle(
    net: Net,
    data: Data,
    everything: Data,
    positions: Tree,
    plan: Plan,
    probe: Probe,
    *,
    deadline: float | None = None,
    progress: bool | None = None,
) -> Settled:
    """Let chains settle from their starts, in coordinates that follow them, and find the step size.

    Args:
        net: the network.
        data: rows in the order of minibatches.
        everything: the same rows, from which curvature is measured.
        positions: the starts.
        plan: what is asked.
        probe: what is averaged.
        deadline: a time of `time.perf_counter` after which no further part is begun.
        progress: whether to show a progress bar; None: on a terminal.
    """
    steps, seed = max(plan.thin, plan.settling // PHASES, SHORTEST), plan.seed
    h = np.full(len(jax.tree.leaves(positions)[0]), LONGEST_STEP / 2, np.float32)
    place, tried = frame(net.model, everything, positions, seed), h
    hot = np.full(len(h), True)
    heat: dict[str, float] = {}
    with bar(PHASES, "settling", progress) as show:
        for phase in range(PHASES + ATTEMPTS):
            seed, tried, quenched = seed + 1, h, hot
            # Energy that a start has in excess, or a chain that was hot, is heat until it is forgotten. So their
            # friction is high, and the temperature is that of the latter half.
            friction = np.where(quenched, QUENCH, friction_of(place.width)).astype(np.float32)
            run = finish(job_of(net, data, plan, probe, place, h, steps, seed, friction, steps // 2), False)
            boils = np.where(quenched, hot_chains(run, FALLING), hot_chains(run, BOILING))
            lost = boils | thrown(positions, run.positions)
            hot = hot_chains(run) | lost
            heat = {name: float(mean.max()) for name, (mean, _) in layer_heat(run).items()}
            # A chain that is hot may still be on its way down: its steps stay, with high friction. If it boils, or was
            # thrown out, steps are too long, and it goes back to where it was.
            change = np.where(lost, CALMER, np.where(hot, 1.0, BOLDER))
            h = np.clip(change * h, SHORTEST_STEP, LONGEST_STEP).astype(np.float32)
            positions = jax.tree.map(partial(chosen, ~lost), run.positions, positions)
            place = frame(net.model, everything, positions, seed, visited_by(run, positions, ~lost))
            show(min(phase + 1, PHASES), f"step sizes {tried.min():.2g} to {tried.max():.2g}")
            late = deadline is not None and time.perf_counter() > deadline
            if late or (phase + 1 >= PHASES and not (hot | quenched).any()):
                break
    # In one leg there is no way back; with several, a chain that finds its steps too long gets smaller ones.
    margin = MARGIN if len(plan.legs()) == 1 else 1.0
    return Settled(place, margin * np.minimum(tried, h), friction_of(place.width), heat)


def thrown(before: Tree, after: Tree) -> np.ndarray:
    """Which chains have scales of layers that cannot be where they are but by a leap: high friction cools a chain that
    was thrown out before its temperature shows it, in a place where the network is but a constant."""
    chains = len(jax.tree.leaves(after)[0])
    if not isinstance(after, dict) or "log_scale" not in after:
        return np.zeros(chains, bool)
    leaps = [np.abs(np.asarray(after["log_scale"][name]) - s) for name, s in before["log_scale"].items()]
    return ~(np.max(leaps, axis=0) < LEAP)  # also where it is no number


def visited_by(run: Run, positions: Tree, of: np.ndarray) -> Tree:
    """Where each chain is, and of these chains some positions in the latter half of a run."""
    count = jax.tree.leaves(run.samples)[0].shape[1]
    numbers = np.unique(np.linspace(count // 2, count - 1, VISITED).round().astype(int))

    def some(kept, last):
        last = np.asarray(last)[:, None]
        return np.concatenate([chosen(of, np.asarray(kept)[:, numbers], last), last], axis=1)

    return jax.tree.map(some, run.samples, positions)


def chosen(which: np.ndarray, x, other) -> np.ndarray:
    """The part of x of the chains that are chosen, and else of the other."""
    return np.where(expanded(which, x), x, other)


def expanded(each: np.ndarray, x) -> np.ndarray:
    """One number per chain, to go with an array that leads with chains."""
    return each.reshape(-1, *[1] * (x.ndim - 1))


def frozen(place: Frame) -> Frame:
    """Coordinates in which the scales of layers stay what they have become: with them the averaged part could leave
    where its step is stable."""
    unit = jax.tree_util.tree_map_with_path(
        lambda path, x: np.full_like(x, FROZEN) if path[0] == SCALES else x, place.coordinates.unit
    )
    return place._replace(coordinates=replace(place.coordinates, unit=unit))


def sample(
    net: Net,
    data: Data,
    settled: Settled,
    plan: Plan,
    probe: Probe,
    *,
    store: Path | None = None,
    deadline: float | None = None,
    progress: bool | None = None,
) -> Run:
    """The averaged part, from which draws are kept; in a folder it goes on after a kill, bit for bit."""
    place, friction = frozen(settled.frame), np.full(len(settled.step_size), settled.friction, np.float32)
    job = job_of(net, data, plan, probe, place, settled.step_size, plan.steps, plan.seed, friction)
    observer = GoalObserver(job, None, deadline)
    if store is None:
        return finish(job, progress, None, observer)
    folder = Store(store, job, None)
    try:
        return finish(replace(job, chain=folder.chain), progress, folder, observer)
    finally:
        folder.close()
