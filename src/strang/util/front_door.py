"""Turns calls that do not fit a public function's signature into errors that say what to write."""

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from typing import ParamSpec, TypeVar

from strang.util.compiled import keep_compiled_code
from strang.util.errors import InputError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def front_door(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorates a function so that unknown or missing arguments raise an `InputError`.

    >>> @front_door
    ... def draw(*, steps, chains=1): ...
    >>> draw(stesp=3)
    Traceback (most recent call last):
    strang.util.errors.InputError: draw has no argument 'stesp'; did you mean steps?
    """
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        unknown = [name for name in kwargs if name not in signature.parameters]
        if unknown:
            near = get_close_matches(unknown[0], signature.parameters, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"choose from: {', '.join(signature.parameters)}."
            raise InputError(f"{function.__name__} has no argument {unknown[0]!r}; {hint}")
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InputError(f"{function.__name__}: {error}; see help(strang.{function.__name__}).") from None
        keep_compiled_code()
        return function(*args, **kwargs)

    return call
