"""The Chain record, and `advance`: any number of steps of all chains in one compiled call.

Everything random at step l is a function of (chain key, l), and every sum is booked at multiples of a fixed number
of steps; so 1000 steps are 311 + 689 steps bit for bit. Within a granule, all normals and batches of its steps are
drawn together as plain array code, which is what makes small models fast: the loop over steps then only computes.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from . import average as averages
from . import random
from .average import Average
from .data import Batch, Data, Slices
from .integrator import Step
from .noise import noise_variance, split_variance
from .share import WHOLE, Cuts, Portion, cut
from .tree import Tree, dot

GRANULE_BYTES = 1 << 22  # what the draws of one granule may take
MILESTONE = 256  # steps after which averages are booked and the gradient's noise is measured; the longest granule
# Chains lead all sums; the two counters are common.
AVERAGE_AXES: Any = Average(0, 0, 0, 0, 0, None, None)  # type: ignore[arg-type]


class Chain(NamedTuple):
    """The complete resumable record of all chains; `step` counts the steps done, the other leaves lead with chains."""

    step: jax.Array
    keys: random.Keys
    state: Any
    carried: Any  # what the gradient estimator carries along
    average: Average
    noise: Tree  # sums of gradient-noise measurements, and their number
    measured: jax.Array
    alive: jax.Array
    diverged_at: jax.Array  # the step at which a chain left the finite numbers, where it stays; 0: never


class Inputs(NamedTuple):
    """The numbers of a run: data, dynamics, step sizes and what its chains share. Changing them recompiles nothing."""

    data: Data
    dynamics: Any
    schedule: Any
    shared: Any
    burn_in: jax.Array


@dataclass(frozen=True)
class Program:
    """The code of a run: what is compiled. Equal programs share one compilation."""

    model: Any
    step: Step
    estimator: Any
    average: Any
    chains: int
    granule: int
    grid: bool  # whether the dynamics' numbers differ between chains
    cuts: Cuts = WHOLE


def granule_length(step: Step, data: Data, position: Tree, chains: int) -> int:
    """The longest power of two of steps whose draws fit the budget."""
    normals = step.noises * sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(position))
    rows = data.batch * (sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(data.datum)) + 4)
    one = chains * normals + {"full": 0, "stream": rows}.get(data.order, chains * rows)
    length = 1
    while 2 * length <= MILESTONE and 2 * length * one <= GRANULE_BYTES:
        length *= 2
    return length


def observe(program: Program, dynamics, state) -> Tree:
    """The values that are averaged, of one chain."""
    values = {}
    if program.average is not None:
        values["average"] = jax.tree.map(jnp.asarray, program.average(state.position))
    if hasattr(dynamics, "temperature"):
        values["temperature"] = dynamics.temperature(state)
    widest = jnp.result_type(jnp.float32, *jax.tree.leaves(values))  # which the weights' sum must not be behind
    return {**values, "weight": jnp.ones((), widest)}


@partial(jax.jit, static_argnums=0)
def begin(program: Program, inputs: Inputs, keys, positions: Tree) -> Chain:
    """Chains at step 0, their positions along the leading axis."""
    axis = 0 if program.grid else None

    def one(dynamics, key, position):
        noise = random.normals(key, jnp.uint32(0), position, 1)[0]
        state = dynamics.init(position, noise)
        carried = program.estimator.start(program.model, inputs.data, position)
        return state, carried, averages.start(observe(program, dynamics, state))

    state, carried, average = jax.vmap(one, (axis, 0, 0), (0, 0, AVERAGE_AXES))(inputs.dynamics, keys.start, positions)
    none = jnp.zeros(program.chains, jnp.uint32)
    noise = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.promote_types(x.dtype, jnp.float32)), positions)
    return Chain(jnp.uint32(0), keys, state, carried, average, noise, none, none == 0, none)


@partial(jax.jit, static_argnums=0)
def advance(program: Program, inputs: Inputs, chain: Chain, stop, trace: Tree = None, thin=1, portion=None):
    """The chains after step `stop`, and in `trace` (if given) the positions after every `thin` steps of this call.
    Where chains or minibatches are cut, `portion` says which part of them this is."""
    if portion is not None and program.grid:
        inputs = inputs._replace(dynamics=program.cuts.of_group(portion.group, inputs.dynamics))
    thinning = chain.step, jnp.uint32(thin)

    def stretch(carry):
        """To the next milestone, or to the end."""
        chain, trace = carry
        chain = measure_noise(program, inputs, chain)
        pause = chain.step + jnp.minimum(stop - chain.step, MILESTONE - chain.step % MILESTONE)  # which cannot overflow

        def granule(carry):
            chain, trace = carry
            count = jnp.minimum(pause - chain.step, program.granule - chain.step % program.granule)
            return run_steps(program, inputs, chain, count, trace, thinning, portion)

        chain, trace = lax.while_loop(lambda carry: carry[0].step < pause, granule, (chain, trace))
        full = (chain.step % MILESTONE == 0) & (chain.step > inputs.burn_in)
        close = jax.vmap(averages.close_granule, (AVERAGE_AXES,), AVERAGE_AXES)
        return chain._replace(average=lax.cond(full, close, lambda average: average, chain.average)), trace

    return lax.while_loop(lambda carry: carry[0].step < stop, stretch, (chain, trace))


def run_steps(program: Program, inputs: Inputs, chain: Chain, count, trace, thinning, portion: Portion | None):
    """`count` steps within one granule."""
    first, axis = chain.step, 0 if program.grid else None
    draws = draw(program, inputs.data, chain, count)
    begin, thin = thinning

    def body(i, carry):
        state, carried, alive, diverged_at, sums, trace = carry
        l = first + i.astype(jnp.uint32) + 1
        h = inputs.schedule(l.astype(float))
        h = program.cuts.of_group(portion.group, h) if portion is not None and h.ndim else h
        sizes = 0 if h.ndim else None
        normals, rows, weights, keys = jax.tree.map(lambda x: x[0 if program.granule == 1 else i], draws)

        def one(dynamics, state, carried, h, normals, rows, weights, key):
            carried = program.estimator.refresh(program.model, inputs.data, carried, state.position, l)
            if portion is not None and program.cuts.parts > 1:
                batch: Any = Slices(inputs.data, rows[0], rows[1], portion, program.cuts)
            else:
                batch = Batch(rows, weights, inputs.data.scale)
            carried = program.estimator.visit(program.model, carried, state.position, batch, key)

            def gradient(position):
                return program.estimator(program.model, inputs.data, inputs.shared, carried, position, batch, key)

            state = program.step(dynamics, state, h, gradient, normals)
            values = observe(program, dynamics, state)
            return state, carried, is_finite(state, values), values

        axes = (axis, 0, 0, sizes, 0, *((2, None) if program.cuts.parts > 1 else row_axes(inputs.data)), 0)
        # A chain that has left the finite numbers cannot come back, so nothing need be done to keep it where it is; its
        # sums are not used. Undoing its last step would cost every step of a large model another pass over memory.
        state, carried, finite, values = jax.vmap(one, axes)(
            inputs.dynamics, state, carried, h, normals, rows, weights, keys
        )
        died = alive & ~finite
        weight = jnp.where(l > inputs.burn_in, h, 0.0)
        sums = jax.vmap(averages.accumulate, (0, 0, sizes, 0))(sums[0], sums[1], weight, values)
        if trace is not None:
            slot = (l - begin - 1) // thin
            trace = jax.tree.map(lambda kept, x: kept.at[slot].set(x), trace, state.position)
        return state, carried, alive & finite, jnp.where(died, l, diverged_at), sums, trace

    sums = chain.average.partial, chain.average.slip
    carry = (chain.state, chain.carried, chain.alive, chain.diverged_at, sums, trace)
    if program.granule == 1:  # a large model: no inner loop to carry its arrays through
        carry = body(jnp.int32(0), carry)
    else:
        carry = lax.fori_loop(0, count.astype(jnp.int32), body, carry)
    state, carried, alive, diverged_at, (partial_sum, slip), trace = carry
    average = chain.average._replace(partial=partial_sum, slip=slip)
    chain = chain._replace(
        step=first + count, state=state, carried=carried, alive=alive, diverged_at=diverged_at, average=average
    )
    return chain, trace


def is_finite(state, values) -> jax.Array:
    """Whether one chain is still among the numbers that can be squared. Where there is a temperature it tells at once:
    a position that is not finite makes the momentum so with the next kick."""
    if "temperature" in values:
        return jnp.isfinite(values["temperature"])
    return jnp.isfinite(dot(state.position, state.position))


def draw(program: Program, data: Data, chain: Chain, count):
    """Normals, rows, weights and model keys of a granule's steps: step first, then chain."""
    numbers = chain.step + jnp.arange(program.granule, dtype=jnp.uint32)

    # A large model's normals are made where they are used, which saves writing and reading them.
    keep = alone if program.granule > 1 else lambda function, _: function()

    def many(function, keys):
        return jax.vmap(jax.vmap(function, (0, None)), (None, 0))(keys, numbers)

    position = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), chain.state.position)
    words = alone(
        lambda: many(lambda key, l: random.words(key, l, position, program.step.noises), chain.keys.noise), count
    )
    normals = keep(lambda: jax.vmap(jax.vmap(lambda own: random.as_normals(own, position)))(words), count)
    keys = many(random.fold, chain.keys.model) if hasattr(program.model, "likelihood_gradient") else None
    if data.order == "full":
        return normals, None, None, keys
    if data.source is not None:  # the next granule's batches too, so that their rows can be brought meanwhile
        numbers = jnp.concatenate([numbers, numbers + count])
    # Step, row, chain: with chains last, the draws and the sums over single-number rows run along contiguous memory.
    l = numbers[:, None, None]
    salt = alone(lambda: data.salt(chain.keys.batch, l), count)
    drawn = alone(lambda: data.indices(salt, l), count)
    indices, ahead = (drawn, None) if data.source is None else (drawn[: program.granule], drawn[program.granule :])
    if program.cuts.parts > 1:  # rows are read slice by slice, by whoever needs them, who is told the next step's too
        following = None if ahead is None else jnp.roll(indices, -1, axis=0).at[count - 1].set(ahead[0])
        return (
            normals,
            [x if x is None else cut(x, program.cuts.parts, data.size) for x in (indices, following)],
            None,
            keys,
        )
    if data.order == "stream":
        needed = jnp.minimum(numbers[: program.granule], chain.step + count - 1)  # a loader may end with the run
        rows = alone(lambda: data.deliver(needed, numbers[program.granule :]), count)
        return normals, rows, data.weights(indices[..., 0]), keys

    def places(indices):
        return jax.tree.map(lambda row: indices if row.ndim == 0 else jnp.swapaxes(indices, 1, 2), data.datum)

    rows = alone(lambda: data.take(places(indices), None if ahead is None else places(ahead)), count)
    return normals, rows, data.weights(indices), keys


