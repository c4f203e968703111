"""Stochastic-gradient Nosé-Hoover thermostat.   dθ = p dt,   dp = −∇Ũ(θ) dt − ξ p dt + √(2DT) dW,
dξ = gain (p·p/n − T) dt

Keeps exp(−(U(θ) + p·p/2 + n (ξ − D)²/(2 gain))/T). Gradient noise of variance V raises the mean of ξ to D + hV/2T and
leaves the rest alone: V need not be known. Ding et al. 2014; Leimkuhler & Shang 2016.
Paper: dξ without dt, and the density with +(ξ − D)²/2. We: as above, because only this is invariant (erratum A4).
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from strang.dynamics.base import SecondOrder
from strang.dynamics.fields import number, setting
from strang.dynamics.sghmc import drift, kick
from strang.integrators.exponentials import decay
from strang.integrators.words import Piece, Step, Substep
from strang.util.trees import Tree, axpy, cast, dot, multiply, scale, size


class SGNHTState(NamedTuple):
    position: Tree
    momentum: Tree
    thermostat: Tree


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SGNHT(SecondOrder):
    """Stochastic-gradient Nosé-Hoover thermostat: SGHMC with a friction ξ that adapts to the gradient noise.

    Args:
        friction: D; one number, or one per chain.
        gain: how fast ξ adapts; one number, or one per chain.
        start: where ξ starts, by default at D. From there it rises slowly to D + hV/2 with gradient noise of variance
            V: start it there if V is known, or raise `gain`.
        thermostat: `scalar` for one ξ, or `coordinate` for one per coordinate.
        temperature: T of the density exp(−U/T) that is sampled; one number, one per chain, or a schedule.

    Example:
        >>> SGNHT(friction=2.0).init(jnp.zeros(3), jnp.ones(3)).thermostat
        Array(2., dtype=float32)
    """

    friction: Any = number(10.0, positive=True, example=1.3)
    gain: Any = number(1.0, positive=True, example=0.7)
    start: Any = number(None)
    thermostat: str = setting("scalar")
    temperature: Any = number(1.0, positive=True, example=0.8)

    state: ClassVar[type] = SGNHTState

    def init(self, position: Tree, noise: Tree) -> SGNHTState:
        start = self.friction if self.start is None else self.start
        noise = scale(jnp.sqrt(self.temperature), noise)
        if self.thermostat == "coordinate":
            return SGNHTState(position, noise, jax.tree.map(lambda x: jnp.full_like(x, start), position))
        return SGNHTState(position, noise, cast(start, jax.tree.leaves(position)[0]))

    def drift(self, state: SGNHTState, gradient) -> tuple[Tree, ...]:
        force = axpy(-1.0, gradient(state.position), scale(-1.0, self.each(state.thermostat, state.momentum)))
        return state.momentum, force, self.excess(state.momentum)

    def energy(self, state: SGNHTState, potential):
        """(U(θ) + p·p/2 + n (ξ − D)²/(2 gain))/T; with one ξ per coordinate, the sum of their (ξ − D)²/(2 gain)."""
        weight = 1 if self.thermostat == "coordinate" else size(state.momentum)
        squares = sum(jnp.sum((xi - self.friction) ** 2) for xi in jax.tree.leaves(state.thermostat))
        return super().energy(state, potential) + weight * squares / (2 * self.gain * self.temperature)

    def each(self, factor: Tree, momentum: Tree) -> Tree:
        """factor p, with one factor for all coordinates or one per coordinate."""
        return multiply(factor, momentum) if self.thermostat == "coordinate" else scale(factor, momentum)

    def excess(self, momentum: Tree) -> Tree:
        """dξ/dt = gain (p·p/n − T)."""
        if self.thermostat == "coordinate":
            return jax.tree.map(lambda p: cast(self.gain, p) * (p * p - cast(self.temperature, p)), momentum)
        kinetic = dot(momentum, momentum) / size(momentum)
        return cast(self.gain * (kinetic - self.temperature), jax.tree.leaves(momentum)[0])


def adapt(dynamics, state, sub: Substep):
    """dξ = gain (p·p/n − T) dt."""
    return state._replace(thermostat=axpy(sub.time, dynamics.excess(state.momentum), state.thermostat))


def drift_and_adapt(dynamics, state, sub: Substep):
    """dθ = p dt, dξ = gain (p·p/n − T) dt."""
    return drift(dynamics, adapt(dynamics, state, sub), sub)


def damp(dynamics, state, sub: Substep):
    """dp = −ξ p dt."""
    factor = jax.tree.map(lambda xi: jnp.exp(-xi * cast(sub.time, xi)), state.thermostat)
    return state._replace(momentum=dynamics.each(factor, state.momentum))


def damp_euler(dynamics, state, sub: Substep):
    factor = jax.tree.map(lambda xi: 1 - xi * cast(sub.time, xi), state.thermostat)
    return state._replace(momentum=dynamics.each(factor, state.momentum))


def noise(dynamics, state, sub: Substep):
    """dp = √(2D) dW."""
    return state._replace(momentum=axpy(jnp.sqrt(2 * dynamics.friction * sub.time), sub.noise[0], state.momentum))


def kick_and_noise(dynamics, state, sub: Substep):
    """dp = −∇Ũ dt + √(2D) dW."""
    return noise(dynamics, kick(dynamics, state, sub), sub)


def damp_and_noise(dynamics, state, sub: Substep):
    """dp = −ξ p dt + √(2D) dW at fixed ξ of either sign: variance D (1 − e^−2ξt)/ξ."""
    amplitude = jax.tree.map(
        lambda xi: jnp.sqrt(2 * dynamics.friction * sub.time * decay(2 * xi * sub.time)).astype(xi.dtype),
        state.thermostat,
    )
    damped = damp(dynamics, state, sub)
    return damped._replace(momentum=axpy(1.0, dynamics.each(amplitude, sub.noise[0]), damped.momentum))


def damp_and_noise_euler(dynamics, state, sub: Substep):
    return noise(dynamics, damp_euler(dynamics, state, sub), sub)


def euler(dynamics, state, h, gradient, normals):
    """Algorithm 3: p' = p − ξ p h − ∇Ũ(θ) h + √(2Dh) ζ, then θ' = θ + p' h, ξ' = ξ + gain (p'·p'/n − T) h."""
    sub = Substep(h, gradient(state.position), normals, h)
    return drift_and_adapt(dynamics, kick_and_noise(dynamics, damp_euler(dynamics, state, sub), sub), sub)


SGNHT.alphabets = {
    "chen": {
        "A": Piece("drift+thermostat", drift_and_adapt, moves=True),
        "B": Piece("friction", damp, damp_euler),
        "O": Piece("kick+noise", kick_and_noise, noises=1, kicks=True),
    },
    "leimkuhler": {
        "A": Piece("drift", drift, moves=True),
        "B": Piece("kick", kick, kicks=True),
        "D": Piece("thermostat", adapt),
        "O": Piece("friction+noise", damp_and_noise, damp_and_noise_euler, noises=1),
    },
}
SGNHT.steps = {"euler": Step("euler", euler, order=1, gradients=1, noises=1)}
