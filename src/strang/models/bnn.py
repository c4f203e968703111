"""Bayesian neural networks: layers of units, which classify (softmax) or predict a number with its own noise.

The prior of a weight has the scale prior_sd / √inputs: with the number of inputs in it, the input of a unit has the
same scale whatever the widths. That of a bias has the scale prior_sd.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import log, pi, sqrt
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from strang.util.errors import InputError, choose
from strang.util.trees import Tree

DEGREES = 5.0  # of freedom of the Student-t prior
MIN_NOISE = 1e-3  # standard deviation of a predicted number's noise
# −log density of a number of scale 1, up to a constant.
PRIORS: dict[str, Callable] = {
    "normal": lambda u: u**2 / 2,
    "student-t": lambda u: (DEGREES + 1) / 2 * jnp.log1p(u**2 / DEGREES),
    "laplace": lambda u: sqrt(2.0) * jnp.abs(u),
}
OUTPUTS = ("classes", "number")


class Normal(NamedTuple):
    """A predicted number: its mean and the standard deviation of its noise."""

    mean: Any
    sd: Any


@dataclass(frozen=True)
class BNN:
    """A Bayesian neural network; a datum is the pair (x, number of its class), or (x, number that is predicted).

    The position is a tuple with one {"weights", "biases"} per layer. Without hidden layers this is softmax regression,
    or linear regression with noise that depends on x.

    Args:
        widths: the number of inputs, of units in each hidden layer, and of classes; or 2 for a number, its mean and
            its noise.
        prior_sd: scale of a bias, and of a weight times the square root of its layer's inputs; or one per layer.
        activation: the activation function; a smooth one, such as the default, suits integrators of order 2.
        prior: `normal`, `laplace` (with standard deviation `prior_sd`), or `student-t` with 5 degrees of freedom.
        output: `classes`, or `number`: a normal distribution, with mean and noise for each x.

    Raises:
        InputError: the widths or the standard deviations are not positive, or do not fit; or there is no such prior.

    Example:
        >>> [layer["weights"].shape for layer in BNN((784, 100, 10)).init(jax.random.key(0))]
        [(784, 100), (100, 10)]
    """

    widths: tuple[int, ...]
    prior_sd: float | tuple[float, ...] = 1.0
    activation: Callable = jnp.tanh
    prior: str = "normal"
    output: str = "classes"

    def __post_init__(self):
        object.__setattr__(self, "widths", tuple(self.widths))
        if np.ndim(self.prior_sd):
            object.__setattr__(self, "prior_sd", tuple(map(float, self.prior_sd)))  # type: ignore[arg-type]
        if len(self.widths) < 2 or any(int(width) != width or width < 1 for width in self.widths):
            raise InputError(f"widths is {self.widths}; write the inputs, hidden units and classes: (784, 100, 10).")
        if len(self.layer_sds) != len(self.widths) - 1 or not all(0 < sd < np.inf for sd in self.layer_sds):
            raise InputError(f"prior_sd is {self.prior_sd}; write a positive number, or one for each layer.")
        if self.prior not in PRIORS:
            raise choose("prior", self.prior, PRIORS)
        if self.output not in OUTPUTS:
            raise choose("output", self.output, OUTPUTS)
        if self.output == "number" and self.widths[-1] != 2:
            raise InputError(f"widths is {self.widths}; a number has 2 outputs, its mean and its noise: (5, 50, 2).")

    @property
    def layer_sds(self) -> tuple[float, ...]:
        """prior_sd of each layer."""
        return self.prior_sd if isinstance(self.prior_sd, tuple) else (self.prior_sd,) * (len(self.widths) - 1)

    def log_prior(self, position):
        scaled = jax.tree.map(jnp.divide, position, self.prior_scales(position))
        return -sum(jnp.sum(PRIORS[self.prior](u)) for u in jax.tree.leaves(scaled))

    def prior_scales(self, position: Tree) -> Tree:
        """The scale of each number's prior, a tree like the position."""
        return tuple(
            {
                "weights": jnp.full_like(layer["weights"], sd / sqrt(len(layer["weights"]))),
                "biases": jnp.full_like(layer["biases"], sd),
            }
            for layer, sd in zip(position, self.layer_sds, strict=True)
        )

    def logits(self, position, x):
        """The last layer's outputs, before softmax, for one input or for many along leading axes."""
        for layer in position[:-1]:
            x = self.activation(x @ layer["weights"] + layer["biases"])
        return x @ position[-1]["weights"] + position[-1]["biases"]

    def log_likelihood(self, position, datum):
        x, y = datum
        return log_density(self.output, self.logits(position, x), y)

    def batch_log_likelihood(self, position, rows):
        """That of each row. With more rows than units, rows lie along the last axis, along which processors compute:
        narrow layers would fill little of it (4 layers of 16 units take half the time)."""
        x, y = rows
        if len(x) <= max(self.widths):
            return jax.vmap(partial(log_density, self.output))(self.logits(position, x), y)
        x = x.T
        for number, layer in enumerate(position):
            x = layer["weights"].T @ x + layer["biases"][:, None]
            if number + 1 < len(position):
                x = jax.vmap(self.activation, 1, 1)(x)  # of one row, since it need not be elementwise
        return jax.vmap(partial(log_density, self.output), (1, 0))(x, y)

    @partial(jax.jit, static_argnums=0)
    def init(self, key):
        """A random start of scale 1/√inputs whatever the prior, since with a wide prior units would start saturated."""
        keys = jax.random.split(key, len(self.widths) - 1)
        return tuple(
            {"weights": inputs**-0.5 * jax.random.normal(key, (inputs, outputs)), "biases": jnp.zeros(outputs)}
            for key, inputs, outputs in zip(keys, self.widths[:-1], self.widths[1:], strict=True)
        )

    def predict(self, positions: Tree, x) -> np.ndarray:
        """Class probabilities for each row of x, or the mean of the number, averaged over draws.

        Args:
            positions: a single position, or draws along the leading axes of its leaves, as in `run.samples`. They are
                used one by one, so that they may stay on disk.
            x: one input per row.

        Returns:
            One row of probabilities, or one number, per row of x.
        """
        leading = np.shape(positions[0]["weights"])[:-2]
        total: Any = 0.0
        for draw in np.ndindex(leading):
            value = predicted(self, jax.tree.map(lambda leaf: leaf[draw], positions), x)  # noqa: B023
            total = total + np.asarray(value, float)
        return total / max(1, int(np.prod(leading)))


@partial(jax.jit, static_argnums=0)
def predicted(model: BNN, position: Tree, x):
    outputs = forecast(model.output, model.logits(position, jnp.asarray(x)))
    return outputs.mean if isinstance(outputs, Normal) else outputs


def forecast(output: str, outputs):
    """What the last layer's outputs, along the last axis, predict: class probabilities, or a `Normal`."""
    if output == "classes":
        return jax.nn.softmax(outputs)
    return Normal(outputs[..., 0], MIN_NOISE + jax.nn.softplus(outputs[..., 1]))


def log_density(output: str, outputs, y):
    """The log density of one response, given the last layer's outputs."""
    if output == "classes":
        # A label that is not the number of a class makes the chain diverge instead of counting as the nearest class.
        return jax.nn.log_softmax(outputs).at[y].get(mode="fill", wrap_negative_indices=False)
    law = forecast(output, outputs)
    return -(((y - law.mean) / law.sd) ** 2) / 2 - jnp.log(law.sd) - log(2 * pi) / 2
