"""A Bayesian neural network that classifies: softmax over the last layer, weights ~ N(0, prior_sd² / inputs).

With the number of inputs in the prior, the input of a unit has the same scale whatever the widths. Biases ~
N(0, prior_sd²).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from strang.util.errors import InputError
from strang.util.trees import Tree


@dataclass(frozen=True)
class BNN:
    """A Bayesian neural network that classifies; a datum is the pair (x, number of its class).

    The position is a tuple with one {"weights", "biases"} per layer. Without hidden layers this is softmax regression.

    Args:
        widths: the number of inputs, of units in each hidden layer, and of classes.
        prior_sd: standard deviation of a bias, and of a weight times the square root of its layer's inputs.
        activation: the activation function; a smooth one, such as the default, suits integrators of order 2.

    Raises:
        InputError: the widths or the standard deviation are not positive.

    Example:
        >>> [layer["weights"].shape for layer in BNN((784, 100, 10)).init(jax.random.key(0))]
        [(784, 100), (100, 10)]
    """

    widths: tuple[int, ...]
    prior_sd: float = 1.0
    activation: Callable = jnp.tanh

    def __post_init__(self):
        object.__setattr__(self, "widths", tuple(self.widths))
        if len(self.widths) < 2 or any(int(width) != width or width < 1 for width in self.widths):
            raise InputError(f"widths is {self.widths}; write the inputs, hidden units and classes: (784, 100, 10).")
        if not 0 < self.prior_sd < np.inf:
            raise InputError(f"prior_sd is {self.prior_sd}; write a positive number.")

    def log_prior(self, position):
        squares = (jnp.sum(layer["weights"] ** 2) * len(layer["weights"]) for layer in position)
        return -(sum(squares) + sum(jnp.sum(layer["biases"] ** 2) for layer in position)) / (2 * self.prior_sd**2)

    def logits(self, position, x):
        """The last layer's outputs before softmax, for one input or for many along leading axes."""
        for layer in position[:-1]:
            x = self.activation(x @ layer["weights"] + layer["biases"])
        return x @ position[-1]["weights"] + position[-1]["biases"]

    def log_likelihood(self, position, datum):
        x, label = datum
        # A label that is not the number of a class makes the chain diverge instead of counting as the nearest class.
        return jax.nn.log_softmax(self.logits(position, x)).at[label].get(mode="fill", wrap_negative_indices=False)

    @partial(jax.jit, static_argnums=0)
    def init(self, key):
        """A random start of scale 1/√inputs whatever the prior, since with a wide prior units would start saturated."""
        keys = jax.random.split(key, len(self.widths) - 1)
        return tuple(
            {"weights": inputs**-0.5 * jax.random.normal(key, (inputs, outputs)), "biases": jnp.zeros(outputs)}
            for key, inputs, outputs in zip(keys, self.widths[:-1], self.widths[1:], strict=True)
        )

    def predict(self, positions: Tree, x) -> np.ndarray:
        """Class probabilities for each row of x, averaged over draws.

        Args:
            positions: a single position, or draws along the leading axes of its leaves, as in `run.samples`. They are
                used one by one, so that they may stay on disk.
            x: one input per row.

        Returns:
            One row of probabilities per row of x.
        """
        leading = np.shape(positions[0]["weights"])[:-2]
        total = np.zeros((len(x), self.widths[-1]))
        for draw in np.ndindex(leading):
            total += probabilities(self, jax.tree.map(lambda leaf: leaf[draw], positions), x)  # noqa: B023
        return total / max(1, int(np.prod(leading)))


@partial(jax.jit, static_argnums=0)
def probabilities(model: BNN, position: Tree, x):
    return jax.nn.softmax(model.logits(position, jnp.asarray(x)))
