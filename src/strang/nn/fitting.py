"""A fit: optimised starts, chains that settle about each, draws, and what is known of their health."""

import time
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from strang.data.batches import Data
from strang.nn.health import Health, health_of
from strang.nn.legs import merged_draws, sample_in_legs
from strang.nn.network import Net
from strang.nn.pilots import MOST_NUMBERS, TEMPERATURES, Choice, choose
from strang.nn.sampling import WORD, Plan, Probe, data_of, probe_of, settle
from strang.nn.saved import Folder
from strang.nn.settings import LOOKS, PATIENCE, Settings
from strang.nn.sharpness import left_out_in_turn
from strang.nn.starts import Recipe, Search, held_out, optimise
from strang.util.errors import InputError
from strang.util.trees import Tree, on_device

PROBED = 32  # rows at which chains are compared
WEIGHT_DECAY = 1e-4
OPTIMISING, PILOTED, SETTLED = 0.3, 0.5, 0.65  # of the seconds of a fit, after which these parts end


@dataclass(frozen=True, eq=False)
class Fitted:
    """What came out of a fit.

    Attributes:
        draws: positions, start first, then draw.
        starts: the optimised positions, from which chains began.
        positions: where the chains are; in place of one that diverged, another.
        health: what is known of it.
        held_out_nll: of each start.
        choice: temperature and sharpness, and what pilot chains had, if there were any.
    """

    draws: Tree
    starts: Tree
    positions: Tree
    health: Health
    held_out_nll: np.ndarray
    search_steps: int
    step_size: list[float]
    friction: float
    choice: Choice
    integrator: str = WORD

    @property
    def draws_each(self) -> int:
        return int(jax.tree.leaves(self.draws)[0].shape[1])

    def layer_scales(self) -> dict[str, float] | None:
        """Where scales are learnt, the median of each layer's."""
        if not isinstance(self.draws, dict) or "log_scale" not in self.draws:
            return None
        return {name: float(np.exp(np.median(s))) for name, s in self.draws["log_scale"].items()}

    def flat_draws(self) -> Tree:
        """The draws of all chains, along one leading axis."""
        return flattened(self.draws)


def flattened(draws: Tree) -> Tree:
    """Draws that lead with chains, along one leading axis."""
    return jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[2:]), draws)


def fit_network(net: Net, rows: tuple[np.ndarray, np.ndarray], settings: Settings, before: Any = None) -> Fitted:
    """Fit a network to rows of (x, target); `before` is a fit whose chains go on."""
    begun = time.perf_counter()
    folder = None if settings.store is None else Folder(settings.store, settings, rows)
    everything, data = data_of(rows, None), data_of(rows, settings.batch_size)
    everything.verify()
    held = held_out(settings.rows, settings.seed)
    if before is None:
        found = search(net.bare or net, everything, held, settings, begun, folder)
        starts = found.best if net.bare is None else jax.vmap(net.model.lifted)(found.best)
        losses, made = np.asarray(found.loss, float), int(found.looks) * settings.every
    else:
        starts, losses, made = before.positions, before.held_out_nll, 0
    chosen = np.linspace(0, settings.rows - 1, min(PROBED, settings.rows)).round().astype(int)
    probe = probe_of(net, np.asarray(rows[0][chosen], np.float32))
    plan = Plan(settings.steps, settings.settling, settings.draws, 1.0, settings.seed, settings.batch_size)
    if before is not None:
        choice = before.choice
    elif settings.temperature is not None:
        choice = Choice(settings.temperature)
    elif settings.batch_size is not None or rows[0].size > MOST_NUMBERS:
        choice = Choice(TEMPERATURES[0])  # the noise of minibatches heats colder chains
    else:
        choice = chosen_by_pilots(net, rows, held, starts, plan, probe, settings, begun, folder)
    plan = replace(plan, temperature=choice.temperature)
    settled = None if folder is None else folder.load_settled(starts)
    if settled is None:
        until = moment(settings, begun, SETTLED)
        settled = settle(net, data, everything, starts, plan, probe, deadline=until, progress=settings.progress)
        if folder is not None:
            folder.save_settled(settled)
    deadline = moment(settings, begun, 1.0)
    legs = sample_in_legs(
        net, data, everything, settled, plan, probe, folder=folder, deadline=deadline, progress=settings.progress
    )
    alive = np.flatnonzero(np.any([leg.good for leg in legs], axis=0))
    if len(alive) == 0:
        raise InputError("all chains diverged; give more rows, or write a smaller prior_sd.")
    draws = merged_draws(legs)
    if jax.tree.leaves(draws)[0].shape[1] == 0:
        raise InputError("the time was up before the first draw; write more seconds, or fewer steps.")
    if settings.temperature is None and choice.temperature == TEMPERATURES[0]:
        choice = choice._replace(sharpness=left_out_in_turn(net, flattened(draws), *rows))
    return Fitted(
        draws=draws,
        starts=jax.tree.map(np.asarray, starts),
        positions=jax.tree.map(lambda x: np.asarray(x)[alive[np.arange(len(x)) % len(alive)]], legs[-1].positions),
        health=health_of(legs, draws, starts),
        held_out_nll=losses,
        search_steps=made,
        step_size=legs[-1].settled.step_size.tolist(),
        friction=legs[-1].settled.friction,
        choice=choice,
    )


def moment(settings: Settings, begun: float, part: float) -> float | None:
    """When this part of a fit's seconds is over."""
    return None if settings.seconds is None else begun + part * settings.seconds


def chosen_by_pilots(
    net: Net,
    rows: tuple[np.ndarray, np.ndarray],
    held: np.ndarray,
    starts: Tree,
    plan: Plan,
    probe: Probe,
    settings: Settings,
    begun: float,
    folder: Folder | None,
) -> Choice:
    """What pilot chains choose, or as it was found before a kill."""
    found = None if folder is None else folder.load_choice()
    if found is None:
        known = np.setdiff1d(np.arange(len(rows[0])), held)
        learnt, judged = (tuple(np.asarray(part[numbers]) for part in rows) for numbers in (known, held))
        until = moment(settings, begun, PILOTED)
        found = choose(net, learnt, judged, starts, plan, probe, deadline=until, progress=settings.progress)
        if folder is not None:
            folder.save_choice(found)
    return found


def continued(before: Fitted) -> Any:
    """`fit_network` from where the chains of a fit are."""

    def run(net: Net, rows: tuple[np.ndarray, np.ndarray], settings: Settings) -> Fitted:
        return fit_network(net, rows, settings, before)

    return run


def search(net: Net, data: Data, held: np.ndarray, settings: Settings, begun: float, folder: Folder | None) -> Search:
    """The optimised starts."""
    recipe = Recipe(
        net,
        settings.optimiser_batch,
        settings.learning_rate,
        WEIGHT_DECAY,
        settings.every,
        window=float(min(100, settings.every)),
    )
    keys = jax.random.split(jax.random.key(settings.seed), settings.starts)
    return optimise(
        recipe,
        data,
        jax.tree.map(on_device, net.starts(keys)),
        held=held,
        seed=settings.seed,
        patience=PATIENCE,
        most=LOOKS,
        deadline=moment(settings, begun, OPTIMISING),
        saved=folder,
        progress=settings.progress,
    )
