"""The groups of chains of a run, advanced side by side and put together again."""

from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import distributed
from .average import Average
from .chain import Chain, Inputs, advance
from .prepare import Job
from .share import WHOLE, Meeting, Portion
from .tree import Tree

COMMON = -1
# The axis of chains in every array of a chain, and in a trace.
AXES: Any = Chain(COMMON, 0, 0, 0, Average(0, 0, 0, 0, 0, COMMON, COMMON), 0, 0, 0, 0), 1  # type: ignore[arg-type]


def along_chains(function: Callable, *pairs: tuple[Chain, Tree]) -> tuple[Chain, Tree]:
    """function(axis of chains, arrays) all over pairs (chain, trace); what all chains share is the first pair's."""

    def part(axis, *trees):
        if axis == COMMON:
            return trees[0]
        return jax.tree.map(lambda *arrays: function(axis, *arrays), *trees)

    return jax.tree.map(part, AXES, *pairs)


class Member(NamedTuple):
    """A device's part in a run: its groups of chains, each with room for thinned positions."""

    inputs: Inputs
    groups: list[tuple[Chain, Tree, Portion | None]]


class Team:
    """A job's chains on their way; `draws` is how many thinned positions a call of `advance` has room for."""

    def __init__(self, job: Job, draws: int):
        share, cuts = job.share, job.program.cuts
        self.share, self.thin, self.cut = share, jnp.uint32(job.thin or 1), cuts != WHOLE
        self.x64 = jnp.result_type(float) == np.float64
        size = job.program.chains // cuts.groups
        self.program = replace(job.program, chains=size)
        if (source := job.inputs.data.source) is not None:
            source.expect(cuts.parts * cuts.groups, job.steps)
        positions = job.chain.state.position
        trace = jax.tree.map(lambda x: jnp.zeros((draws, *x.shape), x.dtype), positions) if job.thin else None
        inside = share.workers > 1 and jax.process_count() == 1
        self.meetings = [Meeting(share.workers) for _ in range(share.teams)] if inside else []
        self.members = []
        if not self.cut:
            self.members.append(Member(job.inputs, [(job.chain, trace, None)]))
            return
        for lane in share.lanes(cuts):
            meeting = self.meetings[lane.team].number if inside else 0
            groups = []
            for group in lane.groups:
                own = slice(group * size, (group + 1) * size)
                pair = along_chains(lambda axis, x: x[own] if axis == 0 else x[:, own], (job.chain, trace))  # noqa: B023
                groups.append(jax.device_put((*pair, share.portion(cuts, group, lane.place, meeting)), lane.device))
            self.members.append(Member(jax.device_put(job.inputs, lane.device), groups))

    def advance(self, stop: int) -> tuple[Chain, Tree]:
        """All chains after this step, and the thinned positions on the way."""
        if len(self.members) == 1:
            moved = [self.run(self.members[0], stop)]
        else:  # a thread for each device, since those that share a minibatch wait for each other
            with ThreadPoolExecutor(len(self.members)) as pool:
                running = [pool.submit(self.run, member, stop) for member in self.members]
                for ended in wait(running, return_when=FIRST_EXCEPTION).done:
                    ended.result()  # raises what ended one of them, before what this did to the others
                moved = [each.result() for each in running]
        for (_, groups), pairs in zip(self.members, moved, strict=True):
            groups[:] = [(chain, *rest) for (_, *rest), (chain, _) in zip(groups, pairs, strict=True)]
        if not self.cut:
            return moved[0][0]
        own = moved if jax.process_count() > 1 else moved[:: self.share.workers]  # all of a team have the same
        return self.joined([pair for pairs in own for pair in pairs])

    def run(self, member: Member, stop: int) -> list[tuple[Chain, Tree]]:
        """A device's groups after this step, one after the other."""
        try:
            with jax.enable_x64(self.x64):  # which a thread has for itself
                given = [
                    (self.program, member.inputs, chain, jnp.uint32(stop), trace, self.thin, portion)
                    for chain, trace, portion in member.groups
                ]
                return [jax.block_until_ready(advance(*each)) for each in given]
        except BaseException:
            for meeting in self.meetings:
                meeting.leave()
            raise

    def joined(self, moved: list[tuple[Chain, Tree]]) -> tuple[Chain, Tree]:
        """The groups of all devices and processes one after the other, on this process's first device."""

        def join(axis, *parts):
            whole = np.concatenate([np.asarray(part) for part in parts], axis)
            if self.share.teams > 1 and jax.process_count() > 1:
                whole = np.concatenate(distributed.gather(whole)[:: self.share.workers], axis)
            return whole

        return jax.device_put(along_chains(join, *moved), jax.local_devices()[0])
