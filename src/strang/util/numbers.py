"""Conversion of numbers for JSON."""

import math
from typing import Any


def finite(value: Any) -> Any:
    """Replaces infinite and NaN floats by None, in nested lists, tuples and dicts.

    >>> finite({"a": [1.0, float("nan")], "b": "x"})
    {'a': [1.0, None], 'b': 'x'}
    """
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
