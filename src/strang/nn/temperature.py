"""The temperature of classes, chosen by pilot chains on rows that neither starts nor pilot chains have learnt from.

Labels of curated data are surer than one label per row says, and then the posterior (T = 1) is less sure than it should
be; labels that are noisy ask for the posterior itself, and cold chains repeat their noise. Nothing but other rows can
tell the two apart.
"""

from collections.abc import Callable
from dataclasses import replace

import jax
import numpy as np

from strang.nn.network import Net
from strang.nn.predictive import Code, probabilities
from strang.nn.sampling import Plan, Probe, sample, settle
from strang.util.trees import Tree

TEMPERATURES = (1.0, 0.2, 0.03)  # colder chains freeze where they start, or go down to where labels are repeated
PILOT = 2  # of the steps of a fit, the part that pilot chains make
MOST_NUMBERS = 1 << 28  # of inputs that are copied


def chosen_temperature(
    net: Net,
    rows: tuple[np.ndarray, np.ndarray],
    held: np.ndarray,
    starts: Tree,
    plan: Plan,
    probe: Probe,
    data_of: Callable,
    *,
    deadline: float | None = None,
    progress: bool | None = None,
) -> tuple[float, dict[float, float]]:
    """The warmest temperature whose forecast of held-out rows is, within a standard error, as good as the best.

    Args:
        net: the network, of classes.
        rows: inputs and labels.
        held: numbers of the rows that starts did not learn from.
        starts: the optimised positions.
        plan: that of the fit.
        probe: what is averaged.
        data_of: makes data of rows.
        deadline: a time of `time.perf_counter` after which no further part is begun.
        progress: whether to show a progress bar; None: on a terminal.

    Returns:
        The temperature, and the negative log likelihood per held-out row of each.
    """
    x, y = rows
    if x.size > MOST_NUMBERS:
        return TEMPERATURES[0], {}
    learnt = np.setdiff1d(np.arange(len(x)), held)
    known = np.asarray(x[learnt]), np.asarray(y[learnt])
    count = len(jax.tree.leaves(starts)[0])
    each = jax.tree.map(lambda leaf: np.concatenate([np.asarray(leaf)] * len(TEMPERATURES)), starts)
    pilot = replace(
        plan,
        steps=max(2, plan.steps // PILOT // 2),
        settling=max(1, plan.settling // PILOT),
        draws=max(1, plan.draws // PILOT // 2),
        temperature=tuple(np.repeat(TEMPERATURES, count).tolist()),
    )
    data, everything = data_of(known, plan.batch_size), data_of(known, None)
    settled = settle(net, data, everything, each, pilot, probe, deadline=deadline, progress=progress)
    run = sample(net, data, settled, pilot, probe, deadline=deadline, progress=progress)
    losses = []  # of each temperature, row by row
    for k in range(len(TEMPERATURES)):
        alive = k * count + np.flatnonzero(run.alive[k * count : (k + 1) * count])
        draws = jax.tree.map(lambda leaf, own=alive: np.asarray(leaf)[own].reshape(-1, *leaf.shape[2:]), run.samples)
        losses.append(held_out_losses(net, draws, np.asarray(x[held]), np.asarray(y[held])))
    means = {t: float(np.mean(each)) for t, each in zip(TEMPERATURES, losses, strict=True)}
    return warmest(np.stack(losses)), means


def held_out_losses(net: Net, draws: Tree, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The negative log probability of each label under the mean forecast of the draws; infinite without draws."""
    if len(jax.tree.leaves(draws)[0]) == 0:
        return np.full(len(y), np.inf)
    found = probabilities(Code(net.outputs, net.output), draws, x, lambda rows: np.asarray(rows, np.float32))
    return -np.log(np.maximum(found[np.arange(len(y)), y], np.finfo(np.float32).tiny))


def warmest(losses: np.ndarray) -> float:
    """The first temperature whose losses, row by row, exceed those of the best by no more than a standard error of the
    difference: a cold forecast that is wrong costs more than a warm one that is right.

    >>> warmest(np.array([[0.2, 0.2, 0.3], [0.1, 0.1, 0.1], [0.0, 0.0, 3.0]]))
    0.2
    """
    finite = np.isfinite(losses).all(1)
    if not finite.any():
        return TEMPERATURES[0]
    best = losses[np.argmin(np.where(finite, losses.mean(1), np.inf))]
    excess = np.where(finite[:, None], losses, 1e30) - best
    error = excess.std(1, ddof=1) / np.sqrt(losses.shape[1]) if losses.shape[1] > 1 else np.zeros(len(losses))
    return TEMPERATURES[int(np.argmax(finite & (excess.mean(1) <= error)))]
