"""The prior's scale and the temperature of classes, chosen by pilot chains on rows that nothing has learnt from.

How wide a prior should be depends on the data: a network of clean digits cannot be sure of anything under a narrow one,
and one of noisy rows follows the noise under a wide one. Labels of curated data are surer than one label per row says,
and then the posterior (T = 1) is less sure than it should be; noisy labels ask for the posterior itself. Other rows can
tell.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np

from strang.calibration.forecasts import NormalMixture
from strang.calibration.scores import nll
from strang.nn.network import Net
from strang.nn.predictive import Code, mixtures, probabilities
from strang.nn.sampling import Plan, probe_of, sample, settle
from strang.util.trees import Tree

PRIORS = (1.0, 4.0)
TEMPERATURES = (1.0, 0.2, 0.03)  # colder chains freeze where they start, or go down to where labels are repeated
PILOT = 4  # of the averaged steps of a fit, the part that pilot chains make; they settle for as long
MOST_NUMBERS = 1 << 28  # of inputs that are copied
TIE = 0.5  # standard errors of the difference from the best within which the first is taken


class Choice(NamedTuple):
    """A scale of the prior, None where it was given, and a temperature."""

    prior_sd: float | None
    temperature: float

    def __str__(self) -> str:
        prior = "" if self.prior_sd is None else f"prior_sd {self.prior_sd:g}, "
        return f"{prior}temperature {self.temperature:g}"


def choices(prior_given: bool, temperature: float | None) -> list[Choice]:
    """What is to be compared, the warmer ones first; only one where all was given. A narrow prior is for noisy rows,
    where cold chains have no place.

    >>> [tuple(each) for each in choices(False, None)]
    [(1.0, 1.0), (4.0, 1.0), (4.0, 0.2), (4.0, 0.03)]
    """
    temperatures = TEMPERATURES if temperature is None else (temperature,)
    if prior_given:
        return [Choice(None, t) for t in temperatures]
    narrow, wide = PRIORS
    return [Choice(narrow, temperatures[0]), *(Choice(wide, t) for t in temperatures)]


def choose(
    net: Net,
    rows: tuple[np.ndarray, np.ndarray],
    held: np.ndarray,
    starts: Tree,
    plan: Plan,
    probed: np.ndarray,
    compared: list[Choice],
    data_of: Callable,
    *,
    deadline: float | None = None,
    progress: bool | None = None,
) -> tuple[Choice, dict[str, float]]:
    """The choice whose forecast of held-out rows is best, or the first that is about as good.

    Args:
        net: the network.
        rows: inputs and targets.
        held: numbers of the rows that starts did not learn from.
        starts: the optimised positions.
        plan: that of the fit.
        probed: inputs at which forecasts are averaged.
        compared: what is compared.
        data_of: makes data of rows.
        deadline: a time of `time.perf_counter` after which no further part is begun.
        progress: whether to show a progress bar; None: on a terminal.

    Returns:
        The choice, and the negative log likelihood per held-out row of each.
    """
    x, y = rows
    if len(compared) == 1 or x.size > MOST_NUMBERS:
        return compared[0], {}
    learnt = np.setdiff1d(np.arange(len(x)), held)
    known = np.asarray(x[learnt]), np.asarray(y[learnt])
    data, everything = data_of(known, plan.batch_size), data_of(known, None)
    count = len(jax.tree.leaves(starts)[0])
    losses = {}
    for prior in dict.fromkeys(each.prior_sd for each in compared):
        own, together = with_prior(net, prior), [each for each in compared if each.prior_sd == prior]
        pilot = replace(
            plan,
            steps=max(2, plan.steps // PILOT),
            draws=max(1, plan.draws // PILOT),
            temperature=tuple(np.repeat([each.temperature for each in together], count).tolist()),
        )
        which = np.tile(np.arange(count), len(together))
        positions = jax.tree.map(lambda leaf, which=which: np.asarray(leaf)[which], starts)
        probe = probe_of(own, probed)
        settled = settle(own, data, everything, positions, pilot, probe, deadline=deadline, progress=progress)
        run = sample(own, data, settled, pilot, probe, deadline=deadline, progress=progress)
        for k, each in enumerate(together):
            alive = k * count + np.flatnonzero(run.alive[k * count : (k + 1) * count])
            draws = jax.tree.map(lambda leaf, of=alive: np.asarray(leaf)[of].reshape(-1, *leaf.shape[2:]), run.samples)
            losses[each] = held_out_losses(own, draws, np.asarray(x[held]), np.asarray(y[held]))
    table = np.stack([losses[each] for each in compared])
    means = {str(each): float(loss) for each, loss in zip(compared, table.mean(1), strict=True)}
    return compared[first_of_the_best(table)], means


def with_prior(net: Net, prior_sd: float | None) -> Net:
    """The network with this scale of its prior, or as it was given."""
    if prior_sd is None or net.with_prior is None:
        return net
    return net.with_prior(prior_sd)


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


def first_of_the_best(losses: np.ndarray) -> int:
    """The first choice whose losses, row by row, exceed those of the best by no more than `TIE` standard errors of the
    difference: where rows cannot tell, the warmer one, since a cold forecast that is wrong costs more.

    >>> first_of_the_best(np.array([[0.2, 0.2, 0.3], [0.1, 0.1, 0.1], [0.0, 0.0, 3.0]]))
    1
    """
    finite = np.isfinite(losses).all(1)
    if not finite.any():
        return 0
    best = losses[np.argmin(np.where(finite, losses.mean(1), np.inf))]
    excess = np.where(finite[:, None], losses, 1e30) - best
    error = excess.std(1, ddof=1) / np.sqrt(losses.shape[1]) if losses.shape[1] > 1 else np.zeros(len(losses))
    return int(np.argmax(finite & (excess.mean(1) <= TIE * error)))
