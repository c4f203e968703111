"""`sample` and `blocks`: the front door of the library."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from strang.coordinates import Coordinates
from strang.data.batches import Data
from strang.dynamics.base import Dynamics
from strang.gradients.estimators import Minibatch
from strang.integrators.words import Step
from strang.models.base import Posterior
from strang.parallel import processes
from strang.parallel.mesh import mesh_shape
from strang.run.driver import run_blocks
from strang.run.result import Run, finish
from strang.sampling.chain import Chain
from strang.sampling.request import Job, prepare
from strang.storage.manifest import known_files
from strang.storage.store import Store, stored_parts
from strang.util.errors import InputError, whole
from strang.util.front_door import front_door
from strang.util.signatures import without
from strang.util.trees import Tree

Integrator = str | Step | tuple[str, Any] | None
StepSize = Any  # a number, one per chain, or a function of the step number
Average = Callable[[Tree], Tree] | None


def position_itself(position: Tree) -> Tree:
    """What is averaged where nothing else is asked for."""
    return position


@front_door
def sample(
    model: Posterior,
    data: Data,
    dynamics: Dynamics,
    *,
    step_size: StepSize,
    steps: int,
    integrator: Integrator = None,
    burn_in: int = 0,
    chains: int = 1,
    seed: int = 0,
    average: Average = position_itself,
    gradient: Minibatch | None = None,
    init: Any = None,
    coordinates: Coordinates | str | None = None,
    thin: int | None = None,
    store: str | Path | None = None,
    every: int | None = None,
    about: dict[str, Any] | None = None,
    devices: int | tuple[int, int] = 1,
    parts: int | None = None,
    progress: bool | None = None,
) -> Run:
    """Run chains and report averages with their errors. Ctrl-C ends a run early and returns what there is.

    Args:
        model: what is sampled: `strang.Model(log_prior, log_likelihood, init)`, one of `strang.models`, or any object
            with these three methods.
        data: rows and the order of minibatches: `strang.data.arrays`, `files` or `stream`.
        dynamics: an instance of `strang.SGHMC`, `SGLD`, `SGNHT`, `SGRHMC` or `SGRLD`. Its numbers may be one per chain.
        step_size: a number, one per chain, or a function of the step number l = 1, 2, ... (`strang.schedule`, Optax).
        steps: steps of every chain, burn-in included.
        integrator: a word such as `"chen:ABOBA"`, a name such as `"quicsort"`, or a `strang.Step`; by default the
            dynamics' own.
        burn_in: steps at the beginning that are not averaged.
        chains: how many chains.
        seed: of starts, minibatches and noise; everything random is a function of (seed, chain, step).
        average: a function of the position whose average is wanted, by default the position itself; None: nothing.
        gradient: an estimator of `strang.gradients`, by default the plain minibatch gradient.
        init: a start, or a function from a `jax.random` key to one; by default the model's own, or scattered about the
            mode where `coordinates` are named.
        coordinates: what the chains move in place of the position: `"dense"` or `"diagonal"`, with unit curvature at
            the posterior's mode, which takes some passes over the data and makes step sizes of 0.1 to 0.3 right for
            most models; one of `strang.coordinates`; None or `"none"`: the position itself. Averages and draws are of
            the position in any case.
        thin: keep every n-th position, see `Run.samples`.
        store: a folder in which the run is saved as it goes; thinned positions go there as well, and memory stays
            flat. The same call again goes on from the last save, bit for bit; a call that differs is refused.
        every: steps between saves, by default about ten seconds.
        about: anything JSON can hold, to be kept with a stored run.
        devices: how many devices share the chains; or a pair: how many share the chains, and how many share every
            minibatch. See docs/scale.md.
        parts: what a minibatch is cut in for devices or processes to share, by default one part for each. The bits of
            a result depend on this number, and not on who computes.
        progress: whether to show a progress bar; None: on a terminal.

    Returns:
        A `Run`: `print(run)` tells averages with errors, temperature, gradient noise and what it does, and chains that
        disagree or diverged; `run.more(steps)` goes on.

    Raises:
        InputError: something given is not what is expected; the sentence says what to write instead.
        OSError: a stored run could not be written; the sentence says what is kept.

    Example:
        >>> import strang, jax.numpy as jnp
        >>> data = strang.data.arrays(jnp.array([0.2, 0.8, 1.0, 2.0]), batch_order="full")
        >>> model, dynamics = strang.models.Gaussian(), strang.SGHMC(friction=2.0)
        >>> run = strang.sample(model, data, dynamics, step_size=0.1, steps=2000, chains=10)
        >>> run.diverged
        0
    """
    arguments = without(locals(), "every", "about")
    if store is None and every is not None:
        raise InputError("every says how often to save; write store=FOLDER with it, or leave it out.")
    if not isinstance(store, str | Path | None):
        raise InputError(f"store is {store!r}; write the path of a folder.")
    job = request(**arguments)
    if store is None:
        run = finish(job, progress)
    else:
        folder = Store(store, job, every, about)
        try:
            run = finish(replace(job, chain=folder.chain), progress, folder)
        finally:
            folder.close()
    run.warn(stacklevel=3)
    return run


@front_door
def blocks(
    model: Posterior,
    data: Data,
    dynamics: Dynamics,
    *,
    step_size: StepSize,
    steps: int,
    every: int | None = None,
    integrator: Integrator = None,
    burn_in: int = 0,
    chains: int = 1,
    seed: int = 0,
    average: Average = position_itself,
    gradient: Minibatch | None = None,
    init: Any = None,
    coordinates: Coordinates | str | None = None,
    devices: int | tuple[int, int] = 1,
    parts: int | None = None,
    progress: bool | None = None,
) -> Iterator[Chain]:
    """The chains after each block of steps, for a loop of one's own.

    Args:
        every: steps per block, by default about half a second.

    The other arguments are those of `strang.sample`.

    Yields:
        The complete record of all chains, such as `chain.state.position`, which leads with chains.

    Example:
        >>> import strang, jax.numpy as jnp
        >>> data = strang.data.arrays(jnp.array([0.2, 0.8, 1.0, 2.0]), batch_order="full")
        >>> model, dynamics = strang.models.Gaussian(), strang.SGHMC(friction=2.0)
        >>> [int(chain.step) for chain in strang.blocks(model, data, dynamics, step_size=0.1, steps=10, every=4)]
        [4, 8, 10]
    """
    job = request(**without(locals(), "every"))
    return (chain for chain, _ in run_blocks(job, None if every is None else whole("every", every)))


def request(
    model: Posterior,
    data: Data,
    dynamics: Dynamics,
    *,
    store: str | Path | None = None,
    devices: int | tuple[int, int] = 1,
    parts: int | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Job:
    """The checked request, with data that were looked through and devices that are there."""
    processes.check_started()
    if isinstance(data, Data):  # what is not in memory must be sound before anything is run with it
        data.verify(None if store is None else known_files(Path(store)), progress)
    mesh, parts = mesh_shape(devices), stored_parts(store, parts)
    return prepare(model, data, dynamics, mesh=mesh, parts=parts, progress=progress, **settings)
