"""Packages whose public names are imported on first use, so that importing the package is cheap."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

from strang.util.errors import need


def lazy(package: str, homes: Mapping[str, str], extra: str | None = None) -> tuple[Callable, Callable]:
    """Makes `__getattr__` and `__dir__` for a package from the module that defines each public name; a name that is a
    module is defined by itself. `extra` is named in the error if a module cannot be imported."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = need(homes[name], extra)
        return module if homes[name].endswith(f".{name}") else getattr(module, name)

    return find, lambda: sorted({*vars(sys.modules[package]), *homes})
