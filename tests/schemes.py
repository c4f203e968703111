"""All schemes of the library in one table; every scheme in it is tested.

`invariant` is the order of the position's variance on Gaussians with full gradients, and None where a step is not
linear. Weak orders are not written down: the certificate, the algebra and `Step.order` have to agree on them.
"""

from typing import NamedTuple

import strang
from strang.dynamics.fields import example
from strang.dynamics.sgrhmc import bowl
from strang.integrators.schemes import palindromes
from strang.integrators.words import Step, spell

COORDINATE = strang.SGNHT(friction=1.3, gain=0.7, thermostat="coordinate")
RIEMANN = strang.SGRHMC(metric=bowl, friction=1.3, iterations=3)  # accurate to h³, and compiles in half the time
UNEVEN = strang.SGRLD(inverse_metric=lambda t: 1 / (1.2 + 0.4 * t * t))
KICK = {"chen": "O", "leimkuhler": "B", "ubu": "B"}


class Scheme(NamedTuple):
    """A step of a dynamics (an instance), with its alphabet and letters if it is a word."""

    dynamics: object
    step: Step
    invariant: int | str | None
    alphabet: str = ""
    letters: str = ""

    @property
    def label(self) -> str:
        kind = type(self.dynamics).__name__
        return f"{kind}{'*' if self.dynamics is COORDINATE else ''} {self.step.name}"


def words(dynamics, alphabet: str, letters, invariant=None) -> list[Scheme]:
    """One scheme per word; `invariant` is one order for all of them, or a dict from words to orders."""
    instance = example(dynamics)
    return [
        Scheme(
            instance,
            spell(instance, f"{alphabet}:{word}"),
            invariant.get(word, 2) if isinstance(invariant, dict) else invariant,
            alphabet,
            word,
        )
        for word in letters
    ]


def named(dynamics, **invariant) -> list[Scheme]:
    """Every name in `steps`."""
    return [
        Scheme(example(dynamics), step, invariant.get(name.replace("-", "_"))) for name, step in dynamics.steps.items()
    ]


SYMMETRIC = [
    *words(strang.SGHMC, "chen", palindromes("ABO"), 2),
    *words(strang.SGHMC, "leimkuhler", palindromes("ABO"), {"ABOBA": "exact", "BAOAB": "exact"}),
    *words(strang.SGHMC, "ubu", palindromes("BU"), 2),
    *words(strang.SGNHT, "chen", palindromes("ABO")),
    *words(strang.SGNHT, "leimkuhler", palindromes("ABDO")),
    *words(COORDINATE, "leimkuhler", ["BADODAB"]),
    *words(RIEMANN, "chen", palindromes("ABO")),
]
ASYMMETRIC = [
    *words(
        strang.SGHMC, "chen", ["ABO", "BOA", "ABOA", "AbObA", "bOA", "AbO"], {"ABO": 1, "BOA": 1, "ABOA": 1, "AbObA": 1}
    ),
    *words(
        strang.SGHMC,
        "leimkuhler",
        ["BAOA", "ABO", "OBA", "OABA", "ABoBA"],
        {"BAOA": "exact", "ABO": 1, "OBA": 1, "ABoBA": 1},
    ),
    *words(strang.SGHMC, "ubu", ["UB", "BU", "uB"], 2),
    *words(strang.SGNHT, "chen", ["ABO", "AbObA"]),
    *words(strang.SGNHT, "leimkuhler", ["BADO", "BADODA", "BADoDAB"]),
    *words(RIEMANN, "chen", ["BOA", "aBOB"]),
]
NAMED = [
    *named(strang.SGLD, euler=1, averaged_noise="exact"),
    *named(
        strang.SGHMC,
        euler_old=1,
        euler_new=2,
        euler_position_first=2,
        nogin="exact",
        quicsort=3,
        opsi4o_yoshida=4,
        opsi4o_mclachlan=4,
        opsi4o_mclachlan_splitting=4,
    ),
    *named(strang.SGNHT),
    *named(UNEVEN)[:1],  # the mirrored step is this one but for a reflection, which has no complex extension
]
WORDS = SYMMETRIC + ASYMMETRIC
ALL = WORDS + NAMED


def label(scheme: Scheme) -> str:
    return scheme.label


def scheme(name: str, kind: type = strang.SGHMC) -> Scheme:
    """The scheme of this name."""
    return next(s for s in ALL if s.step.name == name and isinstance(s.dynamics, kind))
