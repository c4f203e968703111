"""The door: everything that a request is checked for before anything runs."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.coordinates import make as make_coordinates
from strang.data.batches import Data
from strang.data.orders import Undecided
from strang.dynamics.base import Dynamics
from strang.dynamics.fields import PER_CHAIN, PER_COORDINATE, numbers, schedules
from strang.gradients.estimators import SVRG, ControlVariate, Latent, Minibatch
from strang.gradients.full import log_likelihood
from strang.integrators.words import spell
from strang.models.base import Posterior, is_start_function, natural, natural_now
from strang.models.constraints import check_way_back
from strang.sampling.chain import begin
from strang.sampling.draws import draw_block_length
from strang.sampling.record import Chain, Inputs, Program, positions_of
from strang.schedule import as_schedule, probe
from strang.util import random
from strang.util.errors import InputError, first_line, whole
from strang.util.memory import check_fits
from strang.util.trees import Tree, alike, scale, size, zeros

MAX_STEPS = 2**32 - 1  # their numbers are 32-bit integers
MAX_SQUARED = 4096  # numbers of an average of which variances are kept too
PROBED = 3  # rows that a likelihood of many is tried with, without computing it
SPREAD, NEIGHBOURS = 240, 60  # rows over which a model is looked at, and neighbours among them
LOOKED_AT = 1024  # rows whose likelihood is computed at the starts


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


TRACE_BYTES = 1 << 24  # what the thinned positions of a block may take


def trace_length(job: Job) -> int:
    """How many thinned positions a block has room for: always as many, so that one compilation serves all."""
    return max(1, min(256, TRACE_BYTES // max(1, sum(x.nbytes for x in jax.tree.leaves(like_draw(job))))))


def empty_trace(job: Job) -> Tree:
    """Room for the thinned positions of a block."""
    draws = trace_length(job)
    return jax.tree.map(lambda x: jnp.zeros((draws, *x.shape), x.dtype), like_draw(job))


def like_draw(job: Job) -> Tree:
    """Arrays, which take no memory, of the shapes of a draw: chains lead."""
    shapes = jax.eval_shape(partial(positions_of, job.program), job.inputs, job.chain.state)
    return jax.tree.map(lambda x: np.broadcast_to(np.zeros((), x.dtype), x.shape), shapes)


def prepare(
    model: Posterior,
    data: Data,
    dynamics: Dynamics,
    *,
    integrator: Any = None,
    step_size: Any,
    steps: int,
    chains: int = 1,
    seed: int = 0,
    average: Callable | None = position_itself,
    burn_in: int = 0,
    gradient: Minibatch | None = None,
    init: Any = None,
    starts: Tree = None,
    coordinates: Any = None,
    coupled: int = 0,
    thin: int | None = None,
    parts: int | None = None,
    mesh: tuple[int, int] = (1, 1),
    progress: bool | None = None,
) -> Job:
    """Everything that `sample` checks before it starts. `starts`, where given, is for each chain what it moves, before
    any coordinates: numbers without constraints."""
    check_data_and_gradient(data, gradient)
    model = opened(model, data)
    check_model_and_dynamics(model, dynamics)
    steps, chains, burn_in = whole("steps", steps, 1, MAX_STEPS), whole("chains", chains), whole("burn_in", burn_in, 0)
    seed, thin = whole("seed", seed, 0, 2**64 - 1), None if thin is None else whole("thin", thin)
    if burn_in >= steps:
        raise InputError(f"burn_in is {burn_in} of {steps} steps, which leaves nothing to average.")
    if thin is not None and thin > steps:
        raise InputError(
            f"thin is {thin}, but there are {steps} steps: no position would be kept; write a smaller one."
        )
    estimator = Minibatch() if gradient is None else gradient
    check_estimator(model, data, estimator)
    parts = check_parts(data, estimator, chains, parts, mesh)
    stride = check_coupled(estimator, chains, coupled, mesh[0])
    step = spell(dynamics, dynamics.default_integrator if integrator is None else integrator)
    schedule = as_schedule(step_size, steps, chains)
    dynamics, grid = spread_over_chains(dynamics, chains, steps)
    check_memory(model, init, chains)
    keys = random.chain_keys(seed, chains)
    positions = first_positions(model, init, keys) if starts is None else jax.tree.map(jnp.asarray, starts)
    position = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[0]), positions)
    if hasattr(dynamics, "check"):
        dynamics.check(step, float(probe(schedule, steps).max()))
    check_known_noise(dynamics, data, position, grid)
    if hasattr(dynamics, "check_start"):
        dynamics.check_start(position)
    check_model(model, data, position)
    seen = natural_now(model, position) if hasattr(model, "constrain") else position
    check_average(average, seen)
    block = draw_block_length(step, data, position, chains)
    check_starts(model, data, positions)
    if coordinates not in (None, "none") and getattr(dynamics, "positive", False):
        raise InputError(f"{type(dynamics).__name__} moves positive numbers; leave out coordinates=.")
    change, own = make_coordinates(coordinates, model, data, positions, progress)
    program = Program(model, step, estimator, average, chains, block, grid, stride, own, parts)
    if isinstance(coordinates, str) and change is not None and init is None and starts is None:
        position, positions = change.centre, scattered(change, position, keys)
        check_starts(model, data, positions)
    shared = estimator.prepare(model, data, position, progress)
    reference = reference_of(average, natural_now(model, position) if hasattr(model, "constrain") else position)
    centre = position if change is None else zeros(position)
    counts = jnp.asarray(np.uint32(burn_in)), jnp.asarray(np.int32(parts))
    inputs = Inputs(data, dynamics, schedule, shared, counts[0], change, centre, reference, counts[1])
    chain = jax.block_until_ready(begin(program, inputs, keys, positions))
    data.check()
    fixed = fixed_numbers(model, average, position) if reference is not None and hasattr(model, "constrain") else None
    return Job(program, inputs, chain, steps, thin, mesh, fixed=fixed)


def fixed_numbers(model, average: Any, position: Tree) -> np.ndarray:
    """Which numbers of an average are the same wherever a chain is."""
    found = np.asarray(averaged_about(model, average, position))
    return (found == found[:1]).all(0)


@partial(jax.jit, static_argnums=(0, 1))
def averaged_about(model, average: Callable, position: Tree) -> jax.Array:
    """All numbers of an average at some positions about this one."""

    def one(key):
        leaves, structure = jax.tree.flatten(position)
        keys = jax.random.split(key, len(leaves))
        moved = [x + 0.3 * jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
        found = average(natural(model, jax.tree.unflatten(structure, moved)))
        return jnp.concatenate([jnp.ravel(leaf).astype(float) for leaf in jax.tree.leaves(found)])

    return jax.vmap(one)(jax.random.split(jax.random.key(0), 3))


def opened(model, data: Data) -> Any:
    """The model as it is sampled: over numbers without constraints, and for these data."""
    if isinstance(model, type) or not hasattr(model, "unconstrained"):
        return model
    return model.unconstrained(lambda: looked_through(data), data.size)


def check_model_and_dynamics(model, dynamics) -> None:
    """Both must be of the kinds that are expected."""
    if isinstance(model, type) or not (hasattr(model, "log_prior") and hasattr(model, "init")):
        raise InputError(
            f"model is {described(model)}; give a model, such as strang.Model(log_prior, log_likelihood, init=...)."
        )
    if isinstance(dynamics, type) or not (is_dataclass(dynamics) and isinstance(dynamics, Dynamics)):
        raise InputError(f"dynamics is {described(dynamics)}; give an instance, such as strang.SGHMC(friction=10.0).")
    if hasattr(model, "constrain") and getattr(dynamics, "positive", False):
        raise InputError(f"{type(dynamics).__name__} moves positive numbers by itself; leave out constraints.")


def check_data_and_gradient(data, gradient) -> None:
    """Both must be of the kinds that are expected."""
    if not isinstance(data, Data):
        raise InputError(
            f"data is {described(data)}; wrap it first: strang.data.arrays(x, batch_size=10, batch_order='iid')."
        )
    if isinstance(data.batch_order, Undecided):
        raise InputError(
            "the data have no order of batches yet; write strang.data.arrays(x, batch_size=10), or "
            "batch_order='full' for all data, or leave out step_size and steps: then all is chosen."
        )
    if gradient is not None and not isinstance(gradient, Minibatch):
        raise InputError(
            f"gradient is {described(gradient)}; give an estimator, such as strang.gradients.control_variate()."
        )


def described(value: Any) -> str:
    """What a value is, in few words."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return repr(value) if value is None or isinstance(value, str | int | float) else f"a {type(value).__name__}"


