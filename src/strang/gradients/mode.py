"""A mode of the posterior, sought over all data: by L-BFGS, or by Newton's method where its matrix can be had."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from strang.data.batches import Data
from strang.gradients.full import full_hessian, full_potential
from strang.util.errors import InputError
from strang.util.progress import track
from strang.util.trees import Tree, flat_vector


def find_mode(
    model, data: Data, start: Tree, *, iterations: int, tolerance: float, progress: bool | None, what: str
) -> Tree:
    """A position where the full gradient is `tolerance` of what it was, or after `iterations` of L-BFGS, for `what`."""
    import optax  # late: it takes as long to import as all of Strang

    solver = optax.lbfgs()

    @jax.jit
    def iterate(point, state, data):
        value, slope = jax.value_and_grad(lambda theta: full_potential(model, data, theta))(point)
        updates, state = solver.update(
            slope, state, point, value=value, grad=slope, value_fn=lambda theta: full_potential(model, data, theta)
        )
        return optax.apply_updates(point, updates), state, optax.tree.norm(slope)

    point, state, first = start, solver.init(start), None
    for _ in track(range(iterations), f"seeking {what}", progress):
        moved, state, norm = jax.block_until_ready(iterate(point, state, data))
        data.check()
        first = norm if first is None else first
        if not np.isfinite(norm):
            raise InputError(f"the search for {what} left the finite numbers; give it, or another start.")
        if norm <= tolerance * first or norm == 0:
            break
        point = moved
    return point


NEWTON_STEPS = 100
CLOSE = 1e-8  # nats that the potential would still fall by


class Curved(NamedTuple):
    """A mode, the matrix of second derivatives of U there, with coordinates in the order of `ravel_pytree`, and U."""

    position: Tree
    hessian: np.ndarray
    value: float


class Newton:
    """Newton's method in double precision, damped as by Levenberg and Marquardt, in the unit of each coordinate's
    curvature, so that scales do not matter. Its code is compiled once, for searches from any number of starts."""

    def __init__(self, model, data: Data, like: Tree):
        self.model, self.data, self.like = model, data, like

    def expand(self, point, data: Data):
        """U, its gradient and its matrix of second derivatives."""
        return expanded(self.model, self.like, point, data)

    def potential(self, point, data: Data):
        return potential_at(self.model, self.like, point, data)

    def search(self, start: Tree, *, steps: int = NEWTON_STEPS, progress: bool | None) -> Curved:
        """The mode that is found from a start.

        Raises:
            InputError: the potential is not finite, or no mode is found.
        """
        with jax.enable_x64():
            return self._search(flat_vector(start), steps, progress)

    def _search(self, point: np.ndarray, steps: int, progress: bool | None) -> Curved:
        damping = 1e-3
        for _ in track(range(steps), "seeking the mode", progress):
            value, slope, hessian = (np.asarray(x, np.float64) for x in self.expand(point, self.data))
            self.data.check()
            if not all(np.isfinite(x).all() for x in (value, slope, hessian)):
                raise InputError(
                    "U or its derivatives are not finite on the way to the mode; give another start (init)."
                )
            move, gain = damped_step(slope, hessian, damping)
            if gain <= CLOSE:
                break
            while not (after := float(self.potential(point + move, self.data))) < value:
                damping *= 10
                if damping > 1e12:
                    break
                move, gain = damped_step(slope, hessian, damping)
            if not after < value:  # as good as rounding allows
                break
            point, damping = point + move, max(damping / 10, 1e-12)
        else:
            raise InputError(
                f"no mode was found in {steps} steps of Newton's method: the posterior may be unbounded, or flat in a "
                "direction; give the parameters a proper prior, or write coordinates='none'."
            )
        return Curved(self.as_position(point), hessian, float(value))

    def as_position(self, point: np.ndarray) -> Tree:
        """A vector in the structure and precision of a position."""
        leaves, structure = jax.tree.flatten(self.like)
        cuts = np.cumsum([np.size(x) for x in leaves])[:-1]
        parts = zip(np.split(point, cuts), leaves, strict=True)
        return jax.tree.unflatten(
            structure, [part.reshape(np.shape(x)).astype(jnp.result_type(x)) for part, x in parts]
        )


def in_doubles(like: Tree):
    """A function from a vector in double precision to a position."""
    return ravel_pytree(jax.tree.map(lambda x: jnp.zeros(jnp.shape(x), jnp.float64), like))[1]


@partial(jax.jit, static_argnums=0)
def expanded(model, like: Tree, point, data: Data):
    """U, its gradient and its matrix of second derivatives at a vector that stands for a position like this one."""
    unravel = in_doubles(like)

    def slope_at(point):
        return jax.grad(lambda vector: full_potential(model, data, unravel(vector)))(point)

    value, slope = jax.value_and_grad(lambda vector: full_potential(model, data, unravel(vector)))(point)
    try:
        return value, slope, full_hessian(model, data, unravel(point))
    except NotImplementedError:  # JAX has no rule for the second derivative of some function in the model
        return value, slope, differences(slope_at, point)


@partial(jax.jit, static_argnums=0)
def potential_at(model, like: Tree, point, data: Data):
    return full_potential(model, data, in_doubles(like)(point))


def differences(slope, point):
    """The matrix of second derivatives, from differences of the gradient."""
    steps = 1e-5 * (1 + jnp.abs(point))

    def row(k):
        move = jnp.zeros_like(point).at[k].set(steps[k])
        return (slope(point + move) - slope(point - move)) / (2 * steps[k])

    matrix = jax.lax.map(row, jnp.arange(len(point)))
    return (matrix + matrix.T) / 2


def newton_mode(model, data: Data, start: Tree, *, progress: bool | None) -> Curved:
    """The mode that Newton's method finds from a start.

    Raises:
        InputError: the potential is not finite, or no mode is found.
    """
    return Newton(model, data, start).search(start, progress=progress)


def damped_step(slope: np.ndarray, hessian: np.ndarray, damping: float) -> tuple[np.ndarray, float]:
    """The step, and the nats by which a parabola would fall."""
    curvature = np.abs(np.diag(hessian))
    unit = np.where(curvature > 0, curvature, 1.0) ** -0.5
    values, vectors = np.linalg.eigh(hessian * unit * unit[:, None])
    along = vectors.T @ (slope * unit)
    step = -along / (np.abs(values) + damping)
    return unit * (vectors @ step), float(-(along @ step) / 2)
