"""One period of a linear chain as a linear map of moments.

A chain x_l = A_l x_{l−1} + B_l δ_l + N_l ξ_l is observed through S = Σ w_l ((q_l + m)² − m² − variance), q the first
entry of x. Its batches start afresh after every period, in which δ_l = drive_l · v with v = (1, x, Δ): x the state at
the period's start and Δ the period's random batch sums. Given v the states are Gaussian with means linear in v and
covariances free of v. So the mean and the variance of the period's part of S, and its covariances with the state at
the end, are quadratic forms of v, and averages over v need only moments up to degree 4: with u = (1, x), the vector
(E u⁴, E[S u²], E[S²]) at the period's end is a matrix times the one at its start.
"""

from functools import lru_cache
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np

from strang.theory.linear import Linear
from strang.theory.population import Exchangeable, covariances, expectations


class Layout(NamedTuple):
    """Where the products of entries of u sit in the moment vector.

    Pair k is u[left_k] u[right_k]; quad k is pair first_k times pair second_k; `embed` is the quad equal to each pair.
    The folds add up the coefficients of equal products.
    """

    left: np.ndarray
    right: np.ndarray
    first: np.ndarray
    second: np.ndarray
    embed: np.ndarray
    fold_pair: np.ndarray
    fold_quad: np.ndarray

    @property
    def size(self) -> int:
        return len(self.first) + len(self.left) + 1

    def coefficients(self, matrix: np.ndarray) -> np.ndarray:
        """u'Mu as a combination of the pairs."""
        return matrix.reshape(*matrix.shape[:-2], -1) @ self.fold_pair


@lru_cache
def layout_of(width: int) -> Layout:
    """The layout for a vector u of `width` entries."""
    pairs = list(combinations_with_replacement(range(width), 2))
    quads = list(combinations_with_replacement(range(width), 4))

    def fold(products, distinct):
        return np.array([[float(tuple(sorted(p)) == d) for d in distinct] for p in products])

    return Layout(
        left=np.array([a for a, _ in pairs]),
        right=np.array([b for _, b in pairs]),
        first=np.array([pairs.index(quad[:2]) for quad in quads]),
        second=np.array([pairs.index(quad[2:]) for quad in quads]),
        embed=np.array([quads.index((0, 0, *pair)) for pair in pairs]),
        fold_pair=fold([(a, b) for a in range(width) for b in range(width)], pairs),
        fold_quad=fold([p + q for p in pairs for q in pairs], quads),
    )


class Flow(NamedTuple):
    """Given v: mean positions `rows` v with their `covariance`; the last u has mean `end` v, covariance `spread` and
    covariance `memory` with the positions."""

    rows: np.ndarray
    covariance: np.ndarray
    end: np.ndarray
    spread: np.ndarray
    memory: np.ndarray


def follow(linear: Linear, drive: np.ndarray) -> Flow:
    """Go through the steps of periods that lie along the leading axis."""
    runs, steps, dimension = linear.push.shape
    widened = np.zeros((runs, steps, dimension + 1, dimension + 1))  # the map of u, whose first entry stays 1
    widened[..., 0, 0], widened[..., 1:, 1:] = 1, linear.transition
    diffusion = np.zeros_like(widened)
    diffusion[..., 1:, 1:] = linear.noise @ np.swapaxes(linear.noise, -1, -2)
    push = np.concatenate([np.zeros((runs, steps, 1)), linear.push], axis=-1)
    end = np.broadcast_to(np.eye(dimension + 1, drive.shape[1]), (runs, dimension + 1, drive.shape[1]))
    spread, memory = np.zeros_like(widened[:, 0]), np.zeros((runs, dimension + 1, steps))
    rows, covariance = np.zeros((runs, steps, drive.shape[1])), np.zeros((runs, steps, steps))
    for l in range(steps):
        move = widened[:, l]
        end = move @ end + push[:, l, :, None] * drive[l]
        spread = move @ spread @ np.swapaxes(move, -1, -2) + diffusion[:, l]
        memory[..., :l] = move @ memory[..., :l]
        memory[..., l] = spread[..., 1]
        rows[:, l] = end[:, 1]
        covariance[:, l, : l + 1] = covariance[:, : l + 1, l] = memory[:, 1, : l + 1]
    return Flow(rows, covariance, end, spread, memory)


