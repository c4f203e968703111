"""Priors by name, such as `normal(0, 2.5)`, and the weakly informative ones that are taken by default."""

import re
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax.scipy.special import gammaln

from strang.util.errors import InputError, choose


def student_t(x, df, mean, scale):
    z = (x - mean) / scale
    constant = gammaln((df + 1) / 2) - gammaln(df / 2) - jnp.log(jnp.pi * df) / 2
    return constant - jnp.log(scale) - (df + 1) / 2 * jnp.log1p(z**2 / df)


def normal(x, mean, scale):
    return -(((x - mean) / scale) ** 2) / 2 - jnp.log(scale) - jnp.log(2 * jnp.pi) / 2


KINDS: dict[str, Any] = {  # log densities of x and the arguments; those of positive numbers last
    "normal": normal,
    "student_t": student_t,
    "cauchy": lambda x, mean, scale: student_t(x, 1.0, mean, scale),
    "laplace": lambda x, mean, scale: -jnp.abs(x - mean) / scale - jnp.log(2 * scale),
    "flat": lambda x: 0.0 * x,
    "half_normal": lambda x, scale: normal(x, 0.0, scale) + jnp.log(2.0),
    "half_student_t": lambda x, df, scale: student_t(x, df, 0.0, scale) + jnp.log(2.0),
    "half_cauchy": lambda x, scale: student_t(x, 1.0, 0.0, scale) + jnp.log(2.0),
    "exponential": lambda x, rate: jnp.log(rate) - rate * x,
    "gamma": lambda x, shape, rate: shape * jnp.log(rate) - gammaln(shape) + (shape - 1) * jnp.log(x) - rate * x,
    "inverse_gamma": lambda x, shape, scale: (
        shape * jnp.log(scale) - gammaln(shape) - (shape + 1) * jnp.log(x) - scale / x
    ),
    "lkj": lambda x, shape: 0.0 * x,  # of correlation matrices: see `strang.regression.covariance`
}
ARGUMENTS = {
    "normal": "mean, scale", "student_t": "df, mean, scale", "cauchy": "mean, scale", "laplace": "mean, scale",
    "flat": "", "half_normal": "scale", "half_student_t": "df, scale", "half_cauchy": "scale", "exponential": "rate",
    "gamma": "shape, rate", "inverse_gamma": "shape, scale", "lkj": "shape",
}  # fmt: skip
REAL = ("normal", "student_t", "cauchy", "laplace", "flat")
POSITIVE = ("half_normal", "half_student_t", "half_cauchy", "exponential", "gamma", "inverse_gamma")


@dataclass(frozen=True)
class Prior:
    """A distribution by its name and numbers.

    Example:
        >>> print(prior("normal(0, 2.5)"))
        normal(0, 2.5)
    """

    kind: str
    numbers: tuple[float, ...]

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(f'{number:.4g}' for number in self.numbers)})"

    def log_density(self, x):
        """Of each of some numbers."""
        return KINDS[self.kind](x, *self.numbers)


def prior(text: Any, kinds: tuple[str, ...] = (*REAL, *POSITIVE, "lkj"), what: str = "the prior") -> Prior:
    """The prior that a text such as `student_t(3, 0, 2.5)` names, if it is one of these kinds."""
    if isinstance(text, Prior):
        found = text
    else:
        match = re.fullmatch(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*", text) if isinstance(text, str) else None
        if match is None:
            raise InputError(f"{what} is {text!r}; write a name and numbers, such as 'normal(0, 2.5)'.")
        try:
            numbers = tuple(float(each) for each in (match[2] or "").split(",") if each.strip())
        except ValueError:
            raise InputError(f"{what} is {text!r}; write numbers between the brackets.") from None
        found = Prior(match[1], numbers)
    if found.kind not in kinds:
        raise choose(what, str(text), [f"{kind}({ARGUMENTS[kind]})" for kind in kinds])
    wanted = [name for name in ARGUMENTS[found.kind].split(", ") if name]
    positive = found.numbers[1:] if wanted[:1] == ["mean"] else found.numbers[:1] + found.numbers[2:]
    positive = found.numbers if "mean" not in wanted else positive
    if len(found.numbers) != len(wanted) or not all(0 < number < float("inf") for number in positive):
        raise InputError(
            f"{what} is {text!r}; write {found.kind}({ARGUMENTS[found.kind]}) with numbers that are positive but for "
            "a mean."
        )
    return found
