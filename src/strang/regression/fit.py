"""Where the posterior of a regression with group terms is: a fit by Newton's method over all rows, in parts.

The matrix of second derivatives has the shape of an arrow: that of each group's effects, that of the other
coefficients, and what is between the two. One pass over the rows adds all of it up; then the effects are integrated out
as if the likelihood were normal, and coefficients and covariances maximise what is left (Laplace's approximation).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from strang.coordinates import Blocks, Chained, Dense, Diagonal, from_curvature
from strang.data.batches import Data
from strang.data.orders import make_order
from strang.gradients.full import full_gradient, sweep
from strang.gradients.mode import damped_step
from strang.regression.effects import Term, Whitened, precision_of
from strang.regression.model import RegressionModel
from strang.util.errors import InputError
from strang.util.progress import track

PASSES, HALVINGS, POLISH = 25, 6, 12
ROUNDED = 1e-6  # of a log density, up to which a fall is rounding
CLOSE, NEAR = 1e-3, 0.02  # nats that are still to be gained where the fit ends, and where its polish does
Position = dict[str, Any]


def fitted_coordinates(model: RegressionModel, data: Data, progress: bool | None) -> Chained | Dense:
    """Coordinates in which group effects are about standard normal, and all else has unit curvature at the mode."""
    data = Data(data.rows, make_order(data.size, None, "full"))
    add_up, derivatives = jax.jit(arrow_pass(model)), jax.jit(derivatives_of(surrogate(model)))
    log_prior = jax.jit(model.log_prior)
    free = before = model.unconstrain(model.init())
    least, halved = -np.inf, 0
    for _ in track(range(PASSES), "fitting", progress):
        found = host(add_up(data, free))
        data.check()
        value = found["value"] + float(log_prior(free))
        if not value >= least - ROUNDED * abs(least) and halved < HALVINGS:  # too far: half way back
            free, halved = jax.tree.map(lambda x, y: (x + y) / 2, before, free), halved + 1
            continue
        if not np.isfinite(value):
            raise InputError("the fit left the finite numbers; look at the scales of the columns.")
        after, gain = stepped(model, free, found, derivatives)
        if gain < CLOSE:
            break
        same = {name: x for name, x in free.items() if name == "b" or name.startswith("effect_")}
        least, halved = found["value"] + float(log_prior({**after, **same})), 0
        before, free = free, after
    return polished(model, data, free, host(add_up(data, free)), derivatives, progress)


def host(tree: Any) -> Any:
    return jax.tree.map(lambda x: np.asarray(x, float), tree)


def arrow_pass(model: RegressionModel, *, exact: bool = False) -> Callable:
    """A function of the data and a position: sums over all rows of derivatives of the log likelihood; rows whose second
    derivative has the wrong sign count as flat, unless what is wanted is exact."""
    groups = model.encoding.groups

    def of_rows(free: Position, rows, weights) -> dict[str, Any]:
        eta, q = model.predictor(free, rows), free.get("family", {})
        counted = jnp.ones(len(eta)) if weights is None else weights

        def log_likelihood(eta, q):
            terms = model.family.log_density(eta, rows["y"], model.parameters({"family": q}), rows.get("trials"))
            return jnp.sum(terms * counted * rows.get("weights", 1.0))

        slope = jax.grad(log_likelihood)
        s, bend = jax.jvp(lambda eta: slope(eta, q), (eta,), (jnp.ones_like(eta),))
        w, x = -bend if exact else jnp.maximum(-bend, 0.0), rows["x"]
        found = {"value": log_likelihood(eta, q), "slope": x.T @ s, "curvature": (x * w[:, None]).T @ x}
        if q:
            flat, unravel = ravel_pytree(q)
            own = jax.grad(lambda v: log_likelihood(eta, unravel(v)))
            found |= {"family slope": own(flat), "family curvature": -jax.jacfwd(own)(flat)}
        for k, group in enumerate(groups):
            z = rows[f"z_{k}"] if f"z_{k}" in rows else jnp.ones((len(s), 1))
            columns = [
                s[:, None] * z,
                (w[:, None, None] * z[:, :, None] * z[:, None, :]).reshape(len(s), -1),
                (w[:, None, None] * z[:, :, None] * x[:, None, :]).reshape(len(s), -1),
            ]
            names = "score", "information", "cross"
            for name, values in zip(names, columns, strict=True):
                found[f"{name} {k}"] = jax.ops.segment_sum(values, rows[f"group_{k}"], len(group.levels))
        return found

    def add_up(data: Data, free: Position) -> dict[str, Any]:
        shapes = jax.eval_shape(lambda: of_rows(free, data.take(jnp.zeros(2, jnp.uint32)), None))
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        return sweep(data, lambda rows, weights, k: of_rows(free, rows, weights), nothing)

    return add_up


def whitened_at(model: RegressionModel, free: Position, found: dict[str, Any]) -> Whitened:
    """The change of variables about a position, from the sums there."""
    terms = []
    for k, group in enumerate(model.encoding.groups):
        size, count = len(group.names), len(group.levels)
        information = found[f"information {k}"].reshape(count, size, size)
        score = found[f"score {k}"] + np.einsum("gij,gj->gi", information, np.asarray(free[f"effect_{k}"], float))
        terms.append(Term(information, score, found[f"cross {k}"].reshape(count, size, -1)))
    b, precision = np.asarray(free["b"], float), np.asarray(precision_of(model.family.name, free), float)
    return jax.tree.map(
        lambda x: jnp.asarray(x, jnp.result_type(float)), Whitened(tuple(terms), b, precision, model.family.name)
    )


def globals_of(free: Position, *without: str) -> Position:
    """All but the effects."""
    return {name: x for name, x in free.items() if not name.startswith("effect_") and name not in without}


def surrogate(model: RegressionModel) -> Callable:
    """−log of the posterior of all but effects and the family's parameters, up to a constant, with effects integrated
    out as if the likelihood were what it is to second order about the fit."""

    def minus_log(some: Position, q: Position, whitened: Whitened, found: dict[str, Any], effects: dict[str, Any]):
        free, change = {**some, **q}, some["b"] - whitened.b
        total = found["slope"] @ change - change @ found["curvature"] @ change / 2
        for k, term in enumerate(whitened.terms):
            _, lower, mean = term.given(change, some[f"sd_{k}"], some.get(f"cor_{k}"), 1.0)
            total += sum(jnp.sum(x**2) / 2 - jnp.sum(jnp.log(lower[j][j])) for j, x in enumerate(mean))
            total += jnp.sum(effects[f"effect_{k}"] * jnp.tensordot(term.cross, change, 1))
        return -total - model.log_prior_without_effects(free)

    return minus_log


def stepped(model: RegressionModel, free: Position, found: dict[str, Any], derivatives) -> tuple[Position, float]:
    """One step of the fit, and the nats that it promises: coefficients and covariances from the surrogate, the family's
    parameters by Newton's method, effects at their means."""
    whitened = whitened_at(model, free, found)
    effects = {name: x for name, x in free.items() if name.startswith("effect_")}
    q = {name: x for name, x in free.items() if name == "family"}
    some, gain = maximised(derivatives, globals_of(free, "family"), q, whitened, found, effects)
    return whitened({**some, **family_step(q, found), **jax.tree.map(jnp.zeros_like, effects)}), gain


