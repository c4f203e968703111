"""The door: everything that a request is checked for before anything runs."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import distributed, random
from .chain import Chain, Inputs, Program, begin, granule_length
from .data import Data
from .errors import InputError, first_line, whole
from .gradient import SVRG, ControlVariate, Latent, Minibatch
from .integrator import spell
from .schedule import as_schedule, probe
from .share import ALONE, Cuts, Share
from .tree import Tree

MOST_STEPS = 2**32 - 1  # their numbers are words of 32 bits


@dataclass(frozen=True)
class Job:
    """A checked request: the compiled code's program, its numbers, and where to stop."""

    program: Program
    inputs: Inputs
    chain: Chain
    steps: int
    thin: int | None
    share: Share = ALONE


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
    parts: int | None = None,
    groups: int | None = None,
    devices: int | tuple[int, int] = 1,
    progress: bool | None = None,
) -> Job:
    """Everything that `sample` checks before it starts."""
    distributed.check_started()
    if not isinstance(data, Data):
        raise InputError(
            f"data is a {type(data).__name__}; wrap it first: strang.data.arrays(x, batch=10, order='iid')."
        )
    steps, chains, burn_in = whole("steps", steps, 1, MOST_STEPS), whole("chains", chains), whole("burn_in", burn_in, 0)
    seed, thin = whole("seed", seed, 0, 2**64 - 1), None if thin is None else whole("thin", thin)
    if burn_in >= steps:
        raise InputError(f"burn_in is {burn_in} of {steps} steps, which leaves nothing to average.")
    estimator = Minibatch() if gradient is None else gradient
    if data.order == "full" and type(estimator) is not Minibatch:
        raise InputError(
            "a full gradient has no noise to reduce; leave out gradient=, or choose another order of batches."
        )
    if hasattr(model, "likelihood_gradient") and isinstance(estimator, ControlVariate | SVRG):
        raise InputError(
            f"{type(model).__name__} has a gradient of its own, which may be random: what it errs by at an anchor "
            "would stay in every step. Leave out gradient=."
        )
    if data.order == "stream" and isinstance(estimator, ControlVariate | SVRG):
        raise InputError(
            "a loader's data cannot be gone through at will, as full gradients need; leave out gradient=, or use files."
        )
    cuts, share = share_out(data, estimator, chains, parts, groups, devices)
    step = spell(dynamics, dynamics.default_integrator if integrator is None else integrator)
    schedule = as_schedule(step_size, steps, chains)
    dynamics, grid = spread_over_chains(dynamics, chains)
    keys = random.chain_keys(seed, chains)
    positions = starts(model, init, keys)
    position = jax.tree.map(lambda x: x[0], positions)
    check_correction(dynamics, step, probe(schedule, steps).max())
    check_model(model, data, estimator, position)
    check_average(average, position)
    granule = granule_length(step, data, position, chains)
    program = Program(model, step, estimator, average, chains, granule, grid, cuts)
    shared = estimator.prepare(model, data, position, progress)
    inputs = Inputs(data, dynamics, schedule, shared, jnp.uint32(burn_in))
    chain = jax.block_until_ready(begin(program, inputs, keys, positions))
    data.check()
    return Job(program, inputs, chain, steps, thin, share)


def share_out(data: Data, estimator, chains: int, parts, groups, devices) -> tuple[Cuts, Share]:
    """Who computes what: by default one device all of it, and of several processes each a part of every minibatch."""
    teams, workers = mesh(devices)
    uncut = data.order in ("full", "stream") or isinstance(estimator, Latent)
    parts = (1 if uncut else min(workers, data.batch)) if parts is None else whole("parts", parts, 1, data.batch)
    groups = teams if groups is None else whole("groups", groups, 1, chains)
    if parts > 1 and uncut:
        raise InputError(
            "full gradients, a loader's batches and hidden causes that are kept are not cut in parts; leave out parts=."
        )
    if groups > 1 and data.order == "stream":
        raise InputError("a loader gives its batches to all chains at once; leave out groups= and devices=.")
    if chains % groups or groups % teams:
        raise InputError(
            f"{chains} chains in {groups} groups cannot be shared evenly by {teams} devices; chains must be a "
            "multiple of groups, and groups of devices."
        )
    return Cuts(parts, groups), Share(workers, teams)


