"""Networks of Flax NNX and Equinox as models: their float arrays are the position, all else stays as it is.

Flax and Equinox are imported only where they are used.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod, sqrt
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from strang.models.base import Model
from strang.util.errors import InputError, need
from strang.util.trees import Tree, same_shape

Prior = float | Mapping[str, Any] | Callable[[str, Any], Any]
REST = ("", "*")  # keys of a dict of priors that stand for what no other key fits
INSTEAD = {  # by where the class of a module comes from
    "equinox": "write from_equinox for a module of Equinox",
    "flax.nnx": "write from_nnx for a module of Flax",
    "flax.linen": "for Flax Linen, write from_nnx(nnx.bridge.ToNNX(module, rngs=nnx.Rngs(0)).lazy_init(x), ...)",
}


@dataclass(frozen=True, eq=False)
class Network(Model):
    """A model made of a network, by `from_nnx` or `from_equinox`.

    Args:
        module: a function from a position to the module with these arrays, for predictions.
        position: a function from a module of the same shapes to its arrays, for starts.
    """

    module: Callable = field(kw_only=True)
    position: Callable = field(kw_only=True)


class Leaf(NamedTuple):
    """One array of a network, and what its prior depends on."""

    keys: tuple  # where it is in the position
    array: Any
    inputs: int  # of a weight: how many numbers are summed for each output; 1 for other arrays
    mean: float  # of the prior

    @property
    def name(self) -> str:
        """As in summaries: layers.0.kernel."""
        return ".".join(map(str, self.keys))


def from_nnx(
    module: Any,
    log_likelihood: Callable | None = None,
    *,
    batch_log_likelihood: Callable | None = None,
    prior: Prior = 1.0,
) -> Network:
    """Make a model of a Flax NNX module, with its parameters (`nnx.Param` of floats) as the position.

    The position is a plain nested dict with the module's own names, such as `layers.0.kernel`. Chains start at the
    module's present arrays. Everything else is kept as it is now, so the module may be trained on or changed later
    without changing the model.

    Priors are normal and independent. By default they have mean 0, and standard deviation `prior` / sqrt(inputs) for
    weights, where the inputs are those of one unit (for a convolution, its window times its channels), and `prior` for
    biases, embeddings and whatever else there is. Weights are arrays of two or more axes that are not called bias or
    embedding. Flax's own layers know their inputs; in layers of your own, every axis but the last is an input. Scales
    of normalisation layers (arrays called `scale`) have mean 1, where they start.

    Args:
        module: an instance of `nnx.Module`; with dropout or batch statistics in evaluation mode: `module.eval()`.
        log_likelihood: the log density of one datum, as a function of (module, datum), up to a constant.
        batch_log_likelihood: in its place, one log density for each row, as a function of (module, rows).
        prior: a number, as above. Or standard deviations as they are, whatever the inputs: a dict such as
            `{"kernel": 0.1, "layers.0.kernel": 1.0, "*": 3.0}` from a part of a name to the standard deviation of each
            number, where the longest part that fits counts, "*" is for the rest, and what nothing fits has the default;
            or a function of (name, array) to a standard deviation, or to an array of them. Means stay as above.

    Returns:
        A `Model` with two more functions: `model.module(position)` is the module with these arrays, for predictions;
        `model.position(module)` are the arrays of another module of the same shapes, for starts.

    Raises:
        InputError: the module is not an instance of `nnx.Module`, has no parameters, or has dropout or batch statistics
            in training mode; the prior is not as above; or there is not one likelihood.

    Example:
        >>> from flax import nnx
        >>> net = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
        >>> model = from_nnx(net, lambda net, row: jax.nn.log_softmax(net(row[0]))[row[1]])
        >>> jax.tree.map(jnp.shape, model.init)
        {'bias': (3,), 'kernel': (2, 3)}
        >>> model.module(jax.tree.map(jnp.zeros_like, model.init))(jnp.ones(2)).tolist()
        [0.0, 0.0, 0.0]
    """
    nnx = need("flax.nnx", "flax")
    check_module(module, nnx.Module, "from_nnx", "nnx.Module", "Network(rngs=nnx.Rngs(0))")
    layers = dict(nnx.iter_modules(module))
    check_nnx_mode(layers)

    def is_parameter(path, variable):
        leaves = jax.tree.leaves(variable)
        return isinstance(variable, nnx.Param) and all(jnp.issubdtype(jnp.result_type(x), jnp.inexact) for x in leaves)

    def split(module):
        # The variables of a split are the module's own, and change with it; the arrays in them do not.
        graph, *parts = nnx.split(module, is_parameter, nnx.RngKey, ...)
        return graph, *map(nnx.to_pure_dict, parts)

    graph, arrays, keys, rest = split(module)

    def put_in(position, keys=keys):
        return nnx.merge(graph, position, keys, rest)

    def of_position(function):
        def likelihood(position, rows):
            module = put_in(position)
            statistics, counts = (jax.tree.leaves(nnx.state(module, kind)) for kind in (nnx.BatchStat, nnx.RngCount))
            value = function(module, rows)
            if changed(statistics, nnx.state(module, nnx.BatchStat)):
                raise called_in_training("changes its batch statistics", "use_running_average=False")
            # Some layers draw numbers that they do not use: recurrent ones, whose start is 0, and the bridge to Linen.
            if changed(counts, nnx.state(module, nnx.RngCount)):
                traced = jax.make_jaxpr(lambda keys: function(put_in(position, keys), rows))(keys)
                if depends_on_input(traced.jaxpr):
                    raise called_in_training("uses random numbers", "deterministic=False")
            return value

        return likelihood

    leaves = []
    for path, array in jax.tree_util.tree_leaves_with_path(arrays):
        place = plain_keys(path)
        leaves.append(leaf_of(place, array, layers.get(place[:-1]), nnx_inputs))
    return network(
        leaves,
        prior,
        module=lambda position: put_in(position),
        position=lambda module: split(module)[1],
        of_position=of_position,
        log_likelihood=log_likelihood,
        batch_log_likelihood=batch_log_likelihood,
    )


def from_equinox(
    module: Any,
    log_likelihood: Callable | None = None,
    *,
    batch_log_likelihood: Callable | None = None,
    prior: Prior = 1.0,
) -> Network:
    """Make a model of an Equinox module, with its float arrays (`eqx.is_inexact_array`) as the position.

    The position is a plain nested dict with the module's own names, such as `layers.0.weight`. Chains start at the
    module's arrays, and everything else stays as it is. Layers that have a state, such as batch statistics, are called
    with the one that you have: `lambda net, row: log_density(net(row[0], state)[0], row[1])`.

    Priors are those of `from_nnx`. In layers of your own, every axis of a weight but the first is an input; and the
    weights of normalisation layers (classes called ...Norm) have mean 1, as arrays called `scale` have.

    Args:
        module: an instance of `eqx.Module`; with dropout or batch statistics `eqx.nn.inference_mode(module)`.
        log_likelihood: the log density of one datum, as a function of (module, datum), up to a constant.
        batch_log_likelihood: in its place, one log density for each row, as a function of (module, rows).
        prior: a number, a dict such as `{"weight": 0.1, "layers.0.weight": 1.0, "*": 3.0}`, or a function of (name,
            array); see `from_nnx`.

    Returns:
        A `Model` with two more functions: `model.module(position)` is the module with these arrays, for predictions;
        `model.position(module)` are the arrays of another module of the same shapes, for starts.

    Raises:
        InputError: the module is not an instance of `eqx.Module`, has no float arrays, or has dropout or batch
            statistics in training mode; the prior is not as above; or there is not one likelihood.

    Example:
        >>> import equinox as eqx
        >>> net = eqx.nn.MLP(1, "scalar", width_size=5, depth=1, key=jax.random.key(0))
        >>> model = from_equinox(net, lambda net, row: -((row[1] - net(row[0])) ** 2) / 2)
        >>> jax.tree.map(jnp.shape, model.init)
        {'layers': {0: {'bias': (5,), 'weight': (5, 1)}, 1: {'bias': (1,), 'weight': (1, 5)}}}
    """
    eqx = need("equinox", "equinox")
    check_module(module, eqx.Module, "from_equinox", "eqx.Module", "Network(key=jax.random.key(0))")
    check_equinox_mode(eqx, module)

    def split(module):
        # What a layer's state starts with is no parameter.
        return eqx.partition(module, eqx.is_inexact_array, is_leaf=lambda node: isinstance(node, eqx.nn.StateIndex))

    def position_of(module):
        places = jax.tree_util.tree_leaves_with_path(split(module)[0])
        return nested((plain_keys(path), array) for path, array in places)

    arrays, rest = split(module)
    places, structure = jax.tree_util.tree_flatten_with_path(arrays)
    leaves = [leaf_of(plain_keys(path), array, layer_at(module, path), equinox_inputs) for path, array in places]

    def put_in(position):
        return eqx.combine(jax.tree.unflatten(structure, [at(position, leaf.keys) for leaf in leaves]), rest)

    return network(
        leaves,
        prior,
        module=put_in,
        position=position_of,
        of_position=lambda function: lambda position, rows: function(put_in(position), rows),
        log_likelihood=log_likelihood,
        batch_log_likelihood=batch_log_likelihood,
    )


def network(
    leaves: list[Leaf], prior: Prior, *, module: Callable, position: Callable, of_position: Callable, **likelihoods: Any
) -> Network:
    """The model of a module in parts. `of_position` turns a function of (module, rows) into one of (position, rows)."""
    if not leaves:
        raise InputError("the module has no parameters: no arrays of floating-point numbers; give one that has.")
    for name, function in likelihoods.items():
        if function is not None and not callable(function):
            raise InputError(f"{name} is of type {type(function).__name__}; give a function of (module, datum).")
    start = nested((leaf.keys, leaf.array) for leaf in leaves)
    means = nested((leaf.keys, leaf.mean) for leaf in leaves)
    deviations = nested(zip((leaf.keys for leaf in leaves), standard_deviations(prior, leaves), strict=True))

    def log_prior(position):
        squares = jax.tree.map(lambda x, mean, sd: jnp.sum(((x - mean) / sd) ** 2), position, means, deviations)
        return -sum(jax.tree.leaves(squares)) / 2

    def checked_position(module):
        arrays = position(module)
        if not same_shape(arrays, start):
            raise InputError("the module has other arrays than the one that the model was made of; give one like it.")
        return arrays

    return Network(
        log_prior=log_prior,
        init=start,
        module=module,
        position=checked_position,
        **{name: of_position(function) for name, function in likelihoods.items() if function is not None},
    )


def check_module(module: Any, kind: type, function: str, name: str, example: str) -> None:
    """Whether it is an instance of this library's modules."""
    if isinstance(module, type):
        raise InputError(f"module is the class {module.__name__}; give an instance, such as {example}.")
    if isinstance(module, kind):
        return
    homes = [base.__module__ for base in type(module).__mro__]
    hint = f"give an instance of {name}, such as {example}"
    for library, cure in INSTEAD.items():
        if any(home.startswith(library) for home in homes) and not cure.startswith(f"write {function} "):
            hint = cure
    raise InputError(f"module is a {type(module).__name__}; {hint}.")


