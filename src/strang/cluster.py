"""Grids and replicates over machines: chains in groups, or any independent tasks, on an existing Dask cluster.

A scheduler is trusted: Dask sends functions as pickles over its connections, and whoever reaches them may run anything.
Nothing is pickled to disk.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .chain import Chain
from .errors import InputError, need, whole
from .prepare import Job, prepare
from .progress import bar
from .run import DivergenceWarning, Run, joined, run_blocks
from .schedule import Function
from .spec import first_line, versions
from .tree import Tree

PATIENCE = 5.0  # seconds that a scheduler and its first worker have to answer


def sample(
    scheduler: str | None,
    model,
    data,
    dynamics,
    *,
    groups: int | None = None,
    progress: bool | None = None,
    **settings,
) -> Run:
    """`strang.sample` with its chains cut into `groups`, by default one a worker of the Dask scheduler at this address.

    Chains have the keys and starts that they have in one process. So many groups give the same numbers bit for bit
    whatever the workers, also with None for a scheduler, which runs them here one after the other; but XLA may round
    differently where other numbers of chains are compiled together. Everything is checked before anything is sent; data
    and model are sent once. A group whose worker dies is run again on another.
    """
    if getattr(data, "source", None) is not None:
        raise InputError("a cluster is sent its data, so they must be in memory: write strang.data.arrays(...).")
    if settings.get("devices", 1) != 1:
        raise InputError("groups of chains go to the cluster's workers, each with one device; leave out devices=.")
    job = prepare(model, data, dynamics, progress=progress, **settings)
    chains, x64 = job.program.chains, jnp.result_type(float) == np.float64
    if groups is not None:
        groups = whole("groups", groups, most=chains)
    started = time.perf_counter()
    if scheduler is None:
        parts = [run_group(host(job), group, x64) for group in contiguous(chains, groups or 1)]
    else:
        with connected(scheduler) as client:
            wanted = contiguous(chains, groups or min(len(client.nthreads()), chains))
            (sent,) = client.scatter([host(job)], broadcast=True, hash=False)
            found = gathered(
                client, lambda group: client.submit(run_group, sent, group, x64, pure=False), wanted, "groups", progress
            )
            parts = [part for _, part in sorted(found, key=lambda pair: pair[0])]
    samples = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *(draws for _, draws in parts))
    run = Run(job, together([chain for chain, _ in parts]), time.perf_counter() - started, samples, False)
    if run.diverged:
        warnings.warn(run.divergence(), DivergenceWarning, stacklevel=2)
    return run


def spread(
    scheduler: str, function: Callable, items: Sequence, what: str, progress: bool | None
) -> Iterator[tuple[int, Any]]:
    """The number and the result of function(item) for each item, as the workers finish them."""
    with connected(scheduler) as client:
        yield from gathered(client, lambda item: client.submit(function, item, pure=False), items, what, progress)


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """A client of the scheduler, which has workers, and these what we have."""
    distributed = need("distributed", "dask")
    try:
        client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no Dask scheduler answers at {address} ({first_line(error)}); start one by `dask scheduler`, and write "
            "the address that it prints, such as tcp://10.0.0.1:8786."
        ) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise InputError(
                f"the scheduler at {address} has no workers; start some by `dask worker {address}`."
            ) from None
        check_workers(client)
        yield client


def check_workers(client) -> None:
    """Other versions give other numbers."""
    mine = versions()
    for worker, theirs in client.run(versions, on_error="return").items():
        if not isinstance(theirs, dict):
            raise InputError(f"worker {worker} cannot run Strang ({first_line(theirs)}); install it there.")
        other = [
            f"{name} {theirs.get(name)} instead of {mine[name]}" for name in mine if theirs.get(name) != mine[name]
        ]
        if other:
            raise InputError(f"worker {worker} has {', '.join(other)}; install the same there.")


def gathered(client, submit: Callable, items: Sequence, what: str, progress: bool | None) -> Iterator[tuple[int, Any]]:
    """Number and result of each item, in the order in which they come."""
    distributed = need("distributed", "dask")
    futures = {submit(item): number for number, item in enumerate(items)}
    with bar(len(items), what, progress) as done:
        for count, future in enumerate(distributed.as_completed(futures, loop=client.loop), start=1):
            try:
                result = future.result()
            except distributed.KilledWorker as error:
                raise InputError(f"worker after worker died over the same task ({first_line(error)}).") from None
            yield futures[future], result
            done(count)


# Chains in groups


def contiguous(chains: int, groups: int) -> list[slice]:
    """So many groups of about equal size.

    >>> contiguous(7, 3)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
    """
    return [slice(*pair) for pair in pairwise(chains * k // groups for k in range(groups + 1))]


def host(job: Job) -> Job:
    """With NumPy's arrays, which keep double precision wherever they arrive."""
    return replace(job, inputs=jax.tree.map(np.asarray, job.inputs), chain=jax.tree.map(np.asarray, job.chain))


def run_group(job: Job, group: slice, x64: bool) -> tuple[Chain, Tree]:
    """On a worker: some chains of the job to its end, and their thinned positions."""
    with jax.enable_x64(x64):
        part = cut(job, group)
        kept = []
        chain = part.chain
        for chain, trace in run_blocks(part, None):  # noqa: B007
            kept.append(trace)
        draws = joined(part, kept, part.steps // part.thin) if part.thin else None
        return jax.tree.map(np.asarray, chain), draws


def cut(job: Job, group: slice) -> Job:
    """The job of these chains alone."""

    def take(tree: Tree) -> Tree:
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[group]), tree)

    chains, inputs = job.program.chains, jax.tree.map(jnp.asarray, job.inputs)
    schedule = inputs.schedule
    if jax.eval_shape(schedule, jnp.asarray(1.0)).shape == (chains,):
        own = isinstance(schedule, Function)
        schedule = Function(lambda l: job.inputs.schedule(l)[group]) if own else jax.tree.map(
            lambda leaf: leaf[group] if leaf.ndim else leaf, schedule
        )  # fmt: skip
    inputs = inputs._replace(schedule=schedule, dynamics=take(inputs.dynamics) if job.program.grid else inputs.dynamics)
    chain = with_counters(take(without_counters(job.chain)), job.chain)
    return replace(job, program=replace(job.program, chains=len(chain.alive)), inputs=inputs, chain=chain)


def together(chains: Sequence[Chain]) -> Chain:
    """One record of all groups."""
    whole = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *map(without_counters, chains))
    return with_counters(whole, chains[0])


def without_counters(chain: Chain) -> Chain:
    """What leads with chains."""
    return chain._replace(step=None, average=chain.average._replace(granules=None, length=None))  # type: ignore[arg-type]


def with_counters(chain: Chain, like: Chain) -> Chain:
    """With the counters of a chain that has made the same steps."""
    common = jnp.asarray(like.average.granules), jnp.asarray(like.average.length)
    average = chain.average._replace(granules=common[0], length=common[1])
    return chain._replace(step=jnp.asarray(like.step), average=average)