def check_estimator(model, data: Data, estimator) -> None:
    """Whether the estimator can do with these data and this model."""
    order, reduces = data.batch_order, isinstance(estimator, ControlVariate | SVRG)
    if order.full and type(estimator) is not Minibatch:
        raise InputError(
            "a full gradient has no noise to reduce; leave out gradient=, or choose another order of batches."
        )
    if reduces and hasattr(model, "likelihood_gradient"):
        raise InputError(
            f"{type(model).__name__} has a gradient of its own, which may be random: what it errs by at an anchor "
            "would stay in every step. Leave out gradient=."
        )
    if reduces and order.shared:
        raise InputError(
            "a loader's data cannot be gone through at will, as full gradients need; leave out gradient=, or use files."
        )
    if isinstance(estimator, Latent) and not hasattr(model, "draw_hidden"):
        raise InputError(f"{type(model).__name__} has no hidden causes to keep; leave out gradient=.")


def check_known_noise(dynamics, data: Data, position: Tree, grid: bool) -> None:
    """Known gradient noise must be of the position's shape, and there to be taken out."""
    given = getattr(dynamics, "gradient_noise", 0.0)
    known, order = jax.tree.leaves(given), data.batch_order
    shapes = [np.shape(variance)[grid:] for variance in known]
    if shapes != [()] and shapes != [np.shape(x) for x in jax.tree.leaves(position)]:
        raise InputError(
            f"gradient_noise has shapes {shapes}; write one number, or one for each coordinate of the position."
        )
    if order.independent or not any(np.any(np.asarray(variance) > 0) for variance in known):
        return
    if order.full:
        raise InputError("gradient_noise is given, but full gradients have none; leave it out.")
    warnings.warn(
        f"gradient_noise is given, but with {order.name} batches most of it cancels over an epoch: what is taken out "
        "of the noise is then missing. Leave it out, or write batch_order='iid'.",
        stacklevel=5,
    )


