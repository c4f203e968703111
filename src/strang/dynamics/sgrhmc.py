"""Riemannian second-order Langevin dynamics (SGRHMC) with the user's metric G(θ).

dθ = G⁻¹ p dt,   dp = (−∇Ũ − ½T∇log det G + ν) dt − D G⁻¹ p dt + √(2DT) dW,   ν_i = ½ p·G⁻¹ (∂_i G) G⁻¹ p

Keeps exp(−U(θ)/T − ½ log det G − ½ p·G⁻¹p/T), whose θ-marginal is the posterior. With G = 1 it is SGHMC.
Paper (appendix J): ν is not defined. We: as above, because without it the θ-marginal is wrong (erratum A11).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from strang.dynamics.base import SecondOrder
from strang.dynamics.fields import number, setting
from strang.dynamics.sghmc import SGHMCState
from strang.integrators.words import Piece, Substep
from strang.util.errors import InputError, whole
from strang.util.trees import Tree, axpy, cast, dot, same_shape, scale, shapes, size


def bowl(position: Tree) -> Tree:
    """A smooth diagonal metric whose entries depend on all coordinates, with which steps are certified."""
    return jax.tree.map(lambda x: 1.2 + 0.4 * x * x + 0.2 * jnp.sum(x) ** 2, position)


def constant_metric(position: Tree) -> Tree:
    """A metric that is the same everywhere, with which steps are linear on Gaussians."""
    return jax.tree.map(lambda x: jnp.full_like(x, 1.7), position)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SGRHMC(SecondOrder):
    """Stochastic-gradient Riemannian Hamiltonian Monte Carlo: SGHMC with a metric that depends on the position.

    Args:
        metric: a function from a position to G, which is a tree of positive numbers shaped like the position (a
            diagonal), or one symmetric positive definite matrix over the flattened position.
        friction: D; one number, or one per chain.
        iterations: fixed-point sweeps that solve the implicit flow of {G⁻¹p, ν}; each gains a factor of order h.
        temperature: T of the density exp(−U/T) that is sampled; one number, one per chain, or a schedule.

    Example:
        >>> dynamics = SGRHMC(metric=lambda position: 1 + position**2)
        >>> dynamics.init(jnp.asarray([2.0]), jnp.ones(1)).momentum  # √G times a normal
        Array([2.236068], dtype=float32)
    """

    metric: Callable = setting(example=bowl, constant=constant_metric)
    friction: Any = number(10.0, positive=True, example=1.3)
    iterations: int = setting(6)
    temperature: Any = number(1.0, positive=True, example=0.8)

    state: ClassVar[type] = SGHMCState

    def init(self, position: Tree, noise: Tree) -> SGHMCState:
        noise = scale(jnp.sqrt(self.temperature), noise)
        momentum = self.apply(position, noise, lambda g, z: jnp.sqrt(g) * z, lambda g, z: jnp.linalg.cholesky(g) @ z)
        return SGHMCState(position, momentum)

    def drift(self, state: SGHMCState, gradient) -> tuple[Tree, ...]:
        velocity = self.velocity(state.position, state.momentum)
        force = axpy(-1.0, self.slope(state.position, gradient(state.position)), self.bend(*state))
        return velocity, axpy(-self.friction, velocity, force)

    def energy(self, state: SGHMCState, potential):
        """U(θ)/T + ½ log det G + ½ p·G⁻¹p/T, where G⁻¹ is the linear map that `velocity` is, however G is written."""
        flat, unravel = ravel_pytree(state.momentum)
        inverse = jax.jacfwd(lambda p: ravel_pytree(self.velocity(state.position, unravel(p)))[0])(flat)
        kinetic = dot(state.momentum, self.velocity(*state)) / 2
        return (potential(state.position) + kinetic) / self.temperature - jnp.linalg.slogdet(inverse)[1] / 2

    @property
    def accuracy(self) -> int:
        """Each sweep of the implicit flow gains an order of h."""
        return self.iterations

    def check_start(self, position: Tree) -> None:
        """Raises unless the metric is a positive diagonal shaped like the position, or a positive definite matrix."""
        whole("iterations", self.iterations)
        metric, n = self.metric(position), size(position)
        if not (same_shape(metric, position) or full(metric, position)):
            raise InputError(
                f"metric gives shape {shapes(metric)} for a position of shape {shapes(position)}; write positive "
                "numbers shaped like the position, such as jnp.full_like(position, g) where all share the number g, or "
                f"one {n} x {n} matrix."
            )
        if full(metric, position):
            symmetric = bool(jnp.allclose(metric, metric.T, rtol=1e-4))
            positive = symmetric and bool(jnp.isfinite(jnp.linalg.cholesky(metric)).all())
        else:
            positive = all(bool((g > 0).all()) for g in jax.tree.leaves(metric))
        if not positive:
            raise InputError("metric is not positive (definite, and symmetric if a matrix) at the start; write one.")

    def kinetic_temperature(self, state: SGHMCState):
        """p·G⁻¹p/nT, whose mean should be 1."""
        return dot(state.momentum, self.velocity(*state)) / (size(state.momentum) * self.temperature)

    def velocity(self, position: Tree, momentum: Tree) -> Tree:
        """G⁻¹ p."""
        return self.apply(position, momentum, lambda g, p: p / g, jnp.linalg.solve)

    def apply(self, position: Tree, vector: Tree, diagonal: Callable, dense: Callable) -> Tree:
        """Computes diagonal(G, vector) leaf by leaf, or dense(G, vector) on the flattened vector if G is a matrix."""
        metric = self.metric(position)
        if not full(metric, position):
            return jax.tree.map(diagonal, metric, vector)
        flat, unravel = ravel_pytree(vector)
        return unravel(dense(metric, flat))

    def bend(self, position: Tree, momentum: Tree) -> Tree:
        """ν = −∇_θ ½ p·G(θ)⁻¹p."""
        return differentiate(lambda theta: -0.5 * dot(momentum, self.velocity(theta, momentum)), position)

    def slope(self, position: Tree, gradient: Tree) -> Tree:
        """∇U + ½ T ∇log det G. Of a matrix ∂ log det G = tr(G⁻¹ ∂G), since det G soon leaves single precision."""
        here = self.metric(position)
        inverse = jnp.linalg.inv(here) if full(here, position) else None

        def half_log_volume(theta):
            metric = self.metric(theta)
            if inverse is not None:
                return 0.5 * jnp.sum(inverse.T * metric)
            return 0.5 * sum(jnp.sum(jnp.log(g)) for g in jax.tree.leaves(metric))

        return axpy(self.temperature, differentiate(half_log_volume, position), gradient)


def full(metric: Tree, position: Tree) -> bool:
    """Whether the metric is one matrix over the flattened position rather than a diagonal shaped like it."""
    n = size(position)
    return not same_shape(metric, position) and bool(shapes(metric) == (n, n))


def differentiate(function, position: Tree) -> Tree:
    """The gradient of a real-analytic function, also at the certificate's complex points."""
    complex_point = any(jnp.iscomplexobj(leaf) for leaf in jax.tree.leaves(position))
    return jax.grad(function, holomorphic=complex_point)(position)


