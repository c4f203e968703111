"""The one exception raised for bad input; its text says what was given, what was expected and what to write instead."""

from importlib import import_module
from typing import Any


class InputError(ValueError):
    """Something the caller can mend. The command line prints it and ends with status 2."""


def choose(what: str, given: object, choices) -> InputError:
    """An error that lists the choices."""
    return InputError(f"{what} {given!r} is unknown; choose one of: {', '.join(map(str, choices))}.")


def need(module: str, extra: str) -> Any:
    """A module that only an extra brings, or an error that says how to get it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).partition(".")[0]
        raise InputError(
            f"This needs {missing}, which is not installed; write pip install 'strang[{extra}]'."
        ) from error


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return (str(error) or type(error).__name__).splitlines()[0]
