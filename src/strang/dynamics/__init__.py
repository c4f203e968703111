"""Itô diffusions with their numbers, states and exactly solvable pieces; one file each, and one line here."""

from typing import Any

from strang.dynamics.sghmc import SGHMC as SGHMC
from strang.dynamics.sgld import SGLD as SGLD
from strang.dynamics.sgnht import SGNHT as SGNHT
from strang.dynamics.sgrhmc import SGRHMC as SGRHMC
from strang.dynamics.sgrld import SGRLD as SGRLD
from strang.util.errors import choose

DYNAMICS: dict[str, Any] = {kind.__name__.lower(): kind for kind in (SGLD, SGHMC, SGNHT, SGRHMC, SGRLD)}


def dynamics_class(name: str) -> Any:
    """The dynamics by its lower-case name."""
    if name.lower() not in DYNAMICS:
        raise choose("dynamics", name, DYNAMICS)
    return DYNAMICS[name.lower()]
