"""What comes out of a run: averages with errors, draws, and signs of the chains' health."""

import warnings
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.run import arviz, health, summary
from strang.run.driver import Observer, Outcome, drive, joined
from strang.sampling import averages
from strang.sampling.chain import Chain, position_of
from strang.sampling.request import MAX_STEPS, Job
from strang.schedule import as_schedule
from strang.storage.manifest import MAX_SERIES_VALUES
from strang.storage.store import Store
from strang.util.errors import InputError, whole
from strang.util.numbers import finite
from strang.util.trees import Tree, mean, size


class RunWarning(UserWarning):
    """Something is wrong with what came out."""


class DivergenceWarning(RunWarning):
    """Some chains left the finite numbers and stopped there."""


class DisagreementWarning(RunWarning):
    """The averages of chains differ by more than chance."""


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """What came out of `strang.sample`.

    Attributes:
        average: the weighted average over steps and the chains that are alive.
        error: its Monte Carlo standard error.
        rhat: R-hat of the chains' batch means, coordinate by coordinate; about 1 where chains agree.
        each: averages and errors chain by chain.
        samples: the thinned positions after burn-in, if `thin` was given: chain first, then draw.
        positions: where the chains are, chain first.
        temperature: the mean temperature of the momentum; should be 1, and is above where gradients are noisy. None
            for dynamics without momentum.
        gradient_noise: the measured variance V of the minibatch gradient, coordinate by coordinate.
        alive: which chains have not diverged.
        diverged: how many have.
        steps: steps made in all.
        seconds: how long this call took, without compiling.
        speed: steps per second of this call, counting those of every chain.
        waiting: the fraction of the time that was spent waiting for rows; None where they are in memory.
        interrupted: whether Ctrl-C ended the run.
        chain: the complete record to go on from.
        job: the checked request.
    """

    job: Job
    chain: Chain
    seconds: float
    draws: Tree  # all thinned positions: draw first, then chain
    interrupted: bool
    waited: float | None = None

    @property
    def steps(self) -> int:
        return int(self.chain.step)

    @property
    def speed(self) -> float:
        made = self.steps - int(self.job.chain.step)
        return made * self.job.program.chains / max(self.seconds, 1e-9)

    @property
    def alive(self) -> np.ndarray:
        return np.asarray(self.chain.alive)

    @property
    def diverged(self) -> int:
        return int((~self.alive).sum())

    @property
    def each(self) -> averages.Summary:
        return averages.summarise(self.chain.average)

    @property
    def average(self) -> Tree:
        return self._over_chains(self._averaged(averages.means(self.chain.average)))

    @property
    def error(self) -> Tree:
        """1.96 of it are half of a 95 % interval. It has the spread between chains in it, but for chains with settings
        of their own, which differ anyway; and the noise that chains share which are given a loader's batches."""
        if not self.alive.any() or self.own_settings:
            each = self._averaged(self.each.error)
            squares = self._over_chains(jax.tree.map(np.square, each))
            return jax.tree.map(lambda square: np.sqrt(square / max(self.alive.sum(), 1)), squares)
        order = self.job.inputs.data.batch_order
        shared = order.shared and not order.full
        return self._averaged(averages.error_over_chains(self.chain.average, self.alive, shared=shared))

    @property
    def rhat(self) -> Tree:
        return self._averaged(averages.disagreement(self.chain.average, self.alive)[0])

    @property
    def own_settings(self) -> bool:
        """Whether chains differ by step size or by numbers of their dynamics."""
        shape = jax.eval_shape(self.job.inputs.schedule, jnp.asarray(1.0)).shape
        return self.job.program.grid or bool(shape)

    @property
    def samples(self) -> Tree:
        if self.job.thin is None or self.draws is None:
            return None
        first = max(0, int(self.job.inputs.burn_in) // self.job.thin - self.first_draw)
        return jax.tree.map(lambda draws: np.swapaxes(draws[first:], 0, 1), self.draws)

    @property
    def positions(self) -> Tree:
        return jax.vmap(partial(position_of, self.job.inputs))(self.chain.state)

    @property
    def first_draw(self) -> int:
        """How many thinned positions were made before those that this run holds."""
        return self.steps // (self.job.thin or 1) - len(jax.tree.leaves(self.draws)[0])

    @property
    def waiting(self) -> float | None:
        return None if self.waited is None else self.waited / max(self.seconds, 1e-9)

    @property
    def temperature(self) -> float | None:
        mean = averages.means(self.chain.average)
        return float(self._over_chains(mean["temperature"])) if "temperature" in mean else None

    @property
    def gradient_noise(self) -> Tree:
        """Measured after burn-in, over the chains that are alive: zero for full gradients, NaN where it was not
        measured, as with a loader of single rows, or a model whose own gradient may be random and full gradients."""
        full = self.job.inputs.data.batch_order.full
        if full and not hasattr(self.job.program.model, "likelihood_gradient"):
            return jax.tree.map(lambda x: np.zeros(x.shape[1:]), self.chain.gradient_variance)
        count = np.asarray(self.chain.measured, float)[self.alive].sum() or np.nan
        return jax.tree.map(lambda x: np.asarray(x, float)[self.alive].sum(0) / count, self.chain.gradient_variance)

    def more(self, steps: int, progress: bool | None = None) -> "Run":
        """Go on for more steps, bit for bit as if they had been asked for at first."""
        last = self.steps + whole("steps", steps, 0, MAX_STEPS - self.steps)
        as_schedule(self.job.inputs.schedule, last, self.job.program.chains)
        return finish(replace(self.job, chain=self.chain, steps=last), progress)

    def to_arviz(self) -> Any:
        """The thinned positions after burn-in as an ArviZ DataTree; needs the extra `arviz`."""
        return arviz.to_arviz(self)

    def warn(self, stacklevel: int) -> None:
        """Warns of chains that diverged or disagree."""
        if self.diverged:
            warnings.warn(self.divergence(), DivergenceWarning, stacklevel=stacklevel + 1)
        for line in health.disagreement(self):
            warnings.warn(line + ".", DisagreementWarning, stacklevel=stacklevel + 1)

    def divergence(self) -> str:
        """A sentence on the chains that diverged."""
        which = np.flatnonzero(~self.alive)
        first = which[np.asarray(self.chain.diverged_at)[which].argmin()]
        at = int(self.chain.diverged_at[first])
        h = np.broadcast_to(np.asarray(self.job.inputs.schedule(jnp.asarray(at, float))), len(self.alive))[first]
        more = f" (and {len(which) - 1} more)" if len(which) > 1 else ""
        return f"chain {first}{more} diverged at step {at} with step_size {h:g}; write a smaller step_size."

    def _averaged(self, tree: Tree) -> Tree:
        if "average" not in tree:
            raise InputError("the run averaged nothing (average=None); give it a function of the position to average.")
        return tree["average"]

    def _over_chains(self, tree: Tree) -> Tree:
        if not self.alive.any():
            return jax.tree.map(lambda x: np.full(x.shape[1:], np.nan)[()], tree)
        return jax.tree.map(lambda x: x[self.alive].mean(0), tree)

    def __str__(self) -> str:
        return "\n".join(summary.lines(self))

    def __repr__(self) -> str:
        return f"<Run: {summary.title(self)}>"

    def _repr_html_(self) -> str:
        rows = [("", "mean", "± Monte Carlo"), *summary.rows(self)]
        cells = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        notes = "".join(f"<div>{escape(line)}</div>" for line in summary.notes(self))
        return f"<div><b>{escape(summary.title(self))}</b></div><table>{cells}</table>{notes}"


class SeriesObserver(Observer):
    """Notes the averages and the health of a stored run at every save, where they are few numbers."""

    def __init__(self, job: Job):
        self.job = job
        self.before = source.waited if (source := job.inputs.data.source) else 0.0

    def line(self, chain: Chain, look: Any, seconds: float) -> dict[str, Any]:
        source = self.job.inputs.data.source
        run = Run(self.job, chain, seconds, None, False, source.waited - self.before if source else None)
        few = self.job.program.average is not None and size(run.average) <= MAX_SERIES_VALUES

        def values(tree: Tree) -> list[float]:
            return [float(x) for leaf in jax.tree.leaves(tree) for x in np.ravel(leaf)]

        line = {
            "step": run.steps,
            "seconds": seconds,
            "average": values(run.average) if few else None,
            "error": values(run.error) if few else None,
            "temperature": run.temperature,
            "gradient_noise": mean(run.gradient_noise),
            "diverged": run.diverged,
            **({} if run.waiting is None else {"waiting": run.waiting}),
        }
        return finite(line)


def finish(job: Job, progress: bool | None, store: Store | None = None) -> Run:
    """Advance a job to its end, or until Ctrl-C."""
    return run_of(job, drive(job, SeriesObserver(job), store=store, progress=progress), store)


def run_of(job: Job, outcome: Outcome, store: Store | None = None) -> Run:
    """The run that has come to this."""
    steps, draws = int(outcome.chain.step), None
    if job.thin:
        count = steps // job.thin
        draws = store.draws(job, count) if store else joined(job, outcome.draws, count)
    return Run(job, outcome.chain, outcome.seconds, draws, outcome.interrupted, outcome.waited)


def temperatures(job: Job, chain: Chain) -> np.ndarray:
    """The temperature of each chain as it stands; NaN where the dynamics have no momentum."""
    dynamics = job.inputs.dynamics
    if not hasattr(dynamics, "temperature"):
        return np.full(len(chain.alive), np.nan)
    axis = 0 if job.program.grid else None
    return np.asarray(jax.vmap(lambda d, state: d.temperature(state), (axis, 0))(dynamics, chain.state))