def check_parts(data: Data, estimator, chains: int, parts: int | None, mesh: tuple[int, int]) -> int:
    """How many parts a minibatch is cut in: by default one for each device that shares it."""
    rows, columns = mesh
    uncut = not data.batch_order.divisible or isinstance(estimator, Latent)
    if parts is None:
        parts = 1 if uncut else min(columns, data.batch_size)
    parts = whole("parts", parts, 1, data.batch_size)
    if parts > 1 and uncut:
        raise InputError(
            "full gradients, a loader's batches and hidden causes that are kept are not cut in parts; leave out parts=."
        )
    if rows > 1 and data.batch_order.shared and not data.batch_order.full:
        raise InputError("a loader gives its batches to all chains at once; leave out devices=.")
    if chains % rows:
        raise InputError(f"{chains} chains cannot be shared evenly by {rows} devices; write a multiple of them.")
    return parts


def check_coupled(estimator, chains: int, coupled: int, rows: int) -> int:
    """Every how many chains one has a companion, so that `coupled` have, or a few less; 0: none."""
    coupled = whole("coupled", coupled, 0, chains)
    if not coupled:
        return 0
    if isinstance(estimator, Latent):
        raise InputError("hidden causes that are kept cannot be followed by a companion; leave out coupled=.")
    stride = -(-chains // coupled)
    if chains // rows % stride and rows > 1:
        raise InputError(
            f"coupled is {coupled} of {chains} chains, which {rows} devices cannot share evenly; write coupled={rows}, "
            "or a multiple of it that divides the chains."
        )
    return stride


def reference_of(average: Callable | None, position: Tree) -> Tree:
    """What is averaged, at one position: deviations from it are squared, for standard deviations, and few digits are
    lost. None where it is many numbers, which would cost every step another pass over them."""
    if average is None:
        return None
    shapes = jax.eval_shape(lambda theta: jax.tree.map(jnp.asarray, average(theta)), position)
    if size(shapes) > MAX_SQUARED:
        return None
    return averaged_at(average, position)


@partial(jax.jit, static_argnums=0)
def averaged_at(average: Callable, position: Tree) -> Tree:
    """What is averaged, at one position, in floating point."""
    return jax.tree.map(lambda x: jnp.asarray(x, float), average(position))


def check_memory(model, init, chains: int) -> None:
    """Refuse chains that would not fit the machine, before XLA tries."""
    init = model.init if init is None or chains_in(init, model) else init
    position = init
    if is_start_function(init):
        try:
            position = jax.eval_shape(init, jax.random.key(0))
        except Exception:  # which `starts` says better
            return
    bytes_each = sum(np.size(x) * np.dtype(getattr(x, "dtype", float)).itemsize for x in jax.tree.leaves(position))
    total = chains * (4 * bytes_each + 100)  # positions, momenta, sums of averages and of the gradient's variance
    check_fits(f"chains is {chains}: {chains:,} chains", total)


def spread_over_chains(dynamics, chains: int, steps: int = MAX_STEPS):
    """The dynamics with one number per chain everywhere if any of its numbers differs between chains; numbers that are
    functions of the step are schedules."""
    changing = {name: as_schedule(value, steps, 1, name) for name, value in schedules(dynamics).items()}
    dynamics = replace(dynamics, **changing)
    single = {name: value for name, value in numbers(dynamics, PER_CHAIN).items() if value is not None}
    single = {name: value for name, value in single.items() if name not in changing}
    positive = {f.name for f in fields(dynamics) if f.metadata.get("positive")}
    for name in positive - set(single) - set(changing):
        raise InputError(f"{name} is None; it must be a positive number.")
    for name, value in single.items():
        kind = np.asarray(value).dtype.kind
        if kind not in "fiu":
            raise InputError(f"{name} is {value!r}; it must be a number, or one for each chain.")
        if np.shape(value) not in ((), (chains,)):
            raise InputError(
                f"{name} has shape {np.shape(value)}; it must be one number or one for each of {chains} chains."
            )
        if name in positive and not ((np.asarray(value) > 0) & np.isfinite(value)).all():
            raise InputError(f"{name} is {np.min(value)}; it must be a positive number.")
    for name, value in numbers(dynamics, PER_COORDINATE).items():
        if any(np.asarray(leaf).dtype.kind not in "fiu" for leaf in jax.tree.leaves(value)):
            raise InputError(f"{name} is {value!r}; it must be a number, or one for each coordinate.")
    grid = any(np.ndim(value) for value in single.values())
    dynamics = jax.tree.map(lambda x: jnp.asarray(x, float), dynamics)
    if grid:
        each = {name: jnp.broadcast_to(jnp.asarray(value, float), (chains,)) for name, value in single.items()}
        for name, value in numbers(dynamics, PER_COORDINATE).items():
            each[name] = jax.tree.map(lambda x: jnp.broadcast_to(x, (chains, *x.shape)), value)
        dynamics = replace(dynamics, **each)
    return dynamics, grid


@jax.jit
def scattered(coordinates, like: Tree, keys, spread=1.0) -> Tree:
    """Starts about the centre of coordinates of unit curvature, spread so many times as a normal posterior would be."""

    def one(key):
        return coordinates(scale(spread, random.normals(random.fold(key, 2), jnp.uint32(0), like, 1)[0]))

    return jax.vmap(one)(keys.start)


def chains_in(init, model) -> int | None:
    """For how many chains a start has a position each, along a leading axis that the model's own start has not; None:
    it is one for all, or a function."""
    if init is None or is_start_function(init):
        return None
    like = model.init
    if is_start_function(like):
        try:
            like = jax.eval_shape(like, jax.random.key(0))
        except Exception:  # which `first_positions` says better
            return None
    given, own = (jax.tree.leaves(tree) for tree in (init, like))
    lead = {np.shape(x)[:1] for x in given}
    each = alike(init, like) and all(np.shape(x)[1:] == np.shape(y) for x, y in zip(given, own, strict=True))
    return next(iter(lead))[0] if each and len(lead) == 1 and lead != {()} else None


def first_positions(model, init, keys) -> Tree:
    """What each chain moves at first, before any coordinates: the model's own start, or `init` (a position, one for
    each chain along a leading axis, or a function of a `jax.random` key)."""
    chains, many, own = len(keys.start), chains_in(init, model), init is None
    init = model.init if init is None else init
    if many is not None:
        if many != chains:
            raise InputError(
                f"init has starts for {many} chains, but there are {chains}; give as many, or chains={many}."
            )
        positions = floats(init)
    elif is_start_function(init):
        folded = jax.jit(random.fold)(keys.start, 1)  # op by op it would take far longer to compile
        try:
            positions = own_starts(model, folded) if own else jax.jit(partial(started, init))(folded)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"init fails when it is called with a key ({type(error).__name__}: {first_line(error)}); give a "
                "position, or a function of one jax.random key."
            ) from error
    else:
        positions = jax.tree.map(lambda x: jnp.asarray(np.broadcast_to(x, (chains, *x.shape))), floats(init))
    if not all(np.isfinite(np.asarray(leaf, float)).all() for leaf in jax.tree.leaves(positions)):
        raise InputError("a start is not finite; init must give finite numbers.")
    if not hasattr(model, "unconstrain"):
        return positions
    free = jax.jit(jax.vmap(model.unconstrain))(positions)
    check_way_back(model, positions, free)
    return free


