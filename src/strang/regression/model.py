"""The posterior of a regression: priors in the table's own units, the likelihood of rows, and names for all of it."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.models.base import OneOfBatch
from strang.regression import covariance
from strang.regression.encoding import INTERCEPT, Encoding, Rows
from strang.regression.families import Family
from strang.regression.priors import Prior

Position = dict[str, Any]


@dataclass(frozen=True, eq=False)
class RegressionModel:
    """The model that is sampled. Chains move `b`, coefficients of standardised columns, logarithms of what is positive,
    and the effects of groups in units of their columns' scales; users see the table's own units.

    Attributes:
        encoding: the columns, their scales, the groups.
        priors: by the names of what they are on.
        labels: what the summary calls each number.
    """

    encoding: Encoding
    priors: dict[str, Prior]
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def family(self) -> Family:
        return self.encoding.family

    @property
    def outputs(self) -> tuple[int, ...]:
        """The axes of a coefficient: one for each class but the first, where the response is a class."""
        return (len(self.encoding.levels) - 1,) if self.family.name == "categorical" else ()

    def init(self, key=None) -> Position:
        """A start, on the scale of users."""
        e, q = self.encoding, {}
        free: Position = {"b": jnp.zeros((len(e.names), *self.outputs))}
        if e.intercept is not None and not self.outputs:
            free["b"] = free["b"].at[e.intercept].set(start_of_intercept(e))
        if self.family.positive:
            starts = {"sigma": e.y_sd or 1.0, "nu": 10.0, "alpha": 2.0}
            q = {name: jnp.log(jnp.asarray(starts[name], jnp.result_type(float))) for name in self.family.positive}
        if self.family.name == "ordinal":
            q = {"cuts": jnp.concatenate([jnp.array([-1.0]), jnp.full(len(e.levels) - 2, -0.5)])}
        free |= {"family": q} if q else {}
        for k, group in enumerate(e.groups):
            width = len(group.names)
            free[f"sd_{k}"] = jnp.full(width, np.log(0.3 * (e.y_sd if self.scaled else 1.0)))
            free |= {f"cor_{k}": jnp.zeros(width * (width - 1) // 2)} if width > 1 else {}
            free[f"effect_{k}"] = jnp.zeros((len(group.levels), width))
        return self.constrain(jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(float)), free))

    @property
    def scaled(self) -> bool:
        """Whether the linear predictor is in units of the response."""
        return self.family.link == "identity"

    def constrain(self, free: Position) -> Position:
        """In the table's own units."""
        e, q = self.encoding, self.parameters(free)
        scale, centre = as_floats(e.scale, free["b"]), as_floats(e.centre, free["b"])
        natural = (free["b"].T / scale).T
        shift = jnp.tensordot(centre / scale, free["b"], 1)
        if e.intercept is not None:
            natural = natural.at[e.intercept].add(-shift)
        if "cuts" in q:
            q = {"cuts": q["cuts"] + shift}
        found: Position = {"coefficient": natural, **({"family": q} if q else {})}
        for k, group in enumerate(e.groups):
            own = as_floats(group.scale, free["b"])
            found[f"sd_{k}"] = jnp.exp(free[f"sd_{k}"]) / own
            if len(group.names) > 1:
                found[f"cor_{k}"] = covariance.correlations(free[f"cor_{k}"], len(group.names))
            found[f"effect_{k}"] = free[f"effect_{k}"] / own
        return found

    def unconstrain(self, position: Position) -> Position:
        """The way back."""
        e, natural = self.encoding, position["coefficient"]
        scale, centre = as_floats(e.scale, natural), as_floats(e.centre, natural)
        b = (natural.T * scale).T
        shift = jnp.tensordot(centre, natural, 1)
        if e.intercept is not None:
            b = b.at[e.intercept].add(shift)
        free: Position = {"b": b}
        q = position.get("family", {})
        if "cuts" in q:
            cuts = q["cuts"] - shift
            free["family"] = {"cuts": jnp.concatenate([cuts[:1], jnp.log(jnp.diff(cuts))])}
        elif q:
            free["family"] = {name: jnp.log(value) for name, value in q.items()}
        for k, group in enumerate(e.groups):
            own = as_floats(group.scale, natural)
            free[f"sd_{k}"] = jnp.log(position[f"sd_{k}"] * own)
            if len(group.names) > 1:
                free[f"cor_{k}"] = covariance.free_correlations(position[f"cor_{k}"], len(group.names))
            free[f"effect_{k}"] = position[f"effect_{k}"] * own
        return free

    def parameters(self, free: Position) -> dict[str, Any]:
        """The family's own parameters; thresholds are those at the columns' means."""
        q = free.get("family", {})
        if "cuts" in q:
            return {"cuts": jnp.cumsum(jnp.concatenate([q["cuts"][:1], jnp.exp(q["cuts"][1:])]))}
        return {name: jnp.exp(value) for name, value in q.items()}

    def log_prior(self, free: Position):
        """With the logarithm of the volume by which transforms stretch."""
        total = self.log_prior_without_effects(free)
        for k, _ in enumerate(self.encoding.groups):
            total += covariance.log_normal(free[f"effect_{k}"], free[f"sd_{k}"], free.get(f"cor_{k}"))
        return total

    def log_prior_without_effects(self, free: Position):
        """Of all but the effects of groups, which are given the rest."""
        e, total, q = self.encoding, jnp.zeros(()), self.parameters(free)
        for prior, places in self.coefficient_priors():
            scale = np.where(np.array(e.names)[places] == INTERCEPT, 1.0, e.scale[places])
            total += jnp.sum(prior.log_density((free["b"][places].T / as_floats(scale, free["b"])).T))
        for name, value in q.items():
            raw = free["family"][name]
            total += jnp.sum(self.priors[name].log_density(value)) + (jnp.sum(raw[1:]) if name == "cuts" else raw)
        for k, group in enumerate(e.groups):
            log_sd, own = free[f"sd_{k}"], as_floats(group.scale, free["b"])
            for j, name in enumerate(group.names):
                prior = self.priors[f"sd({name} | {group.name})"]
                total += prior.log_density(jnp.exp(log_sd[j]) / own[j]) + log_sd[j]
            partial = free.get(f"cor_{k}")
            if partial is not None:
                shape = self.priors[f"cor({group.name})"].numbers[0]
                total += covariance.log_lkj(partial, len(group.names), shape)
        return total

    def coefficient_priors(self) -> list[tuple[Prior, np.ndarray]]:
        """Coefficients with the same prior, together."""
        found: dict[Prior, list[int]] = {}
        for place, name in enumerate(self.encoding.names):
            found.setdefault(self.priors[name], []).append(place)
        return [(prior, np.array(places)) for prior, places in found.items()]

    def predictor(self, free: Position, rows: Rows):
        """The linear predictor η of each row."""
        eta = rows["x"] @ free["b"]
        eta = eta + rows["offset"] if "offset" in rows else eta
        for k, _ in enumerate(self.encoding.groups):
            effects = free[f"effect_{k}"][rows[f"group_{k}"]]
            eta = eta + (effects[:, 0] if f"z_{k}" not in rows else jnp.sum(effects * rows[f"z_{k}"], axis=1))
        return eta

    def batch_log_likelihood(self, free: Position, rows: Rows):
        terms = self.family.log_density(
            self.predictor(free, rows), rows["y"], self.parameters(free), rows.get("trials")
        )
        return terms * rows["weights"] if "weights" in rows else terms

    def log_likelihood(self, free: Position, datum: Rows):
        return OneOfBatch(self.batch_log_likelihood)(free, datum)

    def natural_log_likelihoods(self, position: Position, rows: Rows):
        """The log likelihood of each row, at a position in the table's units."""
        return self.batch_log_likelihood(self.unconstrain(position), rows)