def check_nnx_mode(layers: Mapping[tuple, Any]) -> None:
    """Refuse layers in training mode. Where a flag is None, the call decides, and is looked at when it is made."""
    for path, layer in layers.items():
        rate = getattr(layer, "rate", 0) or getattr(layer, "dropout_rate", 0)
        if getattr(layer, "use_running_average", None) is False:
            raise in_training(path, layer, "changes its statistics with every batch", "module.eval()")
        if getattr(layer, "deterministic", None) is False and rate:
            raise in_training(path, layer, "needs random numbers", "module.eval()")


def check_equinox_mode(eqx: Any, module: Any) -> None:
    """Refuse layers in training mode."""

    def in_use(node):
        idle = isinstance(node, eqx.nn.Dropout) and node.p == 0
        return getattr(node, "inference", None) is False and not idle

    for path, node in jax.tree_util.tree_leaves_with_path(module, is_leaf=in_use):
        if in_use(node):
            why = "needs random numbers" if isinstance(node, eqx.nn.Dropout) else "changes its state with every batch"
            raise in_training(plain_keys(path), node, why, "module = eqx.nn.inference_mode(module)")


def in_training(keys: tuple, layer: Any, why: str, cure: str) -> InputError:
    """The error for a layer whose likelihood would not be a function of the position and one datum."""
    place = ".".join(map(str, keys)) or "the module"
    return InputError(f"{place} is a {type(layer).__name__} in training mode, which {why}; write {cure} first.")


