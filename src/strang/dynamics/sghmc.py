"""Second-order Langevin dynamics (SGHMC).   dθ = p dt,   dp = −∇Ũ(θ) dt − D p dt + √(2DT) dW

Keeps exp(−(U(θ) + p·p/2)/T). Chen, Ding & Carin 2015, section 4; Leimkuhler & Matthews 2013.
Paper: density exp(−U + p·p/2), generator with 2D. We: the minus sign and D, because only these are consistent with the
printed updates; a generator with 2D samples at temperature 2 (errata A1, A3).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from strang.dynamics.base import SecondOrder
from strang.dynamics.fields import PER_COORDINATE, number
from strang.integrators.exponentials import decay, tanh_gap
from strang.integrators.high_order import AREAS, MCLACHLAN, SPLITTING, YOSHIDA, between_halves_of_friction, quicsort
from strang.integrators.words import Piece, Step, Substep, fading, spell
from strang.util.errors import InputError
from strang.util.trees import Tree, add, axpy, cast, multiply, scale, spread


class SGHMCState(NamedTuple):
    position: Tree
    momentum: Tree


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SGHMC(SecondOrder):
    """Stochastic-gradient Hamiltonian Monte Carlo: second-order Langevin dynamics.

    Args:
        friction: D; one number, or one per chain.
        gradient_noise: the variance V of the minibatch gradient, if it is known; one number, or one per coordinate. The
            `chen:` words, the Eulers and `nogin` reduce their own noise by what it adds to the diffusion.
        temperature: T of the density exp(−U/T) that is sampled; one number, one per chain, or a schedule.

    Example:
        >>> dynamics = SGHMC(friction=5.0)
        >>> spell(dynamics, dynamics.default_integrator).order
        2
    """

    friction: Any = number(10.0, positive=True, example=1.3)
    gradient_noise: Any = number(0.0, per=PER_COORDINATE)
    temperature: Any = number(1.0, positive=True, example=0.8)

    state: ClassVar[type] = SGHMCState
    corrected: ClassVar[tuple[str, ...]] = ("chen:", "euler-", "nogin")  # the integrators that use gradient_noise
    linear: ClassVar[bool] = True

    def init(self, position: Tree, noise: Tree) -> SGHMCState:
        return SGHMCState(position, scale(jnp.sqrt(self.temperature), noise))

    def drift(self, state: SGHMCState, gradient) -> tuple[Tree, ...]:
        force = scale(-1.0, gradient(state.position))
        return state.momentum, axpy(-self.friction, state.momentum, force)

    def check(self, step: Step, h: float) -> None:
        """Raises unless the step's own noise exceeds the known gradient noise; `h` is the largest step size."""
        variances = np.concatenate([np.ravel(v) for v in jax.tree.leaves(self.gradient_noise)])
        if not (variances >= 0).all():
            raise InputError(f"gradient_noise is {variances.min()}; a variance is not negative.")
        variance = float(variances.max(initial=0))
        if variance == 0:
            return
        if not step.name.startswith(self.corrected):
            raise InputError(
                f"{step.name!r} does not correct for gradient_noise; choose a 'chen:' word, an Euler or 'nogin', or "
                "leave it out."
            )
        if callable(self.temperature):
            raise InputError("gradient_noise is corrected at one temperature only; write a number, or leave one out.")
        friction = float(np.min(np.asarray(self.friction) * np.asarray(self.temperature)))
        limit = 2 * friction / h
        if step.name == "nogin":
            each = np.tanh(np.asarray(self.friction) * h / 2) * np.asarray(self.temperature)
            limit = 4 * float(np.min(each)) / h**2
        if not variance <= limit * (1 + 1e-6):  # the rounding of single precision
            raise InputError(
                f"gradient_noise {variance:g} is more than the {limit:g} that {step.name!r} can take out of its own "
                f"noise at step_size {h:g} and friction {friction:g}; write a smaller step, a larger batch, or more "
                "friction."
            )


def drift(dynamics, state, sub: Substep):
    """dθ = p dt."""
    return state._replace(position=axpy(sub.time, state.momentum, state.position))


def kick(dynamics, state, sub: Substep):
    """dp = −∇Ũ dt."""
    return state._replace(momentum=axpy(-sub.time, sub.gradient, state.momentum))


def damp(dynamics, state, sub: Substep):
    """dp = −D p dt."""
    return state._replace(momentum=scale(jnp.exp(-dynamics.friction * sub.time), state.momentum))


def damp_euler(dynamics, state, sub: Substep):
    return state._replace(momentum=scale(1 - dynamics.friction * sub.time, state.momentum))


def kick_and_noise(dynamics, state, sub: Substep):
    """dp = −∇Ũ dt + √(2D) dW, less the h V dt that known gradient noise V adds to the diffusion's 2D dt."""
    amplitude = reduced_noise(
        dynamics, state, lambda variance: (2 * dynamics.friction - sub.step_size * variance) * sub.time
    )
    return state._replace(momentum=add(kick(dynamics, state, sub).momentum, multiply(amplitude, sub.noise[0])))


def reduced_noise(dynamics, state, remaining: Callable) -> Tree:
    """Amplitudes of noise of variance T: `remaining` computes that of noise of variance 1 from the known variance of
    the gradient over T."""
    variances = spread(dynamics.gradient_noise, state.momentum)
    some = 1 - 8 * float(
        jnp.finfo(jnp.result_type(float)).eps
    )  # of the variance, lest rounding leaves less than nothing
    some = some / dynamics.temperature
    return jax.tree.map(lambda variance, p: cast(jnp.sqrt(remaining(some * variance)), p), variances, state.momentum)


