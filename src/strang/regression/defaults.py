"""The priors of a regression: weakly informative ones, scaled by the data, and those that are given instead.

As in rstanarm and Bambi a coefficient's prior is as wide as 2.5 standard deviations of the response (or 2.5 on the
scale of a logarithm) for one standard deviation of its column. The intercept's is on the linear predictor at the
columns' means.
"""

from difflib import get_close_matches
from typing import Any

import numpy as np

from strang.regression.encoding import INTERCEPT, Encoding
from strang.regression.model import start_of_intercept
from strang.regression.priors import POSITIVE, REAL, Prior, prior
from strang.util.errors import InputError

WIDTH = 2.5


def all_priors(encoding: Encoding, given: Any) -> dict[str, Prior]:
    """A prior for everything that has one, by name."""
    e, family = encoding, encoding.family
    unit = e.y_sd if family.link == "identity" else 1.0
    if e.intercept is None and family.link == "identity":
        unit = float(np.hypot(e.y_mean, e.y_sd))
    found: dict[str, Prior] = {}
    for name, scale in zip(e.names, e.scale, strict=True):
        centre = start_of_intercept(e) if name == INTERCEPT and family.name != "categorical" else 0.0
        found[name] = Prior("normal", (centre, WIDTH * unit / scale))
    for name, text in family.positive.items():
        found[name] = prior(text)
        if name == "sigma":
            found[name] = Prior(found[name].kind, (*found[name].numbers[:-1], found[name].numbers[-1] * unit))
    if family.name == "ordinal":
        found["cuts"] = Prior("student_t", (3.0, 0.0, WIDTH))
    for group in e.groups:
        for name, scale in zip(group.names, group.scale, strict=True):
            label = f"sd({name} | {group.name})"
            if label in found:
                raise InputError(f"the formula has {name} by {group.name} in two group terms; write it once.")
            found[label] = Prior("half_normal", (WIDTH * unit / scale,))
        if len(group.names) > 1:
            found[f"cor({group.name})"] = Prior("lkj", (1.0,))
    return found | replaced(encoding, found, given)


def replaced(encoding: Encoding, known: dict[str, Prior], given: Any) -> dict[str, Prior]:
    """The priors that are given, by the names of what they are on; general ones count before special ones."""
    if given is None:
        return {}
    if isinstance(given, str | Prior):
        given = {"coefficients": given}
    if not isinstance(given, dict):
        raise InputError(
            f"priors are {given!r}; write a dict, such as {{'x': 'normal(0, 1)', 'sigma': 'exponential(1)'}}."
        )
    several: dict[str, list[str]] = {"coefficients": [name for name in encoding.names if name != INTERCEPT]}
    several |= {term: [name for name in names if name in known] for term, names in encoding.terms.items()}
    for group in encoding.groups:
        several.setdefault(f"sd({group.name})", []).extend(f"sd({name} | {group.name})" for name in group.names)
    found: dict[str, Prior] = {}
    for name in sorted(given, key=lambda name: (name in known, name != "coefficients")):
        names = [name] if name in known else several.get(name, [])
        if not names:
            near = get_close_matches(name, [*known, *several], 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join([*known, 'coefficients'])}."
            raise InputError(f"priors has {name!r}, which is no term; {hint}")
        for each in names:
            kinds = (
                REAL if each in encoding.names or each == "cuts" else ("lkj",) if each.startswith("cor(") else POSITIVE
            )
            found[each] = prior(given[name], kinds, f"the prior of {each}")
    return found
