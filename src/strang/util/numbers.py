"""Numbers on the host, as JSON can hold them."""

import math
from typing import Any


def finite(value: Any) -> Any:
    """The value with None for every number that JSON cannot hold, all through lists, tuples and dicts.

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
