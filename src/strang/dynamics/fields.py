"""Fields of a dynamics, which say how they are checked, reported and certified."""

from dataclasses import MISSING, field, fields, replace
from typing import Any

import jax
import jax.numpy as jnp

from strang.util.errors import InputError

PER_CHAIN, PER_COORDINATE = "chain", "coordinate"


def number(default: Any, *, positive: bool = False, per: str = PER_CHAIN, example: Any = None) -> Any:
    """Declares a field that is a number.

    Args:
        default: its default.
        positive: whether it must be above 0.
        per: `chain`: one number, or one per chain, which makes a run a grid; `coordinate`: one number, or a tree of
            them like the position.
        example: the number with which steps are certified; by default the default.
    """
    return field(default=default, metadata={"positive": positive, "per": per, "example": example})


def setting(default: Any = MISSING, *, example: Any = None, constant: Any = None) -> Any:
    """Declares a field that is part of the code, such as a name or a metric's function.

    Args:
        default: its default; without one, users must write it.
        example: what steps are certified with; by default the default.
        constant: for a metric, one that does not depend on the position, with which steps are linear on Gaussians.
    """
    return field(default=default, metadata={"static": True, "example": example, "constant": constant})


def numbers(dynamics: Any, per: str | None = None) -> dict[str, Any]:
    """The numbers of a dynamics by name, or those that are per chain or per coordinate."""
    chosen = [f for f in fields(dynamics) if not f.metadata.get("static")]
    return {f.name: getattr(dynamics, f.name) for f in chosen if per in (None, f.metadata.get("per", PER_CHAIN))}


def schedules(dynamics: Any) -> dict[str, Any]:
    """Those of its numbers that are functions of the step."""
    return {name: value for name, value in numbers(dynamics, PER_CHAIN).items() if callable(value)}


def at_step(dynamics: Any, l: Any) -> Any:
    """The dynamics with the numbers that it has at step l, one per chain where the others are."""
    changing = schedules(dynamics)
    if not changing:
        return dynamics
    others = [value for name, value in numbers(dynamics, PER_CHAIN).items() if name not in changing]
    shape = next((jnp.shape(value) for value in others if value is not None), ())
    values = {name: jnp.broadcast_to(jnp.asarray(schedule(l)), shape) for name, schedule in changing.items()}
    return replace(dynamics, **values)


def make(kind: type, **values: Any) -> Any:
    """Makes a dynamics with these fields; those that are None get their defaults."""
    values = {name: value for name, value in values.items() if value is not None}
    known, label = {f.name: f for f in fields(kind)}, kind.__name__.lower()
    for name in values:
        if name not in known:
            raise InputError(f"{label} has no {name.replace('_', ' ')}; leave it out.")
    missing = [f.name for f in known.values() if f.default is MISSING and f.name not in values]
    if missing:
        raise InputError(f"{label} needs a {missing[0]}, which is a function: use strang.sample, or choose sghmc.")
    return kind(**values)


def is_linear(dynamics: Any) -> bool:
    """Whether a dynamics, or a class of them, has steps that are linear on Gaussians."""
    return getattr(dynamics, "linear", False)


def example(dynamics: Any, constant: bool = False) -> Any:
    """Makes an instance of a class with the numbers that steps are certified with, and returns an instance as it is;
    with `constant` the metric does not depend on the position."""
    if not isinstance(dynamics, type):
        return registered(dynamics)
    values = {f.name: f.metadata.get("example") for f in fields(dynamics)}
    if constant:
        values |= {f.name: value for f in fields(dynamics) if (value := f.metadata.get("constant")) is not None}
    return registered(make(dynamics, **values))


def registered(dynamics: Any) -> Any:
    """The dynamics itself, if JAX knows its class and so finds its numbers.

    Raises:
        InputError: it does not; a subclass does not inherit that.
    """
    if jax.tree_util.all_leaves([dynamics]):
        name = type(dynamics).__name__
        raise InputError(f"JAX does not know the class {name}; write @jax.tree_util.register_dataclass above it.")
    return dynamics
