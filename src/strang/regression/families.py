"""What a response may be: the log density of a row given its linear predictor, its mean, and draws of it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln, gammaln, log_ndtr, ndtr

from strang.util.errors import choose

Parameters = dict[str, Any]


@dataclass(frozen=True)
class Family:
    """A distribution of the response y, given the linear predictor η and parameters of its own.

    Attributes:
        name: as it is given.
        link: from the mean to η.
        positive: names of parameters that are positive numbers, with their default priors; `sigma` and its prior are
            in units of the response's standard deviation.
        log_density: of (η, y, parameters, trials), complete with its constants.
        mean: of y, from (η, parameters); of categories, the probability of each.
        draw: of (key, η, parameters, trials) to a y.
        response: what y is: a number, a class, or an ordered class.
        support: a sentence on what y must be, and whether it is.
        precision: by what factor the information of a row on η grows with the parameters.
    """

    name: str
    link: str
    positive: dict[str, str]
    log_density: Callable
    mean: Callable
    draw: Callable
    response: str = "number"
    support: tuple[str, Callable] = ("a number", np.isfinite)
    precision: Callable = lambda parameters: 1.0


def whole(y: np.ndarray) -> np.ndarray:
    return (y >= 0) & (y == np.floor(y))


def normal(eta, y, q: Parameters, trials):
    return -(((y - eta) / q["sigma"]) ** 2) / 2 - jnp.log(q["sigma"]) - jnp.log(2 * jnp.pi) / 2


def student(eta, y, q: Parameters, trials):
    nu, z = q["nu"], (y - eta) / q["sigma"]
    constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - jnp.log(jnp.pi * nu) / 2 - jnp.log(q["sigma"])
    return constant - (nu + 1) / 2 * jnp.log1p(z**2 / nu)


LINKS: dict[str, tuple[Callable, Callable, Callable]] = {  # probability, and log probabilities of 1 and of 0
    "logit": (jax.nn.sigmoid, jax.nn.log_sigmoid, lambda eta: jax.nn.log_sigmoid(-eta)),
    "probit": (ndtr, log_ndtr, lambda eta: log_ndtr(-eta)),
    "cloglog": (
        lambda eta: -jnp.expm1(-jnp.exp(eta)),
        lambda eta: jnp.log(-jnp.expm1(-jnp.exp(eta))),
        lambda eta: -jnp.exp(eta),
    ),
}


def tosses(name: str, link: str) -> Family:
    """Bernoulli and binomial responses."""
    probability, yes, no = LINKS[link]
    if name == "bernoulli":
        return Family(
            name, link, {},
            lambda eta, y, q, trials: y * yes(eta) + (1 - y) * no(eta),
            lambda eta, q: probability(eta),
            lambda key, eta, q, trials: jax.random.bernoulli(key, probability(eta)).astype(float),
            support=("0 or 1, or one of two classes", lambda y: (y == 0) | (y == 1)),
        )  # fmt: skip

    def log_density(eta, y, q, trials):
        ways = gammaln(trials + 1) - gammaln(y + 1) - gammaln(trials - y + 1)
        return ways + y * yes(eta) + (trials - y) * no(eta)

    return Family(
        name, link, {}, log_density, lambda eta, q: probability(eta),
        lambda key, eta, q, trials: jax.random.binomial(key, trials, probability(eta)),
        support=("a whole number of successes, at most as many as trials", whole),
    )  # fmt: skip


def poisson(eta, y, q: Parameters, trials):
    return y * eta - jnp.exp(eta) - gammaln(y + 1)


def negative_binomial(eta, y, q: Parameters, trials):
    alpha = q["alpha"]
    odds, some = eta - jnp.log(alpha), jnp.where(y > 0, y, 1.0)
    more = jax.nn.softplus(odds)  # log(1 + μ/α)
    # log Γ(y + α) − log Γ(α) − log Γ(y + 1), in which large numbers would cancel
    ways = jnp.where(y > 0, -betaln(alpha + jnp.zeros_like(y), some) - jnp.log(some), 0.0)
    return ways - alpha * more + y * (odds - more)


def draw_negative_binomial(key, eta, q: Parameters, trials):
    one, other = jax.random.split(key)
    rate = jax.random.gamma(one, q["alpha"], eta.shape) / q["alpha"] * jnp.exp(eta)
    return jax.random.poisson(other, rate).astype(float)


def gamma(eta, y, q: Parameters, trials):
    alpha = q["alpha"]
    return alpha * jnp.log(alpha) - gammaln(alpha) + (alpha - 1) * jnp.log(y) - alpha * (eta + y * jnp.exp(-eta))


def logits(eta):
    """Of all classes, from those of all but the first."""
    return jnp.concatenate([jnp.zeros_like(eta[..., :1]), eta], axis=-1)


def categorical(eta, y, q: Parameters, trials):
    each = jax.nn.log_softmax(logits(eta))
    return jnp.take_along_axis(each, y.astype(int)[..., None], axis=-1)[..., 0]


def cumulative(eta, y, q: Parameters, trials):
    """log[s(c_y − η) − s(c_{y−1} − η)], as s(a) s(−b) (1 − e^{b−a}), which does not cancel."""
    cuts, k = q["cuts"], y.astype(int)
    upper, lower = cuts[jnp.minimum(k, len(cuts) - 1)] - eta, cuts[jnp.maximum(k - 1, 0)] - eta
    first, last = k == 0, k == len(cuts)
    gap = jnp.where(first | last, 1.0, upper - lower)
    inner = jnp.where(first | last, 0.0, jnp.log(-jnp.expm1(-gap)))
    below, above = jnp.where(last, 0.0, jax.nn.log_sigmoid(upper)), jnp.where(first, 0.0, jax.nn.log_sigmoid(-lower))
    return inner + below + above


def ordinal_probabilities(eta, q: Parameters):
    below = jax.nn.sigmoid(q["cuts"] - eta[..., None])
    ends = jnp.concatenate([jnp.zeros_like(below[..., :1]), below, jnp.ones_like(below[..., :1])], axis=-1)
    return jnp.diff(ends, axis=-1)


def draw_ordinal(key, eta, q: Parameters, trials):
    noisy = eta + jax.random.logistic(key, eta.shape)
    return jnp.sum(noisy[..., None] > q["cuts"], axis=-1).astype(float)


FAMILIES: dict[str, Callable[[str | None], Family]] = {
    "normal": lambda link: Family(
        "normal", "identity", {"sigma": "half_student_t(4, 1)"}, normal, lambda eta, q: eta,
        lambda key, eta, q, trials: eta + q["sigma"] * jax.random.normal(key, eta.shape),
        precision=lambda q: q["sigma"] ** -2,
    ),
    "student": lambda link: Family(
        "student", "identity", {"sigma": "half_student_t(4, 1)", "nu": "gamma(2, 0.1)"}, student, lambda eta, q: eta,
        lambda key, eta, q, trials: eta + q["sigma"] * jax.random.t(key, q["nu"], eta.shape),
        precision=lambda q: q["sigma"] ** -2,
    ),
    "bernoulli": lambda link: tosses("bernoulli", link or "logit"),
    "binomial": lambda link: tosses("binomial", link or "logit"),
    "poisson": lambda link: Family(
        "poisson", "log", {}, poisson, lambda eta, q: jnp.exp(eta),
        lambda key, eta, q, trials: jax.random.poisson(key, jnp.exp(eta)).astype(float),
        support=("a whole number, 0 or more", whole),
    ),
    "negative_binomial": lambda link: Family(
        "negative_binomial", "log", {"alpha": "half_cauchy(1)"}, negative_binomial, lambda eta, q: jnp.exp(eta),
        draw_negative_binomial, support=("a whole number, 0 or more", whole),
    ),
    "gamma": lambda link: Family(
        "gamma", "log", {"alpha": "half_cauchy(1)"}, gamma, lambda eta, q: jnp.exp(eta),
        lambda key, eta, q, trials: jax.random.gamma(key, q["alpha"], eta.shape) / q["alpha"] * jnp.exp(eta),
        support=("a positive number", lambda y: y > 0), precision=lambda q: q["alpha"],
    ),
    "categorical": lambda link: Family(
        "categorical", "softmax", {}, categorical, lambda eta, q: jax.nn.softmax(logits(eta)),
        lambda key, eta, q, trials: jax.random.categorical(key, logits(eta)).astype(float),
        response="class", support=("one of at least two classes", np.isfinite),
    ),
    "ordinal": lambda link: Family(
        "ordinal", "logit", {}, cumulative, ordinal_probabilities, draw_ordinal,
        response="ordered class", support=("one of at least three classes in order", np.isfinite),
    ),
}  # fmt: skip
ALIASES = {"gaussian": "normal", "student_t": "student", "t": "student", "negbinomial": "negative_binomial"}


def family_of(text: Any) -> Family:
    """The family that a text such as `poisson` or `bernoulli(probit)` names.

    >>> family_of("bernoulli(probit)").link
    'probit'
    """
    match = re.fullmatch(r"\s*([\w-]+)\s*(?:\(\s*(\w+)\s*\))?\s*", text) if isinstance(text, str) else None
    name = match[1].replace("-", "_").lower() if match else str(text)
    name, link = ALIASES.get(name, name), match[2] if match else None
    if name not in FAMILIES:
        raise choose("family", text, FAMILIES)
    default = FAMILIES[name](None)
    allowed = tuple(LINKS) if name in ("bernoulli", "binomial") else (default.link,)
    if link is not None and link not in allowed:
        raise choose(f"the link of {name}", link, allowed)
    return FAMILIES[name](link)
