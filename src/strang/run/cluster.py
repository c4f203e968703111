"""Grids and replicates over machines: the chains of a run as independent tasks on a Dask cluster."""

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.coordinates import Coordinates
from strang.data.batches import Data
from strang.dynamics.base import Dynamics
from strang.gradients.estimators import Minibatch
from strang.models.base import Posterior
from strang.parallel.dask import connected, gathered
from strang.run.api import Average, Integrator, StepSize, position_itself, request
from strang.run.driver import Observer, drive
from strang.run.result import Run
from strang.sampling.job import Job
from strang.sampling.record import CHAIN_AXES, Chain
from strang.schedule import Function
from strang.util.errors import InputError, whole
from strang.util.front_door import front_door
from strang.util.signatures import without
from strang.util.trees import Tree


@front_door
def sample(
    scheduler: str | None,
    model: Posterior,
    data: Data,
    dynamics: Dynamics,
    *,
    step_size: StepSize,
    steps: int,
    tasks: int | None = None,
    integrator: Integrator = None,
    burn_in: int = 0,
    chains: int = 1,
    seed: int = 0,
    average: Average = position_itself,
    gradient: Minibatch | None = None,
    init: Any = None,
    coordinates: Coordinates | str | None = None,
    coupled: int = 0,
    thin: int | None = None,
    progress: bool | None = None,
) -> Run:
    """`strang.sample` with its chains shared by the workers of a Dask cluster.

    Chains have the keys and starts that they have in one process. So many tasks give the same numbers bit for bit
    whatever the workers; XLA may round differently where other numbers of chains are compiled together. Everything is
    checked before anything is sent; data and model are sent once. A task whose worker dies is run again on another.

    Args:
        scheduler: the address of a Dask scheduler; None: the tasks are run here, one after the other.
        tasks: how many tasks the chains are cut into, by default one per worker.

    The other arguments are those of `strang.sample`.

    Returns:
        A `Run`, as of `strang.sample`.

    Raises:
        InputError: something given is not what is expected, or the cluster does not answer.
    """
    arguments = without(locals(), "scheduler", "tasks")
    if getattr(data, "source", None) is not None:
        raise InputError("a cluster is sent its data, so they must be in memory: write strang.data.arrays(...).")
    job = request(**arguments)
    chains, x64 = job.program.chains, jnp.result_type(float) == np.float64
    groups = -(-chains // (job.program.stride or 1))  # a chain with a companion, and those up to the next
    tasks = None if tasks is None else whole("tasks", tasks, most=groups)
    started = time.perf_counter()
    if scheduler is None:
        results = [run_task(host(job), own, x64) for own in contiguous(groups, tasks or 1)]
    else:
        with connected(scheduler) as client:
            wanted = contiguous(groups, tasks or min(len(client.nthreads()), groups))
            (sent,) = client.scatter([host(job)], broadcast=True, hash=False)
            numbered = gathered(
                client, lambda own: client.submit(run_task, sent, own, x64, pure=False), wanted, "tasks", progress
            )
            results = [result for _, result in sorted(numbered, key=lambda pair: pair[0])]
    draws = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *(draws for _, draws in results))
    run = Run(job, together([chain for chain, _ in results]), time.perf_counter() - started, draws, False)
    run.warn(stacklevel=3)
    return run


def contiguous(chains: int, tasks: int) -> list[slice]:
    """So many runs of neighbouring chains of about equal length.

    >>> contiguous(7, 3)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
    """
    return [slice(*pair) for pair in pairwise(chains * k // tasks for k in range(tasks + 1))]


def host(job: Job) -> Job:
    """With NumPy's arrays, which keep double precision wherever they arrive."""
    return replace(job, inputs=jax.tree.map(np.asarray, job.inputs), chain=jax.tree.map(np.asarray, job.chain))


def run_task(job: Job, own: slice, x64: bool) -> tuple[Chain, Tree]:
    """On a worker: some chains of the job to its end, and their thinned positions."""
    with jax.enable_x64(x64):
        part = some_chains(job, own)
        outcome = drive(part, Observer(), progress=False)
        draws = outcome.draws.joined(int(outcome.chain.step)) if part.thin else None
        return jax.tree.map(np.asarray, outcome.chain), draws


def some_chains(job: Job, groups: slice) -> Job:
    """The job of some groups of chains alone: each has one companion, or is one chain where there are none."""
    stride = job.program.stride or 1
    own = slice(groups.start * stride, groups.stop * stride)

    def take(tree: Tree) -> Tree:
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[own] if leaf.ndim else leaf), tree)

    chains, inputs = job.program.chains, jax.tree.map(jnp.asarray, job.inputs)
    schedule = inputs.schedule
    if jax.eval_shape(schedule, jnp.asarray(1.0)).shape == (chains,):
        if isinstance(schedule, Function):
            schedule = Function(lambda l: job.inputs.schedule(l)[own])
        else:
            schedule = jax.tree.map(lambda leaf: leaf[own] if leaf.ndim else leaf, schedule)
    inputs = inputs._replace(schedule=schedule, dynamics=take(inputs.dynamics) if job.program.grid else inputs.dynamics)
    if job.program.own_coordinates:
        inputs = inputs._replace(coordinates=take(inputs.coordinates))
    followers = jax.tree.map(lambda leaf: jnp.asarray(leaf[groups]), job.chain.companion)
    chain = along_chains(lambda leaf: leaf[own], job.chain._replace(companion=()))._replace(companion=followers)
    return replace(job, program=replace(job.program, chains=len(chain.alive)), inputs=inputs, chain=chain)


def together(chains: Sequence[Chain]) -> Chain:
    """One record of the chains of all tasks."""
    return along_chains(lambda *leaves: np.concatenate(leaves), *chains)


def along_chains(function, *chains: Chain) -> Chain:
    """function(arrays that lead with chains) all over records of chains; what chains share is the first's."""

    def part(axis, *trees):
        if axis is None:
            return jax.tree.map(jnp.asarray, trees[0])
        return jax.tree.map(lambda *leaves: jnp.asarray(function(*leaves)), *trees)

    return jax.tree.map(part, CHAIN_AXES, *chains, is_leaf=lambda axis: axis is None)
