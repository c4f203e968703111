"""Inputs of an estimator: arrays, or `.npy` files that stay on disk, with the mean and spread of each column. Both are
checked as scikit-learn checks arrays, and refused in its words."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import assert_all_finite, check_consistent_length
from sklearn.utils.validation import column_or_1d, validate_data

from strang.util.errors import InputError

CHUNK = 1 << 22  # numbers that are looked at together


class Scaling(NamedTuple):
    """What is taken from inputs, and what they are then divided by."""

    centre: np.ndarray
    spread: np.ndarray

    def __call__(self, x: Any) -> np.ndarray:
        assert_all_finite(np.asarray(x), input_name="X")  # rows of a file were not looked at yet
        return ((np.asarray(x, float) - self.centre) / self.spread).astype(np.float32)


def is_path(x: Any) -> bool:
    return isinstance(x, str | Path)


def opened(path: str | Path, axes: int = 2, kinds: str = "fiu") -> np.ndarray:
    """A `.npy` file of rows as an array that stays on disk."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a .npy file ({error}); write one with numpy.save.") from None
    if array.ndim < axes or array.dtype.kind not in kinds:
        raise InputError(f"{path} has shape {array.shape} and dtype {array.dtype}; it must hold rows of numbers.")
    return array


def checked(estimator: Any, X: Any, y: Any, *, reset: bool, allow_nd: bool, y_numeric: bool) -> tuple[Any, Any]:
    """The rows and targets of a fit; `reset` where their columns are new to the estimator."""
    name = type(estimator).__name__
    if y is None:
        raise ValueError(f"This {name} estimator requires y to be passed, but the target y is None.")
    y = opened(y, 1, "fiubU") if is_path(y) else y
    if not is_path(X):
        least = 2 if reset else 1
        checks = {"reset": reset, "allow_nd": allow_nd, "y_numeric": y_numeric, "ensure_min_samples": least}
        x, y = validate_data(estimator, X, y, **checks)
        return np.asarray(x), column_or_1d(y, warn=True)
    x, y = opened(X), column_or_1d(y, warn=True)
    check_rows(name, x, 2)
    check_consistent_length(x, y)
    assert_all_finite(y, input_name="y")
    estimator.n_features_in_ = x.shape[1]
    return x, y


def checked_rows(estimator: Any, X: Any, *, allow_nd: bool) -> Any:
    """Rows that are to be predicted; those of a file are looked at for numbers that are not finite as they are read."""
    if not is_path(X):
        return validate_data(estimator, X, reset=False, allow_nd=allow_nd)
    x, name, wanted = opened(X), type(estimator).__name__, estimator.n_features_in_
    check_rows(name, x, 1)
    if x.shape[1] != wanted:
        raise ValueError(f"X has {x.shape[1]} features, but {name} is expecting {wanted} features as input.")
    return x


def check_rows(name: str, x: np.ndarray, least: int) -> None:
    """Raises where there are too few rows."""
    if len(x) < least:
        raise ValueError(
            f"Found array with {len(x)} sample(s) (shape={x.shape}) while a minimum of {least} is required by {name}."
        )


def scaling_of(x: np.ndarray) -> Scaling:
    """Mean and standard deviation of each column, or of each channel where rows have several axes; 1 in place of none.
    Rows are read some at a time."""
    axes, total, square, count = tuple(range(x.ndim - 1)), 0.0, 0.0, 0
    length = max(1, CHUNK // max(1, int(np.prod(x.shape[1:]))))
    shift = np.asarray(x[:length], float).mean(axes)  # few digits are lost
    for start in range(0, len(x), length):
        part = np.asarray(x[start : start + length], float) - shift
        assert_all_finite(part, input_name="X")
        total, square, count = total + part.sum(axes), square + (part**2).sum(axes), count + part[..., 0].size
    mean = total / count
    variance = np.maximum(square / count - mean**2, 0.0)
    spread = np.sqrt(variance)
    negligible = spread <= 10 * np.finfo(float).eps * np.maximum(np.abs(shift), 1e-300)  # a constant column
    return Scaling(np.asarray(shift + mean), np.where(negligible | (spread == 0), 1.0, spread))
