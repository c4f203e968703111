"""What every dynamics offers: a frozen dataclass, registered as a pytree, whose numbers are its leaves."""

from collections.abc import Callable
from typing import Any, ClassVar, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from strang.util.trees import Tree, dot, size, zeros


@runtime_checkable
class Dynamics(Protocol):
    """An Itô diffusion with its numbers, its state and its exactly solvable pieces.

    A dynamics may also have `energy(state, potential)`, the H of the density e^−H that it keeps, which is certified;
    `temperature(state)`, whose mean should be 1; `check(step, h)`, which refuses an integrator or a largest step size;
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
    """What dynamics with a momentum share: the SDE moves the whole state, and its noise √(2D) dW the momentum alone."""

    friction: Any
    state: ClassVar[type]
    alphabets: ClassVar[dict]
    steps: ClassVar[dict] = {}
    default_integrator: ClassVar[str] = "chen:ABOBA"

    def coordinates(self, state: Any) -> tuple[Tree, ...]:
        return tuple(state)

    def at(self, *coordinates: Tree) -> Any:
        return self.state(*coordinates)

    def diffusion(self, state: Any) -> tuple[Tree, ...]:
        amplitude = jax.tree.map(lambda p: jnp.full_like(p, jnp.sqrt(2 * self.friction)), state.momentum)
        return tuple(zeros(state)._replace(momentum=amplitude))

    def energy(self, state: Any, potential: Callable):
        """U(θ) + p·p/2."""
        return potential(state.position) + dot(state.momentum, state.momentum) / 2

    def temperature(self, state: Any):
        """The temperature p·p/n, whose mean should be 1."""
        return dot(state.momentum, state.momentum) / size(state.momentum)

    def heat(self, state: Any) -> Tree:
        """The temperature of each coordinate, p², whose means should be 1."""
        return jax.tree.map(jnp.square, state.momentum)
