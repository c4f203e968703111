"""Steps of second-order Langevin dynamics beyond order 2. They are not words: positive times stop at order 2."""

from math import sqrt

import jax.numpy as jnp

from strang.integrators.exponentials import decay, decay_gap
from strang.util.trees import axpy, scale

# Weights w of a symmetric composition of leapfrogs with sum w = 1, sum w^3 = 0, which makes it a map of order 4.
YOSHIDA = (1 / (2 - 2 ** (1 / 3)), -(2 ** (1 / 3)) / (2 - 2 ** (1 / 3)), 1 / (2 - 2 ** (1 / 3)))  # Yoshida 1990
MCLACHLAN = (0.28, 0.62546642846767004501, -0.81093285693534009002, 0.62546642846767004501, 0.28)  # McLachlan 1995


def leapfrogs(weights):
    """O(h/2) · Ψ4(h) · O(h/2): half the exact friction and noise, a fourth-order Hamiltonian map, the other half.

    Weak order 2, but order 4 in the invariant measure, since O leaves it alone and Ψ4 keeps it to h⁴.
    """

    def step(dynamics, state, h, gradient, noise):
        keep, amplitude = jnp.exp(-dynamics.friction * h / 2), jnp.sqrt(-jnp.expm1(-dynamics.friction * h))
        position, momentum = state.position, axpy(amplitude, noise[0], scale(keep, state.momentum))
        for before, weight in zip((0.0, *weights), weights, strict=False):
            position = axpy((before + weight) / 2 * h, momentum, position)
            momentum = axpy(-weight * h, gradient(position), momentum)
        position = axpy(weights[-1] / 2 * h, momentum, position)
        return state._replace(position=position, momentum=axpy(amplitude, noise[1], scale(keep, momentum)))

    return step


def quicsort(dynamics, state, h, gradient, noise):
    """QUICSORT: weak order 3 with two gradients.

    The shifted ODE of Foster, Lyons & Oberhauser 2021 replaces the Brownian path of a step by a straight line with
    jumps at both ends: from increment W, space-time area H and space-time-time area K (independent normals of variance
    h, h/12, h/720), p starts at p + σ(H + 6K), feels the constant force σ(W − 12K)/h, and ends less σ(H − 6K),
    σ = √(2D). Friction and constant force are solved exactly. The gradient's integral takes two Gauss points c1 < c2:
    at the first the gradient's own push is left out and at the second it is h²/3 ∇U(x1), the only weight with which
    Nyström's third-order condition Σ b_i a_ij = 1/6 holds.
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
    second = gradient(axpy(-h * h / 3, first, coast(late * h)))
    position, pushed = coast(h), axpy(reach(h), force, scale(jnp.exp(-friction * h), momentum))
    for push, left in ((first, late * h), (second, early * h)):
        position = axpy(-h / 2 * reach(left), push, position)
        pushed = axpy(-h / 2 * jnp.exp(-friction * left), push, pushed)
    end = axpy(-sigma * area, noise[1], axpy(6 * sigma * bend, noise[2], pushed))
    return state._replace(position=position, momentum=end)
