"""Packages whose names are imported when they are first used, so that importing a package costs nothing by itself."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

from strang.util.errors import need


def lazy(package: str, homes: Mapping[str, str], extra: str | None = None) -> tuple[Callable, Callable]:
    """`__getattr__` and `__dir__` of a package.

    Args:
        package: its `__name__`.
        homes: the module in which each public name is defined; a name that is itself a module is its own home.
        extra: the extra of Strang that these modules need, named in the error where one cannot be imported.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = need(homes[name], extra)
        return module if homes[name] == f"{package}.{name}" else getattr(module, name)

    return find, lambda: sorted({*vars(sys.modules[package]), *homes})
