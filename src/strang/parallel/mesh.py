"""Chains and minibatches over a mesh of devices, in one process or in several.

A mesh has two axes: along `chains` devices share the chains, along `parts` they share the parts of every minibatch. All
devices run one compiled program. In it each computes the gradients of its own parts, the devices exchange them by XLA's
own collectives (NCCL between GPUs, gloo between CPU processes), and add them in their order. So the bits depend on the
number of parts and not on who computes them. Where chains are shared, a device advances fewer of them at a time; XLA
may then round differently (matrix products do), and results agree to rounding.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from strang.sampling.chain import advance, advance_alone
from strang.sampling.exchange import Exchange, add_in_order
from strang.sampling.record import CHAIN_AXES, TRACE_AXIS, Chain, Inputs, Program
from strang.util.cores import devices_at_work
from strang.util.errors import InputError, whole
from strang.util.trees import Tree, on_device

CHAINS, PARTS = "chains", "parts"
COMMON = PartitionSpec()
MIN_SAVED_BYTES = 1 << 20  # per device: what a second exchange costs in time
TRACE_SPEC = PartitionSpec(*[None] * TRACE_AXIS, CHAINS)
CHAIN_SPECS: Any = jax.tree.map(
    lambda axis: COMMON if axis is None else PartitionSpec(CHAINS), CHAIN_AXES, is_leaf=lambda axis: axis is None
)


@dataclass(frozen=True)
class MeshExchange(Exchange):
    """Devices in `rows` rows, which share the chains, and `columns` columns, which share the parts of a minibatch."""

    rows: int
    columns: int

    def own(self, per_chain: Any) -> Any:
        count = per_chain.shape[0] // self.rows
        return lax.dynamic_slice_in_dim(per_chain, lax.axis_index(CHAINS) * count, count)

    def range(self, count) -> tuple[Any, Any]:
        each, place = -(-count // self.columns), lax.axis_index(PARTS)
        return jnp.minimum(place * each, count), jnp.minimum((place + 1) * each, count)

    def add(self, summands):
        """All devices gather all parts and add them; or, where that sends much more, each gets its fraction of the
        coordinates of all parts, adds them, and gathers the sums of the others. The bits are the same."""
        (parts, size), columns = summands.shape, self.columns
        each, surplus = -(-parts // columns), -size % columns
        padded = jnp.pad(summands, ((0, each * columns - parts), (0, surplus)))
        own = lax.dynamic_slice_in_dim(padded, lax.axis_index(PARTS) * each, each)
        saved = (columns - 1) * (each - (each + 1) / columns) * size * summands.dtype.itemsize
        if saved < MIN_SAVED_BYTES:
            return add_in_order(lax.all_gather(own, PARTS, tiled=True)[:parts])[:size]
        fractions = lax.all_to_all(own, PARTS, split_axis=1, concat_axis=0, tiled=True)
        return lax.all_gather(add_in_order(fractions[:parts]), PARTS, tiled=True)[:size]


def mesh_shape(devices: int | tuple[int, int]) -> tuple[int, int]:
    """How many devices share the chains, and how many share the parts of a minibatch.

    Several processes use all their devices; where nothing else is said, they share minibatches.
    """
    many, available = jax.process_count() > 1, jax.device_count()
    shape = [whole("devices", n) for n in (devices if isinstance(devices, tuple | list) else (devices,))]
    if len(shape) == 1:
        shape.append(max(1, available // shape[0]) if many else 1)
    if len(shape) != 2 or not (prod(shape) == available if many else prod(shape) <= available):
        expected = (
            f"which together are all {available} devices of the processes" if many else f"at most {available} in all"
        )
        raise InputError(
            f"devices is {devices}; write how many are to share the chains, or a pair: how many share the chains, and "
            f"how many share each minibatch, {expected}."
        )
    return shape[0], shape[1]


class Runner:
    """The chains of a run on their way, on one device or on a mesh of them.

    `trace` is room for the thinned positions of a call of `advance`, or None: always as many, so that one compilation
    serves all.
    """

    def __init__(self, program: Program, inputs: Inputs, chain: Chain, shape: tuple[int, int], thin: int | None, trace):
        self.thin = on_device(np.uint32(thin or 1))
        if prod(shape) == 1 and jax.process_count() == 1:
            self.mesh: Any = None
            self.step: Callable = partial(advance_alone, program)
            self.inputs, self.chain, self.trace = inputs, chain, jax.tree.map(on_device, trace)
            return
        self.mesh = Mesh(np.array(jax.devices()[: prod(shape)]).reshape(shape), (CHAINS, PARTS))
        self.step = compiled(replace(program, exchange=MeshExchange(*shape)), self.mesh)
        self.inputs = self.put(inputs, COMMON)
        self.chain = jax.tree.map(self.put, chain, expand(CHAIN_SPECS, chain))
        self.trace = self.put(trace, TRACE_SPEC)

    def put(self, tree: Tree, spec: PartitionSpec) -> Tree:
        """Arrays laid out on the mesh; every process has all of them, and gives its devices what is theirs."""
        sharding = NamedSharding(self.mesh, spec)

        def one(x):
            array = np.asarray(x)
            return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

        return jax.tree.map(one, tree)

    def advance(self, stop: int) -> tuple[Chain, Tree]:
        """All chains after this step, and the thinned positions on the way, on the first device of this process."""
        with devices_at_work(1 if self.mesh is None else len(self.mesh.local_devices)):
            self.chain, trace = jax.block_until_ready(
                self.step(self.inputs, self.chain, self.number(stop), *self.thinning())
            )
        return self.here(self.chain), self.here(trace)

    def thinning(self) -> tuple:
        """What `advance` is told of thinned positions; nothing where there are none, as when a stored run's code is
        traced for its hash: then it is traced once."""
        return () if self.trace is None and self.mesh is None else (self.trace, self.number(self.thin))

    def number(self, value) -> Any:
        return on_device(np.uint32(value)) if self.mesh is None else self.put(np.uint32(value), COMMON)

    def here(self, tree: Tree) -> Tree:
        if self.mesh is None:
            return tree
        if not all(x.is_fully_addressable or x.is_fully_replicated for x in jax.tree.leaves(tree)):
            tree = everywhere(self.mesh)(tree)
        device = jax.local_devices()[0]
        return jax.tree.map(
            lambda x: jax.device_put(x.addressable_data(0) if x.is_fully_replicated else np.asarray(x), device), tree
        )


def expand(specs: Tree, tree: Tree) -> Tree:
    """The specs with one for each leaf of the tree."""
    return jax.tree.map(
        lambda spec, part: jax.tree.map(lambda _: spec, part),
        specs,
        tree,
        is_leaf=lambda x: isinstance(x, PartitionSpec),
    )


@lru_cache(maxsize=64)
def compiled(program: Program, mesh: Mesh) -> Callable:
    """`advance` of a program on a mesh; compiled when it is first called with arrays of a shape."""
    return jax.jit(
        jax.shard_map(
            partial(advance, program),
            mesh=mesh,
            in_specs=(COMMON, CHAIN_SPECS, COMMON, TRACE_SPEC, COMMON),
            out_specs=(CHAIN_SPECS, TRACE_SPEC),
            check_vma=False,  # what is common to the devices of a row is so because they compute the same
        )
    )


@lru_cache(maxsize=8)
def everywhere(mesh: Mesh) -> Callable:
    """Arrays that lie in pieces on several processes, whole on all of them."""
    return jax.jit(lambda tree: tree, out_shardings=NamedSharding(mesh, COMMON))
