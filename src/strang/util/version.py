"""The version of this package, and of what numbers are made with."""

import importlib.metadata
import platform

__version__ = "0.2.0.dev0"
DEPENDENCIES = ("jax", "jaxlib", "numpy")


def versions(*further: str) -> dict[str, str]:
    """What the numbers are made with; `further` are more packages to name."""
    found = {name: importlib.metadata.version(name) for name in (*DEPENDENCIES, *further)}
    return {"strang": __version__, "python": platform.python_version(), "machine": platform.machine(), **found}
