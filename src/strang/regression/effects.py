"""Group effects in coordinates in which they are about independent, of each other and of all else.

In the neighbourhood of a fit (β₀, u₀) the rows of group g contribute to the log likelihood about
    s·(u − u₀) − ½ (u − u₀)ᵀ I (u − u₀) − (u − u₀)ᵀ C (β − β₀),
with the score s, the information I of its k effects, and C, theirs with the other coefficients. With u = A v, where
Σ = A Aᵀ is the covariance of the effects and v standard normal a priori, v is then normal given β and Σ, with precision
    P = 1 + Aᵀ I A = R Rᵀ   and mean   P⁻¹ Aᵀ c,   c = s + I u₀ − C (β − β₀).
Chains move z, with v = R⁻ᵀ (R⁻¹ Aᵀ c + z). That is a change of variables and no approximation, whatever the likelihood:
it is exactly white where that is normal, centred where a group has many rows, and non-centred where it has few. Where a
parameter σ of the family scales the information, I and c are multiplied by r = σ₀²/σ².
"""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from strang.regression.covariance import Matrix, cholesky, root, solve_lower, solve_upper

Position = dict[str, Any]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Term:
    """What is known of a group term at a fit, group by group: I (groups, k, k), s + I u₀ (groups, k), and C (groups, k,
    coefficients)."""

    information: Any
    score: Any
    cross: Any

    def given(self, change, log_sd, partial, ratio) -> tuple[Matrix, Matrix, list]:
        """A, R and R⁻¹ Aᵀ c, where the coefficients are changed by so much; elements are arrays over groups."""
        size = self.score.shape[1]
        a = root(log_sd, partial)
        linear = ratio * (self.score - jnp.tensordot(self.cross, change, 1))
        right = [sum(a[m][i] * linear[:, m] for m in range(i, size)) for i in range(size)]
        precision: Matrix = [[None] * size for _ in range(size)]
        for j in range(size):
            for i in range(j + 1):
                inner = sum(
                    a[m][j] * a[n][i] * self.information[:, m, n] for m in range(j, size) for n in range(i, size)
                )
                precision[j][i] = ratio * inner + (i == j)
        lower = cholesky(precision)
        return a, lower, solve_lower(lower, right)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Whitened:
    """Coordinates of a regression with group terms: effects become about standard normal, all else stays.

    Attributes:
        terms: one for each group term.
        b: the coefficients at the fit.
        precision: of the family at the fit.
        family: its name.
    """

    terms: tuple[Term, ...]
    b: Any
    precision: Any
    family: str = field(metadata={"static": True})

    def ratio(self, free: Position):
        """By how much the information of rows differs from that at the fit."""
        return precision_of(self.family, free) / self.precision

    def with_volume(self, z: Position) -> tuple[Position, Any]:
        """The position, and the logarithm of the volume by which it is stretched."""
        position, volume = dict(z), jnp.zeros(())
        for k, term in enumerate(self.terms):
            own = z[f"effect_{k}"]
            a, lower, mean = term.given(z["b"] - self.b, z[f"sd_{k}"], z.get(f"cor_{k}"), self.ratio(z))
            size = len(a)
            v = solve_upper(lower, [mean[j] + own[:, j] for j in range(size)])
            effects = [sum(a[j][i] * v[i] for i in range(j + 1)) for j in range(size)]
            position[f"effect_{k}"] = jnp.stack(effects, axis=1)
            volume += len(own) * sum(jnp.log(a[j][j]) for j in range(size))
            volume -= sum(jnp.sum(jnp.log(lower[j][j])) for j in range(size))
        return position, volume

    def __call__(self, z: Position) -> Position:
        return self.with_volume(z)[0]

    def inverse(self, position: Position) -> Position:
        z = dict(position)
        for k, term in enumerate(self.terms):
            u = position[f"effect_{k}"]
            change, partial = position["b"] - self.b, position.get(f"cor_{k}")
            a, lower, mean = term.given(change, position[f"sd_{k}"], partial, self.ratio(position))
            v = solve_lower(a, [u[:, j] for j in range(len(a))])
            turned = [sum(lower[m][j] * v[m] for m in range(j, len(a))) for j in range(len(a))]
            z[f"effect_{k}"] = jnp.stack([x - y for x, y in zip(turned, mean, strict=True)], axis=1)
        return z

    def pull_back(self, z: Position, gradient: Position) -> Position:
        _, back = jax.vjp(self.with_volume, z)
        return back((gradient, -jnp.ones((), z["b"].dtype)))[0]


def precision_of(family: str, free: Position):
    """The factor of the information of rows that is a parameter."""
    q = free.get("family", {})
    if family in ("normal", "student"):
        return jnp.exp(-2 * q["sigma"])
    return jnp.exp(q["alpha"]) if family == "gamma" else jnp.ones(())
