"""Averages under the invariant measure of a shipped step with minibatch gradients, in one dimension, without sampling.

The Kolmogorov operator of a step on batch i, (P_i f)(x) = E f(step(x, ξ)), becomes a matrix on orthonormal Hermite
polynomials of bounded total degree in the dynamics' coordinates: (q, p) for SGHMC, q for SGLD. It is the Galerkin
projection in the Gaussian weight, with all integrals by Gauss-Hermite rules that run the production step in double
precision. A period of the minibatch order is an average of products of such matrices; its left fixed vector holds the
moments of the invariant measure at the start of a period.

Affine gradients, of whatever slopes, map the polynomials of each total degree to themselves: the answer is then exact
to rounding once the degree is that of the function. For other entire gradients of at most linear growth it converges
faster than any power of the degree, if the scales suit: the invariant density over the Gaussian weight must be square
integrable, so the weight's scale must exceed 1/√2 of that of the measure's tails, and is best not much larger.

Paper: operators are composed with the last step first. We: the first step leftmost, E f(X_L) = P_1 P_2 ... P_L f,
because P_1 P_2 f is P_1 applied to the function P_2 f (erratum A7).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial, reduce
from itertools import combinations, permutations
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.sparse.linalg import ArpackError, eigs

from strang.data.orders import BatchOrder, order_class
from strang.dynamics import SGHMC, SGLD
from strang.integrators.words import Step, spell
from strang.theory.cubature import gauss_hermite
from strang.theory.linear import UNOPTIMISED
from strang.util.errors import InputError

MAX_BATCHES = 10  # a random order takes 2^R products of matrices
MAX_NODES = {
    1: 1000,
    2: 16,
    3: 10,
    4: 7,
}  # nodes per normal by normals per step: error < 1e-9 on a double well, h <= 0.3
MAX_DENSE_SIZE = 200  # matrices up to this size have all their eigenvalues computed, which is fast and safe
Function = Callable[[Any], Any]


class Operator(NamedTuple):
    """Of a step: column c of `matrix` is P φ_c, and `value` is E f at the step's end, both in the basis φ.

    Of several steps: `matrix` is their product and `value` the sum of E f over their ends, averaged over the order.
    """

    matrix: np.ndarray
    value: np.ndarray


class Space(NamedTuple):
    """Exponents (functions x 2) of the products of Hermite polynomials in (x − center)/scale.

    One coordinate is as two of which the second has degree 0 only.
    """

    exponents: np.ndarray
    tops: tuple[int, int]
    center: np.ndarray
    scale: np.ndarray


@dataclass(frozen=True)
class Mean:
    """The full gradient; equal for equal gradients, so that one compilation serves them all."""

    gradients: tuple[Function, ...]

    def __call__(self, position: Any) -> Any:
        return sum(gradient(position) for gradient in self.gradients) / len(self.gradients)


def square(position: Any) -> Any:
    return position**2


def polynomials(tops: tuple[int, int], center: np.ndarray, scale: np.ndarray) -> Space:
    """Total degree up to the first top, and degree up to the second in the second coordinate; the constant first.

    >>> polynomials((2, 2), np.zeros(2), np.ones(2)).exponents.tolist()
    [[0, 0], [0, 1], [1, 0], [0, 2], [1, 1], [2, 0]]
    """
    pairs = [(i, j) for i in range(tops[0] + 1) for j in range(tops[1] + 1) if i + j <= tops[0]]
    return Space(np.array(sorted(pairs, key=lambda pair: (sum(pair), pair))), tops, center, scale)


def hermite(x: np.ndarray, top: int) -> np.ndarray:
    """Probabilists' Hermite polynomials of degree 0 ... top, orthonormal, along a new axis before the last.

    >>> hermite(np.array([2.0, 3.0]), 2).T * np.sqrt([1, 1, 2])
    array([[1., 2., 3.],
           [1., 3., 8.]])
    """
    values = np.empty((*x.shape[:-1], top + 1, x.shape[-1]))
    values[..., 0, :] = 1
    for k in range(top):
        before = np.sqrt(k) * values[..., k - 1, :] if k else 0.0
        values[..., k + 1, :] = (x * values[..., k, :] - before) / np.sqrt(k + 1)
    return values


def normals_rule(noises: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (normals x nodes) and weights of a Gauss rule over the normals of a step.

    A polynomial of degree n in a normal needs n/2 + 1 nodes. Where a step has several normals they get fewer: what is
    lost are high powers of √h, and nothing of what low degrees need.
    """
    nodes, weights = gauss_hermite(min(degree // 2 + 1, MAX_NODES.get(noises, 6)))
    grid, products = (np.meshgrid(*[part] * noises, indexing="ij") for part in (nodes, weights))
    return np.stack([part.ravel() for part in grid]), np.prod([part.ravel() for part in products], axis=0)


@partial(jax.jit, static_argnums=(0, 1), compiler_options=UNOPTIMISED)
def _move(step, gradients, dynamics, h, points, normals):
    """Position and coordinates, gradient x point x noise, after a step from each of `points` with each of `normals`."""

    def move(gradient, point, noise):
        state = step(dynamics, dynamics.at(*point), h, gradient, tuple(noise))
        return state.position, *dynamics.coordinates(state)

    ends = [
        jax.vmap(jax.vmap(partial(move, gradient), (None, 1)), (1, None))(points, normals) for gradient in gradients
    ]
    return tuple(jax.numpy.stack(part) for part in zip(*ends, strict=True))


def operators(
    step: Step, dynamics: Any, gradients: tuple[Function, ...], h: float, space: Space, function: Function
) -> list[Operator]:
    """The operators of one step with each gradient.

    A product of two polynomials of degree n needs n + 1 nodes, for affine gradients; others get half as many again.
    Sums over a product rule go one coordinate at a time, and the nodes of the first coordinate one after the other:
    only the ends that belong to one of them exist at once.
    """
    (outer, outer_weights), (inner, inner_weights) = (gauss_hermite(top + 1 + top // 2) for top in space.tops)
    normals, weights = normals_rule(step.noises, space.tops[0])
    i, j = space.exponents.T
    test = hermite(inner, space.tops[1]) * inner_weights
    images, values = [], []
    for node in outer:
        points = np.stack([np.full(len(inner), node), inner])[: len(space.center)]
        start = space.center[:, None] + space.scale[:, None] * points
        position, *ends = map(np.asarray, _move(step, gradients, dynamics, h, start, normals))
        if np.isnan(position).any():
            raise InputError(
                f"{step.name!r} has no real values at step size {h:g}: the known gradient noise exceeds the noise of a "
                "step; write a smaller step_size or gradient_noise."
            )
        ends = [(end - c) / s for end, c, s in zip(ends, space.center, space.scale, strict=True)]
        first = hermite(ends[0], space.tops[0])
        second = hermite(ends[-1], space.tops[1]) * weights
        images.append(test @ (first @ np.swapaxes(second, -1, -2))[..., i, j])
        values.append(np.asarray(function(position)) @ weights @ test.T)
    front = hermite(outer, space.tops[0]) * outer_weights
    return [
        Operator(np.tensordot(front, image, 1)[i, j], (front @ value)[i, j])
        for image, value in zip(np.stack(images, 1), np.stack(values, 1), strict=True)
    ]


def mean(parts: list[Operator]) -> Operator:
    return Operator(*(sum(part) / len(parts) for part in zip(*parts, strict=True)))  # type: ignore[arg-type]


def then(one: Operator, rest: Operator) -> Operator:
    """One after the other: the first step leftmost, E f(X_L) = P_1 P_2 ... P_L f."""
    return Operator(one.matrix @ rest.matrix, one.value + one.matrix @ rest.value)


def period(steps: list[Operator], kind: type[BatchOrder]) -> tuple[Operator, int]:
    """What a period of the minibatch order does, and how many steps it has.

    Random permutations that are swept forth, or forth and back, go by their sets of last (inner) batches, each built
    from those with one batch fewer: 2^R of them, not R!.
    """
    if kind.full or kind.independent:
        return mean(steps), 1
    count = len(steps)
    path = kind(count, 1).path().tolist()
    orders = permutations(steps) if kind.permuted else [steps]
    forth = list(range(count))
    if not kind.permuted or path not in (forth, forth + forth[::-1]):
        return mean([reduce(then, [order[k] for k in path]) for order in orders]), len(path)

    def around(one: Operator, inner: Operator) -> Operator:
        """A step before others, and forth and back also after them."""
        return then(one, then(inner, one) if len(path) > count else inner)

    built = {frozenset([k]): then(one, one) if len(path) > count else one for k, one in enumerate(steps)}
    for size in range(2, count + 1):
        built = {
            frozenset(batches): mean([around(steps[k], built[frozenset(batches) - {k}]) for k in batches])
            for batches in combinations(range(count), size)
        }
    (total,) = built.values()
    return total, len(path)


def growth(matrix: np.ndarray) -> float:
    """The spectral radius beyond the constant function, which a step leaves as it is."""
    rest = matrix[1:, 1:]
    if not np.isfinite(rest).all():
        return float("inf")
    if len(rest) > MAX_DENSE_SIZE:
        with suppress(ArpackError):  # too many eigenvalues of the same size
            return float(np.abs(eigs(rest, k=1, v0=np.ones(len(rest)), tol=1e-6, return_eigenvectors=False)[0]))
    return float(np.abs(np.linalg.eigvals(rest)).max())


def invariant_average(
    step: Step | str,
    dynamics: Any,
    gradients: Sequence[Function],
    *,
    step_size: float,
    batch_order: str | type[BatchOrder] = "iid",
    degree: int | tuple[int, int] = 2,
    scale: tuple[float, float] = (1.0, 1.0),
    center: float = 0.0,
    function: Function = square,
) -> float:
    """Compute E f(q) over all steps of a stationary run in one dimension, without sampling.

    Args:
        step: a word, or a step from `strang.spell`.
        dynamics: SGHMC or SGLD with its numbers.
        gradients: R functions of q that JAX can trace, one for each equally likely batch, each an estimate of the full
            gradient, which is their mean. Any change of the gradients, such as control variates, goes into them.
        step_size: the step size.
        batch_order: as for `strang.data.arrays`.
        degree: the total degree of the polynomials, or that and the largest degree in the momentum, which needs fewer
            where the gradients are not affine. A moment of this degree that does not exist makes the step count as
            unstable; with affine gradients of random slopes a lower degree, down to that of the function, may then
            still be exact.
        scale, center: of the Gaussian weight: the scales of position and momentum, and the position's center.
        function: f.

    Returns:
        The average; infinity if the step is unstable.

    Raises:
        InputError: if an argument is out of range, or the dynamics has more coordinates.

    Example:
        >>> import strang
        >>> pull = [lambda q: 2 * q - 1, lambda q: 2 * q + 1]  # K = 2, V = 1
        >>> average = invariant_average("leimkuhler:ABOBA", strang.SGHMC(3.0), pull, step_size=0.5)
        >>> round(2 * average, 12), round(float(1 + 0.5**2 / (4 * np.tanh(3 * 0.5 / 2))), 12)  # 1 + h²V/(4 tanh(Dh/2))
        (1.098402114599, 1.098402114599)
    """
    kind, tops = order_class(batch_order), check(dynamics, gradients, step_size, batch_order, degree, scale)
    coordinates = 2 if tops[1] else 1
    space = polynomials(tops, np.array([center, 0.0])[:coordinates], np.array(scale, float)[:coordinates])
    batches = (Mean(tuple(gradients)),) if kind.full else tuple(gradients)
    with jax.enable_x64(True), np.errstate(over="ignore", invalid="ignore"):
        steps = operators(spell(dynamics, step), dynamics, batches, float(step_size), space, function)
        (matrix, value), count = period(steps, kind)
        if not growth(matrix) < 1:
            return float("inf")
        # The means of the basis functions: μ with μ M = μ and μ(1) = 1.
        rest = np.linalg.solve(np.eye(len(matrix) - 1) - matrix[1:, 1:].T, matrix[0, 1:])
        return float(np.concatenate([[1.0], rest]) @ value / count)


def check(
    dynamics: Any,
    gradients: Sequence[Function],
    step_size: float,
    batch_order: str | type[BatchOrder],
    degree: int | tuple[int, int],
    scale: tuple[float, float],
) -> tuple[int, int]:
    """Refuse what has no answer here; the largest degrees of the two coordinates, the second 0 if there is one only."""
    if not isinstance(dynamics, SGHMC | SGLD):
        raise InputError(f"{type(dynamics).__name__} has too many coordinates for this method; use SGHMC or SGLD.")
    if not len(gradients) or not all(map(callable, gradients)):
        raise InputError("gradients must be functions of the position, one for each batch; write [lambda q: q, ...].")
    kind = order_class(batch_order)
    if kind.permuted and not kind.independent and len(gradients) > MAX_BATCHES:
        raise InputError(
            f"batch_order {kind.name!r} averages over permutations of {len(gradients)} batches; give {MAX_BATCHES} or "
            "fewer."
        )
    if not 0 < step_size < np.inf:
        raise InputError(f"step_size is {step_size}; write a positive number.")
    if not (len(scale) == 2 and all(0 < part < np.inf for part in scale)):
        raise InputError(f"scale is {scale}; write two positive numbers, such as (1.0, 1.0).")
    total, second = (degree, degree) if isinstance(degree, int) else degree
    if not 2 <= second <= total:
        raise InputError(
            f"degree is {degree}; write a number from 2 on, or two such as (80, 20), the first the larger."
        )
    return total, second if isinstance(dynamics, SGHMC) else 0
