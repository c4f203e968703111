"""Inputs of an estimator: arrays, or `.npy` files that stay on disk, with the mean and spread of each column."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from strang.util.errors import InputError

CHUNK = 1 << 22  # numbers that are looked at together


class Scaling(NamedTuple):
    """What is taken from inputs, and what they are then divided by."""

    centre: np.ndarray
    spread: np.ndarray

    def __call__(self, x: Any) -> np.ndarray:
        return ((np.asarray(x, float) - self.centre) / self.spread).astype(np.float32)


def is_path(x: Any) -> bool:
    return isinstance(x, str | Path)


def opened(path: str | Path) -> np.ndarray:
    """A `.npy` file of rows as an array that stays on disk."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a .npy file ({error}); write one with numpy.save.") from None
    if array.ndim < 2 or array.dtype.kind not in "fiu":
        raise InputError(f"{path} has shape {array.shape} and dtype {array.dtype}; it must hold rows of numbers.")
    return array


def scaling_of(x: np.ndarray) -> Scaling:
    """Mean and standard deviation of each column, or of each channel where rows have several axes; 1 in place of none.
    Rows are read some at a time."""
    axes, total, square, count = tuple(range(x.ndim - 1)), 0.0, 0.0, 0
    length = max(1, CHUNK // max(1, int(np.prod(x.shape[1:]))))
    shift = np.asarray(x[:length], float).mean(axes)  # few digits are lost
    for start in range(0, len(x), length):
        part = np.asarray(x[start : start + length], float) - shift
        if not np.isfinite(part).all():
            raise InputError("X has a number that is not finite; leave out such rows, or fill them in.")
        total, square, count = total + part.sum(axes), square + (part**2).sum(axes), count + part[..., 0].size
    mean = total / count
    variance = np.maximum(square / count - mean**2, 0.0)
    spread = np.sqrt(variance)
    negligible = spread <= 10 * np.finfo(float).eps * np.maximum(np.abs(shift), 1e-300)  # a constant column
    return Scaling(np.asarray(shift + mean), np.where(negligible | (spread == 0), 1.0, spread))