def called_in_training(what: str, flag: str) -> InputError:
    """The error for a call that the module's flags do not tell of."""
    return InputError(f"the module {what} when it is called; write module.eval() first, and no {flag} in the call.")


def changed(values: list[Any], state: Tree) -> bool:
    """Whether other arrays have been put into the variables of a state."""
    return [*map(id, values)] != [*map(id, jax.tree.leaves(state))]


def depends_on_input(traced: Any) -> bool:
    """Whether what traced code gives may depend on what it is given.

    >>> depends_on_input(jax.make_jaxpr(lambda x: x + 1)(1.0).jaxpr)
    True
    >>> depends_on_input(jax.make_jaxpr(lambda x: (x + 1, 2.0)[1])(1.0).jaxpr)
    False
    """
    reached = set(map(id, traced.invars))
    for equation in traced.eqns:
        if not reached.isdisjoint(map(id, equation.invars)):
            reached |= set(map(id, equation.outvars))
    return not reached.isdisjoint(map(id, traced.outvars))


def leaf_of(keys: tuple, array: Any, layer: Any, weight_inputs: Callable) -> Leaf:
    """An array with its default prior; `layer` is what it belongs to, None where that is not known."""
    name, kinds = str(keys[-1]), kinds_of(layer)
    scale = name == "scale" or (name == "weight" and any(kind.endswith("Norm") for kind in kinds))
    lookup = name == "embedding" or not kinds.isdisjoint({"Embed", "Embedding"})
    weight = np.ndim(array) >= 2 and not (scale or lookup or "bias" in name)
    return Leaf(keys, array, prod(weight_inputs(layer, np.shape(array))) if weight else 1, float(scale))


