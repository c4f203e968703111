"""The temperature of classes and the sharpness of their forecasts, chosen by pilot chains on rows that nothing has
learnt from.

Labels of curated data are surer than one label per row says, and then the posterior (T = 1) is less sure than it should
be; noisy labels ask for the posterior itself. Other rows can tell. They also tell by how much an average over draws of
several chains, each of them calibrated, is less sure than it should be.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np
from scipy.optimize import minimize_scalar

from strang.calibration.forecasts import NormalMixture
from strang.calibration.scores import nll
from strang.nn.network import Net
from strang.nn.predictive import Code, mixtures, probabilities, sharpened
from strang.nn.sampling import BOILING, SHORTEST_LEG, Plan, Probe, data_of, hot_chains, sample, settle
from strang.util.trees import Tree

TEMPERATURES = (1.0, 0.1, 0.01)  # the posterior, and those for clean labels
PILOT = 4  # of the averaged steps of a fit, the part that pilot chains make; they settle for as long
CLEAR = 0.03  # nats per row that are a clear difference, be they ever so uncertain: a cold forecast errs dearly
MOST_NUMBERS = 1 << 28  # of inputs that are copied; beyond, the first temperature is taken
SHARPNESS_SPREAD, MOST_SHARP = 0.2, 2.0  # of its logarithm: how far few rows can move it, and its bounds


class Choice(NamedTuple):
    """What pilot chains chose.

    Attributes:
        temperature: of the posterior.
        sharpness: the power of forecast probabilities that is closest to held-out rows.
        losses: the negative log likelihood per held-out row of each temperature that was tried.
    """

    temperature: float
    sharpness: float = 1.0
    losses: dict[float, float] = {}  # noqa: RUF012


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
    """The lowest temperature, unless a higher one forecasts held-out rows clearly better. With minibatches it is 1:
    their noise heats colder chains.

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
        The temperature, the sharpness of its forecasts, and the negative log likelihood per held-out row of each.
    """
    temperatures = TEMPERATURES if plan.batch_size is None else TEMPERATURES[:1]
    data, everything = data_of(learnt, plan.batch_size), data_of(learnt, None)
    count = len(jax.tree.leaves(starts)[0])
    pilot = replace(
        plan,
        steps=max(2, min(plan.steps // PILOT, 2 * SHORTEST_LEG - 1)),  # one leg
        draws=max(1, plan.draws // PILOT),
        temperature=tuple(np.repeat(temperatures, count).tolist()),
    )
    which = np.tile(np.arange(count), len(temperatures))
    positions = jax.tree.map(lambda leaf: np.asarray(leaf)[which], starts)
    settled = settle(net, data, everything, positions, pilot, probe, deadline=deadline, progress=progress)
    run = sample(net, data, settled, pilot, probe, deadline=deadline, progress=progress)
    # Chains that noisy gradients of minibatches heat far above their temperature do not speak for it.
    cool = ~hot_chains(run, BOILING)
    draws, losses = {}, {}
    for k, temperature in enumerate(temperatures):
        used = k * count + np.flatnonzero(cool[k * count : (k + 1) * count])
        draws[temperature] = jax.tree.map(
            lambda leaf, of=used: np.asarray(leaf)[of].reshape(-1, *leaf.shape[2:]), run.samples
        )
        losses[temperature] = held_out_losses(net, draws[temperature], *judged)
    best = temperatures[-1]
    for warmer in temperatures[-2::-1]:
        best = warmer if clearly_less(losses[warmer], losses[best]) else best
    sharp = sharpness(net, draws[best], *judged) if np.isfinite(losses[best]).all() else 1.0
    return Choice(best, sharp, {temperature: float(np.mean(loss)) for temperature, loss in losses.items()})


def sharpness(net: Net, draws: Tree, x: np.ndarray, y: np.ndarray) -> float:
    """The power of forecast probabilities under which these classes are most likely; near 1 where rows are few."""
    return best_power(probabilities(Code(net.outputs, net.output), draws, x, as_single), y)


def best_power(forecast: np.ndarray, y: np.ndarray) -> float:
    """The power of each row's probabilities that is most probable given its class, with a log-normal prior about 1.

    >>> rows = np.repeat([[0.6, 0.4]], 1000, axis=0)  # as sure as 0.6 of what happens in 8 of 10 cases
    >>> power = best_power(rows, np.arange(1000) % 5 // 4)
    >>> round(power, 2), float(sharpened(rows, power)[0, 0].round(2))
    (2.0, 0.69)
    """
    chances = np.maximum(forecast, np.finfo(np.float32).tiny)

    def loss(log_power: float) -> float:
        chosen = sharpened(chances, np.exp(log_power))[np.arange(len(y)), y]
        return -float(np.sum(np.log(chosen))) + (log_power / SHARPNESS_SPREAD) ** 2 / 2

    bound = float(np.log(MOST_SHARP))
    return float(np.exp(minimize_scalar(loss, bounds=(-bound, bound), method="bounded").x))


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


def as_single(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows, np.float32)


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
