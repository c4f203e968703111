"""Riemannian first-order Langevin dynamics (SGRLD).   dθ = (−G⁻¹∇Ũ + T∇·G⁻¹) dt + √(2T G⁻¹) dW

Keeps exp(−U(θ)/T) for any positive G(θ), here diagonal; with G = 1 it is SGLD. Patterson & Teh 2013, whose step size is
2h. With G⁻¹ = diag(θ) it suits positive parameters with a Gamma-like distribution, such as a topic's unnormalised
word weights: steps are then larger where the parameter is, and mirrored at 0.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from strang.dynamics.fields import number, setting
from strang.integrators.exponentials import decay
from strang.integrators.words import Step
from strang.util.errors import InputError
from strang.util.random import jax_key
from strang.util.trees import Tree, add, axpy, multiply, same_shape, scale, shapes, subtract

SMALLEST = 1e-30  # of a position, whose logarithm may be asked for
MANY = 1e6  # from here on a Poisson number is as good as normal


class SGRLDState(NamedTuple):
    position: Tree


def identity(position: Tree) -> Tree:
    """G⁻¹ = diag(θ)."""
    return position


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SGRLD:
    """Stochastic-gradient Riemannian Langevin dynamics, for positive parameters by default.

    Args:
        inverse_metric: a function from a position to the diagonal of G⁻¹: a tree shaped like the position, each number
            of which depends on its own coordinate alone. By default G⁻¹ = diag(θ).
        rate: B, for the integrator `cir`, which is exact where the drift is A − B θ with this B: for Gamma(A, B). One
            number, or one per chain.
        temperature: T of the density exp(−U/T) that is sampled; one number, one per chain, or a schedule.

    Steps of Euler's kind are of order 1 where the density is smooth at 0. Where it has a pole there, they are far
    worse: for Gamma(0.3), whose mean `mirrored-euler` has 66 % too large at h = 0.1 and still 14 % at h = 0.0016, as if
    it were of order 0.35. `split` is off by 3 to 8 % there, and `cir` is the step to choose.

    Example:
        >>> state = SGRLD().init(jnp.asarray([4.0]), jnp.zeros(1))
        >>> SGRLD().diffusion(state)  # √(2θ)
        (Array([2.828427], dtype=float32),)
    """

    inverse_metric: Callable = setting(identity)
    rate: Any = number(0.0)
    temperature: Any = number(1.0, positive=True, example=0.8)

    alphabets: ClassVar[dict] = {}
    steps: ClassVar[dict]
    default_integrator: ClassVar[str] = "mirrored-euler"
    positive: ClassVar[bool] = True  # it suits positive parameters

    def init(self, position: Tree, noise: Tree) -> SGRLDState:
        return SGRLDState(position)

    def coordinates(self, state: SGRLDState) -> tuple[Tree, ...]:
        return (state.position,)

    def at(self, position: Tree) -> SGRLDState:
        return SGRLDState(position)

    def drift(self, state: SGRLDState, gradient) -> tuple[Tree, ...]:
        """As G⁻¹ is elementwise, its divergence is its derivative along (1, ..., 1)."""
        position = state.position
        inverse, divergence = jax.jvp(self.inverse_metric, (position,), (jax.tree.map(jnp.ones_like, position),))
        return (subtract(scale(self.temperature, divergence), multiply(inverse, gradient(position))),)

    def diffusion(self, state: SGRLDState) -> tuple[Tree, ...]:
        twice = scale(2 * self.temperature, self.inverse_metric(state.position))
        return (jax.tree.map(jnp.sqrt, twice),)

    def check_start(self, position: Tree) -> None:
        """Raises unless G⁻¹ is shaped like the position and each number of it depends on its own coordinate alone. Then
        its derivative along v is v times that along (1, ..., 1); both are taken near the start, off its symmetries."""
        if not same_shape(self.inverse_metric(position), position):
            raise InputError(
                f"inverse_metric gives shape {shapes(self.inverse_metric(position))} for a position of shape "
                f"{shapes(position)}; write one number per coordinate, such as jnp.full_like(position, g)."
            )
        flat, unravel = ravel_pytree(position)
        ones, other = jnp.ones_like(flat), jnp.linspace(0.1, 0.9, flat.size, dtype=flat.dtype)[::-1]
        near = flat + 0.01 * (1 + jnp.abs(flat)) * (0.5 + other)

        def along(direction):
            return jax.jvp(lambda x: ravel_pytree(self.inverse_metric(unravel(x)))[0], (near,), (direction,))[1]

        slope = along(ones)
        if (jnp.abs(along(other) - other * slope) > 1e-3 * jnp.abs(slope).max()).any():
            raise InputError(
                "inverse_metric mixes coordinates: its number for one of them changes with another, which SGRLD's "
                "drift leaves out; write one whose every number depends on its own coordinate alone, or use "
                "strang.SGRHMC(metric=...), whose diagonal may depend on all of them."
            )

    def energy(self, state: SGRLDState, potential):
        return potential(state.position) / self.temperature


def euler(dynamics, state: SGRLDState, h, gradient, noise) -> SGRLDState:
    """θ' = θ + h (−G⁻¹∇Ũ + T∇·G⁻¹) + √(2hT G⁻¹) ξ."""
    (drift,) = dynamics.drift(state, gradient)
    amplitude = jax.tree.map(lambda inverse: jnp.sqrt(2 * inverse), dynamics.inverse_metric(state.position))
    increment = axpy(h, drift, scale(jnp.sqrt(h), multiply(amplitude, noise[0])))  # rounded less than one by one
    return SGRLDState(add(state.position, increment))


