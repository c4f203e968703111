"""First-order Langevin dynamics (SGLD).   dθ = −∇Ũ(θ) dt + √(2T) dW

Keeps exp(−U(θ)/T). Welling & Teh 2011; Chen, Ding & Carin 2015, appendix A.
Paper: dθ = −½∇U dt + dW, but steps h and √(2h). We: the steps, because the text's algorithm and experiments use them;
the step size of Welling & Teh is 2h (erratum A2).
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from strang.dynamics.fields import number
from strang.integrators.words import Step
from strang.util.trees import Tree, add, axpy, scale


class SGLDState(NamedTuple):
    """`position` is the sample; `base` is where the next step starts, which differs only with averaged noise."""

    position: Tree
    base: Tree


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SGLD:
    """Stochastic-gradient Langevin dynamics. It has no friction: that is 1 by choice of the time unit.

    Args:
        temperature: T of the density exp(−U/T) that is sampled; one number, one per chain, or a schedule.

    Example:
        >>> state = SGLD().init(jnp.ones(2), jnp.zeros(2))
        >>> SGLD.steps["euler"](SGLD(), state, 0.1, lambda position: position, (jnp.zeros(2),)).position
        Array([0.9, 0.9], dtype=float32)
    """

    temperature: Any = number(1.0, positive=True, example=0.8)

    alphabets: ClassVar[dict] = {}
    steps: ClassVar[dict]
    default_integrator: ClassVar[str] = "euler"
    linear: ClassVar[bool] = True

    def init(self, position: Tree, noise: Tree) -> SGLDState:
        return SGLDState(position, position)

    def coordinates(self, state: SGLDState) -> tuple[Tree, ...]:
        return (state.base,)

    def at(self, position: Tree) -> SGLDState:
        return SGLDState(position, position)

    def drift(self, state: SGLDState, gradient) -> tuple[Tree, ...]:
        return (scale(-1.0, gradient(state.base)),)

    def diffusion(self, state: SGLDState) -> tuple[Tree, ...]:
        return (jax.tree.map(lambda x: jnp.full_like(x, jnp.sqrt(2.0 * self.temperature)), state.base),)

    def energy(self, state: SGLDState, potential):
        return potential(state.base) / self.temperature


def euler(dynamics, state: SGLDState, h, gradient, noise) -> SGLDState:
    """θ' = θ − h ∇Ũ(θ) + √(2h) ξ."""
    position = add(state.base, increment(h, gradient(state.base), noise[0]))
    return SGLDState(position, position)


def increment(h, gradient: Tree, noise: Tree) -> Tree:
    """−h ∇Ũ + √(2h) ξ, summed before it is added to a position, in which a small drift would be rounded to nothing."""
    return axpy(-h, gradient, scale(jnp.sqrt(2 * h), noise))


def averaged_noise(dynamics, state: SGLDState, h, gradient, noise) -> SGLDState:
    """θ = X + √(h/2) ξ,   X' = X − h ∇Ũ(θ) + √(2h) ξ.

    Paper: SGLD cannot easily be split. We: sample at half the noise, because the averages over these θ are of order 2
    in the invariant measure at the price of one gradient (erratum A24; Leimkuhler & Matthews 2013, where successive
    θ share their noises by halves).
    """
    position = axpy(jnp.sqrt(h / 2), noise[0], state.base)
    return SGLDState(position, add(state.base, increment(h, gradient(position), noise[0])))


SGLD.steps = {
    "euler": Step("euler", euler, order=1, gradients=1, noises=1),
    "averaged-noise": Step("averaged-noise", averaged_noise, order=1, gradients=1, noises=1),
}
