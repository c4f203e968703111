"""Where chains start: at the start of the model, at what was given, or scattered about a mode."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from strang.data.batches import Data
from strang.data.orders import Undecided
from strang.gradients.full import log_likelihood
from strang.models.base import is_start_function
from strang.models.constraints import check_way_back
from strang.util import random
from strang.util.errors import InputError, first_line
from strang.util.trees import Tree, alike, on_device, scale

SPREAD, NEIGHBOURS = 240, 60  # rows over which a model is looked at, and neighbours among them
LOOKED_AT = 1024  # rows whose likelihood is computed at the starts


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
        positions = jax.tree.map(lambda x: on_device(np.broadcast_to(x, (chains, *x.shape))), floats(init))
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
    return jax.tree.map(on_device, position)


def chains_in(init, model) -> int | None:
    """For how many chains a start has a position each, along a leading axis that the model's own start has not; None:
    it is one for all, or a function."""
    if init is None or is_start_function(init):
        return None
    like = model.init
    if is_start_function(like):
        try:
            like = jax.eval_shape(lambda start=like: start(jax.random.key(0)))
        except Exception:  # which `first_positions` says better
            return None
    given, own = (jax.tree.leaves(tree) for tree in (init, like))
    lead = {np.shape(x)[:1] for x in given}
    each = alike(init, like) and all(np.shape(x)[1:] == np.shape(y) for x, y in zip(given, own, strict=True))
    return next(iter(lead))[0] if each and len(lead) == 1 and lead != {()} else None


@jax.jit
def scattered(coordinates, like: Tree, keys, spread=1.0) -> Tree:
    """Starts about the centre of coordinates of unit curvature, spread so many times as a normal posterior would be."""

    def one(key):
        return coordinates(scale(spread, random.normals(random.fold(key, 2), jnp.uint32(0), like, 1)[0]))

    return jax.vmap(one)(keys.start)


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