def geodesic(dynamics, state, sub: Substep):
    """dθ = G⁻¹p dt, dp = ν dt by the generalised leapfrog: symmetric and symplectic, exact where G is constant."""
    theta, p, half = state.position, state.momentum, sub.time / 2
    middle = p
    for _ in range(dynamics.iterations):
        middle = axpy(half, dynamics.bend(theta, middle), p)
    start = axpy(half, dynamics.velocity(theta, middle), theta)
    end = axpy(half, dynamics.velocity(theta, middle), start)
    for _ in range(dynamics.iterations):
        end = axpy(half, dynamics.velocity(end, middle), start)
    return SGHMCState(end, axpy(half, dynamics.bend(end, middle), middle))


def geodesic_euler(dynamics, state, sub: Substep):
    theta, p = state
    return SGHMCState(axpy(sub.time, dynamics.velocity(theta, p), theta), axpy(sub.time, dynamics.bend(theta, p), p))


def damp(dynamics, state, sub: Substep):
    """dp = −D G⁻¹ p dt."""
    metric, rate = dynamics.metric(state.position), dynamics.friction * sub.time
    if not full(metric, state.position):
        damped = jax.tree.map(lambda g, p: jnp.exp(-cast(rate, p) / g) * p, metric, state.momentum)
        return state._replace(momentum=damped)
    flat, unravel = ravel_pytree(state.momentum)
    return state._replace(momentum=unravel(jax.scipy.linalg.expm(-cast(rate, flat) * jnp.linalg.inv(metric)) @ flat))


def damp_euler(dynamics, state, sub: Substep):
    return state._replace(momentum=axpy(-dynamics.friction * sub.time, dynamics.velocity(*state), state.momentum))


def kick_and_noise(dynamics, state, sub: Substep):
    """dp = −(∇Ũ + ½T∇log det G) dt + √(2DT) dW."""
    kicked = axpy(-sub.time, dynamics.slope(state.position, sub.gradient), state.momentum)
    return state._replace(momentum=axpy(jnp.sqrt(2 * dynamics.friction * sub.time), sub.noise[0], kicked))


SGRHMC.alphabets = {
    "chen": {
        "A": Piece("drift along geodesics", geodesic, geodesic_euler, moves=True),
        "B": Piece("friction", damp, damp_euler),
        "O": Piece("kick+noise", kick_and_noise, noises=1, kicks=True),
    },
}
