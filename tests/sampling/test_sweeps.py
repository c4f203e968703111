"""The bias of sweeps, exactly: rows of different curvatures, whose gradients are linear, so that moments close.

Row k has the potential a_k (q − b_k)² / 2, one row is a batch, and BAOAB's moments are averaged over all permutations
of a sweep. So f(h) is known at every h, and what companions would measure, f(2h) − f(h), can be compared to the bias.
"""

from itertools import permutations

import numpy as np
import pytest

import strang
from strang.sampling.estimates import SHORT_SWEEP, bias_order
from strang.sampling.request import prepare

FRICTION = 2.0
CURVATURES, CENTRES = np.array([1.6, 0.9, 0.5, 1.2, 0.8]), np.array([0.9, -1.1, 0.3, -0.6, 0.2])
CURVATURES /= CURVATURES.mean()  # the posterior is N(m, 1)


def second_moments(kick, between):
    """How E[z zᵀ] of z = (q, p, 1) changes from one kick to the next, seen after half of it: a product, and a sum."""
    half = np.eye(3) + kick / 2
    drift, decay, noise = between
    linear, spread = half @ drift @ decay @ drift, half @ drift @ noise @ drift.T @ half.T
    return np.kron(linear, linear), spread.ravel(), np.kron(half, half)


def mean_position(h):
    """The mean of q over the steps of a sweep, in its stationary state."""
    c = np.exp(-FRICTION * h)
    drift, decay, noise = np.eye(3), np.diag([1.0, c, 1.0]), np.diag([0.0, 1 - c**2, 0.0])
    drift[0, 1] = h / 2
    kicks = []
    for a, b in zip(CURVATURES, CENTRES, strict=True):
        kick = np.zeros((3, 3))
        kick[1, 0], kick[1, 2] = -h * a, h * a * b
        kicks.append(second_moments(kick, (drift, decay, noise)))
    orders = list(permutations(range(len(CURVATURES))))
    whole, whole_noise, seen, seen_noise = (np.zeros((9, 9)), np.zeros(9), np.zeros((9, 9)), np.zeros(9))
    for order in orders:
        product, added = np.eye(9), np.zeros(9)
        for k in (*order, *order[::-1]):
            linear, spread, half = kicks[k]
            product, added = linear @ product, linear @ added + spread
            seen, seen_noise = seen + product, seen_noise + added
            product, added = half @ product, half @ added
        whole, whole_noise = whole + product / len(orders), whole_noise + added / len(orders)
    system = np.eye(9) - whole
    system[8], whole_noise[8] = np.eye(9)[8], 1.0  # E[1 · 1] = 1
    state = np.linalg.solve(system, whole_noise)
    found = (seen @ state + seen_noise) / (2 * len(CURVATURES) * len(orders))
    return found[2] / found[8]


EXACT = float((CURVATURES * CENTRES).mean())


@pytest.mark.parametrize(("share", "least", "most"), [(0.5, 0.95, 1.0), (1.0, 0.9, 1.0), (8.0, 0.3, 0.6)])
def test_a_third_of_the_difference_is_the_bias_while_sweeps_are_short(share, least, most):
    """And half of it or less where the companion's sweep takes 4: there the whole difference is nearer to it."""
    h = share * SHORT_SWEEP / (4 * len(CURVATURES))
    bias, difference = mean_position(h) - EXACT, mean_position(2 * h) - mean_position(h)
    assert least < difference / 3 / bias < most
    assert abs(bias) > 1e-6  # far above rounding
    if share > 1:
        assert difference / bias > 0.9


def data(batch_order, batch_size):
    return strang.data.arrays(np.zeros(50, np.float32), batch_order=batch_order, batch_size=batch_size)


@pytest.mark.parametrize(
    ("batch_order", "batch_size", "step_size", "expected"),
    [
        ("full", None, 0.5, 2),
        ("iid", 10, 0.001, 1),
        ("symmetric", 50, 0.5, 2),  # all rows in every batch: no noise
        ("symmetric", 10, 0.0249, 2),  # 2 R · 2h < 0.5
        ("symmetric", 10, 0.026, 1),
        ("reshuffled", 10, 0.0499, 2),
        ("reshuffled", 10, 0.051, 1),
    ],
)
def test_the_order_is_two_for_short_sweeps_only(batch_order, batch_size, step_size, expected):
    def of(integrator="leimkuhler:BAOAB", **more):
        return bias_order(prepare(
            strang.models.Gaussian(), data(batch_order, batch_size), strang.SGHMC(2.0), integrator=integrator,
            steps=10, chains=2, coupled=1, step_size=step_size, **more,
        ))  # fmt: skip

    assert of(coordinates="diagonal") == expected
    noisy = batch_order != "full" and batch_size < 50
    assert of() == (1 if noisy else expected)  # without coordinates, nobody knows which time is short
    assert of(coordinates="diagonal", integrator="euler-old") == 1