def row_axes(data: Data) -> tuple[Tree, int | None]:
    """Where `draw` put the chains in each array of rows, and in their weights."""
    if data.order in ("full", "stream"):
        return None, None
    return jax.tree.map(lambda row: 1 if row.ndim == 0 else 0, data.datum), 1


def alone(function, count):
    """function(), kept in memory: a branch that is always taken but that XLA must not look through, since it would
    otherwise compute every random word anew, one at a time, inside the gathering loop that uses it."""
    empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(function))
    return lax.cond(count > 0, function, lambda: empty)


def measure_noise(program: Program, inputs: Inputs, chain: Chain) -> Chain:
    """From the last milestone of the burn-in on, add a measurement of the gradient's variance every so many steps."""
    data = inputs.data
    if data.order == "full" or (data.order == "stream" and data.batch == 1):
        return chain

    def measured():
        def one(key, carried, position):
            key = random.fold(key, chain.step)
            if data.order == "stream":
                given = program.estimator, program.model, data, inputs.shared, carried, position
                return split_variance(*given, chain.step, key)
            return noise_variance(program.estimator, program.model, inputs.data, inputs.shared, carried, position, key)

        carried = jax.vmap(
            lambda carried, position: program.estimator.refresh(
                program.model, inputs.data, carried, position, chain.step + 1
            )
        )(chain.carried, chain.state.position)
        values = jax.vmap(one)(chain.keys.probe, carried, chain.state.position)
        add = jax.vmap(lambda alive, total, value: jax.tree.map(lambda t, v: t + jnp.where(alive, v, 0), total, value))
        kept = add(chain.alive, chain.noise, values)
        return kept, chain.measured + chain.alive.astype(jnp.uint32)

    settled = inputs.burn_in - jnp.minimum(inputs.burn_in, jnp.uint32(MILESTONE - 1)) <= chain.step
    due = (chain.step % MILESTONE == 0) & settled
    noise, count = lax.cond(due, measured, lambda: (chain.noise, chain.measured))
    return chain._replace(noise=noise, measured=count)
