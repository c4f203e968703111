"""The gradient of a regression from a few rows, with the first two derivatives at an anchor known for all rows.

A row's log likelihood depends on the coefficients through its linear predictor η alone. About an anchor its slope is
s₀ − w₀ (η − η₀), and the sum of that over all rows, with s₀ and w₀ of the anchor, is known from one pass: what is left
to chance is s − s₀ + w₀ (η − η₀), which is of second order in the distance. Where rows are many, and the posterior is
narrow, it is thousands of times smaller than the noise of a plain minibatch.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.flatten_util
import jax.numpy as jnp

from strang.data.batches import Batch, CutBatch, Data
from strang.gradients.estimators import ControlVariate
from strang.gradients.full import prior_gradient, sum_parts
from strang.regression.encoding import Rows
from strang.regression.fit import arrow_pass
from strang.regression.model import Position, RegressionModel
from strang.util.trees import axpy, subtract


class Known(NamedTuple):
    """The anchor, and the sums over all rows there."""

    position: Position
    sums: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Quadratic(ControlVariate):
    """A control variate of second order about an anchor, for regressions."""

    def prepare(self, model: RegressionModel, data: Data, position: Position, progress: bool | None) -> Known:  # type: ignore[override]
        point = super().prepare(model, data, position, progress).position
        return Known(point, jax.jit(arrow_pass(model, exact=True))(data, point))

    def difference(self, model: RegressionModel, anchor: Position, position: Position, rows: Rows) -> Position:
        return remainder(model, anchor, position, rows, None)

    def __call__(self, model, data: Data, shared: Any, carried, position: Position, batch: Batch, key) -> Position:
        known = linear(model, shared, subtract(position, shared.position))
        if isinstance(batch, CutBatch):

            def of_part(part, key):
                return remainder(model, shared.position, position, part.rows, part.weights)

            own = sum_parts(model, batch, key, of_part, position)
        else:
            own = remainder(model, shared.position, position, batch.rows, batch.weights)
        return axpy(-1.0, axpy(batch.scale, own, known), prior_gradient(model, position))


def linear(model: RegressionModel, shared: Known, change: Position) -> Position:
    """The gradient of the log likelihood of all rows, to first order about the anchor."""
    sums, b = shared.sums, change["b"]
    slope = sums["slope"] - sums["curvature"] @ b
    found: Position = {name: jnp.zeros_like(x) for name, x in change.items() if name != "family"}
    for k, group in enumerate(model.encoding.groups):
        u = change[f"effect_{k}"]
        cross = sums[f"cross {k}"].reshape(*u.shape, -1)
        information = sums[f"information {k}"].reshape(len(u), len(group.names), -1)
        own = jnp.tensordot(cross, b, 1) + jnp.einsum("gij,gj->gi", information, u)
        found[f"effect_{k}"] = sums[f"score {k}"] - own
        slope = slope - jnp.einsum("gi,gip->p", u, cross)
    found["b"] = slope
    if "family" in change:
        _, unravel = jax.flatten_util.ravel_pytree(change["family"])
        found["family"] = unravel(sums["family slope"])
    return found


def remainder(model: RegressionModel, anchor: Position, position: Position, rows: Rows, weights) -> Position:
    """Σ over rows of the gradient of the log likelihood, less what is known of it to first order about the anchor."""

    def log_likelihood(eta, q):
        terms = model.family.log_density(eta, rows["y"], model.parameters({"family": q}), rows.get("trials"))
        terms = terms * rows["weights"] if "weights" in rows else terms
        return jnp.sum(terms if weights is None else jnp.where(weights > 0, terms * weights, 0))

    here, there = (model.predictor(each, rows) for each in (position, anchor))
    q, q0 = (each.get("family", {}) for each in (position, anchor))
    slope = jax.grad(log_likelihood, argnums=(0, 1))
    s, own = slope(here, q)
    (s0, own0), (bend, _) = jax.jvp(lambda eta: slope(eta, q0), (there,), (jnp.ones_like(there),))
    jump, b = s - s0, position["b"] - anchor["b"]
    found: Position = {name: jnp.zeros_like(x) for name, x in position.items() if name != "family"}
    found["b"] = rows["x"].T @ (jump - bend * (here - there))
    groups = model.encoding.groups
    fixed = rows["x"] @ b if len(groups) > 1 else None
    for k, _ in enumerate(groups):
        numbers, z = rows[f"group_{k}"], rows.get(f"z_{k}")
        z = jnp.ones((len(numbers), 1), jump.dtype) if z is None else z
        change = here - there
        if fixed is not None:  # what two terms have in common is not known for all rows, and stays here
            u = (position[f"effect_{k}"] - anchor[f"effect_{k}"])[numbers]
            change = fixed + jnp.sum(u * z, axis=1)
        found[f"effect_{k}"] = found[f"effect_{k}"].at[numbers].add(z * (jump - bend * change)[:, None])
    if q:
        found["family"] = subtract(own, own0)
    return found
