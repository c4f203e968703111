"""Host functions, such as loops compiled by Numba, called from traced code."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

_one_at_a_time = threading.Lock()  # a loop uses all cores, and Numba's basic thread pool cannot be entered twice


def on_host(function: Callable, result: Any, *arguments: Any) -> Any:
    """Computes function(*arguments) on NumPy arrays of the host; `result` gives its shapes and dtypes.

    The function must be pure. Under `vmap` it gets and returns every array with the mapped axis in front, also arrays
    that do not depend on that axis.
    """
    return jax.pure_callback(partial(_run, function), result, *arguments, vmap_method="broadcast_all")


def _run(function: Callable, *arguments: Any) -> Any:
    arrays = jax.tree.map(np.asarray, arguments)
    with _one_at_a_time:
        return function(*arrays)
