"""The normals of one step from those of the two steps of half its size, so that both follow one Brownian path.

A step's normals are integrals ∫ k(s) dW of orthonormal functions k over the path of that step (`Path`). So the large
step's are combinations of the small ones', with the products ∫ k k' of their functions as weights. The rows of weights
are made orthonormal, which they are anyway where the small steps know all that the large one asks for: then the large
step's normals are standard normals exactly, whatever its integrator, and its law is what it is without company.
"""

import jax
import jax.numpy as jnp
import numpy as np

from strang.integrators.words import Path, Step, fading
from strang.util.trees import Tree

POINTS = 6  # of Gauss's quadrature between two ends of pieces: the functions are smooth there


def combine(step: Step, dynamics, h, first: tuple[Tree, ...], second: tuple[Tree, ...]) -> tuple[Tree, ...]:
    """The normals of a step of size h from those of two steps of h/2."""
    weights = path_weights(step, dynamics, h)
    given = (*first, *second)

    def one(row):
        return jax.tree.map(
            lambda *leaves: sum(w.astype(x.dtype) * x for w, x in zip(row, leaves, strict=True)), *given
        )

    return tuple(one(list(row)) for row in weights)


def path_weights(step: Step, dynamics, h) -> jax.Array:
    """For each normal of a step of size h, the weights of those of two steps of h/2; its rows are orthonormal."""
    paths = step.paths or equal_paths(step.noises)
    ends = {end for path in paths for end in (path.begin, path.end)}
    cuts = np.unique(np.round([*ends, *(end / 2 for end in ends), *((1 + end) / 2 for end in ends)], 12))
    nodes, weights = np.polynomial.legendre.leggauss(POINTS)
    widths = np.diff(cuts) / 2
    places = (cuts[:-1, None] + widths[:, None] * (1 + nodes)).ravel()
    roots = jnp.sqrt(jnp.asarray((widths[:, None] * weights).ravel()))
    coarse = orthonormal(functions(paths, dynamics, h, places, 0.0, 1.0) * roots)
    fine = [functions(paths, dynamics, h, places, begin, 0.5) * roots for begin in (0.0, 0.5)]
    return orthonormal(coarse @ orthonormal(jnp.concatenate(fine)).T)


def functions(paths: tuple[Path, ...], dynamics, h, places: np.ndarray, begin: float, length: float) -> jax.Array:
    """The functions of a step that takes this part of h, at these fractions of h; 0 outside their pieces."""
    rows = []
    for path in paths:
        start, end = begin + length * path.begin, begin + length * path.end
        inside = (places > start) & (places < end)
        left = h * np.where(inside, end - places, 0.0)
        rows += [jnp.where(inside, row, 0.0) for row in path.kernels(dynamics, left, h * (end - start))]
    return jnp.stack(rows)


def equal_paths(count: int) -> tuple[Path, ...]:
    """Pieces of equal length, one for each normal."""
    return tuple(Path(k / count, (k + 1) / count, fading) for k in range(count))


def orthonormal(rows: jax.Array) -> jax.Array:
    """The rows by Gram and Schmidt."""
    done: list[jax.Array] = []
    for row in rows:
        for _ in range(2):  # again, for what rounding left
            for other in done:
                row = row - (row @ other) * other
        done.append(row / jnp.sqrt(row @ row))
    return jnp.stack(done)
