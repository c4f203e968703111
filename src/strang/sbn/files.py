"""Parameters of belief networks on disk: `.npz` files with arrays W, b and c, which anything can open."""

from pathlib import Path
from typing import Any

import numpy as np

from strang.util.errors import InputError
from strang.util.files import read_npz


def check_parameters(parameters: dict[str, Any]) -> dict[str, np.ndarray]:
    """Checks that W (M, J), b (J) and c (M) fit together and are finite; returns them in single precision."""
    missing = [name for name in ("W", "b", "c") if name not in parameters]
    if missing:
        raise InputError(f"the model has no array {', '.join(missing)}; it needs W (M x J), b (J) and c (M).")
    try:
        arrays = {name: np.asarray(parameters[name]).astype(np.float64) for name in ("W", "b", "c")}
    except (TypeError, ValueError):
        raise InputError("W, b and c must be arrays of real numbers.") from None
    weights, b, c = (array.shape for array in arrays.values())
    if len(weights) != 2 or 0 in weights or b != weights[1:] or c != weights[:1]:
        raise InputError(
            f"W, b and c have shapes {weights}, {b} and {c}; "
            "they must be (M, J), (J,) and (M,) for M visible and J hidden units."
        )
    for name, array in arrays.items():
        if not np.isfinite(array).all() or np.abs(array).max() > np.finfo(np.float32).max:
            raise InputError(f"{name} holds numbers that are not finite.")
    return {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}


def load_model(path: Path) -> dict[str, np.ndarray]:
    """Reads and checks the parameters in a file."""
    return check_parameters(read_npz(Path(path), "write a .npz file with arrays W, b and c."))


def load_samples(path: Path) -> list[dict[str, np.ndarray]]:
    """Reads the parameters in a file, or all samples in the folder of a fit (its model, where there are none)."""
    path = Path(path)
    if not path.is_dir():
        return [load_model(path)]
    files = sorted((path / "samples").glob("step-*.npz")) or list(path.glob("model.npz"))
    if not files:
        raise InputError(f"{path} holds no samples and no model.npz.")
    return [load_model(file) for file in files]
