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

from . import average as averages
from .chain import Chain, advance
from .errors import InputError
from .prepare import Job, prepare
from .progress import bar
from .store import Store
from .tree import Tree, size

FEW = 100  # numbers of an average that go into the series of a stored run
BLOCK_SECONDS = 0.5  # how long Ctrl-C and the progress bar may have to wait


class DivergenceWarning(UserWarning):
    """Some chains left the finite numbers and stopped there."""


def run_blocks(job: Job, every: int | None, most: int | None = None) -> Iterator[tuple[Chain, Tree]]:
    """The chain after each block, with its thinned positions; a block is `every` steps, or about half a second but not
    beyond a multiple of `most` steps."""
    chain, quantum = job.chain, job.thin or 1
    length = every or max(quantum, job.program.granule)
    positions = chain.state.position
    while (done := int(chain.step)) < job.steps:
        length = max(quantum, length - length % quantum)
        stop = min(job.steps, done + length, done - done % most + most if most else job.steps)
        trace = None
        if job.thin:
            trace = jax.tree.map(lambda x: jnp.zeros((length // quantum, *x.shape), x.dtype), positions)  # noqa: B023
        started = time.perf_counter()
        chain, trace = advance(job.program, job.inputs, chain, jnp.uint32(stop), trace, jnp.uint32(quantum))
        jax.block_until_ready(chain.step)
        seconds = time.perf_counter() - started
        if trace is not None:
            trace = jax.tree.map(lambda x: np.asarray(x[: (stop - done) // quantum]), trace)  # noqa: B023
        yield chain, trace
        if not every and not job.thin:
            length = int(min(length * min(BLOCK_SECONDS / max(seconds, 1e-9), 16), 2**31)) or 1


def blocks(model, data, dynamics, *, every: int | None = None, **settings) -> Iterator[Chain]:
    """The chains after each block of `every` steps, for a loop of one's own; settings as for `sample`."""
    job = prepare(model, data, dynamics, **settings)
    for chain, _ in run_blocks(job, every):
        yield chain


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

    With `store`, a folder, the run is saved there after `every` steps (by default about every ten seconds) and at the
    end. The same call again goes on from the last save, bit for bit; a call that differs is refused. `about` is
    anything JSON can hold, to be kept with it.

    >>> import strang, jax.numpy as jnp
    >>> data = strang.data.arrays(jnp.array([0.2, 0.8, 1.0, 2.0]), order="full")
    >>> run = sample(strang.models.Gaussian(), data, strang.SGHMC(friction=2.0), step_size=0.1, steps=2000, chains=10)
    >>> run.diverged
    0
    """
    job = prepare(model, data, dynamics, progress=progress, **settings)
    if store is None:
        if every is not None:
            raise InputError("every says how often to save; write store=FOLDER with it, or leave it out.")
        return finish(job, progress)
    if job.thin:
        raise InputError("thinned positions are not kept in a store yet; leave out thin= or store=.")
    folder = Store(store, job, every, about)
    try:
        return finish(replace(job, chain=folder.chain), progress, folder)
    finally:
        folder.close()


def finish(job: Job, progress: bool | None, store: Store | None = None) -> "Run":
    """Advance a job to its end, or until Ctrl-C."""
    chain, kept, interrupted = job.chain, [], False
    if not job.thin:  # compile before the clock starts, by advancing to where the chain is
        jax.block_until_ready(advance(job.program, job.inputs, chain, chain.step, None, jnp.uint32(1)))
    started = time.perf_counter()
    with bar(job.steps, "sampling", progress) as done:
        try:
            for chain, trace in run_blocks(job, None, store.every if store else None):
                kept.append(trace)
                if store and store.due(int(chain.step)):
                    store.save(chain, measured(Run(job, chain, time.perf_counter() - started, None, False)))
                alive = int(chain.alive.sum())
                done(int(chain.step), "" if alive == job.program.chains else f"{job.program.chains - alive} diverged")
                if alive == 0:
                    break
        except KeyboardInterrupt:
            interrupted = True
    jax.block_until_ready(chain)
    samples = None
    if job.thin and kept:
        samples = jax.tree.map(lambda *parts: np.concatenate(parts), *kept)
    run = Run(job, chain, time.perf_counter() - started, samples, interrupted)
    if store and int(chain.step) > store.step:  # also after Ctrl-C, and where all chains have diverged
        store.save(chain, measured(run))
    if run.diverged:
        warnings.warn(run.divergence(), DivergenceWarning, stacklevel=3)
    return run


def measured(run: "Run") -> dict[str, Any]:
    """A line of the series: the run's averages and health as they stand, where they are few numbers."""
    few = run.job.program.average is not None and size(run.average) <= FEW
    line = {
        "step": run.steps,
        "seconds": run.seconds,
        "average": [float(x) for leaf in jax.tree.leaves(run.average) for x in np.ravel(leaf)] if few else None,
        "error": [float(x) for leaf in jax.tree.leaves(run.error) for x in np.ravel(leaf)] if few else None,
        "temperature": run.temperature,
        "gradient_noise": float(np.mean([np.mean(leaf) for leaf in jax.tree.leaves(run.gradient_noise)])),
        "diverged": run.diverged,
    }
    return jax.tree.map(lambda x: x if not isinstance(x, float) or np.isfinite(x) else None, line)


@dataclass(frozen=True, eq=False)
class Run:
    """What came out: `average` and `error` over all chains, `chain` (the record to go on from), the run's health."""

    job: Job
    chain: Chain
    seconds: float
    samples: Tree  # thinned positions: kept one first, then chain
    interrupted: bool

    @property
    def steps(self) -> int:
        return int(self.chain.step)

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
        between them where a run is too short for batches (below 512 averaged steps)."""
        alive = max(int(self.alive.sum()), 1)

        def combine(mean, error):
            within = np.sqrt((error[self.alive] ** 2).sum(0)) / alive
            between = mean[self.alive].std(0, ddof=1) / np.sqrt(alive) if alive > 1 else np.nan
            return np.where(np.isfinite(within), within, between)

        return jax.tree.map(combine, self.each.mean["average"], self.each.error["average"])

    @property
    def temperature(self) -> float | None:
        """Mean kinetic temperature of the living chains: 1 where the law is right, above where gradients are noisy."""
        mean = self.each.mean
        return float(self._over_chains(mean["temperature"])) if "temperature" in mean else None

    @property
    def gradient_noise(self) -> Tree:
        """The measured variance V of the gradient, coordinate by coordinate; zero for full gradients."""
        if self.job.inputs.data.order == "full":
            return jax.tree.map(lambda x: np.zeros(x.shape[1:]), self.chain.noise)
        count = np.asarray(self.chain.measured, float).sum()
        return jax.tree.map(lambda x: np.asarray(x, float).sum(0) / count if count else np.nan, self.chain.noise)

    def more(self, steps: int, progress: bool | None = None) -> "Run":
        """Go on for so many further steps, bit for bit as if they had been asked for at first."""
        return finish(replace(self.job, chain=self.chain, steps=self.steps + steps), progress)

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
        return describe(self)


def describe(run: Run) -> str:
    """The run in a few lines: what was done, the averages with errors, the health signals, what bias to expect."""
    job, data = run.job, run.job.inputs.data
    chains = job.program.chains
    order = data.order if data.order == "full" else f"{data.order} batches of {data.batch} of {data.size}"
    lines = [
        f"{type(job.inputs.dynamics).__name__} {job.program.step.name}, {order}: {run.steps:,} steps of {chains} "
        f"chain{'s' * (chains > 1)} in {run.seconds:.1f} s ({run.steps * chains / max(run.seconds, 1e-9):,.0f} steps/s)"
        + (", interrupted" if run.interrupted else "")
    ]
    if job.program.average is not None and run.alive.any():
        means, errors = jax.tree.leaves(run.average), jax.tree.leaves(run.error)
        paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(run.average)]
        for path, mean, error in zip(paths, means, errors, strict=True):
            shown = [f"{m:.6g} ± {e:.2g}" for m, e in zip(np.ravel(mean)[:6], np.ravel(error)[:6], strict=True)]
            more = f", ... ({np.size(mean)} numbers)" if np.size(mean) > 6 else ""
            lines.append(f"average{path}: {', '.join(shown)}{more}")
    if run.temperature is not None:
        lines.append(f"kinetic temperature {run.temperature:.4g} (1 where the law is right)")
    noise = np.concatenate([np.ravel(x) for x in jax.tree.leaves(run.gradient_noise)])
    lines.append(
        f"gradient noise V {noise.mean():.4g} a coordinate on average ({size(run.gradient_noise)} coordinates)"
    )
    lines.extend(expected_bias(run, float(noise.mean())))
    if run.diverged:
        lines.append(run.divergence())
    return "\n".join(lines)


def expected_bias(run: Run, variance: float) -> list[str]:
    """What gradient noise adds to the variances: h V / (2 D), to first order, when batches are independent."""
    data, dynamics = run.job.inputs.data, run.job.inputs.dynamics
    if data.order == "full":
        return ["full gradients: the bias is the integrator's alone"]
    if data.order != "iid":
        return [f"{data.order} batches: gradient noise cancels over an epoch once its length R h is short"]
    if hasattr(dynamics, "thermostat"):
        return ["independent batches: the thermostat absorbs constant gradient noise"]
    h = float(np.mean(np.asarray(run.job.inputs.schedule(jnp.asarray(run.steps, float)))))
    friction = float(np.mean(getattr(dynamics, "friction", 1.0)))
    left = variance - float(np.mean([np.mean(v) for v in jax.tree.leaves(getattr(dynamics, "gradient_noise", 0.0))]))
    share = h * left / (2 * friction)
    return [
        f"independent batches: expect variances about {100 * share:.3g} % too large (h V / 2D), to first order in h"
    ]
