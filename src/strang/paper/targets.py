"""Three targets in one coordinate on which to see what gradient noise does, each with its truth.

The paper's Gaussian, whose gradient noise is the same everywhere; data of unequal precisions, whose noise grows with
the distance from the mean; a double well.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from strang import models
from strang.paper import measure

PRECISIONS, PLACES = np.array([0.4, 0.8, 1.2, 1.6]), np.array([-1.0, 0.6, -0.2, 0.9])  # of the data with unequal ones


class Problem(NamedTuple):
    """A model with its data and truth; `gradients` are those of its batches, where they are few enough to list."""

    title: str
    model: Any
    rows: Any
    batch: int
    friction: float
    noise: float  # V, the mean of the gradient's variance over the posterior
    truth: float  # the posterior mean of θ²
    anchor: float
    gradients: tuple[Callable, ...]
    corrected: tuple[Callable, ...]  # with control variates
    simulated: tuple[float, ...]
    exact: tuple[float, ...]  # step sizes with exact values: the simulated ones and smaller ones
    galerkin: dict[str, Any]  # settings of the Galerkin method
    accuracy: float  # of the exact values


def halves(largest: float, count: int) -> tuple[float, ...]:
    """Each half of the one before, so that Richardson extrapolation finds its partner."""
    return tuple(largest / 2**k for k in range(count))


def control_variates(gradients: tuple[Callable, ...], anchor: float) -> tuple[Callable, ...]:
    """g_i(q) − g_i(a) + the mean of the g(a)."""
    full = float(np.mean([g(anchor) for g in gradients]))
    return tuple(lambda q, g=g: g(q) - g(anchor) + full for g in gradients)


@cache  # one object for all its parts, so that they share compilations
def paper() -> Problem:
    """The paper's, started from its posterior: this is about the invariant measure."""
    x = measure.paper_data()
    mean, variance = models.Gaussian().posterior(x)
    sizes = halves(0.008, 9)
    return Problem(
        title="The paper's Gaussian model: noise the same everywhere",
        model=models.Gaussian(start_mean=mean, start_var=variance),
        rows=x,
        batch=measure.BATCH,
        friction=10.0,
        noise=measure.NOISE,
        truth=mean**2 + variance,
        anchor=mean,
        gradients=(),
        corrected=(),
        simulated=sizes[:7],
        exact=sizes,
        galerkin={},
        accuracy=1e-12,
    )


@cache
def unequal_precisions() -> Problem:
    """θ ~ N(0, 1) and x_i ~ N(θ, 1/w_i): batches of one row, with slopes of their own."""
    model = models.Model(
        log_prior=lambda q: -(q**2) / 2,
        log_likelihood=lambda q, datum: -datum["precision"] * (datum["place"] - q) ** 2 / 2,
        init=jnp.zeros(()),
    )
    count, total = len(PLACES), 1 + PRECISIONS.sum()
    mean = float(PRECISIONS @ PLACES / total)
    slopes, pulls = count * PRECISIONS, count * PRECISIONS * PLACES
    gradients = tuple(lambda q, a=a, b=b: q + a * q - b for a, b in zip(slopes, pulls, strict=True))
    sizes = halves(0.4, 9)
    return Problem(
        title="Unequal precisions: noise that depends on θ",
        model=model,
        rows={"place": PLACES.astype(np.float32), "precision": PRECISIONS.astype(np.float32)},
        batch=1,
        friction=3.0,
        noise=float((slopes * mean - pulls).var() + slopes.var() / total),
        truth=mean**2 + 1 / total,
        anchor=mean,
        gradients=gradients,
        corrected=control_variates(gradients, mean),
        simulated=sizes[:5],
        exact=sizes,
        galerkin={"degree": 2},  # exact on affine gradients
        accuracy=1e-12,
    )


def well(q):
    """U of the double well: Gaussian tails, minima at ±1.67, a barrier of 1.6 between."""
    return q**2 / 2 + 4 * jnp.exp(-(q**2) / 2)


def well_slope(q):
    return q * (1 - 4 * jnp.exp(-(q**2) / 2))


@cache
def double_well() -> Problem:
    """Two rows of opposite signs: U/2 ± (0.9 θ − 0.4 cos θ), so that the gradient noise is 1.8 + 0.8 sin θ."""
    model = models.Model(
        log_prior=lambda q: 0 * q,
        log_likelihood=lambda q, sign: -(well(q) / 2 + sign * (0.9 * q - 0.4 * jnp.cos(q))),
        init=lambda key: jnp.asarray(1.5),
    )
    q = np.linspace(-12, 12, 100_001)
    density = np.exp(-(q**2) / 2 - 4 * np.exp(-(q**2) / 2))
    truth, noise = (float((density * f).sum() / density.sum()) for f in (q**2, (1.8 + 0.8 * np.sin(q)) ** 2))
    gradients = tuple(lambda q, s=sign: well_slope(q) + s * (1.8 + 0.8 * jnp.sin(q)) for sign in (1.0, -1.0))
    sizes = halves(0.4, 6)
    return Problem(
        title="Double well: noise that depends on θ",
        model=model,
        rows=np.array([1.0, -1.0], np.float32),
        batch=1,
        friction=2.0,
        noise=noise,
        truth=truth,
        anchor=1.665,
        gradients=gradients,
        corrected=control_variates(gradients, 1.665),
        simulated=sizes[:4],
        exact=sizes,
        galerkin={"degree": (64, 16), "scale": (0.85, 1.0)},
        accuracy=1e-8,
    )


PROBLEMS = {"paper": paper, "precisions": unequal_precisions, "well": double_well}
