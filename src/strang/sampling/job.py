"""A checked request, and the shapes of what its blocks bring back."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from strang.sampling.record import Chain, Inputs, Program, averaging, positions_of
from strang.util.trees import Tree, on_device

TRACE_BYTES = 1 << 24  # what the thinned positions of a block may take


def position_itself(position: Tree) -> Tree:
    """What is averaged where nothing else is asked for."""
    return position


@dataclass(frozen=True)
class Job:
    """A checked request: the compiled code's program, its numbers, and where to stop."""

    program: Program
    inputs: Inputs
    chain: Chain
    steps: int
    thin: int | None
    mesh: tuple[int, int] = (1, 1)  # devices that share the chains, and the parts of a minibatch
    most_draws: int | None = None  # of each chain that are kept in memory: then every second one is dropped
    fixed: Any = None  # which numbers of the average are constants by their constraints, as 1 at the corner of a factor

    @property
    def average(self) -> Any:
        """What is averaged, as a function of the position; None: nothing."""
        return averaging(self.program, self.inputs)


def trace_length(job: Job) -> int:
    """How many thinned positions a block has room for: always as many, so that one compilation serves all."""
    return max(1, min(256, TRACE_BYTES // max(1, sum(x.nbytes for x in jax.tree.leaves(like_draw(job))))))


def empty_trace(job: Job) -> Tree:
    """Room for the thinned positions of a block."""
    draws = trace_length(job)
    return jax.tree.map(lambda x: on_device(np.zeros((draws, *x.shape), x.dtype)), like_draw(job))


def like_draw(job: Job) -> Tree:
    """Arrays, which take no memory, of the shapes of a draw: chains lead."""
    shapes = positions_traced.eval_shape(job.program, job.inputs, job.chain.state)
    return jax.tree.map(lambda x: np.broadcast_to(np.zeros((), x.dtype), x.shape), shapes)


def seen_positions(job: Job, chain: Chain) -> Tree:
    """What a user sees of all chains, which lead: coordinates are one program, and not one per operation."""
    inputs: Any = job.inputs
    made = positions_of if inputs.coordinates is None else positions_traced
    return made(job.program, inputs._replace(data=None), chain.state)


positions_traced = partial(jax.jit, static_argnums=0)(positions_of)  # it knows what it has traced before
