"""One driver for every run: blocks of steps, progress, Ctrl-C, saves, and the end, also where all chains diverge.

`strang.sample`, the fits of topics and of belief networks, and the workers of a cluster are driven by it. What an
application does on the way, it says in an `Observer`.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from strang.parallel import processes
from strang.parallel.mesh import Runner
from strang.sampling.job import Job, empty_trace, like_draw, trace_length
from strang.sampling.record import Chain
from strang.storage.store import Store
from strang.util.progress import bar
from strang.util.trees import Tree

BLOCK_SECONDS = 0.5  # how long Ctrl-C and the progress bar may have to wait
ROUNDING = "the chain: they round differently; let all run on machines and versions of one kind"


class Goal(NamedTuple):
    """What a run was to reach."""

    error: float | None  # both errors of all that is reported, in posterior standard deviations
    reached: bool
    why: str  # what ended the run
    excess: float = 0.0  # the bias, in such errors, where it is what cannot be reached at this step size
    apart: bool = False  # whether chains did not come together


class Look(NamedTuple):
    """What an observer has after a look at the chains.

    Attributes:
        kept: whatever it keeps from look to look; saved with the chain it belongs to.
        measured: what it measured now, which is saved at once; None: nothing.
        text: what the progress bar says.
        goal: set where the run is over, with what ended it.
    """

    kept: Any
    measured: dict[str, Any] | None = None
    text: str = ""
    goal: Goal | None = None


class Observer:
    """What is done on the way of a run; this one does nothing but count.

    Attributes:
        label: what the progress bar calls the run.
        every: blocks end at the multiples of this number of steps, so that looks do not depend on the machine's speed.
    """

    label: str = "sampling"
    every: int | None = None

    def next_look(self, step: int) -> int | None:
        """The step that the block which begins after this one must not go beyond; None: any."""
        return None if self.every is None else step - step % self.every + self.every

    def look_first(self, chain: Chain, before: Look) -> Look:
        """Called before the first block, with the chain that a run goes on from."""
        return before

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
    draws: "Draws"  # the thinned positions, where they are not in a folder
    seconds: float
    waited: float | None  # seconds for rows that are not in memory
    interrupted: bool


def runner_of(job: Job) -> Runner:
    """What advances the job's chains."""
    source = job.inputs.data.source
    if source is not None:
        source.expect(job.program.parts * job.mesh[0], job.steps)
    return Runner(job.program, job.inputs, job.chain, job.mesh, job.thin, empty_trace(job) if job.thin else None)


def run_blocks(
    job: Job,
    every: int | None = None,
    runner: Runner | None = None,
    bound: Callable[[int], int | None] = lambda step: None,
) -> Iterator[tuple[Chain, Tree]]:
    """The chain after each block, with its thinned positions: those after steps thin, 2 thin, ..., whatever the blocks.
    A block is `every` steps, or about half a second but not beyond `bound(where it begins)`."""
    thin, length, room = job.thin or 1, every or job.program.draw_block, trace_length(job)
    runner = runner or runner_of(job)
    done = int(job.chain.step)
    with processes.interrupts() as interrupted:
        while done < job.steps:
            limit = bound(done)
            stop = min(job.steps, done + length, job.steps if limit is None else limit)
            if job.thin:
                # A trace counts from where its block begins: one that begins between two draws ends with the next.
                draws = 1 if done % thin else min(max(length // thin, 1), room)
                stop = min(stop, done - done % thin + draws * thin)
            started = time.perf_counter()
            chain, trace = runner.advance(stop)
            seconds = time.perf_counter() - started
            job.inputs.data.check()
            if trace is not None:
                # Cut on the host: on a device a cut of each length would be a program of its own.
                trace = jax.tree.map(lambda x: np.asarray(x)[: stop // thin - done // thin].copy(), trace)  # noqa: B023
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
    reached, draws, interrupted = (job.chain, observer.look_first(job.chain, Look(kept))), Draws(job), False
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

            def bound(step: int) -> int | None:
                saves = step - step % store.every + store.every if store and store.every else None
                bounds = [each for each in (observer.next_look(step), saves) if each is not None]
                return min(bounds, default=None)

            over = reached[1].goal is not None
            for chain, trace in () if over else run_blocks(job, None, runner, bound):
                (store.keep if store else draws.append)(trace)
                reached = chain, observer.look(chain, reached[1]._replace(measured=None))
                if store and (reached[1].measured or store.due(int(chain.step))):
                    save(*reached)
                alive = int(np.asarray(chain.alive).sum())
                lost = "" if alive == len(chain.alive) else f"{len(chain.alive) - alive} diverged"
                show(int(chain.step), ", ".join(filter(None, (reached[1].text, lost))))
                if alive == 0 or reached[1].goal is not None:
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


class Draws:
    """The thinned positions of a run in memory. Where there may only be so many, every second one is dropped when there
    are twice as many, and only every second one is kept from then on: `thin` tells every how many steps."""

    def __init__(self, job: Job):
        self.job, self.thin = job, job.thin or 1
        self.seen = self.first = int(job.chain.step) // self.thin  # draws since step 0
        empty = jax.tree.map(lambda x: np.zeros((0, *x.shape), x.dtype), like_draw(job))
        self.parts: list[Tree] = [empty]

    def append(self, trace: Tree) -> None:
        """More draws, along the leading axis."""
        if trace is None:
            return
        every, count = self.thin // (self.job.thin or 1), len(jax.tree.leaves(trace)[0])
        skipped = -(self.seen + 1) % every
        self.parts.append(jax.tree.map(lambda x: np.array(x[skipped::every]) if every > 1 else x, trace))
        self.seen += count
        most = self.job.most_draws
        if most is not None and self.seen // every - self.first // every >= 2 * most:
            number = self.first // every + 1  # of the first draw that is kept
            kept = slice(number % 2, None, 2)
            self.parts = [jax.tree.map(lambda *parts: np.concatenate(parts)[kept], *self.parts)]
            self.thin *= 2

    def joined(self, steps: int) -> Tree:
        """All that are kept, up to this step."""
        count = steps // self.thin - self.first * (self.job.thin or 1) // self.thin
        return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *self.parts)