def derivatives_of(function: Callable) -> Callable:
    """Value, gradient and matrix of second derivatives of a function of a tree, as a vector."""

    def found(tree: Position, *given):
        flat, unravel = ravel_pytree(tree)

        def vectorised(v):
            return function(unravel(v), *given)

        value, slope = jax.value_and_grad(vectorised)(flat)
        return value, slope, jax.jacfwd(jax.grad(vectorised))(flat)

    return found


def maximised(derivatives: Callable, some: Position, *given) -> tuple[Position, float]:
    """The position after a few damped steps, and the nats that the first one promised."""
    flat, unravel = ravel_pytree(some)
    point, damping, first = np.asarray(flat, float), 1e-4, np.inf
    value, slope, curvature = (
        np.asarray(x, float) for x in derivatives(unravel(jnp.asarray(point, flat.dtype)), *given)
    )
    for count in range(12):
        move, gain = damped_step(slope, curvature, damping)
        first = gain if count == 0 else first
        if gain < CLOSE / 10 or damping > 1e8:
            break
        after = [np.asarray(x, float) for x in derivatives(unravel(jnp.asarray(point + move, flat.dtype)), *given)]
        if np.isfinite(after[0]) and after[0] <= value + 1e-6 * abs(value):
            point, damping, (value, slope, curvature) = point + move, damping / 10, after
        else:
            damping = max(10 * damping, 1e-3)
    return unravel(jnp.asarray(point, flat.dtype)), float(first)