def mesh(devices) -> tuple[int, int]:
    """How many share the chains, and how many of each of these a minibatch."""
    many = jax.process_count() > 1
    found = jax.process_count() if many else jax.local_device_count()
    pair = [whole("devices", n) for n in (devices if isinstance(devices, tuple | list) else (devices,))]
    if len(pair) == 1:
        pair.append(found // pair[0] if many else 1)
    if len(pair) != 2 or not (prod(pair) == found if many else prod(pair) <= found):
        expected = f"which together are the {found} processes" if many else f"at most the {found} that there are"
        raise InputError(
            f"devices is {devices}; write how many are to share the chains, or (how many share the chains, how many of "
            f"each of these share a minibatch), {expected}."
        )
    return pair[0], pair[1]


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
    if callable(init) and jax.tree_util.all_leaves([init]):  # a module that can be called is a position all the same
        own = jax.jit(random.fold)(keys.start, 1)  # op by op it would take far longer to compile
        positions = jax.vmap(lambda key: floats(init(random.jax_key(key))))(own)
    else:
        positions = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(keys.start), *x.shape)), floats(init))
    if not all(np.isfinite(np.asarray(leaf, float)).all() for leaf in jax.tree.leaves(positions)):
        raise InputError("a start is not finite; init must give finite numbers.")
    return positions


def floats(position: Tree) -> Tree:
    """The position as arrays, if all that it holds are floating-point numbers."""
    places = jax.tree_util.tree_leaves_with_path(position)
    if not places:
        raise InputError("the start holds no numbers; init must give a position: a pytree of float arrays.")
    for path, leaf in places:
        where = f" at {jax.tree_util.keystr(path)}" if path else ""
        try:
            dtype = jnp.asarray(leaf).dtype
        except TypeError:
            raise InputError(
                f"a start holds a {type(leaf).__name__}{where}, which cannot be sampled; give its arrays only, as "
                "eqx.partition(module, eqx.is_inexact_array)[0] does, and put the rest back in the model."
            ) from None
        if not jnp.issubdtype(dtype, jnp.floating):
            raise InputError(
                f"a start has dtype {dtype}{where}; positions must be floating-point, such as jnp.zeros(3)."
            )
    return jax.tree.map(jnp.asarray, position)


def check_correction(dynamics, step, h: float) -> None:
    """A known gradient noise can only be taken out of a noise that is larger."""
    known = np.concatenate([np.ravel(v) for v in jax.tree.leaves(getattr(dynamics, "gradient_noise", 0.0))])
    if not (known >= 0).all():
        raise InputError(f"gradient_noise is {known.min()}; a variance is not negative.")
    variance = float(known.max(initial=0))
    if variance == 0:
        return
    if not step.name.startswith(dynamics.corrected):
        raise InputError(
            f"{step.name!r} does not correct for gradient_noise; choose a 'chen:' word, an Euler or 'nogin', or leave "
            "it out."
        )
    friction = float(np.min(dynamics.friction))
    most = 4 * np.tanh(friction * h / 2) / h**2 if step.name == "nogin" else 2 * friction / h
    if not variance <= most:
        raise InputError(
            f"gradient_noise {variance:g} is more than the {most:g} that {step.name!r} can take out of its own noise "
            f"at step_size {h:g} and friction {friction:g}; write a smaller step, a larger batch, or more friction."
        )


def check_average(average: Callable | None, position: Tree) -> None:
    """What is averaged must be real numbers."""
    if average is not None:
        found = jax.eval_shape(lambda theta: jax.tree.map(jnp.asarray, average(theta)), position)
        if any(jnp.issubdtype(leaf.dtype, jnp.complexfloating) for leaf in jax.tree.leaves(found)):
            raise InputError("average gives complex numbers; give their real and imaginary parts instead.")


def check_model(model, data: Data, estimator, position: Tree) -> None:
    """One log prior and one log likelihood, without computing them: both must be single numbers. A model that has
    `check_rows` looks at the data too, or at their shapes where they are not in memory."""
    if hasattr(model, "check_rows"):
        shapes = jax.tree.map(lambda row: jax.ShapeDtypeStruct((data.size, *row.shape), row.dtype), data.datum)
        rows = data.rows if data.source is None else shapes
        if isinstance(estimator, Latent):
            if not isinstance(rows, tuple):
                raise InputError("kept causes need pairs (row, number); write arrays((x, np.arange(len(x))), ...).")
            rows = rows[0]
        model.check_rows(rows)
    parts: dict[str, tuple] = {"log_prior": (position,)}
    if not hasattr(model, "likelihood_gradient"):
        parts["log_likelihood"] = (position, data.datum)
    for name, arguments in parts.items():
        try:
            value = jax.eval_shape(getattr(model, name), *arguments)
        except (TypeError, ValueError) as error:
            given = [str(jax.tree.map(lambda x: x.shape, a)) for a in arguments]
            raise InputError(f"{name} fails on shapes {', '.join(given)}: {first_line(error)}") from error
        if getattr(value, "shape", None) != ():
            raise InputError(f"{name} gives {value}; it must give one number (for one datum).")
