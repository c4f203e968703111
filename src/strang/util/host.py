"""A compiled loop of the host inside traced code."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

_one_at_a_time = threading.Lock()  # a loop uses all cores by itself, and Numba's plainest thread pool is not shared


def on_host(function: Callable, result: Any, *arguments: Any) -> Any:
    """function(*arguments) computed by the host on NumPy arrays; `result` gives its shapes and dtypes.

    Under `vmap` the function gets, and returns, every array with the mapped axis in front, also those that are common.
    It must be pure: what it returns may depend on its arguments only.
    """
    return jax.pure_callback(partial(_run, function), result, *arguments, vmap_method="broadcast_all")


def _run(function: Callable, *arguments: Any) -> Any:
    arrays = jax.tree.map(np.asarray, arguments)
    with _one_at_a_time:
        return function(*arrays)
