"""One driver for every run: blocks of steps, progress, Ctrl-C, saves, and the end, also where all chains diverge.

`strang.sample`, the fits of topics and of belief networks, and the workers of a cluster are driven by it. What an
application does on the way, it says in an `Observer`.
"""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from strang.parallel import processes
from strang.parallel.mesh import Runner
from strang.sampling.chain import Chain
from strang.sampling.request import Job
from strang.storage.store import Store
from strang.util.progress import bar
from strang.util.trees import Tree

BLOCK_SECONDS = 0.5  # how long Ctrl-C and the progress bar may have to wait
TRACE_BYTES = 1 << 24  # what the thinned positions of a block may take
ROUNDING = "the chain: they round differently; let all run on machines and versions of one kind"


class Look(NamedTuple):
    """What an observer has after a look at the chains.

    Attributes:
        kept: whatever it keeps from look to look; saved with the chain it belongs to.
        measured: what it measured now, which is saved at once; None: nothing.
        text: what the progress bar says.
    """

    kept: Any
    measured: dict[str, Any] | None = None
    text: str = ""


class Observer:
    """What is done on the way of a run; this one does nothing but count.

    Attributes:
        label: what the progress bar calls the run.
        every: blocks end at the multiples of this number of steps, so that looks do not depend on the machine's speed.
    """

    label: str = "sampling"
    every: int | None = None

    def look(self, chain: Chain, before: Look) -> Look:
        """Called after every block. What is kept from look to look goes through the `Look`, since Ctrl-C may come at
        any time: a look counts, and its chain with it, once it is returned."""
        return before

    def line(self, chain: Chain, look: Look, seconds: float) -> dict[str, Any]:
        """What the series of a stored run says of a save."""
        return {"step": int(chain.step), **(look.measured or {})}

    def write(self, chain: Chain, look: Look) -> None:
        """Write files of the application's own, before the chain is saved."""

    def written(self, step: int) -> None:
        """Called when the chain of this step is saved: files of earlier ones are not needed any more."""


class Outcome(NamedTuple):
    """Where a run has come to."""

    chain: Chain
    look: Look
    draws: list[Tree]  # the thinned positions of each block, where they are not in a folder
    seconds: float
    waited: float | None  # seconds for rows that are not in memory
    interrupted: bool


def trace_length(job: Job) -> int:
    """How many thinned positions a block has room for: always as many, so that one compilation serves all."""
    return max(1, min(256, TRACE_BYTES // max(1, sum(x.nbytes for x in jax.tree.leaves(job.chain.state.position)))))


def runner_of(job: Job) -> Runner:
    """What advances the job's chains."""
    source = job.inputs.data.source
    if source is not None:
        source.expect(job.program.parts * job.mesh[0], job.steps)
    return Runner(job.program, job.inputs, job.chain, job.mesh, job.thin, trace_length(job))


def run_blocks(
    job: Job, every: int | None = None, most: int | None = None, runner: Runner | None = None
) -> Iterator[tuple[Chain, Tree]]:
    """The chain after each block, with its thinned positions: those after steps thin, 2 thin, ..., whatever the blocks.
    A block is `every` steps, or about half a second but not beyond a multiple of `most` steps."""
    thin, length, room = job.thin or 1, every or job.program.draw_block, trace_length(job)
    runner = runner or runner_of(job)
    done = int(job.chain.step)
    with processes.interrupts() as interrupted:
        while done < job.steps:
            stop = min(job.steps, done + length, done - done % most + most if most else job.steps)
            if job.thin:
                # A trace counts from where its block begins: one that begins between two draws ends with the next.
                draws = 1 if done % thin else min(max(length // thin, 1), room)
                stop = min(stop, done - done % thin + draws * thin)
            started = time.perf_counter()
            chain, trace = runner.advance(stop)
            seconds = time.perf_counter() - started
            job.inputs.data.check()
            if trace is not None:
                trace = jax.tree.map(lambda x: np.asarray(x[: stop // thin - done // thin]), trace)  # noqa: B023
            yield chain, trace
            if not every:
                length = int(min((stop - done) * BLOCK_SECONDS / max(seconds, 1e-9), 16 * length, 2**31 - 1)) or 1
            length, stopped = processes.agree(length, interrupted())
            processes.check_same(chain.state.position, ROUNDING)
            if stopped:
                raise KeyboardInterrupt
            done = stop


def drive(
    job: Job,
    observer: Observer,
    *,
    kept: Any = None,
    store: Store | None = None,
    progress: bool | None = None,
) -> Outcome:
    """Advance a job to its end, until Ctrl-C, or until all chains have diverged.

    Args:
        job: the checked request, whose chain says where to begin.
        observer: what is done on the way.
        kept: what the observer kept when the chain was saved.
        store: the folder to save to: at its own times, after every look that measured something, and at the end.
        progress: whether to show a bar; None: on a terminal.
    """
    runner = runner_of(job)
    runner.advance(int(job.chain.step))  # compiles before the clock starts, by advancing to where the chain is
    reached, draws, interrupted = (job.chain, Look(kept)), list[Tree](), False
    started, source = time.perf_counter(), job.inputs.data.source
    before = source.waited if source else 0.0

    def save(chain: Chain, look: Look) -> None:
        if store is None or not store.writes:
            return
        with store.explain_write_errors():
            observer.write(chain, look)
        store.save(chain, observer.line(chain, look, time.perf_counter() - started))
        observer.written(int(chain.step))

    with bar(job.steps, observer.label, progress) as show:
        show(int(job.chain.step))
        try:
            most = observer.every or (store.every if store else None)
            for chain, trace in run_blocks(job, None, most, runner):
                (store.keep if store else draws.append)(trace)
                reached = chain, observer.look(chain, reached[1]._replace(measured=None))
                if store and (reached[1].measured or store.due(int(chain.step))):
                    save(*reached)
                alive = int(chain.alive.sum())
                lost = "" if alive == len(chain.alive) else f"{len(chain.alive) - alive} diverged"
                show(int(chain.step), ", ".join(filter(None, (reached[1].text, lost))))
                if alive == 0:
                    break
        except KeyboardInterrupt:
            interrupted = True
    chain, look = jax.block_until_ready(reached[0]), reached[1]
    seconds, waited = time.perf_counter() - started, source.waited - before if source else None
    if store:
        with processes.first_ahead():  # which writes what the others then find
            if int(chain.step) > store.step:  # also after Ctrl-C, and where all chains have diverged
                save(chain, look)
    return Outcome(chain, look, draws, seconds, waited, interrupted)


def joined(job: Job, draws: list[Tree], count: int) -> Tree:
    """The draws of all blocks one after the other, up to the number `count` since step 0."""
    first = jax.tree.map(lambda x: np.zeros((0, *x.shape), x.dtype), job.chain.state.position)
    count -= int(job.chain.step) // (job.thin or 1)
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], first, *draws)
