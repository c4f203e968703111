"""`sample` and `blocks`: check what was asked for, then advance the chains block by block."""

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import average as averages
from . import random
from .chain import Chain, Inputs, Program, advance, begin, granule_length
from .data import Data
from .errors import InputError
from .gradient import Minibatch
from .integrator import spell
from .progress import bar
from .schedule import as_schedule, probe
from .tree import Tree, size

BLOCK_SECONDS = 0.5  # how long Ctrl-C and the progress bar may have to wait


@dataclass(frozen=True)
class Job:
    """A checked request: the compiled code's program, its numbers, and where to stop."""

    program: Program
    inputs: Inputs
    chain: Chain
    steps: int
    thin: int | None


class DivergenceWarning(UserWarning):
    """Some chains left the finite numbers and stopped there."""


def prepare(
    model,
    data: Data,
    dynamics,
    *,
    integrator=None,
    step_size,
    steps: int,
    chains: int = 1,
    seed: int = 0,
    average: Callable | None = lambda position: position,
    burn_in: int = 0,
    gradient=None,
    init: Any = None,
    thin: int | None = None,
    progress: bool | None = None,
) -> Job:
    """Everything that `sample` checks before it starts."""
    if not isinstance(data, Data):
        raise InputError(
            f"data is a {type(data).__name__}; wrap it first: strang.data.arrays(x, batch=10, order='iid')."
        )
    counts = {
        "steps": (steps, 1),
        "chains": (chains, 1),
        "burn_in": (burn_in, 0),
        "thin": (1 if thin is None else thin, 1),
    }
    for name, (value, least) in counts.items():
        if isinstance(value, bool) or int(value) != value or value < least:
            raise InputError(f"{name} is {value}; write a whole number, at least {least}.")
    if steps >= 2**32 or not 0 <= seed < 2**64:
        raise InputError(f"steps ({steps}) must be below 2^32 and seed ({seed}) from 0 to 2^64 - 1.")
    if burn_in >= steps:
        raise InputError(f"burn_in is {burn_in} of {steps} steps, which leaves nothing to average.")
    estimator = Minibatch() if gradient is None else gradient
    if data.order == "full" and type(estimator) is not Minibatch:
        raise InputError(
            "a full gradient has no noise to reduce; leave out gradient=, or choose another order of batches."
        )
    step = spell(dynamics, dynamics.default_integrator if integrator is None else integrator)
    schedule = as_schedule(step_size, steps, chains)
    dynamics, grid = spread_over_chains(dynamics, chains)
    keys = random.chain_keys(seed, chains)
    positions = starts(model, init, keys)
    position = jax.tree.map(lambda x: x[0], positions)
    check_correction(dynamics, step, probe(schedule, steps).max())
    check_model(model, data, estimator, position)
    program = Program(model, step, estimator, average, chains, granule_length(step, data, position, chains), grid)
    shared = estimator.prepare(model, data, position, progress)
    inputs = Inputs(data, dynamics, schedule, shared, jnp.uint32(burn_in))
    return Job(program, inputs, begin(program, inputs, keys, positions), int(steps), thin)


def spread_over_chains(dynamics, chains: int):
    """The dynamics with one number a chain everywhere if any of its numbers differs between chains."""
    numbers = {f.name: getattr(dynamics, f.name) for f in fields(dynamics) if not f.metadata.get("static")}
    single = {name: value for name, value in numbers.items() if name != "gradient_noise" and value is not None}
    for name, value in single.items():
        if np.shape(value) not in ((), (chains,)):
            raise InputError(
                f"{name} has shape {np.shape(value)}; it must be one number or one for each of {chains} chains."
            )
        if name in ("friction", "gain") and not ((np.asarray(value) > 0) & np.isfinite(value)).all():
            raise InputError(f"{name} is {np.min(value)}; it must be a positive number.")
    grid = any(np.ndim(value) for value in single.values())
    dynamics = jax.tree.map(lambda x: jnp.asarray(x, float), dynamics)
    if grid:
        dynamics = replace(
            dynamics,
            **{name: jnp.broadcast_to(jnp.asarray(value, float), (chains,)) for name, value in single.items()},
        )
        if "gradient_noise" in numbers:
            noise = jax.tree.map(lambda x: jnp.broadcast_to(x, (chains, *x.shape)), dynamics.gradient_noise)
            dynamics = replace(dynamics, gradient_noise=noise)
    return dynamics, grid


