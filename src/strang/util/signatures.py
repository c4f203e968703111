"""Defaults read from function signatures, so that they are written down only once."""

import inspect
from collections.abc import Callable
from typing import Any


def defaults(function: Callable, *without: str) -> dict[str, Any]:
    """The keyword-only arguments of a function with their defaults, except those in `without`.

    >>> defaults(lambda a, *, b=1, c=None: None, "c")
    {'b': 1}
    """
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in without}


def renamed(settings: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Renames some settings and keeps their order.

    >>> renamed({"a": 1, "b": 2}, {"a": "x"})
    {'x': 1, 'b': 2}
    """
    return {names.get(name, name): value for name, value in settings.items()}


def without(arguments: dict[str, Any], *names: str) -> dict[str, Any]:
    """All but the arguments named, of what a function's `locals()` are when it begins.

    >>> without({"a": 1, "b": 2}, "a")
    {'b': 2}
    """
    return {name: value for name, value in arguments.items() if name not in names}
