"""What model, data, dynamics, gradient and average are checked for before anything runs."""

import warnings
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.data.batches import Data
from strang.data.orders import Undecided
from strang.dynamics.base import Dynamics
from strang.dynamics.fields import registered
from strang.gradients.estimators import SVRG, ControlVariate, Latent, Minibatch
from strang.models.base import is_start_function
from strang.sampling.starts import chains_in
from strang.util.errors import InputError, first_line, whole
from strang.util.memory import check_fits
from strang.util.trees import Tree

PROBED = 3  # rows that a likelihood of many is tried with, without computing it


def check_model_and_dynamics(model, dynamics) -> None:
    """Both must be of the kinds that are expected."""
    if isinstance(model, type) or not (hasattr(model, "log_prior") and hasattr(model, "init")):
        raise InputError(
            f"model is {described(model)}; give a model, such as strang.Model(log_prior, log_likelihood, init=...)."
        )
    if isinstance(dynamics, type) or not (is_dataclass(dynamics) and isinstance(dynamics, Dynamics)):
        raise InputError(f"dynamics is {described(dynamics)}; give an instance, such as strang.SGHMC(friction=10.0).")
    registered(dynamics)
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


def check_memory(model, init, chains: int) -> None:
    """Refuse chains that would not fit the machine, before XLA tries."""
    init = model.init if init is None or chains_in(init, model) else init
    position = init
    if is_start_function(init):
        try:
            position = jax.eval_shape(lambda: init(jax.random.key(0)))
        except Exception:  # which `starts` says better
            return
    bytes_each = sum(np.size(x) * np.dtype(getattr(x, "dtype", float)).itemsize for x in jax.tree.leaves(position))
    total = chains * (4 * bytes_each + 100)  # positions, momenta, sums of averages and of the gradient's variance
    check_fits(f"chains is {chains}: {chains:,} chains", total)


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
