"""The certificate's exact numerics: expectations over many normals, Taylor coefficients, a limit.

Expectations are by a sparse (Smolyak) cubature exact up to a total degree 2L+1. Its nodes grow in number as n^L, those
of a full Gauss-Hermite grid as (L+1)^n: with n = 32 normals and degree 7 they are 41 857 and 2e19.
"""

from functools import lru_cache, reduce
from itertools import combinations, product
from math import prod

import numpy as np


@lru_cache(maxsize=64)
def gaussian_cubature(dimension: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (m, dimension) and weights (m,) with Σ w f(x) = E f(ξ) for every polynomial f of total degree `degree`.

    Smolyak's sum over |e| ≤ L of ⊗ᵢ Δ_eᵢ, where Δ_e is the difference of the rules for degrees 2e+1 and 2e−1. Nodes are
    collected by the coordinates in which they differ from 0, so that none is repeated. They come in pairs ±x: every odd
    moment vanishes.

    >>> x, w = gaussian_cubature(3, 5)
    >>> float(round(w @ (x[:, 0] ** 2 * x[:, 1] ** 2), 12)), float(round(w @ x[:, 2] ** 4, 12))
    (1.0, 3.0)
    """
    reach = degree // 2
    points, side, middle = differences(reach)
    nodes, weights = [], []
    for moved in range(min(reach, dimension) + 1):
        rest = middle_sums(middle, dimension - moved, reach)
        table = np.zeros((len(points),) * moved)
        for excess in product(range(1, reach + 1), repeat=moved):
            if sum(excess) <= reach:
                table += rest[reach - sum(excess)] * reduce(
                    np.multiply.outer, [side[e - 1] for e in excess], np.ones(())
                )
        used = np.argwhere(table)
        values = points[used]
        for where in combinations(range(dimension), moved):
            placed = np.zeros((len(used), dimension))
            placed[:, where] = values
            nodes.append(placed)
            weights.append(table[table != 0])
    return np.concatenate(nodes), np.concatenate(weights)


def differences(reach: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All nonzero nodes of the rules; the weights of Δ_1, Δ_2, ... on them, and on 0.

    Only Gauss rules of odd size: they share the node 0 and serve two degrees each, which saves nodes, and their small
    outer weights keep Σ|w|, hence the rounding error, hundreds of times smaller in high dimension.
    """
    rules = [dict(zip(*gauss_hermite((e + 1) | 1), strict=True)) for e in range(reach + 1)]
    points = np.unique([x for rule in rules for x in rule if x])
    masses = np.array([[rule.get(x, 0.0) for x in points] for rule in rules])
    centres = np.array([rule.get(0.0, 0.0) for rule in rules])
    return points, np.diff(masses, axis=0), np.diff(centres)


def gauss_hermite(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss rule of the standard normal, symmetrised so that the middle node is 0 and the others pair off exactly."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return (nodes - nodes[::-1]) / 2, (weights + weights[::-1]) / (2 * weights.sum())


def middle_sums(middle: np.ndarray, dimension: int, reach: int) -> np.ndarray:
    """Entry b: the weight at the origin of Smolyak's sum over |e| ≤ b in `dimension` coordinates."""
    one = np.concatenate([[1.0], middle])
    total = np.eye(1, reach + 1)[0]
    for _ in range(dimension):
        total = np.convolve(total, one)[: reach + 1]
    return np.cumsum(total)


def circle(radius: float, count: int = 24) -> np.ndarray:
    """The upper half of `count` points on a circle, none of them real: √h has its cut along the negative numbers."""
    return radius * np.exp(2j * np.pi * (np.arange(count // 2) + 0.5) / count)


def taylor(values: np.ndarray, h: np.ndarray, top: int) -> np.ndarray:
    """Coefficients of 1, h .. h^top of a function that is real for real h, from `values` at h = circle(...), last axis.

    >>> h = circle(0.5)
    >>> taylor(np.exp(h), h, 3).round(12).tolist()
    [1.0, 1.0, 0.5, 0.166666666667]
    """
    return np.real(values @ h[:, None] ** -np.arange(top + 1)) / len(h)


def limit_weights(count: int) -> list[float]:
    """Weights on a polynomial's values at 1/m, m = 1..count, that give its value at 0 if its degree is below count.

    >>> limit_weights(2)  # Richardson: 2 b(1/2) - b(1)
    [-1.0, 2.0]
    """
    counts = range(1, count + 1)
    return [prod(m / (m - other) for other in counts if other != m) for m in counts]
