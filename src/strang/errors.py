"""The one exception raised for bad input; its text says what was given, what was expected and what to write instead."""


class InputError(ValueError):
    """Something the caller can mend. The command line prints it and ends with status 2."""


def choose(what: str, given: object, choices) -> InputError:
    """An error that lists the choices."""
    return InputError(f"{what} {given!r} is unknown; choose one of: {', '.join(map(str, choices))}.")
