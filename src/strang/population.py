"""Moments of batch sums drawn from finite data, and what they make of quadratic forms.

The sums Δ_1 ... Δ_J of J batches of equal size from one shuffled set are exchangeable: a moment depends only on which
of its indices coincide. So E[Δ_i Δ_j Δ_k Δ_l] is a sum over set partitions of the four places, each with one constant
where the indices agree inside its blocks: the constants are kept, not the J⁴ moments. Means are zero throughout.
"""

from collections.abc import Iterator
from math import factorial, fsum, perm, prod
from typing import NamedTuple

import numpy as np


class Exchangeable(NamedTuple):
    """The constants by shape of the partition: (1+1, 2), (1+1+1, 2+1, 3) and (1+1+1+1, 2+1+1, 2+2, 3+1, 4)."""

    pair: tuple[float, ...]
    triple: tuple[float, ...]
    quadruple: tuple[float, ...]


NOTHING = Exchangeable((0.0,) * 2, (0.0,) * 3, (0.0,) * 5)


def set_partitions(count: int) -> Iterator[list[list[int]]]:
    """All ways to put 0 ... count-1 into blocks.

    >>> [len(list(set_partitions(k))) for k in range(5)]
    [1, 1, 2, 5, 15]
    """
    if count == 0:
        yield []
        return
    for blocks in set_partitions(count - 1):
        yield [*blocks, [count - 1]]
        for i, block in enumerate(blocks):
            yield [*blocks[:i], [*block, count - 1], *blocks[i + 1 :]]


def mean_over_rows(powers: list[int], sums: list[float], size: int, replacement: bool) -> float:
    """E[y_a^i y_b^j ...] over rows a, b, ... drawn one after the other; `sums[k]` is Σ y^k over all rows.

    Without replacement the rows differ, and Möbius inversion over set partitions takes the coincidences out.
    """
    if replacement:
        return prod(sums[power] / size for power in powers)
    terms = (
        prod((-1) ** (len(b) - 1) * factorial(len(b) - 1) * sums[sum(powers[i] for i in b)] for b in blocks)
        for blocks in set_partitions(len(powers))
    )
    return fsum(terms) / perm(size, len(powers))


def batch_moment(exponents, sums: list[float], size: int, batch: int, replacement: bool) -> float:
    """E[Δ_1^i Δ_2^j ...] for the exponents i, j, ...: each factor picks a row of its batch, and rows may coincide."""
    owner = [batch_number for batch_number, exponent in enumerate(exponents) for _ in range(exponent)]
    total = []
    for blocks in set_partitions(len(owner)):
        if any(len({owner[place] for place in block}) > 1 for block in blocks):
            continue  # two batches never share a row
        owned = [sum(owner[block[0]] == number for block in blocks) for number in range(len(exponents))]
        ways = prod(perm(batch, count) for count in owned)
        if ways:
            total.append(ways * mean_over_rows([len(block) for block in blocks], sums, size, replacement))
    return fsum(total)


def batch_moments(values, batch: int, batches: int, replacement: bool = False) -> Exchangeable:
    """The constants of the sums of `batches` batches of `batch` rows each from centred `values`.

    With replacement there is one batch, of independent rows.

    >>> batch_moments([-1.0, 0.0, 1.0], 1, 2).pair  # E Δ1Δ2 = -1/3, E Δ1² = 2/3
    (-0.3333333333333333, 1.0)
    """
    size = len(values)
    sums = [fsum(value**power for value in map(float, values)) for power in range(5)]
    sums[1] = 0.0

    def moment(*exponents):
        # More indices than batches never occur, so any number will do.
        return batch_moment(exponents, sums, size, batch, replacement) if len(exponents) <= batches else 0.0

    pair, triple = moment(1, 1), moment(1, 1, 1)
    all_apart, one_pair = moment(1, 1, 1, 1), moment(2, 1, 1)
    pair_apart, two_pairs = one_pair - all_apart, moment(2, 2) - 2 * one_pair + all_apart
    three = moment(3, 1) - 3 * one_pair + 2 * all_apart
    pair_in_three = moment(2, 1) - triple
    return Exchangeable(
        (pair, moment(2) - pair),
        (triple, pair_in_three, moment(3) - triple - 3 * pair_in_three),
        (
            all_apart,
            pair_apart,
            two_pairs,
            three,
            moment(4) - all_apart - 6 * pair_apart - 3 * two_pairs - 4 * three,
        ),
    )


def covariances(rows: np.ndarray, moments: Exchangeable) -> np.ndarray:
    """Cov(f_i · Δ, f_j · Δ) for the rows f_1, f_2, ...

    >>> covariances(np.eye(2), batch_moments([-1.0, 0.0, 1.0], 1, 2)).round(3)
    array([[ 0.667, -0.333],
           [-0.333,  0.667]])
    """
    apart, together = moments.pair
    total = rows.sum(-1)
    return apart * total[..., :, None] * total[..., None, :] + together * rows @ np.swapaxes(rows, -1, -2)


class Forms(NamedTuple):
    """Expectations over Δ for a stack of symmetric forms Q_1 ... Q_k: of Q_i, of Δ Q_i and of Q_i Q_j."""

    mean: np.ndarray
    third: np.ndarray
    product: np.ndarray


def expectations(forms: np.ndarray, moments: Exchangeable) -> Forms:
    """E[Δ'Q_iΔ], E[Δ Δ'Q_iΔ] and E[(Δ'Q_iΔ)(Δ'Q_jΔ)], each partition's sum in closed form.

    >>> one_variable = Exchangeable((0.0, 1.0), (0.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0, 0.0))  # a standard normal
    >>> expectations(np.ones((1, 1, 1)), one_variable).product
    array([[3.]])
    """
    flat = forms.reshape(*forms.shape[:-2], -1)
    diagonal = np.einsum("...jj->...j", forms)
    rows = forms.sum(-1)
    trace, total = diagonal.sum(-1), rows.sum(-1)

    def outer(a, b):
        return a[..., :, None] * b[..., None, :]

    def gram(a, b):
        return a @ np.swapaxes(b, -1, -2)

    apart, together = moments.pair
    mean = apart * total + together * trace
    apart, paired, together = moments.triple
    third = (apart * total + paired * trace)[..., None] + 2 * paired * rows + together * diagonal
    apart, paired, pairs, three, together = moments.quadruple
    crossed = gram(diagonal, rows)
    product = (
        apart * outer(total, total)
        + paired * (outer(trace, total) + outer(total, trace) + 4 * gram(rows, rows))
        + pairs * (outer(trace, trace) + 2 * gram(flat, flat))
        + 2 * three * (crossed + np.swapaxes(crossed, -1, -2))
        + together * gram(diagonal, diagonal)
    )
    return Forms(mean, third, product)
