"""What the fields of a dynamics are: they say so of themselves, and what is checked, shown and certified follows."""

from dataclasses import MISSING, field, fields
from typing import Any

from strang.util.errors import InputError

PER_CHAIN, PER_COORDINATE = "chain", "coordinate"


def number(default: Any, *, positive: bool = False, per: str = PER_CHAIN, example: Any = None) -> Any:
    """A field that is a number.

    Args:
        default: its default.
        positive: whether it must be above 0.
        per: `chain`: one number, or one per chain, which makes a run a grid; `coordinate`: one number, or a tree of
            them like the position.
        example: the number with which steps are certified; by default the default.
    """
    return field(default=default, metadata={"positive": positive, "per": per, "example": example})


def setting(default: Any = MISSING, *, example: Any = None, constant: Any = None) -> Any:
    """A field that is part of the code, such as a name or a metric's function.

    Args:
        default: its default; without one it must be given.
        example: what steps are certified with; by default the default.
        constant: for a metric, one that does not depend on the position, with which steps are linear on Gaussians.
    """
    return field(default=default, metadata={"static": True, "example": example, "constant": constant})


def numbers(dynamics: Any, per: str | None = None) -> dict[str, Any]:
    """The numbers of a dynamics by name, or those that are per chain or per coordinate."""
    chosen = [f for f in fields(dynamics) if not f.metadata.get("static")]
    return {f.name: getattr(dynamics, f.name) for f in chosen if per in (None, f.metadata.get("per", PER_CHAIN))}


def make(kind: type, **given: Any) -> Any:
    """The dynamics with the fields given; those that are None are left to their defaults."""
    given = {name: value for name, value in given.items() if value is not None}
    known, name = {f.name: f for f in fields(kind)}, kind.__name__.lower()
    for other in given:
        if other not in known:
            raise InputError(f"{name} has no {other.replace('_', ' ')}; leave it out.")
    missing = [f.name for f in known.values() if f.default is MISSING and f.name not in given]
    if missing:
        raise InputError(f"{name} needs a {missing[0]}, which is a function: use strang.sample, or choose sghmc.")
    return kind(**given)


def is_linear(dynamics: Any) -> bool:
    """Whether a dynamics, or a class of them, has steps that are linear on Gaussians."""
    return getattr(dynamics, "linear", False)


def example(dynamics: Any, constant: bool = False) -> Any:
    """The dynamics itself, or of a class an instance with ordinary numbers, such as steps are certified with; with
    `constant` its metric does not depend on the position."""
    if not isinstance(dynamics, type):
        return dynamics
    keys = ("constant", "example") if constant else ("example",)

    def chosen(metadata: Any) -> Any:
        return next((metadata[key] for key in keys if metadata.get(key) is not None), None)

    return make(dynamics, **{f.name: chosen(f.metadata) for f in fields(dynamics)})
