"""The minibatch orders on the Gaussian model: what a batch adds to the gradient, and its moments over the draws.

The sums Δ_1 ... Δ_J of J batches of equal size from one shuffled set are exchangeable: a moment depends only on which
of its indices coincide. So E[Δ_i Δ_j Δ_k Δ_l] is a sum over set partitions of the four places, each with one constant
where the indices agree inside its blocks: the constants are kept, not the J⁴ moments. The constant of a partition into
b blocks for sums of n rows is n^b times that for single rows. Means are zero throughout.
"""

from math import fsum, perm
from typing import NamedTuple

import numpy as np

from strang.data.orders import BatchOrder


class Exchangeable(NamedTuple):
    """The constants by shape of the partition: (1+1, 2), (1+1+1, 2+1, 3) and (1+1+1+1, 2+1+1, 2+2, 3+1, 4)."""

    pair: tuple[float, ...]
    triple: tuple[float, ...]
    quadruple: tuple[float, ...]


PARTITIONS = Exchangeable((1, 1), (1, 3, 1), (1, 6, 3, 4, 1))  # how many partitions have each shape
NOTHING = Exchangeable((0.0,) * 2, (0.0,) * 3, (0.0,) * 5)


def independent_moments(values: np.ndarray, batch: int, replacement: bool) -> Exchangeable:
    """The constants of independent batches of `batch` rows of centred `values`, with or without replacement inside.

    >>> independent_moments(np.array([-1.0, 1.0]), 1, True)
    Exchangeable(pair=(0.0, 1.0), triple=(0.0, 0.0, 0.0), quadruple=(0.0, 0.0, 1.0, 0.0, -2.0))
    """
    if replacement:
        square, cube, fourth = (batch * fsum(values**power) / len(values) for power in (2, 3, 4))
        return Exchangeable((0.0, square), (0.0, 0.0, cube), (0.0, 0.0, square**2, 0.0, fourth - 3 * square**2 / batch))
    within = sweep_moments(values, batch)  # of one batch all partitions count
    square, cube, fourth = (float(np.dot(ways, constants)) for ways, constants in zip(PARTITIONS, within, strict=True))
    return Exchangeable((0.0, square), (0.0, 0.0, cube), (0.0, 0.0, square**2, 0.0, fourth - 3 * square**2))


def sweep_moments(values: np.ndarray, batch: int) -> Exchangeable:
    """The constants of batches of `batch` rows of a random permutation of centred `values`.

    >>> sweep_moments(np.array([-1.0, 0.0, 1.0]), 1).pair  # E Δ1Δ2 = -1/3, E Δ1² = 2/3
    (-0.3333333333333333, 1.0)
    """
    p2, p3, p4 = (fsum(values**power) for power in (2, 3, 4))
    # Ordered choices of different rows; where there are too few rows these never occur, and any number will do.
    two, three, four = (max(1, perm(len(values), count)) for count in (2, 3, 4))
    pair, triple, quadruple = -p2 / two, 2 * p3 / three, (3 * p2**2 - 6 * p4) / four  # E[y_a y_b] and so on
    pair_of_three, pair_of_four = -p3 / two - triple, (2 * p4 - p2**2) / three - quadruple
    two_pairs = (p2**2 - p4) / two - 2 * pair_of_four - quadruple
    three_of_four = -p4 / two - 3 * pair_of_four - quadruple
    fourth = p4 / len(values) - 4 * three_of_four - 3 * two_pairs - 6 * pair_of_four - quadruple
    square, cube = p2 / len(values) - pair, p3 / len(values) - 3 * pair_of_three - triple
    n = batch
    return Exchangeable(
        (n**2 * pair, n * square),
        (n**3 * triple, n**2 * pair_of_three, n * cube),
        (n**4 * quadruple, n**3 * pair_of_four, n**2 * two_pairs, n**2 * three_of_four, n * fourth),
    )


def covariances(rows: np.ndarray, moments: Exchangeable) -> np.ndarray:
    """Cov(f_i · Δ, f_j · Δ) for the rows f_1, f_2, ...

    >>> covariances(np.eye(2), sweep_moments(np.array([-1.0, 0.0, 1.0]), 1)).round(3)
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
    return Period(slope[path], offset[path], draw[path], sweep_moments(deviations, batch))
