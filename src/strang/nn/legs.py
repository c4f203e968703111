"""The averaged part of a fit in legs, between which coordinates and steps are measured anew.

A long chain comes to places that are far stiffer than the one where it settled, and steps that were stable are not any
more. Within a leg everything is frozen, so that each samples what it should. A chain that diverges or boils in a leg
goes back to where the leg began and goes on with smaller steps; in place of that leg stands the nearest that was good.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from strang.data.batches import Data
from strang.nn.local import frame
from strang.nn.network import Net
from strang.nn.sampling import (
    CALMER,
    LONGEST_STEP,
    SHORTEST_STEP,
    Plan,
    Probe,
    Settled,
    chosen,
    friction_of,
    hot_chains,
    layer_heat,
    sample,
    usable,
    visited_by,
)
from strang.nn.saved import Folder
from strang.run.result import Run
from strang.util.trees import Tree

COOLER, WARMER = 0.7, 1.3  # by which the steps of a chain change that was hot, but can be used; or was not hot


class Leg(NamedTuple):
    """A part of the averaged steps.

    Attributes:
        settled: where it began, and what was frozen in it.
        run: what was sampled.
        good: which chains neither diverged nor boiled.
    """

    settled: Settled
    run: Run
    good: np.ndarray

    @property
    def positions(self) -> Tree:
        """Where each chain is after it; a chain that was lost, where it began."""
        return jax.tree.map(partial(chosen, self.good), self.run.positions, self.settled.positions)

    @property
    def draws(self) -> int:
        """How many draws it has of each chain."""
        return jax.tree.leaves(self.run.samples)[0].shape[1]


def sample_in_legs(
    net: Net,
    data: Data,
    everything: Data,
    settled: Settled,
    plan: Plan,
    probe: Probe,
    *,
    folder: Folder | None = None,
    deadline: float | None = None,
    progress: bool | None = None,
) -> list[Leg]:
    """The averaged part, from where chains settled; legs that would begin after the deadline are left out."""
    legs: list[Leg] = []
    for number, steps in enumerate(plan.legs()):
        part = replace(plan, steps=steps, draws=max(1, steps // plan.thin), seed=seed_of(plan, number))
        if legs:
            settled = next_settled(net, everything, legs[-1], part, number, folder)
        store = None if folder is None else folder.chains(number)
        run = sample(net, data, settled, part, probe, store=store, deadline=deadline, progress=progress)
        legs.append(Leg(settled, run, usable(run)))
        if run.steps < steps:
            break
    return legs


def seed_of(plan: Plan, number: int) -> int:
    """The seed of a leg; that of the first is the fit's."""
    return plan.seed if number == 0 else int(np.random.SeedSequence([plan.seed, number]).generate_state(1)[0])


def next_settled(net: Net, everything: Data, leg: Leg, plan: Plan, number: int, folder: Folder | None) -> Settled:
    """Where the leg after this one begins, or as it was found before a kill."""
    saved = None if folder is None else folder.load_settled(leg.settled.positions, number)
    if saved is not None:
        return saved
    positions = leg.positions
    place = frame(net.model, everything, positions, plan.seed, visited_by(leg.run, positions, leg.good))
    # Steps grow again: a lost leg is a small part of a chain, and one whose steps stay small explores little.
    change = np.where(~leg.good, CALMER, np.where(hot_chains(leg.run), COOLER, WARMER))
    steps = np.clip(change * leg.settled.step_size, SHORTEST_STEP, LONGEST_STEP).astype(np.float32)
    heat = {name: float(mean.max()) for name, (mean, _) in layer_heat(leg.run).items()}
    found = Settled(place, steps, friction_of(place.width), heat)
    if folder is not None:
        folder.save_settled(found, number)
    return found


def merged_draws(legs: list[Leg]) -> Tree:
    """The draws of all legs, of chains that were good in one at least; for a leg in which a chain was not, those of
    the nearest in which it was."""
    good = np.stack([leg.good for leg in legs])  # leg, chain
    counts = [leg.draws for leg in legs]
    first = np.cumsum([0, *counts])
    used = np.flatnonzero(good.any(0))

    def numbers(chain: int) -> np.ndarray:
        """Those of the draws of a chain that are used."""
        candidates = np.flatnonzero(good[:, chain])
        nearest = [candidates[np.abs(candidates - leg).argmin()] for leg in range(len(legs))]
        pairs = zip(counts, nearest, strict=True)
        return np.concatenate([first[leg] + np.arange(count) % max(counts[leg], 1) for count, leg in pairs])

    which = np.stack([numbers(int(chain)) for chain in used])
    samples = (leg.run.samples for leg in legs)
    return jax.tree.map(lambda *each: np.concatenate(each, axis=1)[used[:, None], which], *samples)


def own_draws(legs: list[Leg]) -> np.ndarray:
    """Which of the merged draws, chain first, are of the leg that they stand for."""
    good = np.stack([leg.good for leg in legs])
    return np.repeat(good[:, good.any(0)], [leg.draws for leg in legs], axis=0).T
