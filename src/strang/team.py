"""The groups of chains of a run, advanced side by side and put together again."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from .average import Average
from .chain import Chain, advance
from .prepare import Job
from .share import WHOLE
from .tree import Tree

COMMON = -1
# The axis of chains in every array of a chain, and in a trace.
AXES: Any = Chain(COMMON, 0, 0, 0, Average(0, 0, 0, 0, COMMON, COMMON), 0, 0, 0, 0), 1  # type: ignore[arg-type]


def along_chains(function: Callable, *pairs: tuple[Chain, Tree]) -> tuple[Chain, Tree]:
    """function(axis of chains, arrays) all over pairs (chain, trace); what all chains share is the first pair's."""

    def part(axis, *trees):
        if axis == COMMON:
            return trees[0]
        return jax.tree.map(lambda *arrays: function(axis, *arrays), *trees)

    return jax.tree.map(part, AXES, *pairs)


class Team:
    """A job's chains on their way; `draws` is how many thinned positions a call of `advance` has room for."""

    def __init__(self, job: Job, draws: int):
        share, cuts = job.share, job.program.cuts
        self.share, self.thin, self.cut = share, jnp.uint32(job.thin or 1), cuts != WHOLE
        size = job.program.chains // cuts.groups
        self.program = replace(job.program, chains=size)
        positions = job.chain.state.position
        trace = jax.tree.map(lambda x: jnp.zeros((draws, *x.shape), x.dtype), positions) if job.thin else None
        if not self.cut:
            self.members = [(job.inputs, (job.chain, trace), None)]
            return
        self.members = []
        placed: dict[Any, Any] = {}
        for group, device in share.groups(cuts):
            own = slice(group * size, (group + 1) * size)
            pair = along_chains(lambda axis, x: x[own] if axis == 0 else x[:, own], (job.chain, trace))  # noqa: B023
            placed[device] = placed.get(device) or jax.device_put(job.inputs, device)
            self.members.append((placed[device], *jax.device_put((pair, share.portion(cuts, group)), device)))

    def advance(self, stop: int) -> tuple[Chain, Tree]:
        """All chains after this step, and the thinned positions on the way."""
        moved = []
        for inputs, (chain, trace), portion in self.members:
            moved.append(advance(self.program, inputs, chain, jnp.uint32(stop), trace, self.thin, portion))
            if self.share.workers > 1:  # the processes of a team must exchange in one order
                jax.block_until_ready(moved[-1])
        jax.block_until_ready(moved)
        kept = zip(self.members, moved, strict=True)
        self.members = [(inputs, (chain, trace), portion) for (inputs, (_, trace), portion), (chain, _) in kept]
        return self.joined(moved) if self.cut else moved[0]

    def joined(self, moved: list[tuple[Chain, Tree]]) -> tuple[Chain, Tree]:
        """The groups of all devices and processes one after the other, on this process's first device."""

        def join(axis, *parts):
            whole = np.concatenate([np.asarray(part) for part in parts], axis)
            if self.share.teams > 1 and jax.process_count() > 1:
                whole = np.concatenate(multihost_utils.process_allgather(whole)[:: self.share.workers], axis)
            return whole

        return jax.device_put(along_chains(join, *moved), jax.local_devices()[0])