def as_floats(array: np.ndarray, like) -> jax.Array:
    return jnp.asarray(array, like.dtype)


def start_of_intercept(encoding: Encoding) -> float:
    """Where the linear predictor is on average, roughly."""
    mean, link = encoding.y_mean, encoding.family.link
    if link == "identity":
        return mean
    return float(np.log(max(mean, 1e-3))) if link == "log" else 0.0


def labels_of(encoding: Encoding) -> dict[str, str]:
    """What people call each number of a position, by its name in the tree."""
    levels = encoding.levels
    found: dict[str, str] = {}
    for place, name in enumerate(encoding.names):
        if encoding.family.name == "categorical":
            found |= {f"coefficient[{place},{c}]": f"{levels[c + 1]}: {name}" for c in range(len(levels) - 1)}
        else:
            found[f"coefficient[{place}]"] = name
    found |= {f"family.{name}": name for name in encoding.family.positive}
    found |= {f"family.cuts[{c}]": f"{levels[c]} | {levels[c + 1]}" for c in range(max(len(levels) - 1, 0))}
    for k, group in enumerate(encoding.groups):
        names = group.names
        found |= {f"sd_{k}[{j}]": f"sd({name} | {group.name})" for j, name in enumerate(names)}
        pairs = [(i, j) for j in range(len(names)) for i in range(j)]
        found |= {f"cor_{k}[{n}]": f"cor({names[i]}, {names[j]} | {group.name})" for n, (i, j) in enumerate(pairs)}
        for g, level in enumerate(group.levels):
            found |= {f"effect_{k}[{g},{j}]": f"{name} | {group.name}[{level}]" for j, name in enumerate(names)}
    return found
