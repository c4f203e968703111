"""Steps of second-order Langevin dynamics beyond order 2. They are not words: positive times stop at order 2."""

from math import sqrt

import jax.numpy as jnp

from strang.integrators.exponentials import decay, decay_gap
from strang.integrators.words import Path
from strang.util.trees import axpy, scale

Map = tuple[tuple[float, ...], tuple[float, ...]]  # times of the drifts, and of the kicks between them


def leapfrogs(*weights: float) -> Map:
    """Half a drift, a kick and half a drift per weight. A symmetric row with Σw = 1, Σw³ = 0 is a map of order 4."""
    drifts = [(before + after) / 2 for before, after in zip((0.0, *weights), (*weights, 0.0), strict=True)]
    return tuple(drifts), weights


def composition(betas: tuple[float, ...]) -> Map:
    """Steps of first order and their adjoints in turn, of β_1 h, α_1 h, β_2 h, ... with α_i = β_(s+1−i): a drift and a
    kick of β_i h, then a kick and a drift of α_i h."""
    alphas = betas[::-1]
    drifts = [before + after for before, after in zip((0.0, *alphas), (*betas, 0.0), strict=True)]
    return tuple(drifts), tuple(beta + alpha for beta, alpha in zip(betas, alphas, strict=True))


YOSHIDA = leapfrogs(1 / (2 - 2 ** (1 / 3)), -(2 ** (1 / 3)) / (2 - 2 ** (1 / 3)), 1 / (2 - 2 ** (1 / 3)))  # 1990
MCLACHLAN = leapfrogs(0.28, 0.62546642846767004501, -0.81093285693534009002, 0.62546642846767004501, 0.28)  # 1995
# McLachlan 1995 as well: not leapfrogs, whose drifts and kicks have times of their own, with a smaller error.
SPLITTING = composition(
    (
        (14 - sqrt(19)) / 108,
        (-23 - 20 * sqrt(19)) / 270,
        1 / 5,
        (-2 + 10 * sqrt(19)) / 135,
        (146 + 5 * sqrt(19)) / 540,
    )
)


def between_halves_of_friction(times: Map):
    """O(h/2) · Ψ4(h) · O(h/2): half the exact friction and noise, a fourth-order Hamiltonian map, the other half.

    Weak order 2, but order 4 in the invariant measure, since O leaves it alone and Ψ4 keeps it to h⁴.
    """
    (first, *drifts), kicks = times

    def step(dynamics, state, h, gradient, noise):
        keep, amplitude = jnp.exp(-dynamics.friction * h / 2), jnp.sqrt(-jnp.expm1(-dynamics.friction * h))
        momentum = axpy(amplitude, noise[0], scale(keep, state.momentum))
        position = axpy(first * h, momentum, state.position)
        for drift, kick in zip(drifts, kicks, strict=True):
            momentum = axpy(-kick * h, gradient(position), momentum)
            position = axpy(drift * h, momentum, position)
        return state._replace(position=position, momentum=axpy(amplitude, noise[1], scale(keep, momentum)))

    return step


def areas(dynamics, left, time):
    """Increment, space-time area and space-time-time area of a Brownian path: polynomials of Legendre."""
    x = left / time
    return jnp.ones_like(x), x - 1 / 2, 1 - 6 * x + 6 * x * x


AREAS = (Path(0.0, 1.0, areas),)


def quicsort(dynamics, state, h, gradient, noise):
    """QUICSORT: weak order 3 with two gradients.

    The shifted ODE of Foster, Lyons & Oberhauser 2021 replaces the Brownian path of a step by a straight line with
    jumps at both ends: from increment W, space-time area H and space-time-time area K (independent normals of variance
    h, h/12, h/720), p starts at p + σ(H + 6K), feels the constant force σ(W − 12K)/h, and ends less σ(H − 6K),
    σ = √(2D). Friction and constant force are solved exactly. The gradient's integral takes two Gauss points c1 < c2:
    at the first the gradient's own push is left out, and at the second it is that of one kick h ∇U(x1) that was damped
    for a time h/3, so h (1 − e^−Dh/3)/D ∇U(x1). At small h that is h²/3, the only weight with which Nyström's
    third-order condition Σ b_i a_ij = 1/6 holds; the damping keeps the step accurate where Dh is not small. As
    published by Scott, O'Kane, Jelinčič & Foster 2025.
    """
    friction, sigma = dynamics.friction, jnp.sqrt(2 * dynamics.friction)
    increment, area, bend = jnp.sqrt(h), jnp.sqrt(h / 12), jnp.sqrt(h / 720)
    momentum = axpy(sigma * area, noise[1], axpy(6 * sigma * bend, noise[2], state.momentum))
    force = axpy(sigma * increment / h, noise[0], scale(-12 * sigma * bend / h, noise[2]))

    def reach(t):  # displacement by a unit momentum after time t: (1 − e^−Dt)/D
        return t * decay(friction * t)

    def coast(t):
        return axpy(t * t * decay_gap(friction * t), force, axpy(reach(t), momentum, state.position))

    early, late = (3 - sqrt(3)) / 6, (3 + sqrt(3)) / 6
    first = gradient(coast(early * h))
    second = gradient(axpy(-h * reach(h / 3), first, coast(late * h)))
    position, pushed = coast(h), axpy(reach(h), force, scale(jnp.exp(-friction * h), momentum))
    for push, left in ((first, late * h), (second, early * h)):
        position = axpy(-h / 2 * reach(left), push, position)
        pushed = axpy(-h / 2 * jnp.exp(-friction * left), push, pushed)
    end = axpy(-sigma * area, noise[1], axpy(6 * sigma * bend, noise[2], pushed))
    return state._replace(position=position, momentum=end)
