"""The one exception raised for bad input; its text says what is wrong, what was expected and what to write instead."""

from importlib import import_module
from typing import Any

import numpy as np

MAX_WHOLE = 2**63 - 1  # what compiled code can count to


class InputError(ValueError):
    """Bad input, which the caller can fix. The command line prints it and ends with status 2."""


def choose(what: str, value: object, choices) -> InputError:
    """The error for an unknown name; it lists the choices."""
    return InputError(f"{what} {value!r} is unknown; choose one of: {', '.join(map(str, choices))}.")


def whole(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Returns the value as an int if it is a whole number within these bounds, else raises; 1e5 is whole too.

    >>> whole("steps", 1e5)
    100000
    """
    try:
        number = None if isinstance(value, bool | np.bool_) else int(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    largest = MAX_WHOLE if most is None else most
    if number is None or number != value or not least <= number <= largest:
        unbounded = most is None and (number is None or number <= largest)
        bounds = f", at least {least}" if unbounded else f" from {least} to {largest}"
        raise InputError(f"{name} is {value}; write a whole number{bounds}.")
    return number


def need(module: str, extra: str | None) -> Any:
    """Imports a module that an optional extra installs, or raises an error that says how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).partition(".")[0]
        if extra is None or missing == "strang":
            raise
        raise InputError(
            f"This needs {missing}, which is not installed; write pip install 'strang[{extra}]'."
        ) from error


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type if it has none."""
    return (str(error) or type(error).__name__).splitlines()[0]
