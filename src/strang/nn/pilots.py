"""The temperature of classes, chosen by pilot chains on rows that nothing has learnt from.

Labels of curated data are surer than one label per row says, and then the posterior (T = 1) is less sure than it should
be; noisy labels ask for the posterior itself. Other rows can tell.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np

from strang.calibration.forecasts import NormalMixture
from strang.calibration.scores import nll
from strang.nn.network import Net
from strang.nn.predictive import Code, as_single, mixtures, probabilities
from strang.nn.sampling import BOILING, SHORTEST_LEG, Plan, Probe, data_of, hot_chains, sample, settle
from strang.util.trees import Tree

TEMPERATURES = (1.0, 0.1, 0.01)  # the posterior, and those for clean labels
PILOT = 4  # of the averaged steps of a fit, the part that pilot chains make; they settle for as long
CLEAR = 0.03  # nats per row that are a clear difference, be they ever so uncertain: a cold forecast errs dearly
MOST_NUMBERS = 1 << 28  # of inputs that are copied; beyond, the first temperature is taken


class Choice(NamedTuple):
    """What was chosen, by pilot chains or without them.

    Attributes:
        temperature: of the posterior.
        losses: the negative log likelihood per held-out row of each temperature that pilot chains tried.
        sharpness: the power that forecast probabilities are taken to.
    """

    temperature: float
    losses: dict[float, float] = {}  # noqa: RUF012
    sharpness: float = 1.0


def choose(
    net: Net,
    learnt: tuple,
    judged: tuple,
    starts: Tree,
    plan: Plan,
    probe: Probe,
    *,
    deadline: float | None = None,
    progress: bool | None = None,
) -> Choice:
    """The lowest temperature, unless a higher one forecasts held-out rows clearly better.

    Args:
        net: the network.
        learnt: inputs and targets that pilot chains sample with.
        judged: those that they forecast.
        starts: the optimised positions.
        plan: that of the fit.
        probe: what is averaged.
        deadline: a time of `time.perf_counter` after which no further part is begun.
        progress: whether to show a progress bar; None: on a terminal.

    Returns:
        The temperature, and the negative log likelihood per held-out row of each.
    """
    data = data_of(learnt, None)
    count = len(jax.tree.leaves(starts)[0])
    pilot = replace(
        plan,
        steps=max(2, min(plan.steps // PILOT, 2 * SHORTEST_LEG - 1)),  # one leg
        draws=max(1, plan.draws // PILOT),
        temperature=tuple(np.repeat(TEMPERATURES, count).tolist()),
    )
    which = np.tile(np.arange(count), len(TEMPERATURES))
    positions = jax.tree.map(lambda leaf: np.asarray(leaf)[which], starts)
    settled = settle(net, data, data, positions, pilot, probe, deadline=deadline, progress=progress)
    run = sample(net, data, settled, pilot, probe, deadline=deadline, progress=progress)
    # Chains that got far hotter than their temperature do not speak for it.
    cool = ~hot_chains(run, BOILING)
    draws, losses = {}, {}
    for k, temperature in enumerate(TEMPERATURES):
        used = k * count + np.flatnonzero(cool[k * count : (k + 1) * count])
        draws[temperature] = jax.tree.map(
            lambda leaf, of=used: np.asarray(leaf)[of].reshape(-1, *leaf.shape[2:]), run.samples
        )
        losses[temperature] = held_out_losses(net, draws[temperature], *judged)
    best = TEMPERATURES[-1]
    for warmer in TEMPERATURES[-2::-1]:
        best = warmer if clearly_less(losses[warmer], losses[best]) else best
    return Choice(best, {temperature: float(np.mean(loss)) for temperature, loss in losses.items()})


def held_out_losses(net: Net, draws: Tree, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The negative log density of each target under the forecast of the draws; infinite without draws."""
    if len(jax.tree.leaves(draws)[0]) == 0:
        return np.full(len(y), np.inf)
    code = Code(net.outputs, net.output)
    if net.output == "classes":
        found = probabilities(code, draws, x, as_single)
        return -np.log(np.maximum(found[np.arange(len(y)), y], np.finfo(np.float32).tiny))
    parts: Sequence = list(mixtures(code, draws, x, as_single))
    means, sds = (np.concatenate(each, axis=1) for each in zip(*parts, strict=True))
    if not (np.isfinite(means).all() and np.isfinite(sds).all()):
        return np.full(len(y), np.inf)
    return np.asarray(nll(NormalMixture(means, sds), np.asarray(y, float)))


def clearly_less(losses: np.ndarray, others: np.ndarray) -> bool:
    """Whether losses are on average less than others, by more than a standard error or by 0.03.

    >>> clearly_less(np.array([0.1, 0.2]), np.array([0.3, 0.3])), clearly_less(np.zeros(2), np.array([-1, 1.02]))
    (True, False)
    """
    if not np.isfinite(others).all():
        return True
    if not np.isfinite(losses).all():
        return False
    gain = others - losses
    error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else 0.0
    return bool(gain.mean() > min(error, CLEAR))