def started(init: Callable, keys) -> Tree:
    """Where chains with these keys start, by a function of a `jax.random` key."""
    return jax.vmap(lambda key: floats(init(random.jax_key(key))))(keys)


@partial(jax.jit, static_argnums=0)
def own_starts(model, keys) -> Tree:
    """By the model's own."""
    return started(model.init, keys)


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
        if jnp.finfo(dtype).bits < 32:
            raise InputError(
                f"a start has dtype {dtype}{where}, in which small steps are rounded to nothing; write "
                "init.astype('float32'), and convert inside the model if it should compute in less."
            )
    return jax.tree.map(jnp.asarray, position)


def check_average(average: Callable | None, position: Tree) -> None:
    """What is averaged must be real numbers."""
    if average is None:
        return
    if not callable(average):
        raise InputError(f"average is {described(average)}; give a function of the position, or None.")
    try:
        shapes_averaged = jax.eval_shape(lambda theta: jax.tree.map(jnp.asarray, average(theta)), position)
    except Exception as error:
        shapes = jax.tree.map(lambda x: x.shape, position)
        raise InputError(
            f"average fails on a position of shape {shapes} ({type(error).__name__}: {first_line(error)})."
        ) from error
    if any(jnp.issubdtype(leaf.dtype, jnp.complexfloating) for leaf in jax.tree.leaves(shapes_averaged)):
        raise InputError("average gives complex numbers; give their real and imaginary parts instead.")