def mirrored_euler(dynamics, state: SGRLDState, h, gradient, noise) -> SGRLDState:
    """|θ'|: a coordinate that would leave the positive numbers is reflected at 0."""
    return SGRLDState(jax.tree.map(jnp.abs, euler(dynamics, state, h, gradient, noise).position))


def split(dynamics, state: SGRLDState, h, gradient, noise) -> SGRLDState:
    """Solves the noise alone exactly, then takes an Euler step of the drift, mirrored at 0. With G⁻¹ = diag(θ) the
    noise moves √θ by √(hT/2) ξ, in Stratonovich's sense, which leaves ½T less of drift. Numbers near 0 stay smaller
    than by Euler's step, whose noise moves them to the order of h."""
    if dynamics.inverse_metric is not identity:
        raise InputError("split solves the noise of G⁻¹ = diag(θ) only; write integrator='mirrored-euler'.")
    moved = jax.tree.map(
        lambda t, z: ((jnp.sqrt(t) + jnp.sqrt(h / 2) * z) ** 2).astype(t.dtype), state.position, noise[0]
    )
    (drift,) = dynamics.drift(SGRLDState(moved), gradient)
    less = dynamics.temperature / 2
    return SGRLDState(jax.tree.map(lambda t, d: jnp.abs(t + (h * (d - less)).astype(t.dtype)), moved, drift))


def cir(dynamics, state: SGRLDState, h, gradient, noise) -> SGRLDState:
    """Solves dθ = (A − B θ) dt + √(2Tθ) dW exactly, the process of Cox, Ingersoll and Ross, with A − B θ the drift
    here. θ/T has the drift A/T − B θ/T and the temperature 1, for which the rest is said.

    B is `rate`, and more where A would be negative. With c = (1 − e^−Bh)/B, θ' = c/2 times a noncentral χ² of 2A
    degrees of freedom and noncentrality 2 θ e^−Bh / c, which never leaves the positive numbers.
    """
    if dynamics.inverse_metric is not identity:
        raise InputError("cir solves the metric G⁻¹ = diag(θ) only; write integrator='euler'.")
    (drift,) = dynamics.drift(state, gradient)
    solve = partial(solve_cir, h=h, rate=dynamics.rate)
    T = dynamics.temperature
    moved = jax.tree.map(solve, scale(1 / T, state.position), scale(1 / T, drift), *noise)
    return SGRLDState(scale(T, moved))


def solve_cir(theta, drift, normal, *noise, h, rate):
    """The position after time h, from normals: one per coordinate, and two whose bits make a key."""
    gain, kept, scale = cir_law(theta, drift, h, rate)
    expected = kept / scale  # half of the noncentrality
    bits = [lax.bitcast_convert_type(z.astype(jnp.float32).ravel()[0], jnp.uint32) for z in noise]
    first, second = jax.random.split(jax_key(jnp.stack(bits)))
    # Half of a noncentral χ²: a squared normal and a χ² where that is possible, else a mixture of χ²'s.
    count = jax.random.poisson(first, jnp.minimum(expected, MANY)).astype(normal.dtype)
    count = jnp.where(expected < MANY, count, jnp.maximum(expected + jnp.sqrt(expected) * normal, 0))
    shape = jnp.where(gain < 0.5, gain + count, gain - 0.5)
    squared = jnp.where(gain < 0.5, 0, (normal + jnp.sqrt(2 * expected)) ** 2 / 2)
    others = jnp.where(shape > 0, jax.random.gamma(second, jnp.maximum(shape, SMALLEST), dtype=normal.dtype), 0)
    return jnp.maximum(scale * (squared + others), SMALLEST).astype(theta.dtype)


def cir_law(theta, drift, h, rate):
    """A, θ e^−Bh and c of the process whose drift is `drift` at θ."""
    toward = drift + rate * theta
    gain, more = jnp.maximum(toward, 0), jnp.maximum(-toward, 0) / jnp.maximum(theta, SMALLEST)
    x = (rate + more) * h
    return gain, theta * jnp.exp(-x), h * decay(x)


SGRLD.steps = {
    "euler": Step("euler", euler, order=1, gradients=1, noises=1),
    "mirrored-euler": Step("mirrored-euler", mirrored_euler, order=1, gradients=1, noises=1, smooth=False),
    "split": Step("split", split, order=1, gradients=1, noises=1, smooth=False),
    "cir": Step("cir", cir, order=1, gradients=1, noises=3, smooth=False, own_temperature=True),
}
