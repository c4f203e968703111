"""The network of an estimator: the built-in layers of units, or a module of Flax NNX or Equinox, as one thing."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.models.base import Model, log_likelihoods
from strang.models.bnn import BNN, log_density
from strang.models.networks import from_equinox, from_nnx
from strang.nn.chunks import in_chunks
from strang.util.errors import InputError, choose
from strang.util.trees import Tree

ACTIVATIONS: dict[str, Callable] = {
    "tanh": jnp.tanh,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
    "relu": jax.nn.relu,
}


@dataclass(frozen=True)
class Net:
    """What is sampled, and what it predicts.

    Attributes:
        model: the posterior over positions.
        output: `classes` or `number`.
        outputs: a function of (position, x), the last layer's outputs for many rows.
        starts: a function from one `jax.random` key per start to random positions, which lead with starts.
        bare: the same without scales that are learnt, by which starts are optimised; None where nothing is learnt.
    """

    model: Any
    output: str
    outputs: Callable
    starts: Callable
    bare: "Net | None" = None


@dataclass(frozen=True)
class Logits:
    """The outputs of built-in networks; equal ones share a compilation."""

    model: BNN

    def __call__(self, position: Tree, x):
        return self.model.logits(position, x)


@dataclass(frozen=True)
class RandomStarts:
    """The starts of built-in networks, one for each key."""

    model: BNN

    def __call__(self, keys) -> Tree:
        return jax.vmap(self.model.init)(keys)


def built_in(
    widths: tuple[int, ...], *, output: str, activation: str | Callable, prior: str, prior_sd: float | tuple | None
) -> Net:
    """Layers of units."""
    if not callable(activation) and activation not in ACTIVATIONS:
        raise choose("activation", activation, ACTIVATIONS)
    function = activation if callable(activation) else ACTIVATIONS[activation]
    model = BNN(widths, 1.0 if prior_sd is None else prior_sd, function, prior, output)
    return Net(model, output, Logits(model), RandomStarts(model))


def from_module(network: Any, *, output: str, outputs: int, prior_sd: float | None, x: np.ndarray) -> Net:
    """A module of Flax NNX, which is called with many rows, or of Equinox, with one; or a function from a `jax.random`
    key to one. Starts are what the function gives; of a module, its numbers in random order, array by array."""
    is_function = not is_module(network) and callable(network)
    module = network(jax.random.key(0)) if is_function else network
    equinox = is_equinox(module)

    def call(module, x):
        return jax.vmap(module)(x) if equinox else module(x)

    def likelihood(module, rows):
        return jax.vmap(lambda out, y: log_density(output, out, y))(call(module, rows[0]), rows[1])

    make = from_equinox if equinox else from_nnx
    model = make(module, batch_log_likelihood=likelihood, prior=1.0 if prior_sd is None else prior_sd)
    many: Any = model.batch_log_likelihood
    chunked: Any = {"log_likelihood": None, "batch_log_likelihood": in_chunks(many)}
    model = replace(model, **chunked)

    def predict(position, x):
        return call(model.module(position), x)

    def starts(keys):
        if is_function:
            each = [model.position(network(key)) for key in keys]
            return jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
        return jax.vmap(lambda key: shuffled(model.init, key))(keys)

    shape = jax.eval_shape(predict, model.init, jnp.asarray(x[:2], jnp.float32)).shape
    if shape != (2, outputs):
        what = "one number for each class" if output == "classes" else "2 numbers, the mean and the noise"
        raise InputError(
            f"the network gives {shape} for an input of shape {x[:2].shape}; it must give {what}: (2, {outputs})."
        )
    return Net(model, output, predict, starts)


def scaled(net: Net, centre: np.ndarray, spread: np.ndarray) -> Net:
    """The same network of inputs as they are on disk, which are standardised where they are used."""
    model = Model(
        net.model.log_prior,
        init=net.model.init,
        batch_log_likelihood=lambda position, rows: log_likelihoods(
            net.model, position, ((rows[0] - centre) / spread, rows[1])
        ),
    )
    object.__setattr__(model, "prior_scales", partial(prior_scales, net.model))
    return replace(net, model=model, outputs=lambda position, x: net.outputs(position, (x - centre) / spread))


def layer_name(path: tuple) -> str:
    """What a layer is called: the place of its arrays, without their own names."""
    text = jax.tree_util.keystr(path[:-1] or path, simple=True, separator=".")
    return f"layer {text}" if text.isdigit() else text


def is_module(network: Any) -> bool:
    """Whether it is an instance of a network library's class, rather than a function, or a class, that makes one."""
    if isinstance(network, type):
        return False
    homes = [base.__module__ for base in type(network).__mro__]
    return any(home.partition(".")[0] in ("flax", "equinox") for home in homes)


def is_equinox(module: Any) -> bool:
    return any(base.__module__.startswith("equinox") for base in type(module).__mro__)


def shuffled(position: Tree, key) -> Tree:
    """The numbers of each array in random order."""
    leaves, structure = jax.tree.flatten(position)
    keys = jax.random.split(key, len(leaves))
    mixed = [jax.random.permutation(k, x.ravel()).reshape(x.shape) for k, x in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, mixed)


def prior_scales(model: Any, position: Tree) -> Tree:
    """The scale of each number's prior: as the model says, or from its curvature, since the numbers are independent."""
    if hasattr(model, "prior_scales"):
        return model.prior_scales(position)
    ones = jax.tree.map(jnp.ones_like, position)
    curvature = jax.jvp(jax.grad(lambda theta: -model.log_prior(theta)), (position,), (ones,))[1]
    return jax.tree.map(lambda c: jax.lax.rsqrt(jnp.maximum(c, 1e-12)), curvature)