def kinds_of(layer: Any) -> set[str]:
    """The names of its class and of those above it."""
    return {base.__name__ for base in type(layer).__mro__}


def nnx_inputs(layer: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of a kernel over which its layer sums. Layers may be stacked along axes before them.

    >>> nnx_inputs(None, (3, 4, 5))
    (3, 4)
    """
    if not hasattr(layer, "in_features"):
        return shape[:-1]
    inputs = np.size(layer.in_features) + np.size(getattr(layer, "kernel_size", ()))
    outputs = np.size(layer.out_features)
    return shape[-inputs - outputs : -outputs]


def equinox_inputs(layer: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of a weight over which its layer sums. Layers may be stacked along axes before them.

    >>> equinox_inputs(None, (3, 4, 5))
    (4, 5)
    """
    if hasattr(layer, "num_spatial_dims"):
        return shape[-1 - layer.num_spatial_dims :]
    return shape[1:] if kinds_of(layer).isdisjoint({"Linear", "GRUCell", "LSTMCell"}) else shape[-1:]


def standard_deviations(prior: Prior, leaves: list[Leaf]) -> list[Any]:
    """The standard deviation of each array's prior: a number, or an array that fits it."""
    if callable(prior):
        return [checked(prior(leaf.name, leaf.array), leaf.name, leaf.array) for leaf in leaves]
    default = 1.0 if isinstance(prior, Mapping) else checked(prior)
    given = by_part(prior, [leaf.name for leaf in leaves]) if isinstance(prior, Mapping) else {}
    return [
        checked(given[leaf.name], leaf.name, leaf.array) if leaf.name in given else default / sqrt(leaf.inputs)
        for leaf in leaves
    ]


def by_part(prior: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """What a dict with parts of names says of each name, as far as it does.

    >>> by_part({"kernel": 1, "0/kernel": 2}, ["layers.0.kernel", "layers.1.kernel", "layers.1.bias"])
    {'layers.0.kernel': 2, 'layers.1.kernel': 1}
    """
    parts = {str(key).replace("/", ".").strip("."): value for key, value in prior.items() if key not in REST}
    rest = [prior[key] for key in REST if key in prior]
    fitting = {name: [part for part in parts if f".{part}." in f".{name}."] for name in names}
    for part in parts:
        if not any(part in fit for fit in fitting.values()):
            raise InputError(f"prior has {part!r}, which is no part of a name; the names are {', '.join(names)}.")
    given = {}
    for name, fit in fitting.items():
        longest = max((part.count(".") for part in fit), default=0)
        best = [part for part in fit if part.count(".") == longest]
        if len(best) > 1:
            raise InputError(f"prior has {best[0]!r} and {best[1]!r}, and both fit {name}; write {name!r} as well.")
        if best or rest:
            given[name] = parts[best[0]] if best else rest[0]
    return given


def checked(sd: Any, name: str = "", array: Any = None) -> Any:
    """A standard deviation: positive, and one number or as many as the array has."""
    where, others = f" of {name}", f"an array of them that fits its shape {np.shape(array)}"
    if not name:
        where, others = "", "a dict or a function of (name, array)"
    try:
        value = np.asarray(sd, float)
        fits = value.ndim == 0 or np.broadcast_shapes(value.shape, np.shape(array)) == np.shape(array)
    except (TypeError, ValueError):
        fits = False
    if not fits or not (np.isfinite(value) & (value > 0)).all():
        raise InputError(f"prior{where} is {sd!r}; write a positive number, or {others}.")
    return float(value) if value.ndim == 0 else value.astype(array.dtype)


def nested(items: Iterable[tuple[tuple, Any]]) -> dict:
    """A nested dict of what stands at each tuple of keys.

    >>> nested([(("a", 0), 1), (("a", 1), 2)])
    {'a': {0: 1, 1: 2}}
    """
    whole: dict = {}
    for keys, value in items:
        inner = whole
        for key in keys[:-1]:
            inner = inner.setdefault(key, {})
        inner[keys[-1]] = value
    return whole


def at(tree: Tree, keys: tuple) -> Any:
    """What stands at these keys of a nested dict."""
    for key in keys:
        tree = tree[key]
    return tree


def plain_keys(path: tuple) -> tuple:
    """A path of JAX as names and numbers."""
    return tuple(
        next(getattr(entry, kind) for kind in ("name", "idx", "key") if hasattr(entry, kind)) for entry in path
    )


def layer_at(module: Any, path: tuple) -> Any:
    """What an array of an Equinox module belongs to; None where the way there cannot be followed."""
    for entry in path[:-1]:
        (key,) = plain_keys((entry,))
        if isinstance(entry, jax.tree_util.FlattenedIndexKey):
            return None
        module = getattr(module, key) if isinstance(entry, jax.tree_util.GetAttrKey) else module[key]
    return module
