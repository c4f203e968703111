"""`sample` and `blocks`: the front door of the library."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from strang.coordinates import Coordinates, Dense, Diagonal
from strang.data.batches import Data, as_data
from strang.dynamics.base import Dynamics
from strang.gradients.estimators import Minibatch
from strang.integrators.words import Step
from strang.models.base import Posterior
from strang.parallel import processes
from strang.parallel.mesh import mesh_shape
from strang.run.driver import run_blocks
from strang.run.goal import GoalObserver
from strang.run.result import Run, finish
from strang.sampling.job import Job, position_itself
from strang.sampling.record import Chain
from strang.sampling.request import MAX_SQUARED, MAX_STEPS, opened, prepare
from strang.sampling.starts import first_positions, scattered
from strang.storage.manifest import known_files
from strang.storage.store import Store, forget, stored_parts
from strang.tuning import Tuning, saved, tune
from strang.tuning.tuning import positive
from strang.util import random
from strang.util.errors import InputError, whole
from strang.util.front_door import front_door
from strang.util.signatures import defaults, without
from strang.util.trees import Tree, size

Integrator = str | Step | tuple[str, Any] | None
StepSize = Any  # a number, one per chain, or a function of the step number
Average = Callable[[Tree], Tree] | None
ATTEMPTS = 3  # at a smaller step each, where the bias of a run is larger than pilot runs could tell
HOT = 1.1  # a temperature at which steps were too long somewhere
CALMER = 0.4  # of a step size
MOST_DRAWS = 1000  # of each chain that are kept where nobody said how many


@front_door
def sample(
    model: Posterior,
    data: Any,
    dynamics: Dynamics | None = None,
    *,
    step_size: StepSize = None,
    steps: int | None = None,
    integrator: Integrator = None,
    burn_in: int | None = None,
    chains: int | None = None,
    seed: int = 0,
    average: Average = position_itself,
    gradient: Minibatch | None = None,
    init: Any = None,
    coordinates: Coordinates | str | None = None,
    coupled: int | None = None,
    tuning: Tuning | None = None,
    error: float | None = None,
    seconds: float | None = None,
    thin: int | None = None,
    store: str | Path | None = None,
    every: int | None = None,
    about: dict[str, Any] | None = None,
    devices: int | tuple[int, int] = 1,
    parts: int | None = None,
    progress: bool | None = None,
) -> Run:
    """Run chains and report averages with both of their errors. Ctrl-C ends a run early and returns what there is.

    A model and data are enough: what is left out is chosen by `strang.tune`, and the run goes on until its errors are
    small. With dynamics, step_size and steps nothing is chosen.

    Args:
        model: what is sampled: `strang.Model(log_prior, log_likelihood, init)`, one of `strang.models`, or any object
            with these three methods.
        data: arrays with a common leading axis, such as `(X, y)`; or rows and the order of minibatches:
            `strang.data.arrays`, `files` or `stream`.
        dynamics: an instance of `strang.SGHMC`, `SGLD`, `SGNHT`, `SGRHMC` or `SGRLD`. Its numbers may be one per chain.
        step_size: a number, one per chain, or a function of the step number l = 1, 2, ... (`strang.schedule`, Optax).
        steps: steps of every chain, burn-in included; at most so many where `error` or `seconds` is given too.
        integrator: a word such as `"chen:ABOBA"`, a name such as `"quicsort"`, or a `strang.Step`; by default the
            dynamics' own.
        burn_in: steps at the beginning that are not averaged; by default none, or what tuning says.
        chains: how many chains; by default 1, or 16 where something is chosen.
        seed: of starts, minibatches and noise; everything random is a function of (seed, chain, step).
        average: a function of the position whose average is wanted, by default the position itself; None: nothing.
            Runs whose average is `jax.tree_util.Partial(function, array)`, which is called with the array and the
            position, share a compilation.
        gradient: an estimator of `strang.gradients`, by default the plain minibatch gradient, or the cheapest.
        init: a start; one for each chain along a leading axis, such as another run's `positions`; or a function from a
            `jax.random` key to one. By default the model's own, or scattered about the mode where `coordinates` are
            named.
        coordinates: what the chains move in place of the position: `"dense"` or `"diagonal"`, with unit curvature at
            the posterior's mode, which takes some passes over the data and makes step sizes of 0.1 to 0.3 right for
            most models; one of `strang.coordinates`; None or `"none"`: the position itself. Averages and draws are of
            the position in any case.
        coupled: how many of the chains, spread over all of them, are followed by a companion at twice the step size
            on the same Brownian path, from which the bias is known: `Run.bias`. It costs half a gradient for each of
            their steps, and changes nothing else. By default none, or a quarter where something is chosen.
        tuning: what `strang.tune` chose, to be used again; arguments that are given go before.
        error: go on until the Monte Carlo error and the bias of every mean and standard deviation are below so many
            posterior standard deviations, and R-hat below 1.01. By default 0.01 where something is chosen.
        seconds: end the run after so many, whatever it has reached; compilation and tuning count.
        thin: keep every n-th position, see `Run.samples`; by default none, or about a thousand of each chain where
            something is chosen.
        store: a folder in which the run is saved as it goes; thinned positions go there as well, and memory stays
            flat. The same call again goes on from the last save, bit for bit; a call that differs is refused.
        every: steps between saves, by default about ten seconds.
        about: anything JSON can hold, to be kept with a stored run.
        devices: how many devices share the chains; or a pair: how many share the chains, and how many share every
            minibatch.
        parts: what a minibatch is cut in for devices or processes to share, by default one part for each. The bits of
            a result depend on this number, and not on who computes.
        progress: whether to show a progress bar; None: on a terminal.

    Returns:
        A `Run`: `print(run)` tells averages with both errors and whether they are to be trusted; `run.summary()` is the
        table, `run.trusted` and `run.reasons` are the verdict; `run.more(steps)` goes on.

    Raises:
        InputError: something given is not what is expected; the sentence says what to write instead.
        OSError: a stored run could not be written; the sentence says what is kept.

    Example:
        >>> import strang, numpy as np
        >>> x = np.random.default_rng(0).normal(1.0, 1.0, 200)
        >>> run = strang.sample(strang.models.Gaussian(), x, error=0.05)
        >>> run.trusted, bool(abs(run.average - 200 * x.mean() / 201) < 0.2 * run.sd)
        (True, True)
    """
    arguments = without(locals(), "every", "about")
    return start(arguments, every, about)


def start(arguments: dict[str, Any], every: int | None, about: dict[str, Any] | None) -> Run:
    """The run of these arguments of `sample`, from whatever of it is stored."""
    begun, store = time.perf_counter(), arguments["store"]
    arguments["data"] = as_data(arguments["data"])
    arguments["model"] = opened(arguments["model"], arguments["data"])
    if store is None and every is not None:
        raise InputError("every says how often to save; write store=FOLDER with it, or leave it out.")
    if not isinstance(store, str | Path | None):
        raise InputError(f"store is {store!r}; write the path of a folder.")
    limits = {name: arguments.pop(name) for name in ("error", "seconds")}
    limits = {name: None if value is None else positive(name, value) for name, value in limits.items()}
    deadline = None if limits["seconds"] is None else begun + limits["seconds"]
    free = arguments["tuning"] is None and arguments["step_size"] is None  # whether the step size may be changed
    for attempt in range(ATTEMPTS):
        settings, tuning = complete(arguments, limits["error"], limits["seconds"])
        run = run_once(settings, tuning, arguments, limits["error"], deadline, every, about)
        if not free or run.interrupted or attempt + 1 == ATTEMPTS or run.goal is None:
            break
        if run.goal.excess > 0:
            arguments = {**arguments, "tuning": smaller_step(tuning, run)}
        elif is_thrown(run, tuning):
            arguments = {**arguments, "tuning": begun_anew(tuning)}
        else:
            break
        if store is not None:
            with processes.first_ahead():
                if processes.rank() == 0:
                    forget(Path(store))
                    saved.save(Path(store), arguments["tuning"], arguments)
    run.warn(stacklevel=5)
    return run


def smaller_step(tuning: Any, run: Run) -> Tuning:
    """The tuning with a step size at which the bias should be what is wanted, at the order that it has."""
    excess = run.goal.excess if run.goal is not None else np.inf
    factor = 0.5 if np.isinf(excess) else min(0.7, max(0.25, 0.7 * excess ** (-1 / (run.estimates.order or 1))))
    h = factor * tuning.step_size
    return replace(tuning, step_size=h, burn_in=round(tuning.burn_in / factor))


def is_thrown(run: Run, tuning: Any) -> bool:
    """Whether steps were too long where the posterior is narrow, so that chains were thrown to where they stay: they
    are hot, or far apart although only one mode was found."""
    hot = run.temperature is not None and run.temperature > HOT
    apart = run.goal is not None and run.goal.apart and not tuning.notes
    return not run.trusted and (hot or apart) and type(tuning.coordinates) in (Dense, Diagonal)


def begun_anew(tuning: Any) -> Tuning:
    """The tuning with a smaller step size, and chains that start about the mode."""
    change = tuning.coordinates
    keys = random.chain_keys(1, len(jax.tree.leaves(tuning.starts)[0]))
    starts = jax.tree.map(np.asarray, scattered(change, jax.tree.map(np.asarray, change.centre), keys))
    return replace(tuning, step_size=CALMER * tuning.step_size, burn_in=round(tuning.burn_in / CALMER), starts=starts)


def run_once(
    settings: dict[str, Any],
    tuning: Tuning | None,
    arguments: dict[str, Any],
    error: float | None,
    deadline: float | None,
    every: int | None,
    about: dict[str, Any] | None,
) -> Run:
    """One run, until its goal is reached or it is given up."""
    store, progress = arguments["store"], arguments["progress"]
    job = replace(request(**settings), most_draws=None if tuning is None else MOST_DRAWS)
    observer = None
    if tuning is not None or error is not None or deadline is not None:
        error = tuning.error if error is None and tuning is not None and arguments["steps"] is None else error
        check_goal(job, error)
        patience = (
            "" if arguments["steps"] is not None else f"{job.steps:,} steps, many times what it should take, were made"
        )
        observer = GoalObserver(job, error, deadline, patience, tuning)
    if store is None:
        run = finish(job, progress, None, observer)
    else:
        folder = Store(store, job, every, about)
        try:
            run = finish(replace(job, chain=folder.chain), progress, folder, observer)
        finally:
            folder.close()
    return replace(run, tuning=tuning)


def complete(
    arguments: dict[str, Any], error: float | None, seconds: float | None
) -> tuple[dict[str, Any], Tuning | None]:
    """The arguments with what they leave open chosen, and what was chosen; None where nothing was."""
    given = {name: value for name, value in arguments.items() if value is not None or name == "model"}
    tuning = given.pop("tuning", None)
    data = given["data"]
    if tuning is None and arguments["dynamics"] is not None and arguments["step_size"] is not None:
        if arguments["steps"] is None and error is None and seconds is None:
            raise InputError("steps is missing; write how many steps each chain is to make, or error=0.05, say.")
        given.setdefault("steps", MAX_STEPS)
        given.setdefault("average", None)
        return given, None
    if tuning is not None and not isinstance(tuning, Tuning):
        raise InputError(f"tuning is a {type(tuning).__name__}; give what strang.tune returned.")
    if tuning is None:
        names = defaults(tune).keys() & given.keys() | {"model", "data", "dynamics"} & given.keys()
        tuned: dict[str, Any] = {name: given[name] for name in names} | ({} if error is None else {"error": error})
        tuning = tuned_once(tuned, arguments["store"])
    chosen = tuning.settings()
    settings = {**chosen, **given, "data": tuning.data(data)}
    settings["coupled"] = min(settings["coupled"], settings["chains"])
    if "init" not in given:
        settings["starts"] = repeated(tuning.starts, settings["chains"])
    settings.setdefault("steps", min(MAX_STEPS, tuning.patience(tuning.error if error is None else error)))
    if "burn_in" not in given and isinstance(settings["steps"], int):
        settings["burn_in"] = min(tuning.burn_in, settings["steps"] // 2)
    if size(jax.tree.map(lambda x: x[0], tuning.starts)) <= MAX_SQUARED:
        settings.setdefault("thin", max(1, round(1 / tuning.step_size)))
    settings["thin"] = min(settings.get("thin") or MAX_STEPS, settings["steps"]) if "thin" in settings else None
    settings.setdefault("average", None)
    return settings, tuning


def tuned_once(tuned: dict[str, Any], store: str | Path | None) -> Tuning:
    """What is chosen for these arguments of `tune`; that of a stored run is read from its folder."""
    if store is None:
        return tune(**tuned)
    model = tuned["model"]
    position = jax.tree.map(lambda x: x[0], first_positions(model, None, random.chain_keys(0, 1)))
    with processes.first_ahead():
        found = saved.load(Path(store), model, position, tuned)
        if found is None:
            found = tune(**tuned)
            if processes.rank() == 0:
                with explained(store):
                    saved.save(Path(store), found, tuned)
    return found


@contextmanager
def explained(store: str | Path) -> Iterator[None]:
    """A sentence for a folder that cannot be written."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write in {store} ({error.strerror}), so nothing was run; make room, or write another folder."
        ) from None


def repeated(starts: Tree, chains: int) -> Tree:
    """A start for each chain, from as many as there are."""
    return jax.tree.map(lambda x: x[np.arange(chains) % len(x)], starts)


def check_goal(job: Job, error: float | None) -> None:
    """Whether a run can tell its own errors."""
    if error is None:
        return
    if job.program.average is None or job.inputs.reference is None:
        raise InputError(
            "error= needs averages of which variances are kept, at most "
            f"{MAX_SQUARED:,} numbers; give average= a few of interest, or write steps."
        )
    if job.program.stride == 0:
        raise InputError("error= is for both errors, and the bias is not measured; write coupled=4, say, with it.")


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
    coupled: int = 0,
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
