"""The minibatch orders on the Gaussian model: what a batch adds to the gradient, and its moments over the draws.

The sums Δ_1 ... Δ_J of J batches of equal size from one shuffled set are exchangeable: a moment depends only on which
of its indices coincide. So E[Δ_i Δ_j Δ_k Δ_l] is a sum over set partitions of the four places, each with one constant
where the indices agree inside its blocks: the constants are kept, not the J⁴ moments. Means are zero throughout.
"""

from collections.abc import Iterator
from math import factorial, fsum, perm, prod
from typing import NamedTuple

import numpy as np

from strang.data.orders import BatchOrder


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


def batch_moment(exponents: tuple[int, ...], sums: list[float], size: int, batch: int, replacement: bool) -> float:
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


def power_sums(values: np.ndarray) -> list[float]:
    """Σ y^k for k = 0 ... 4 over centred values."""
    return [float(len(values)), 0.0, *(fsum(values**power) for power in range(2, 5))]


def independent_moments(values: np.ndarray, batch: int, replacement: bool) -> Exchangeable:
    """The constants of independent batches of `batch` rows of centred `values`, with or without replacement inside.

    >>> independent_moments(np.array([-1.0, 1.0]), 1, True)
    Exchangeable(pair=(0.0, 1.0), triple=(0.0, 0.0, 0.0), quadruple=(0.0, 0.0, 1.0, 0.0, -2.0))
    """
    sums = power_sums(values)
    square, cube, fourth = (batch_moment((power,), sums, len(values), batch, replacement) for power in (2, 3, 4))
    return Exchangeable((0.0, square), (0.0, 0.0, cube), (0.0, 0.0, square**2, 0.0, fourth - 3 * square**2))


def sweep_moments(values: np.ndarray, batch: int, batches: int) -> Exchangeable:
    """The constants of the first `batches` batches of `batch` rows of a random permutation of centred `values`.

    >>> sweep_moments(np.array([-1.0, 0.0, 1.0]), 1, 2).pair  # E Δ1Δ2 = -1/3, E Δ1² = 2/3
    (-0.3333333333333333, 1.0)
    """
    sums = power_sums(values)

    def moment(*exponents):
        # More indices than batches never occur, so any number will do.
        return batch_moment(exponents, sums, len(values), batch, False) if len(exponents) <= batches else 0.0

    pair, triple, quadruple = moment(1, 1), moment(1, 1, 1), moment(1, 1, 1, 1)
    pair_of_three, pair_of_four = moment(2, 1) - triple, moment(2, 1, 1) - quadruple
    two_pairs = moment(2, 2) - 2 * pair_of_four - quadruple
    three_of_four = moment(3, 1) - 3 * pair_of_four - quadruple
    fourth = moment(4) - 4 * three_of_four - 3 * two_pairs - 6 * pair_of_four - quadruple
    return Exchangeable(
        (pair, moment(2) - pair),
        (triple, pair_of_three, moment(3) - 3 * pair_of_three - triple),
        (quadruple, pair_of_four, two_pairs, three_of_four, fourth),
    )


def covariances(rows: np.ndarray, moments: Exchangeable) -> np.ndarray:
    """Cov(f_i · Δ, f_j · Δ) for the rows f_1, f_2, ...

    >>> covariances(np.eye(2), sweep_moments(np.array([-1.0, 0.0, 1.0]), 1, 2)).round(3)
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


class Posterior(NamedTuple):
    """N(mean, 1/precision)."""

    mean: float
    precision: float


class Period(NamedTuple):
    """Until the minibatch order starts afresh: at step l the gradient is slope_l (θ − m) + offset_l + draw_l · Δ."""

    slope: np.ndarray
    offset: np.ndarray
    draw: np.ndarray
    moments: Exchangeable = NOTHING


def posterior(data: np.ndarray, prior_var: float, noise_var: float) -> Posterior:
    """K = 1/prior_var + N/noise_var, m = (Σx/noise_var)/K.

    >>> posterior(np.array([1.0, 2.0]), 1.0, 1.0)
    Posterior(mean=1.0, precision=3.0)
    """
    precision = 1 / prior_var + len(data) / noise_var
    return Posterior(float(data.sum() / noise_var / precision), precision)


def independent_period(
    data: np.ndarray, batch: int, replacement: bool, prior_var: float, noise_var: float, steps: int
) -> Period:
    """Any number of steps with independent batches of scale N/n; with all data as the batch there is no noise.

    >>> independent_period(np.array([1.0, 2.0]), 1, True, 1.0, 1.0, 1).moments.pair
    (0.0, 1.0)
    """
    deviations = (data.mean() - data) * len(data) / (batch * noise_var)
    slope = np.full(steps, posterior(data, prior_var, noise_var).precision)
    if batch == len(data) and not replacement:
        return Period(slope, np.zeros(steps), np.zeros((steps, 0)))
    return Period(slope, np.zeros(steps), np.eye(steps), independent_moments(deviations, batch, replacement))


def sweep_period(data: np.ndarray, order: BatchOrder, prior_var: float, noise_var: float) -> Period:
    """The steps of one period of a sweep through R batches, each with scale R.

    A last batch with fewer rows has another slope, always at the same place. An epoch's deviations add to zero, so the
    last is written as minus the others, which are of equal size.

    >>> from strang.data.orders import Cyclic
    >>> sweep_period(np.array([1.0, 2.0, 3.0]), Cyclic(3, 2), 1.0, 1.0).slope
    array([5., 3.])
    """
    size, center, batch, batches, path = len(data), data.mean(), order.batch_size, order.epoch, order.path()
    starts = batch * np.arange(batches)
    counts = np.minimum(size - starts, batch)
    slope = 1 / prior_var + batches * counts / noise_var
    surplus = (size - batches * counts) / (prior_var * noise_var)
    offset = center * surplus / posterior(data, prior_var, noise_var).precision
    deviations = (center - data) * batches / noise_var
    if not order.permuted:
        return Period(slope[path], (offset + np.add.reduceat(deviations, starts))[path], np.zeros((len(path), 0)))
    draw = np.vstack([np.eye(batches - 1), -np.ones(batches - 1)])
    return Period(slope[path], offset[path], draw[path], sweep_moments(deviations, batch, batches - 1))
