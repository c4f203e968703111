"""Itô diffusions with their numbers, states and exactly solvable pieces; one file each, and one line here."""

from typing import Any

from strang.dynamics.sghmc import SGHMC as SGHMC
from strang.dynamics.sgld import SGLD as SGLD
from strang.dynamics.sgnht import SGNHT as SGNHT
from strang.dynamics.sgrhmc import SGRHMC as SGRHMC
from strang.dynamics.sgrld import SGRLD as SGRLD
from strang.util.errors import choose

# By their names in small letters: every dynamics that is imported here.
DYNAMICS: dict[str, Any] = {
    name.lower(): kind for name, kind in globals().items() if hasattr(kind, "default_integrator")
}


def dynamics_class(name: str) -> Any:
    """The dynamics by its lower-case name."""
    if name.lower() not in DYNAMICS:
        raise choose("dynamics", name, DYNAMICS)
    return DYNAMICS[name.lower()]
