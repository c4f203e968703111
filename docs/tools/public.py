"""The public names of Strang, as the reference lists them."""

import inspect
from functools import reduce
from types import ModuleType
from typing import Any

import strang

MODULES = (
    "calibration", "cluster", "coordinates", "data", "data.images", "gradients", "lda", "models", "parallel",
    "regression", "report", "sbn", "schedule", "theory", "certificate",
)  # fmt: skip
OF_FILES = {  # modules that are one file have helpers as well
    "strang.run.cluster": ["sample"],
    "strang.coordinates": ["Coordinates", "Diagonal", "Dense", "Blocks", "Turned", "Chained"],
    "strang.data.images": ["load", "digits", "binarise", "Images", "Digits"],
    "strang.schedule": ["fixed", "Fixed", "Decreasing", "Slowing", "Cyclical"],
}


def module(name: str) -> ModuleType:
    """A public module by its name in `MODULES`."""
    return reduce(getattr, name.split("."), strang)  # type: ignore[return-value]


def top() -> list[str]:
    """What `strang` itself has: `sample`, `Model`, ...; without its modules."""
    return [name for name in strang.__all__ if name not in MODULES and not name.startswith("_")]


def names(of: ModuleType) -> list[str]:
    """The public functions and classes of a module: those of `__all__`, or all that a package takes in."""
    listed = OF_FILES.get(of.__name__) or getattr(of, "__all__", None)
    if listed is not None:
        return list(listed)
    return [name for name, value in vars(of).items() if not name.startswith("_") and is_own(value)]


def is_own(value: Any) -> bool:
    return (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith("strang.")