def conditional_means(flow: Flow, weights: np.ndarray, shift: float, variance: float, layout: Layout) -> np.ndarray:
    """The forms E[· | v] of the period's part of S and of the pairs at its end."""
    weighted = flow.rows * weights[..., None]
    part = np.swapaxes(flow.rows, -1, -2) @ weighted
    linear_part = shift * weighted.sum(1)
    part[:, 0] += linear_part
    part[:, :, 0] += linear_part
    part[:, 0, 0] += (weights * (np.einsum("rll->rl", flow.covariance) - variance)).sum(1)
    pairs = flow.end[:, layout.left, :, None] * flow.end[:, layout.right, None, :]
    pairs = (pairs + np.swapaxes(pairs, -1, -2)) / 2
    pairs[..., 0, 0] += flow.spread[:, layout.left, layout.right]
    return np.concatenate([part[:, None], pairs], axis=1)


def conditional_covariances(
    flow: Flow, weights: np.ndarray, shift: float, moments: Exchangeable, layout: Layout
) -> np.ndarray:
    """Cov(·, · | v) averaged over Δ, as coefficients of the pairs of u: for every quad (its two pairs), for S with
    every pair, and for S with itself. All are Wick's formula for Gaussians."""
    width, spread = flow.spread.shape[-1], flow.spread
    a, b = layout.left[layout.first], layout.right[layout.first]
    c, d = layout.left[layout.second], layout.right[layout.second]
    sources = flow.rows * weights[..., None]
    sources[..., 0] += shift * weights

    # Cov(S, u' | v) = reach v; averaged products of these linear forms and of the means of u'.
    forms = np.concatenate([flow.end, 2 * flow.memory @ sources], axis=1)
    products = layout.coefficients(forms[:, :, None, :width, None] * forms[:, None, :, None, :width])
    products[..., 0] += covariances(forms[..., width:], moments)

    quads = sum(products[:, i, j] * spread[:, k, l, None] for i, k in ((a, b), (b, a)) for j, l in ((c, d), (d, c)))
    quads[..., 0] += spread[:, a, c] * spread[:, b, d] + spread[:, a, d] * spread[:, b, c]

    pairs = products[:, layout.left, width + layout.right] + products[:, layout.right, width + layout.left]
    remembered = 2 * (flow.memory * weights[:, None]) @ np.swapaxes(flow.memory, -1, -2)
    pairs[..., 0] += remembered[:, layout.left, layout.right]

    spread_sources = flow.covariance @ sources
    own = 4 * layout.coefficients(np.swapaxes(sources[..., :width], -1, -2) @ spread_sources[..., :width])
    apart, together = moments.pair
    own[:, 0] += 4 * apart * (sources[..., width:].sum(-1) * spread_sources[..., width:].sum(-1)).sum(-1)
    own[:, 0] += 4 * together * (sources[..., width:] * spread_sources[..., width:]).sum((-1, -2))
    own[:, 0] += 2 * np.einsum("rk,rkl,rl->r", weights, flow.covariance**2, weights)
    return np.concatenate([quads, pairs, own[:, None]], axis=1)


def period_maps(
    linear: Linear, weights: np.ndarray, drive: np.ndarray, moments: Exchangeable, *, shift: float, variance: float
) -> np.ndarray:
    """The matrices that carry the moment vector over periods with these steps and weights, along the leading axis."""
    width = linear.push.shape[-1] + 1
    layout = layout_of(width)
    flow = follow(linear, drive)
    forms = conditional_means(flow, weights, shift, variance, layout)
    runs, count = forms.shape[:2]

    # The average over Δ of the product of forms i and j, for every row of the map.
    i = np.concatenate([1 + layout.first, np.zeros(count, int)])
    j = np.concatenate([1 + layout.second, np.arange(1, count), [0]])
    known = layout.coefficients(forms[..., :width, :width])
    crossed = forms[..., :width, width:]
    over = expectations(forms[..., width:, width:], moments)
    quartic = (known[:, i, :, None] * known[:, j, None, :]).reshape(runs, len(i), -1) @ layout.fold_quad
    quadratic = known[:, i] * over.mean[:, j, None] + known[:, j] * over.mean[:, i, None]
    both = covariances(crossed.reshape(runs, count * width, -1), moments).reshape(runs, count, width, count, width)
    quadratic += 4 * layout.coefficients(np.swapaxes(both, 2, 3)[:, i, j])
    skew = np.einsum("riaj,rkj->rika", crossed, over.third)
    quadratic[..., :width] += 2 * (skew[:, i, j] + skew[:, j, i])
    quadratic[..., 0] += over.product[:, i, j]
    quadratic += conditional_covariances(flow, weights, shift, moments, layout)

    quads, mean = len(layout.first), known
    mean[..., 0] += over.mean
    maps = np.zeros((runs, layout.size, layout.size))
    maps[..., :quads] = quartic
    maps[..., layout.embed] += quadratic
    maps[:, quads:-1, quads:-1] = mean[:, 1:]
    maps[:, -1, quads:-1] = 2 * mean[:, 0]
    maps[:, -1, -1] = 1
    return maps
