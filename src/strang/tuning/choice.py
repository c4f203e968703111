"""Which gradient, order and size of batches, and step size: what each would cost, from the measured gradient noise.

In coordinates of unit curvature, with friction D, an average over a chain has one effective draw per time 2D. With
independent batches gradient noise of variance V makes the variance too large by h V / 2D, so a standard deviation by
half of that; V falls with the rows per batch as V₁/n. A step of `leimkuhler:BAOA` leaves normal posteriors as they are
at any size, so what is left of the bias is what a posterior that is not normal makes of it, which pilot runs measure.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from strang.data.batches import Data
from strang.gradients.estimators import ControlVariate
from strang.util import random
from strang.util.trees import Tree, on_device, size

FRICTION = 1.0
LONGEST_STEP = 0.5  # in coordinates of unit curvature, before pilot runs say otherwise
SWEEP = 0.5  # R h of symmetric sweeps: there gradient noise cancels well
WORTH = 2.0  # times the cost of minibatches that full gradients may have and still be taken
LEAST_BATCH = 32  # rows; smaller batches take more time to draw than to look at
NOISE_ROWS, NOISE_PLACES = 512, 16  # from which noise is measured, at so many places
MORE_NOISE = 256  # coordinates for each of up to 8 times as many rows: those that few rows say something of are many


class Noise(NamedTuple):
    """The variance V₁ of the gradient of one row, times the number of rows, in the worst coordinate: of the plain
    gradient, and of that with a control variate at the mode."""

    plain: float
    reduced: float


@dataclass(frozen=True)
class Option:
    """A way to sample, and what it would cost.

    Attributes:
        gradient: `full`, `minibatch` or `control variate`.
        batch_order: `full`, `iid` or `symmetric`.
        batch_size: rows per batch.
        step_size: h.
        noise_bias: of a standard deviation, relative to it, from gradient noise; None where it is not foretold.
        cost: gradients of one datum per effective draw.
    """

    gradient: str
    batch_order: str
    batch_size: int
    step_size: float
    noise_bias: float | None
    cost: float


def measure_noise(model, data: Data, coordinates, mode: Tree, seed: int, gradient: Any = None) -> Noise:
    """The noise of both gradients at places drawn from the normal distribution that the coordinates stand for. The
    control variate is the one that is given, if it is such."""
    keys = random.chain_keys(seed, NOISE_PLACES)
    estimator = gradient if isinstance(gradient, ControlVariate) else ControlVariate()
    times = min(8, max(1, size(mode) // MORE_NOISE))

    found = measured(model, estimator, times, keys, coordinates, jax.tree.map(on_device, mode), data)
    data.check()
    plain, reduced = (float(np.asarray(x, float).mean(0).max()) * float(data.size) ** 2 for x in found)
    return Noise(plain, reduced)


@partial(jax.jit, static_argnums=(0, 1, 2))
def measured(model, estimator, times: int, keys, coordinates, mode: Tree, data: Data) -> list:
    """The variances of one row's gradients, plain and with a control variate, at each place."""

    def one(key, batch_key):
        z = random.normals(key, jnp.uint32(1), mode, 1)[0]
        rows = data.take(random.indices(batch_key[None], jnp.uint32(0), times * NOISE_ROWS, data.size)[:, 0])
        position = coordinates(z)

        def of_row(datum):
            here = jax.grad(model.log_likelihood)(position, datum)
            change = estimator.difference(model, mode, position, jax.tree.map(lambda x: x[None], datum))
            return tuple(ravel_pytree(coordinates.pull_back(z, x))[0] for x in (here, change))

        parts = jax.tree.map(lambda x: x.reshape(times, NOISE_ROWS, *x.shape[1:]), rows)
        found = jax.lax.map(lambda part: [x.var(0, ddof=1) for x in jax.vmap(of_row)(part)], parts)
        return [x.mean(0) for x in found]

    return jax.lax.map(lambda pair: one(*pair), (keys.start, keys.batch))


def options(noise: Noise, rows: int, target: float, longest: float = LONGEST_STEP) -> list[Option]:
    """All ways, each at its best: the one to take first, then the others by their costs.

    `target` is the relative bias of a standard deviation that gradient noise may make. Rows drawn at random take longer
    to fetch than all in their order, so minibatches have to be worth it.
    """
    steps = 2 * FRICTION / longest
    found = [Option("full", "full", rows, longest, 0.0, rows * steps)]
    for gradient, variance, each in (("minibatch", noise.plain, 1), ("control variate", noise.reduced, 2)):
        candidates = []
        for n in batch_sizes(rows):
            h = min(longest, 4 * FRICTION * target * n / max(variance, 1e-30))
            bias = h * variance / n / (4 * FRICTION)
            candidates.append(Option(gradient, "iid", n, h, bias, each * n * 2 * FRICTION / h))
        if candidates:
            # All batches that are small enough cost the same; the largest of them needs the fewest steps.
            least = min(option.cost for option in candidates)
            found.append(max((o for o in candidates if o.cost <= 1.001 * least), key=lambda o: o.batch_size))
        batches = max(1, round(SWEEP / longest))
        size = -(-rows // batches)
        if batches > 1:
            found.append(Option(gradient, "symmetric", size, longest, None, each * size * steps))
    found.sort(key=lambda option: option.cost)
    if found[0].gradient != "full":
        full = next(option for option in found if option.gradient == "full")
        if full.cost < WORTH * found[0].cost:
            found = [full, *(option for option in found if option is not full)]
    return found


def batch_sizes(rows: int) -> list[int]:
    """Powers of two that are worth a thought, up to half of the data."""
    return [n for n in (2**k for k in range(32)) if LEAST_BATCH <= n <= rows // 2]


def describe(found: list[Option]) -> list[str]:
    """The options as lines of a table, the chosen one first."""
    rows = [["gradient", "batches", "rows", "step size", "bias of sd by noise", "data per effective draw"]]
    for option in found:
        bias = "measured" if option.noise_bias is None else f"{option.noise_bias:.2g}"
        size, cost = f"{option.batch_size:,}", f"{option.cost:,.0f}"
        rows.append([option.gradient, option.batch_order, size, f"{option.step_size:.3g}", bias, cost])
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