def family_step(q: Position, found: dict[str, Any]) -> Position:
    """The family's parameters after a step of Newton's method, of length 1 at most."""
    if not q:
        return {}
    flat, unravel = ravel_pytree(q)
    move, _ = damped_step(-found["family slope"], found["family curvature"], 1e-3)
    return unravel(flat + jnp.asarray(np.clip(move, -1, 1), flat.dtype))


def polished(
    model: RegressionModel,
    data: Data,
    free: Position,
    found: dict[str, Any],
    derivatives: Callable,
    progress: bool | None,
) -> Chained | Dense:
    """The mode of all but effects where these are at their conditional means, by Newton's method with exact gradients;
    second derivatives are the surrogate's, from `derivatives`, but for the family's parameters."""
    whitened = whitened_at(model, free, found)
    effects = {name: x for name, x in free.items() if name.startswith("effect_")}
    nothing, some = jax.tree.map(jnp.zeros_like, effects), globals_of(free)
    key = jnp.zeros(2, jnp.uint32)

    def slope_of(some, whitened, data):
        z = {**some, **nothing}
        return globals_of(whitened.pull_back(z, full_gradient(model, data, whitened(z), key)))

    @jax.jit
    def slope(some, whitened, data):
        return ravel_pytree(slope_of(some, whitened, data))[0]

    @jax.jit
    def columns(some, whitened, data):
        flat, unravel = ravel_pytree(some.get("family", {}))

        def at(v):
            changed = {**some, "family": unravel(v)} if len(flat) else some
            return ravel_pytree(slope_of(changed, whitened, data))[0]

        return jax.jacfwd(at)(flat)

    flat, unravel = ravel_pytree(some)
    for _ in track(range(POLISH), "finding the mode", progress):
        gradient = np.asarray(slope(some, whitened, data), float)
        data.check()
        hessian = assembled(some, derivatives, columns, whitened, data, found, effects)
        move, gain = damped_step(gradient, hessian, 0.0)
        if gain < NEAR**2 or not np.isfinite(gain):
            break
        longest = np.abs(move * np.sqrt(np.abs(np.diag(hessian)))).max()
        point = np.asarray(ravel_pytree(some)[0], float) + move * min(1.0, 3.0 / max(longest, 1e-12))
        some = unravel(jnp.asarray(point, flat.dtype))
    dense: Any = from_curvature(some, hessian, dense=True, least=1e-8)
    if not effects:
        return dense
    ones = jax.tree.map(jnp.ones_like, effects)
    return Chained(whitened, Blocks(dense, Diagonal(nothing, ones)))


def assembled(some: Position, derivatives, columns, whitened: Whitened, data: Data, found, effects) -> np.ndarray:
    """The matrix of second derivatives of all but effects."""
    q = {name: x for name, x in some.items() if name == "family"}
    rest = globals_of(some, "family")
    names = np.concatenate([np.full(ravel_pytree(x)[0].shape, name == "family") for name, x in sorted(some.items())])
    matrix = np.zeros((len(names), len(names)))
    inner = np.asarray(derivatives(rest, q, whitened, found, effects)[2], float)
    matrix[np.ix_(~names, ~names)] = inner
    if q:
        own = np.asarray(columns(some, whitened, data), float)
        data.check()
        matrix[:, names] = own
        matrix[names, :] = own.T
        matrix[np.ix_(names, names)] = (own[names] + own[names].T) / 2
    return matrix
