"""`sample` and `blocks`: advance the chains block by block, and report what came out."""

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import arviz, distributed, summary
from . import average as averages
from .chain import Chain
from .data import Data
from .errors import InputError, whole
from .prepare import MOST_STEPS, Job, prepare
from .progress import bar
from .schedule import as_schedule
from .spec import FEW, known_files
from .store import Store, cuts
from .team import Team
from .tree import Tree, mean, size

BLOCK_SECONDS = 0.5  # how long Ctrl-C and the progress bar may have to wait
TRACE_BYTES = 1 << 24  # what the thinned positions of a block may take
ROUNDING = "the chain: they round differently; let all run on machines and versions of one kind"


class DivergenceWarning(UserWarning):
    """Some chains left the finite numbers and stopped there."""


def trace_length(job: Job) -> int:
    """How many thinned positions a block has room for: always as many, so that one compilation serves all."""
    return max(1, min(256, TRACE_BYTES // max(1, sum(x.nbytes for x in jax.tree.leaves(job.chain.state.position)))))


def run_blocks(
    job: Job, every: int | None, most: int | None = None, team: Team | None = None
) -> Iterator[tuple[Chain, Tree]]:
    """The chain after each block, with its thinned positions: those after steps thin, 2 thin, ..., whatever the blocks.
    A block is `every` steps, or about half a second but not beyond a multiple of `most` steps."""
    thin, length, draws_kept = job.thin or 1, every or job.program.granule, trace_length(job)
    team = team or Team(job, draws_kept)
    done = int(job.chain.step)
    with distributed.interrupts() as interrupted:
        while done < job.steps:
            stop = min(job.steps, done + length, done - done % most + most if most else job.steps)
            if job.thin:
                # A trace counts from where its block begins: one that begins between two draws ends with the next.
                draws = 1 if done % thin else min(max(length // thin, 1), draws_kept)
                stop = min(stop, done - done % thin + draws * thin)
            started = time.perf_counter()
            chain, trace = team.advance(stop)
            seconds = time.perf_counter() - started
            job.inputs.data.check()
            if trace is not None:
                trace = jax.tree.map(lambda x: np.asarray(x[: stop // thin - done // thin]), trace)  # noqa: B023
            yield chain, trace
            if not every:
                length = int(min((stop - done) * BLOCK_SECONDS / max(seconds, 1e-9), 16 * length, 2**31 - 1)) or 1
            length, stopped = distributed.agree(length, interrupted())
            distributed.check_same(chain.state.position, ROUNDING)
            if stopped:
                raise KeyboardInterrupt
            done = stop


def blocks(model, data, dynamics, *, every: int | None = None, **settings) -> Iterator[Chain]:
    """The chains after each block of `every` steps, for a loop of one's own; settings as for `sample`."""
    look_through(data, None, settings.get("progress"))
    job = prepare(model, data, dynamics, **settings)
    for chain, _ in run_blocks(replace(job, thin=None), None if every is None else whole("every", every)):
        yield chain


def look_through(data, store: str | Path | None, progress: bool | None) -> None:
    """Data that are not in memory must be sound before anything is run with them."""
    if isinstance(data, Data):
        data.verify(None if store is None else known_files(Path(store)), progress)


def sample(
    model,
    data,
    dynamics,
    *,
    store: str | Path | None = None,
    every: int | None = None,
    about: dict[str, Any] | None = None,
    progress: bool | None = None,
    **settings,
) -> "Run":
    """Run the chains and report the averages with their errors.

    Arguments: `integrator` (a word or name, by default the dynamics' own), `step_size` (a number, one a chain, or a
    function of the step number), `steps` (of all; the first `burn_in` are not averaged), `chains`, `seed`, `average`
    (any function of the position, or None), `gradient` (an estimator of strang.gradient), `init` (a position or a
    function of a key), `thin` (keep every so manieth position), `progress` (None: on a terminal). Ctrl-C ends the run
    early and returns what there is.

    `devices` share the chains, or with a pair (d, w): d teams share the chains, and the w devices of each share every
    minibatch. What is shared are `groups` of chains and `parts` of a minibatch, by default one each: all bits of the
    result depend on these numbers, and none on who computes; see docs/scale.md.

    With `store`, a folder, the run is saved there after `every` steps (by default about every ten seconds) and at the
    end; thinned positions go there as well, and memory stays flat. The same call again goes on from the last save, bit
    for bit; a call that differs is refused. `about` is anything JSON can hold, to be kept with it.

    >>> import strang, jax.numpy as jnp
    >>> data = strang.data.arrays(jnp.array([0.2, 0.8, 1.0, 2.0]), order="full")
    >>> run = sample(strang.models.Gaussian(), data, strang.SGHMC(friction=2.0), step_size=0.1, steps=2000, chains=10)
    >>> run.diverged
    0
    """
    look_through(data, store, progress)
    job = prepare(model, data, dynamics, progress=progress, **cuts(store, settings))
    if store is None:
        if every is not None:
            raise InputError("every says how often to save; write store=FOLDER with it, or leave it out.")
        return finish(job, progress)
    folder = Store(store, job, every, about)
    try:
        return finish(replace(job, chain=folder.chain), progress, folder)
    finally:
        folder.close()


def finish(job: Job, progress: bool | None, store: Store | None = None) -> "Run":
    """Advance a job to its end, or until Ctrl-C."""
    chain, interrupted = job.chain, False
    kept: list[Tree] = []
    team = Team(job, trace_length(job))
    team.advance(int(chain.step))  # compiles before the clock starts, by advancing to where the chain is
    started, source = time.perf_counter(), job.inputs.data.source
    before = source.waited if source else 0.0

    def run_so_far(interrupted: bool) -> Run:
        waited = source.waited - before if source else None
        return Run(job, chain, time.perf_counter() - started, None, interrupted, waited)

    with bar(job.steps, "sampling", progress) as done:
        try:
            for moved, trace in run_blocks(job, None, store.every if store else None, team):
                (store.keep if store else kept.append)(trace)
                chain = moved
                if store and store.due(int(chain.step)):
                    store.save(chain, measured(run_so_far(False)))
                alive = int(chain.alive.sum())
                done(int(chain.step), "" if alive == job.program.chains else f"{job.program.chains - alive} diverged")
                if alive == 0:
                    break
        except KeyboardInterrupt:
            interrupted = True
    jax.block_until_ready(chain)
    run = run_so_far(interrupted)
    if store:
        with distributed.first_ahead():  # which writes what the others then find
            if int(chain.step) > store.step:  # also after Ctrl-C, and where all chains have diverged
                store.save(chain, measured(run))
    if job.thin:
        drawn = run.steps // job.thin
        run = replace(run, samples=store.draws(job, drawn) if store else joined(job, kept, drawn))
    if run.diverged:
        warnings.warn(run.divergence(), DivergenceWarning, stacklevel=3)
    return run


def joined(job: Job, kept: list[Tree], drawn: int) -> Tree:
    """The draws of all blocks one after the other, up to the number `drawn` since step 0."""
    first = jax.tree.map(lambda x: np.zeros((0, *x.shape), x.dtype), job.chain.state.position)
    count = drawn - int(job.chain.step) // (job.thin or 1)
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], first, *kept)


def measured(run: "Run") -> dict[str, Any]:
    """A line of the series: the run's averages and health as they stand, where they are few numbers."""
    few = run.job.program.average is not None and size(run.average) <= FEW
    line = {
        "step": run.steps,
        "seconds": run.seconds,
        "average": [float(x) for leaf in jax.tree.leaves(run.average) for x in np.ravel(leaf)] if few else None,
        "error": [float(x) for leaf in jax.tree.leaves(run.error) for x in np.ravel(leaf)] if few else None,
        "temperature": run.temperature,
        "gradient_noise": mean(run.gradient_noise),
        "diverged": run.diverged,
    }
    if run.waiting is not None:
        line["waiting"] = run.waiting
    return jax.tree.map(lambda x: x if not isinstance(x, float) or np.isfinite(x) else None, line)


@dataclass(frozen=True, eq=False)
class Run:
    """What came out: `average` and `error` over all chains, `chain` (the record to go on from), the run's health."""

    job: Job
    chain: Chain
    seconds: float
    samples: Tree  # thinned positions: kept one first, then chain
    interrupted: bool
    waited: float | None = None  # seconds for rows that are not in memory

    @property
    def steps(self) -> int:
        return int(self.chain.step)

    @property
    def speed(self) -> float:
        """Steps a second, counting those of every chain that were made by this call."""
        made = self.steps - int(self.job.chain.step)
        return made * self.job.program.chains / max(self.seconds, 1e-9)

    @property
    def alive(self) -> np.ndarray:
        return np.asarray(self.chain.alive)

    @property
    def diverged(self) -> int:
        """How many chains left the finite numbers."""
        return int((~self.alive).sum())

    @property
    def each(self) -> averages.Summary:
        """Averages and Monte Carlo errors chain by chain (leading axis)."""
        return averages.summarise(self.chain.average)

    @property
    def average(self) -> Tree:
        """The weighted average over steps and living chains."""
        return self._over_chains(self.each.mean["average"])

    @property
    def error(self) -> Tree:
        """The Monte Carlo standard error of `average`: from batch means within the living chains, or from the spread
        between them where a run is too short for batches (below 512 averaged steps). Of a loader's chains, which share
        every batch, from batch means of their mean only."""
        alive, each = int(self.alive.sum()), self.each
        if alive == 0:
            return self._over_chains(each.error["average"])
        if self.job.inputs.data.order == "stream":
            one = averages.summarise(averages.pooled(self.chain.average, self.alive))
            return jax.tree.map(lambda error: error[0], one.error["average"])

        def combine(mean, error):
            within = np.sqrt((error[self.alive] ** 2).sum(0)) / alive
            between = mean[self.alive].std(0, ddof=1) / np.sqrt(alive) if alive > 1 else np.nan
            return np.where(np.isfinite(within), within, between)

        return jax.tree.map(combine, each.mean["average"], each.error["average"])

    @property
    def waiting(self) -> float | None:
        """The share of the time that was spent waiting for rows; None where they are in memory."""
        return None if self.waited is None else self.waited / max(self.seconds, 1e-9)

    @property
    def temperature(self) -> float | None:
        """Mean kinetic temperature of the living chains: 1 where the law is right, above where gradients are noisy."""
        mean = self.each.mean
        return float(self._over_chains(mean["temperature"])) if "temperature" in mean else None

    @property
    def gradient_noise(self) -> Tree:
        """The measured variance V of the gradient after burn-in, coordinate by coordinate, over the living chains: zero
        for full gradients, NaN where it was not measured, as with a loader of single rows, or a model whose own
        gradient may be random and full gradients."""
        if self.job.inputs.data.order == "full" and not hasattr(self.job.program.model, "likelihood_gradient"):
            return jax.tree.map(lambda x: np.zeros(x.shape[1:]), self.chain.noise)
        count = np.asarray(self.chain.measured, float)[self.alive].sum() or np.nan
        return jax.tree.map(lambda x: np.asarray(x, float)[self.alive].sum(0) / count, self.chain.noise)

    def more(self, steps: int, progress: bool | None = None) -> "Run":
        """Go on for so many further steps, bit for bit as if they had been asked for at first."""
        last = self.steps + whole("steps", steps, 0, MOST_STEPS - self.steps)
        as_schedule(self.job.inputs.schedule, last, self.job.program.chains)
        return finish(replace(self.job, chain=self.chain, steps=last), progress)

    def to_arviz(self) -> Any:
        """The thinned positions after burn-in as an ArviZ DataTree; needs the extra `arviz`."""
        return arviz.to_arviz(self)

    def _over_chains(self, tree: Tree) -> Tree:
        if not self.alive.any():
            return jax.tree.map(lambda x: np.full(x.shape[1:], np.nan)[()], tree)
        return jax.tree.map(lambda x: x[self.alive].mean(0), tree)

    def divergence(self) -> str:
        """A sentence on the chains that diverged."""
        which = np.flatnonzero(~self.alive)
        first = which[np.asarray(self.chain.diverged_at)[which].argmin()]
        at = int(self.chain.diverged_at[first])
        h = np.broadcast_to(np.asarray(self.job.inputs.schedule(jnp.asarray(at, float))), len(self.alive))[first]
        more = f" (and {len(which) - 1} more)" if len(which) > 1 else ""
        return f"chain {first}{more} diverged at step {at} with step_size {h:g}; write a smaller step_size."

    def __str__(self) -> str:
        return "\n".join(summary.lines(self))