def check_model(model, data: Data, position: Tree) -> None:
    """One log prior and one log likelihood, without computing them: both must be single numbers. A model that has
    `check_rows` looks at the data too, or at their shapes where they are not in memory."""
    if hasattr(model, "check_rows"):
        shapes = jax.tree.map(lambda row: jax.ShapeDtypeStruct((data.size, *row.shape), row.dtype), data.datum)
        model.check_rows(data.rows if data.source is None else shapes)
    parts: dict[str, tuple] = {"log_prior": (position,)}
    wanted: dict[str, tuple] = {}
    if getattr(model, "batch_log_likelihood", None) is not None:
        rows = jax.tree.map(lambda x: jax.ShapeDtypeStruct((PROBED, *x.shape), x.dtype), data.datum)
        parts["batch_log_likelihood"], wanted["batch_log_likelihood"] = (position, rows), (PROBED,)
    elif not hasattr(model, "likelihood_gradient"):
        parts["log_likelihood"] = (position, data.datum)
    for name, arguments in parts.items():
        try:
            value = jax.eval_shape(getattr(model, name), *arguments)
        except (TypeError, ValueError, AttributeError, IndexError, KeyError) as error:
            given = [str(jax.tree.map(lambda x: x.shape, a)) for a in arguments]
            raise InputError(f"{name} fails on shapes {', '.join(given)}: {first_line(error)}") from error
        if getattr(value, "shape", None) != wanted.get(name, ()):
            what = f"one number for each of {PROBED} rows" if name in wanted else "one number (for one datum)"
            raise InputError(f"{name} gives {value}; it must give {what}.")


