"""Repeated parts of a function, merged before it is differentiated.

XLA merges equal expressions too, but of a program that is differentiated already: of x·w written twice it computes one,
while derivatives that come by two ways stay two products with x.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun


def merge_repeated(function: Callable) -> Callable:
    """The same function of one pytree, in which what is written several times is computed once.

    >>> import jax.numpy as jnp
    >>> written = lambda w: jnp.sin(jnp.dot(w, w)) + jnp.cos(jnp.dot(w, w))
    >>> merged = merge_repeated(written)
    >>> [str(jax.make_jaxpr(each)(jnp.ones(3))).count("dot_general") for each in (written, merged)]
    [2, 1]
    """

    def merged(argument):
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(argument)
        values = jaxpr_as_fun(without_repeated(closed))(*jax.tree.leaves(argument))
        return jax.tree.unflatten(jax.tree.structure(shapes), values)

    return merged


def without_repeated(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program without equations that repeat an earlier one's operation, settings and operands."""
    first: dict[Any, Any] = {}  # for variables that are equal to an earlier one, that one
    seen: dict[Any, Any] = {}  # the results of each kind of equation

    def renamed(atoms):
        return [each if isinstance(each, Literal) else first.get(each, each) for each in atoms]

    equations = []
    for equation in closed.jaxpr.eqns:
        operands = renamed(equation.invars)
        key = (
            equation.primitive,
            tuple(repr(each) if isinstance(each, Literal) else each for each in operands),
            tuple((name, identity(value)) for name, value in equation.params.items()),
        )
        if key in seen and not equation.effects:
            first.update(zip(equation.outvars, seen[key], strict=True))
        else:
            seen[key] = equation.outvars
            equations.append(equation.replace(invars=operands))
    return ClosedJaxpr(closed.jaxpr.replace(eqns=equations, outvars=renamed(closed.jaxpr.outvars)), closed.consts)


def identity(setting: Any) -> Any:
    """Equal for equal settings of an equation; two that cannot be compared are taken to differ."""
    try:
        hash(setting)
    except TypeError:
        return id(setting)
    return setting
