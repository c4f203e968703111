"""Defaults read off the signature they stand in, so that they are written down once."""

import inspect
from collections.abc import Callable
from typing import Any


def defaults(function: Callable, *without: str) -> dict[str, Any]:
    """The keyword arguments of a function with their defaults, but for those named.

    >>> defaults(lambda a, *, b=1, c=None: None, "c")
    {'b': 1}
    """
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in without}


def renamed(settings: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """The settings with other names for some of them, in their order.

    >>> renamed({"a": 1, "b": 2}, {"a": "x"})
    {'x': 1, 'b': 2}
    """
    return {names.get(name, name): value for name, value in settings.items()}