def check_starts(model, data: Data, positions: Tree) -> None:
    """The log densities must be finite where the chains start, as far as some rows tell."""
    rows = None if hasattr(model, "likelihood_gradient") else first_rows(data)
    for name, right in zip(("log_prior", "log_likelihood"), finite_densities(model, positions, rows), strict=True):
        if not np.asarray(right).all():
            chain = int(np.argmin(right))
            raise InputError(
                f"{name} is not finite at the start of chain {chain}; give a start (init) at which it is, or look for "
                "a logarithm of 0 in it."
            )


@partial(jax.jit, static_argnums=0)
def finite_densities(model, positions: Tree, rows: Tree) -> tuple[jax.Array, jax.Array]:
    """Whether each position has a finite log prior, and a finite log likelihood of these rows."""

    def one(position):
        likelihood = 0.0 if rows is None else log_likelihood(model, position, rows, None)
        return jnp.isfinite(model.log_prior(position)), jnp.isfinite(likelihood)

    return jax.lax.map(one, positions)


def looked_through(data: Data) -> Tree:
    """Some rows spread over all, and some neighbours; of a loader its first batch."""
    if data.batch_order.shared and not data.batch_order.full:
        return first_rows(data)
    middle = data.size // 2 + np.arange(NEIGHBOURS)
    spread = np.linspace(0, data.size - 1, min(data.size, SPREAD)).round().astype(int)
    numbers = np.unique(np.concatenate([spread, middle[middle < data.size]]))
    if data.source is None:
        return jax.tree.map(lambda rows: rows[numbers], data.rows)
    rows = jax.jit(data.take)(jnp.asarray(numbers, jnp.uint32))
    data.check()
    return rows


def first_rows(data: Data) -> Tree:
    """Some rows of the data from the first on, or of a loader its first batch."""
    undecided = isinstance(data.batch_order, Undecided)
    count = min(data.size, LOOKED_AT if undecided else max(data.batch_size, LOOKED_AT))
    if data.source is None:
        return jax.tree.map(lambda rows: rows[:count], data.rows)
    if data.batch_order.shared and not data.batch_order.full:
        return jax.jit(data.deliver)(jnp.uint32(0))
    rows = jax.jit(data.take)(jnp.arange(count, dtype=jnp.uint32))
    data.check()
    return rows
