"""Versions of Strang and of the packages that decide its numbers."""

import importlib.metadata
import platform

__version__ = "0.2.0.dev0"
DEPENDENCIES = ("jax", "jaxlib", "numpy")


def versions(*further: str) -> dict[str, str]:
    """Versions of Strang, Python, the machine and the packages below; `further` names more packages."""
    packages = {name: importlib.metadata.version(name) for name in (*DEPENDENCIES, *further)}
    return {"strang": __version__, "python": platform.python_version(), "machine": platform.machine(), **packages}