def damp_and_noise(dynamics, state, sub: Substep):
    """dp = −D p dt + √(2D) dW, the Ornstein-Uhlenbeck process."""
    x = dynamics.friction * sub.time
    return state._replace(momentum=axpy(jnp.sqrt(-jnp.expm1(-2 * x)), sub.noise[0], scale(jnp.exp(-x), state.momentum)))


def damp_and_noise_euler(dynamics, state, sub: Substep):
    x = dynamics.friction * sub.time
    return state._replace(momentum=axpy(jnp.sqrt(2 * x), sub.noise[0], scale(1 - x, state.momentum)))


def free(dynamics, state, sub: Substep):
    """dθ = p dt, dp = −D p dt + √(2D) dW jointly: a Gaussian in closed form.

    With x = D t: p' = e^−x p + s ξ1, θ' = θ + E (p + √tanh(x/2) ξ1) + √r ξ2, s² = 1 − e^−2x, E = (1 − e^−x)/D and
    r = (2/D²)(x − 2 tanh(x/2)), each written without cancellation so that float32 is good at small x.
    """
    x, (along, aside) = dynamics.friction * sub.time, sub.noise
    moved = axpy(sub.time * decay(x), axpy(jnp.sqrt(jnp.tanh(x / 2)), along, state.momentum), state.position)
    position = axpy(sub.time * jnp.sqrt(tanh_gap(x)), aside, moved)
    momentum = axpy(jnp.sqrt(-jnp.expm1(-2 * x)), along, scale(jnp.exp(-x), state.momentum))
    return state._replace(position=position, momentum=momentum)


def free_kernels(dynamics, left, time):
    """What the noise does to the momentum, and to the position: (1 − e^−D left)/D."""
    return (*fading(dynamics, left, time), left * decay(dynamics.friction * left))


def free_euler(dynamics, state, sub: Substep):
    moved = drift(dynamics, state, sub).position
    return damp_and_noise_euler(dynamics, state, sub)._replace(position=moved)


def euler_old(dynamics, state, h, gradient, noise):
    """θ' = θ + h p, p' = (1 − Dh) p − h ∇Ũ(θ) + √(2Dh) ξ: all from the old state.

    Paper: three different updates are called Euler (erratum A6). We: ship all three by name, because they differ in
    stability and invariant measure; this is appendix I's.
    """
    sub = Substep(h, gradient(state.position), noise, h)
    pushed = kick_and_noise(dynamics, damp_euler(dynamics, state, sub), sub)
    return pushed._replace(position=drift(dynamics, state, sub).position)


def nogin(dynamics, state, h, gradient, noise):
    """Half drift, half kick, friction and noise, half kick, half drift, for a gradient whose variance V is known.

    Both half kicks use one gradient, whose noise therefore reaches the momentum with variance ((1+c) h/2)² V,
    c = e^−Dh. The noise is reduced by that much, so the invariant measure of a Gaussian is exact with Gaussian gradient
    noise. After Matthews & Weare 2018 (NOGIN).
    """
    half = Substep(h / 2, None, (), h)
    state = drift(dynamics, state, half)
    push = half._replace(gradient=gradient(state.position))
    keep = jnp.exp(-dynamics.friction * h)
    amplitude = reduced_noise(
        dynamics, state, lambda variance: -jnp.expm1(-2 * dynamics.friction * h) - ((1 + keep) * h / 2) ** 2 * variance
    )
    kicked = kick(dynamics, state, push).momentum
    state = state._replace(momentum=add(scale(keep, kicked), multiply(amplitude, noise[0])))
    return drift(dynamics, kick(dynamics, state, push), half)


A = Piece("drift", drift, moves=True)
KICK = Piece("kick", kick, kicks=True)
# Paper: A drift, B friction, O kick+noise in the text, permuted in its appendix J; elsewhere B kick, O friction+noise.
# We: letters always with their alphabet, because 'ABOBA' names two different schemes (erratum A8).
SGHMC.alphabets = {
    "chen": {
        "A": A,
        "B": Piece("friction", damp, damp_euler),
        "O": Piece("kick+noise", kick_and_noise, noises=1, kicks=True),
    },
    "leimkuhler": {"A": A, "B": KICK, "O": Piece("friction+noise", damp_and_noise, damp_and_noise_euler, noises=1)},
    "ubu": {
        "U": Piece("drift+friction+noise", free, free_euler, noises=2, moves=True, kernels=free_kernels),
        "B": KICK,
    },
}
SGHMC.steps = {
    "euler-old": Step("euler-old", euler_old, order=1, gradients=1, noises=1),
    "nogin": Step("nogin", nogin, order=2, gradients=1, noises=1),
    "quicsort": Step("quicsort", quicsort, order=3, gradients=2, noises=3, paths=AREAS),
    **{
        name: Step(name, between_halves_of_friction(times), order=2, gradients=len(times[1]), noises=2)
        for name, times in (
            ("opsi4o-yoshida", YOSHIDA),
            ("opsi4o-mclachlan", MCLACHLAN),
            ("opsi4o-mclachlan-splitting", SPLITTING),
        )
    },
    "euler-new": replace(spell(SGHMC, "chen:bOA"), name="euler-new"),  # Algorithm 2: θ moves with the new p
    "euler-position-first": replace(spell(SGHMC, "chen:AbO"), name="euler-position-first"),  # e^{hL2} e^{hL3}
}
