"""Several group terms: effects of different terms say something of each other, so that no term can be integrated out by
itself. A rough fit gives the change of variables, term by term; all that is left is for `strang.tune`, which knows
every coordinate's curvature with every other.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.coordinates import MAX_DENSE
from strang.data.batches import Data
from strang.data.orders import make_order
from strang.regression.effects import Whitened
from strang.regression.fit import Position, arrow_pass, family_step, host, whitened_at
from strang.regression.model import RegressionModel
from strang.util.errors import InputError
from strang.util.progress import track
from strang.util.trees import size

PASSES = 20
LEAST_SD = 0.05  # of a term, relative to what it begins with: the fit is only a place to begin


@dataclass(frozen=True, eq=False)
class Reparametrised:
    """The model as a function of whitened effects; the volume counts in the prior."""

    model: RegressionModel
    change: Whitened

    @property
    def labels(self) -> dict[str, str]:
        return self.model.labels

    def init(self, key=None) -> Position:
        return self.model.init(key)

    def constrain(self, z: Position) -> Position:
        return self.model.constrain(self.change(z))

    def unconstrain(self, position: Position) -> Position:
        return self.change.inverse(self.model.unconstrain(position))

    def log_prior(self, z: Position):
        position, volume = self.change.with_volume(z)
        return self.model.log_prior(position) + volume

    def batch_log_likelihood(self, z: Position, rows):
        return self.model.batch_log_likelihood(self.change(z), rows)

    def log_likelihood(self, z: Position, datum):
        return self.model.log_likelihood(self.change(z), datum)

    def natural_log_likelihoods(self, position: Position, rows):
        return self.model.natural_log_likelihoods(position, rows)


def reparametrised(model: RegressionModel, data: Data, progress: bool | None) -> Reparametrised:
    """The model in coordinates in which each term's effects are about standard normal given all else.

    Raises:
        InputError: there are more effects than can be known together.
    """
    free = model.unconstrain(model.init())
    if size(free) > MAX_DENSE:
        raise InputError(
            f"several group terms have {size(free):,} parameters in all, and at most {MAX_DENSE:,} are sampled "
            "together; leave a term out, or write few levels as C(...)."
        )
    data, add_up = Data(data.rows, make_order(data.size, None, "full")), jax.jit(arrow_pass(model))
    log_prior = jax.jit(model.log_prior)
    before: tuple[float, Position] | None = None
    for _ in track(range(PASSES), "fitting", progress):
        found = host(add_up(data, free))
        data.check()
        value = found["value"] + float(log_prior(free))
        if before is not None and not value >= before[0] - abs(before[0]) * 1e-3:
            free = jax.tree.map(lambda x, y: (x + y) / 2, before[1], free)  # too far: half way back
            continue
        before, free = (value, free), stepped(model, free, found)
    assert before is not None
    free = before[1]
    return Reparametrised(model, whitened_at(model, free, host(add_up(data, free))))


def stepped(model: RegressionModel, free: Position, found: dict[str, Any]) -> Position:
    """Coefficients and each term's effects after a step of Newton's method with all others fixed, shortened since they
    all move; covariances by expectation and maximisation."""
    groups, moved = model.encoding.groups, dict(free)
    part, like = 1 / len(groups), free["b"].dtype
    slope = found["slope"] + np.asarray(
        jax.grad(lambda b: model.log_prior_without_effects({**free, "b": b}))(free["b"]), float
    )
    curvature = found["curvature"] + 1e-6 * np.diag(np.diag(found["curvature"]) + 1e-12)
    moved["b"] = free["b"] + jnp.asarray(part * np.linalg.solve(curvature, slope), like)
    moved |= family_step({name: x for name, x in free.items() if name == "family"}, found)
    for k, group in enumerate(groups):
        count, width = len(group.levels), len(group.names)
        u, log_sd = np.asarray(free[f"effect_{k}"], float), np.asarray(free[f"sd_{k}"], float)
        inverse = np.diag(np.exp(-2 * log_sd))  # correlations are left for later
        precision = found[f"information {k}"].reshape(count, width, width) + inverse
        covariance = np.linalg.inv(precision)
        u = u + part * np.einsum("gij,gj->gi", covariance, found[f"score {k}"] - u @ inverse)
        variance = (u**2).mean(0) + np.einsum("gii->i", covariance) / count
        first = np.asarray(model.unconstrain(model.init())[f"sd_{k}"], float)
        moved[f"effect_{k}"] = jnp.asarray(u, like)
        moved[f"sd_{k}"] = jnp.asarray(np.maximum(np.log(variance) / 2, first + np.log(LEAST_SD)), like)
    return moved
