"""Three one-dimensional targets with known posterior means, on which to measure the effect of gradient noise."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from strang import models
from strang.paper import measure

PRECISIONS, PLACES = np.array([0.4, 0.8, 1.2, 1.6]), np.array([-1.0, 0.6, -0.2, 0.9])  # of `unequal_precisions`


class Problem(NamedTuple):
    """A model with its data and truth; `gradients` are those of its batches, if they are few enough to list."""

    title: str
    model: Any
    rows: Any
    batch: int
    friction: float
    noise: float  # V, the mean of the gradient's variance over the posterior
    truth: float  # the posterior mean of θ²
    anchor: float  # of the control variates
    simulated: tuple[float, ...]  # step sizes
    exact: tuple[float, ...]  # step sizes with exact values: the simulated ones and smaller ones
    accuracy: float = 1e-12  # of the exact values
    gradients: tuple[Callable, ...] = ()
    galerkin: dict[str, Any] = {}  # noqa: RUF012  (settings of the Galerkin method)

    def corrected(self) -> tuple[Callable, ...]:
        """The batches' gradients with control variates: g_i(q) − g_i(a) + the mean of the g(a)."""
        full = float(np.mean([g(self.anchor) for g in self.gradients]))
        return tuple(lambda q, g=g: g(q) - g(self.anchor) + full for g in self.gradients)


def halves(largest: float, count: int) -> tuple[float, ...]:
    """Each half of the one before, as Richardson extrapolation needs them."""
    return tuple(largest / 2**k for k in range(count))


@cache  # one object for all its parts, so that they share compilations
def paper() -> Problem:
    """The paper's model, started from its posterior because only the invariant measure is of interest."""
    x = measure.PAPER_DATA
    mean, variance = models.Gaussian().posterior(x)
    return Problem(
        title="The paper's Gaussian model: noise the same everywhere",
        model=models.Gaussian(start_mean=mean, start_var=variance),
        rows=x,
        batch=measure.BATCH,
        friction=10.0,
        noise=measure.NOISE,
        truth=mean**2 + variance,
        anchor=mean,
        simulated=halves(0.008, 7),
        exact=halves(0.008, 9),
    )


@cache
def unequal_precisions() -> Problem:
    """θ ~ N(0, 1) and x_i ~ N(θ, 1/w_i): batches of one row, whose gradients have different slopes."""
    model = models.Model(
        log_prior=lambda q: -(q**2) / 2,
        log_likelihood=lambda q, datum: -datum["precision"] * (datum["place"] - q) ** 2 / 2,
        init=jnp.zeros(()),
    )
    count, total = len(PLACES), 1 + PRECISIONS.sum()
    mean = float(PRECISIONS @ PLACES / total)
    slopes, pulls = count * PRECISIONS, count * PRECISIONS * PLACES
    gradients = tuple(lambda q, a=a, b=b: q + a * q - b for a, b in zip(slopes, pulls, strict=True))
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
        simulated=halves(0.4, 5),
        exact=halves(0.4, 9),
        galerkin={"degree": 2},  # exact on affine gradients
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
        simulated=halves(0.4, 4),
        exact=halves(0.4, 6),
        galerkin={"degree": (64, 16), "scale": (0.85, 1.0)},
        accuracy=1e-8,
    )


PROBLEMS = {"paper": paper, "precisions": unequal_precisions, "well": double_well}
