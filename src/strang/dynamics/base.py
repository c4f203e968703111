"""What every dynamics offers: a frozen dataclass, registered as a pytree, whose numbers are its leaves."""

from collections.abc import Callable
from typing import Any, ClassVar, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from strang.util.trees import Tree, cast, dot, size, zeros


@runtime_checkable
class Dynamics(Protocol):
    """An Itô diffusion with its numbers, its state and its exactly solvable pieces.

    A dynamics may also have `energy(state, potential)`, the H of the density e^−H that it keeps, which is certified;
    `temperature`, a number T, with which its density is exp(−U/T) and its steps get normals of variance T;
    `kinetic_temperature(state)`, in units of T, whose mean should be 1; `check(step, h)`, which refuses an integrator
    or a largest step size;
    `check_start(position)`, which refuses settings that do not suit a position; `accuracy`, the order to which its
    pieces are solved, if that is not exactly; and `linear`, true where its steps are linear on Gaussians.
    """

    alphabets: ClassVar[dict]
    steps: ClassVar[dict]
    default_integrator: ClassVar[str]

    def init(self, position: Tree, noise: Tree) -> Any:
        """The state at the start, from a position and standard normals like it."""

    def coordinates(self, state: Any) -> tuple[Tree, ...]:
        """The parts of the state that the SDE moves."""

    def at(self, *coordinates: Tree) -> Any:
        """The state with these coordinates."""

    def drift(self, state: Any, gradient: Any) -> tuple[Tree, ...]:
        """The SDE's dt part, coordinate by coordinate."""

    def diffusion(self, state: Any) -> tuple[Tree, ...]:
        """The SDE's dW part: amplitudes, coordinate by coordinate."""


class SecondOrder:
    """What dynamics with a momentum share: the SDE moves the whole state, its noise √(2DT) dW the momentum alone."""

    friction: Any
    temperature: Any
    state: ClassVar[type]
    alphabets: ClassVar[dict]
    steps: ClassVar[dict] = {}
    default_integrator: ClassVar[str] = "chen:ABOBA"

    def coordinates(self, state: Any) -> tuple[Tree, ...]:
        return tuple(state)

    def at(self, *coordinates: Tree) -> Any:
        return self.state(*coordinates)

    def diffusion(self, state: Any) -> tuple[Tree, ...]:
        size = jnp.sqrt(2 * self.friction * self.temperature)
        amplitude = jax.tree.map(lambda p: jnp.full_like(p, size), state.momentum)
        return tuple(zeros(state)._replace(momentum=amplitude))

    def energy(self, state: Any, potential: Callable):
        """(U(θ) + p·p/2)/T."""
        return (potential(state.position) + dot(state.momentum, state.momentum) / 2) / self.temperature

    def kinetic_temperature(self, state: Any):
        """p·p/nT, whose mean should be 1."""
        return dot(state.momentum, state.momentum) / (size(state.momentum) * self.temperature)

    def heat(self, state: Any) -> Tree:
        """The temperature of each coordinate, p²/T, whose means should be 1."""
        return jax.tree.map(lambda p: p * p / cast(self.temperature, p), state.momentum)