def starts(model, init, keys) -> Tree:
    """One position a chain: the model's own start, or `init` (a position, or a function of a `jax.random` key)."""
    init = model.init if init is None else init
    if callable(init):
        positions = jax.vmap(lambda key: init(random.jax_key(random.fold(key, 1))))(keys.start)
    else:
        positions = jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x), (len(keys.start), *np.shape(x))), init)
    leaves = jax.tree.leaves(positions)
    if not leaves:
        raise InputError("the start holds no numbers; init must give a position: a pytree of float arrays.")
    for leaf in leaves:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise InputError(f"a start has dtype {leaf.dtype}; positions must be floating-point, such as jnp.zeros(3).")
        if not np.isfinite(np.asarray(leaf, float)).all():
            raise InputError("a start is not finite; init must give finite numbers.")
    return positions


def check_correction(dynamics, step, h: float) -> None:
    """A known gradient noise can only be taken out of a noise that is larger."""
    variance = max((float(np.max(v)) for v in jax.tree.leaves(getattr(dynamics, "gradient_noise", 0.0))), default=0.0)
    if variance == 0:
        return
    if not step.name.startswith(dynamics.corrected):
        raise InputError(
            f"{step.name!r} does not correct for gradient_noise; choose a 'chen:' word or 'nogin', or leave it out."
        )
    friction = float(np.min(dynamics.friction))
    if not 2 * friction >= h * variance:
        raise InputError(
            f"gradient_noise {variance:g} needs step_size <= 2 friction / gradient_noise = "
            f"{2 * friction / variance:g}, but it is {h:g}; write a smaller step, a larger batch, or "
            f"friction >= {h * variance / 2:g}."
        )


def check_model(model, data: Data, estimator, position: Tree) -> None:
    """One log prior and one log likelihood, without computing them: both must be single numbers."""
    datum = jax.tree.map(lambda rows: jax.ShapeDtypeStruct(rows.shape[1:], rows.dtype), data.rows)
    parts: dict[str, tuple] = {"log_prior": (position,)}
    if not hasattr(model, "likelihood_gradient"):
        parts["log_likelihood"] = (position, datum)
    for name, arguments in parts.items():
        try:
            value = jax.eval_shape(getattr(model, name), *arguments)
        except (TypeError, ValueError) as error:
            shapes = [str(jax.tree.map(lambda x: x.shape, a)) for a in arguments]
            raise InputError(f"{name} fails on shapes {', '.join(shapes)}: {str(error).splitlines()[0]}") from error
        if getattr(value, "shape", None) != ():
            raise InputError(f"{name} gives {value}; it must give one number (for one datum).")


def run_blocks(job: Job, every: int | None) -> Iterator[tuple[Chain, Tree]]:
    """The chain after each block, with its thinned positions; a block is `every` steps, or about half a second."""
    chain, quantum = job.chain, job.thin or 1
    length = every or max(quantum, job.program.granule)
    positions = chain.state.position
    while (done := int(chain.step)) < job.steps:
        length = max(quantum, length - length % quantum)
        stop = min(job.steps, done + length)
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


def sample(model, data, dynamics, *, progress: bool | None = None, **settings) -> "Run":
    """Run the chains and report the averages with their errors.

    Arguments: `integrator` (a word or name, by default the dynamics' own), `step_size` (a number, one a chain, or a
    function of the step number), `steps` (of all; the first `burn_in` are not averaged), `chains`, `seed`, `average`
    (any function of the position, or None), `gradient` (an estimator of strang.gradient), `init` (a position or a
    function of a key), `thin` (keep every so manieth position), `progress` (None: on a terminal). Ctrl-C ends the run
    early and returns what there is.

    >>> import strang, jax.numpy as jnp
    >>> data = strang.data.arrays(jnp.array([0.2, 0.8, 1.0, 2.0]), order="full")
    >>> run = sample(strang.models.Gaussian(), data, strang.SGHMC(friction=2.0), step_size=0.1, steps=2000, chains=10)
    >>> run.diverged
    0
    """
    job = prepare(model, data, dynamics, progress=progress, **settings)
    return finish(job, progress)


def finish(job: Job, progress: bool | None) -> "Run":
    """Advance a job to its end, or until Ctrl-C."""
    chain, kept, interrupted = job.chain, [], False
    if not job.thin:  # compile before the clock starts, by advancing to where the chain is
        jax.block_until_ready(advance(job.program, job.inputs, chain, chain.step, None, jnp.uint32(1)))
    started = time.perf_counter()
    with bar(job.steps, "sampling", progress) as done:
        try:
            for chain, trace in run_blocks(job, None):
                kept.append(trace)
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
    if run.diverged:
        warnings.warn(run.divergence(), DivergenceWarning, stacklevel=3)
    return run


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
