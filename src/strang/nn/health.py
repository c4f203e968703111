"""The health of a fit: temperatures by layer, agreement of predictions, distance moved, bias of predictions."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np

from strang.nn.legs import Leg, own_draws
from strang.nn.sampling import HOT, layer_heat
from strang.sampling.estimates import Estimates
from strang.util.trees import Tree

SETTLED = 1.1  # R-hat within chains beyond which they are said not to have settled


@dataclass(frozen=True)
class Health:
    """What is known of the chains of a fit. Weights are not identified, so that predictions are compared.

    Attributes:
        temperature: of each layer, on average over chains, in units of the temperature asked for; should be 1.
        rhat: of predictions at some rows, over the chains of all starts, the largest. Starts are usually in different
            modes, which is why there are several: a value far above 1 says that one chain would not do.
        rhat_within: the largest over chains of R-hat of a chain's two halves; above 1.1 or so a longer run changes
            what a chain predicts.
        moved: how far each chain is from its start, relative to the start's own length.
        bias: of mean predictions, caused by finite steps, relative to the standard deviations of predictions over
            draws (root mean squares over some rows); from companions at twice the step. NaN where it was not measured.
        bias_error: its standard error, likewise.
        diverged: chains that diverged or got twice as hot as they should be, which are left out.
        hottest: the largest temperature of a layer in any one chain.
        lost: legs of the other chains that diverged or got as hot. In their place stands the nearest that did not.
    """

    temperature: dict[str, float]
    rhat: float
    rhat_within: float
    moved: list[float]
    bias: float
    bias_error: float
    diverged: int
    hottest: float = float("nan")
    lost: int = 0

    def __str__(self) -> str:
        heat = ", ".join(f"{name} {value:.3f}" for name, value in self.temperature.items())
        return "\n".join(
            [
                f"temperature (should be 1): {heat}",
                f"R-hat of predictions: {self.rhat:.3g} between starts, {self.rhat_within:.3g} within chains",
                f"moved by {', '.join(f'{part:.2g}' for part in self.moved)} of the starts' lengths",
                f"bias of predictions: {self.bias:.2g} ± {self.bias_error:.2g} of their standard deviations"
                if np.isfinite(self.bias)
                else "bias of predictions: not measured, or companions at twice the step diverged",
                *(
                    [f"A CHAIN IS HOT (a layer has temperature {self.hottest:.2f}): do not trust its predictions"]
                    if self.hottest > HOT
                    else []
                ),
                *(
                    ["CHAINS HAVE NOT SETTLED: more steps= would change predictions"]
                    if self.rhat_within > SETTLED
                    else ["whether chains have settled was not measured: there are too few draws"]
                    if np.isnan(self.rhat_within)
                    else []
                ),
                *([f"{self.diverged} chains diverged, or got far too hot, and are left out"] if self.diverged else []),
                *([f"legs that diverged, or got far too hot, and were replaced: {self.lost}"] if self.lost else []),
            ]
        )


def health_of(legs: list[Leg], draws: Tree, starts: Tree) -> Health:
    """The health of chains, one per start, whose legs are these and of which these draws are used."""
    job = legs[0].run.job
    leaves = jax.tree.leaves(averaged(job.program.average, job.inputs.bound, draws))
    predictions = np.concatenate([np.asarray(x, float).reshape(*x.shape[:2], -1) for x in leaves], axis=2)
    good = np.stack([leg.good for leg in legs])  # leg, chain
    each = [layer_heat(leg.run) for leg in legs]
    heat = {name: np.stack([layers[name][0] for layers in each])[good] for name in each[0]}
    bias, error = bias_of([leg.run.estimates for leg in legs if leg.good.any()])
    # Draws that stand in for those of a lost leg would agree with themselves: they say nothing of settling.
    within = [rhat(halves(chain[own])) for chain, own in zip(predictions, own_draws(legs), strict=True)]
    largest = np.fmax.reduce(within)  # of chains for which it was measured
    return Health(
        temperature={name: float(values.mean()) for name, values in heat.items()},
        rhat=rhat(predictions),
        rhat_within=float(largest if largest > SETTLED else np.max(within)),
        moved=[float(part) for part in distances(legs[-1].positions, starts)],
        bias=bias,
        bias_error=error,
        diverged=int((~good.any(0)).sum()),
        hottest=float(max(values.max() for values in heat.values())),
        lost=int((~good[:, good.any(0)]).sum()),
    )


@partial(jax.jit, static_argnums=0)
def averaged(average: Callable, bound: tuple, draws: Tree) -> Tree:
    """What was averaged, of each draw; chains lead, then draws."""
    return jax.vmap(jax.vmap(partial(average, *bound)))(draws)


def bias_of(legs: list[Estimates]) -> tuple[float, float]:
    """The bias of mean predictions over all legs, and its standard error, relative to the predictions' spread."""
    # Not prediction by prediction: that of a row whose class is certain has hardly any spread.
    spread = float(np.mean([np.nan if leg.sd is None else root_mean_square(leg.sd.value) for leg in legs]))
    if not spread > 0:
        return float("nan"), float("nan")
    bias = np.mean([leg.mean.bias for leg in legs], axis=0)
    error = np.sqrt(np.sum([np.asarray(leg.mean.bias_error) ** 2 for leg in legs], axis=0)) / len(legs)
    return root_mean_square(bias) / spread, root_mean_square(error) / spread


def root_mean_square(values) -> float:
    """NaN or infinite where one of the values is: what was not measured is not left out."""
    return float(np.sqrt(np.mean(np.asarray(values, float) ** 2)))


def rhat(values: np.ndarray) -> float:
    """The largest R-hat of numbers: series first, then draw; NaN where it is of one series, of few draws, or of what is
    no number, and infinite for series that stay at different places.

    >>> round(rhat(np.array([[[0.0], [1.0], [0.0], [1.0]], [[0.5], [1.5], [0.5], [1.5]]])), 3)
    1.061
    >>> rhat(np.array([[[0.0]] * 4, [[1.0]] * 4])), rhat(np.full((2, 4, 1), np.nan)), rhat(np.ones((2, 4, 1)))
    (inf, nan, 1.0)
    """
    series, count, _ = values.shape
    if series < 2 or count < 4:
        return float("nan")
    inside, between = values.var(1, ddof=1).mean(0), values.mean(1).var(0, ddof=1)
    differ = ~((inside == 0) & (between == 0))  # what is one constant everywhere agrees
    with np.errstate(divide="ignore"):
        return float(np.sqrt((count - 1) / count + between[differ] / inside[differ]).max(initial=1.0))


def halves(draws: np.ndarray) -> np.ndarray:
    """The two halves of a series; without the last draw, if their number is odd."""
    half = len(draws) // 2
    return np.stack([draws[:half], draws[half : 2 * half]])


def distances(positions: Tree, starts: Tree) -> np.ndarray:
    """|position − start| / |start|, chain by chain."""
    pairs = zip(jax.tree.leaves(positions), jax.tree.leaves(starts), strict=True)
    parts = [(np.asarray(x, float), np.asarray(y, float)) for x, y in pairs]
    moved = sum(((x - y) ** 2).reshape(len(x), -1).sum(1) for x, y in parts)
    length = sum((y**2).reshape(len(y), -1).sum(1) for _, y in parts)
    return np.sqrt(moved / length)
