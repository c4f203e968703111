"""Host functions, such as loops compiled by Numba, called from traced code."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.experimental.buffer_callback import buffer_callback

_one_at_a_time = threading.Lock()  # a loop uses all cores, and Numba's basic thread pool cannot be entered twice


def compute_on_host(function: Callable, result: Any, *arguments: Any) -> Any:
    """Computes as `call_host` does, one such function at a time; under `vmap` every array has the mapped axis in front,
    also arrays that do not depend on that axis."""
    return call_host(partial(_alone, function), result, *arguments, vmap_method="broadcast_all")


def _alone(function: Callable, *arguments: Any) -> Any:
    with _one_at_a_time:
        return function(*arguments)


def call_host(function: Callable, result: Any, *arguments: Any, vmap_method: str, out: bool = False) -> Any:
    """Calls a pure function with NumPy arrays of the host, valid during the call; `result` gives its shapes and dtypes.
    With `out` the function has NumPy's keyword of this name, and writes to memory that is given to it if some is.

    On CPUs the call runs on the thread that computes: `pure_callback` asks for another one, and there may be none while
    the devices of a process wait for each other.
    """

    def in_place(context, given, *buffers):
        arrays, place = jax.tree.map(np.asarray, buffers), jax.tree.map(np.asarray, given)
        if out:
            function(*arrays, out=place)
        else:
            jax.tree.map(np.copyto, place, function(*arrays))

    def elsewhere(*arrays):
        return function(*jax.tree.map(np.asarray, arrays))

    return jax.lax.platform_dependent(
        *arguments,
        cpu=buffer_callback(in_place, result, vmap_method=vmap_method),
        default=partial(jax.pure_callback, elsewhere, result, vmap_method=vmap_method),
    )
