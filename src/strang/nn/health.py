"""The health of a fit: temperatures by layer, agreement of predictions, distance moved, bias of predictions."""

from dataclasses import dataclass

import jax
import numpy as np

from strang.nn.sampling import HOT, layer_heat, usable
from strang.run.result import Run
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
    """

    temperature: dict[str, float]
    rhat: float
    rhat_within: float
    moved: list[float]
    bias: float
    bias_error: float
    diverged: int
    hottest: float = float("nan")

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
                    else []
                ),
                *([f"{self.diverged} chains diverged, or got far too hot, and are left out"] if self.diverged else []),
            ]
        )


def health_of(run: Run, starts: Tree) -> Health:
    """The health of a run of one chain per start."""
    rhat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(run.rhat)]) if run.alive.sum() > 1 else np.nan
    found = run.estimates
    # Not prediction by prediction: that of a row whose class is certain has hardly any spread.
    spread = np.nan if found.sd is None else root_mean_square(found.sd.value)
    used = usable(run)
    heat = {name: mean[used] for name, (mean, _) in layer_heat(run).items()}
    return Health(
        temperature={name: float(each.mean()) for name, each in heat.items()},
        rhat=float(np.nanmax(rhat)) if np.isfinite(rhat).any() else float("nan"),
        rhat_within=within(run),
        moved=[float(part) for part in distances(run.positions, starts)],
        bias=root_mean_square(found.mean.bias) / spread if spread > 0 else float("nan"),
        bias_error=root_mean_square(found.mean.bias_error) / spread if spread > 0 else float("nan"),
        diverged=int((~used).sum()),
        hottest=float(max(each.max(initial=0.0) for each in heat.values())),
    )


def root_mean_square(values) -> float:
    """NaN or infinite where one of the values is: what was not measured is not left out."""
    return float(np.sqrt(np.mean(np.asarray(values, float) ** 2)))


def within(run: Run) -> float:
    """The largest R-hat of the two halves of a chain, of what is averaged."""
    average = run.job.program.average
    values = jax.jit(jax.vmap(jax.vmap(average)))(jax.tree.map(np.asarray, run.samples))
    largest = float("nan")
    for leaf in jax.tree.leaves(values):
        each = np.asarray(leaf, float).reshape(*leaf.shape[:2], -1)  # chain, draw, number
        half = each.shape[1] // 2
        if half < 4:
            return float("nan")
        halves = np.stack([each[:, :half], each[:, half : 2 * half]])  # half, chain, draw, number
        inside = halves.var(2, ddof=1).mean(0)
        between = halves.mean(2).var(0, ddof=1)
        ratio = np.sqrt((half - 1) / half + between / np.maximum(inside, np.finfo(float).tiny))
        largest = float(np.nanmax([largest, ratio[inside > 0].max(initial=1.0)]))
    return largest


def distances(positions: Tree, starts: Tree) -> np.ndarray:
    """|position − start| / |start|, chain by chain."""
    pairs = zip(jax.tree.leaves(positions), jax.tree.leaves(starts), strict=True)
    parts = [(np.asarray(x, float), np.asarray(y, float)) for x, y in pairs]
    moved = sum(((x - y) ** 2).reshape(len(x), -1).sum(1) for x, y in parts)
    length = sum((y**2).reshape(len(y), -1).sum(1) for _, y in parts)
    return np.sqrt(moved / length)
