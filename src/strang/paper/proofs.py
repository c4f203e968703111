"""What the verdicts on the theorems are computed from: certified orders, exact biases, sums, densities, commutators.

Each function is a part of the report: plain settings in, plain numbers out, nothing sampled.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.dynamics import SGHMC, SGLD, SGNHT, SGRHMC
from strang.integrators.words import Step, spell
from strang.paper import measure
from strang.theory import finite_time, linear, power_sum_bounds, schedule_sums
from strang.theory.certificate import invariant_order, weak_order
from strang.theory.certificate.algebra import Element, exponential, multiply
from strang.theory.cubature import circle, gauss_hermite, taylor

WORD, FRICTION, ORDER = "chen:ABOBA", 10.0, 2
KINDS: dict[str, Any] = {"SGHMC": SGHMC, "SGLD": SGLD, "SGNHT": SGNHT, "SGRHMC": SGRHMC}
CLOSE = 0.1  # by which a measured power of h or L may differ from a whole number
ROUNDING = 1e-9


def orders(*, schemes: dict[str, list[str]]) -> list[dict[str, Any]]:
    """Weak and invariant order of each scheme, on the shipped code."""
    return [
        {
            "dynamics": kind,
            "word": word,
            "gradients": spell(KINDS[kind], word).gradients,
            "weak": weak_order(word, KINDS[kind], max_order=3, dimensions=(2,)).order,
            "invariant": invariant_order(word, KINDS[kind]),
        }
        for kind, words in schemes.items()
        for word in words
    ]


def batch_orders(*, word: str, batches: list[str]) -> dict[str, Any]:
    """Weak and invariant order over a period of each minibatch order."""
    return {
        order: {
            "weak": weak_order(word, SGHMC, order, max_order=3, dimensions=(2,)).order,
            "invariant": invariant_order(word, SGHMC, order),
        }
        for order in batches
    }


def constants(*, models: list[list[Any]], words: list[str]) -> dict[str, dict[str, float]]:
    """c in Var_h(θ)/Var(θ) = 1 + c h² + ... with full gradients, from complex step sizes; 0 for what is exact."""
    found: dict[str, dict[str, float]] = {}
    for name, precision, friction, radius in models:
        dynamics, h = SGHMC(friction=friction), circle(radius, 32)
        errors = {word: linear.variance_ratio(spell(dynamics, word), dynamics, precision, h) - 1 for word in words}
        found[name] = {
            word: float(taylor(error, h, 2)[2]) if np.abs(error).max() > ROUNDING * radius else 0.0
            for word, error in errors.items()
        }
    return found


def exact(order: str, step_size: Any, steps: int, **settings: Any) -> tuple[np.ndarray, np.ndarray]:
    """Relative bias and MSE of the average of θ² by chen:ABOBA on the paper's model."""
    dynamics = SGHMC(friction=FRICTION)
    x = np.asarray(measure.paper_data(), float)
    settings |= {"data": x, "batch_size": measure.BATCH, "batch_order": order, "step_size": step_size, "steps": steps}
    found = finite_time(spell(dynamics, WORD), dynamics, **settings)
    return np.asarray(found.bias) * measure.PRECISION, np.asarray(found.mse) * measure.PRECISION**2


def biases(*, sizes: list[float], orders: list[str]) -> dict[str, list[float]]:
    """The asymptotic relative bias: over two epochs after time 10, by which the start is forgotten to e^−50."""
    period = 2 * measure.SIZE // measure.BATCH
    found: dict[str, list[float]] = {order: [] for order in orders}
    for order, h in product(orders, sizes):
        settled = int(np.ceil(10 / h / period)) * period
        found[order].append(float(exact(order, h, settled + period, burn_in=settled)[0]))
    return found


def mse_floors(*, floors: dict[str, dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """The relative MSE after so many steps that only the squared bias is left."""
    found: dict[str, dict[str, list[float]]] = {}
    for order, floor in floors.items():
        each = [exact(order, h, floor["steps"]) for h in floor["sizes"]]
        found[order] = {"bias": [float(bias) for bias, _ in each], "mse": [float(mse) for _, mse in each]}
    return found


def lengths(*, h: float, stops: list[int], orders: list[str]) -> dict[str, dict[str, list[float]]]:
    """Relative bias and variance by the number of steps at one step size, and the bias that stays."""
    found: dict[str, dict[str, list[float]]] = {}
    for order in orders:
        bias, mse = exact(order, h, stops[-1], at=stops)
        stays = biases(sizes=[h], orders=[order])[order]
        found[order] = {"bias": bias.tolist(), "variance": (mse - bias**2).tolist(), "stays": stays}
    return found


def falling_size(scale: float, alpha: float, l: np.ndarray) -> np.ndarray:
    """h_l = C l^−α."""
    return scale * l**-alpha


def decreasing(*, scale: float, alphas: list[float], stops: list[int]) -> list[dict[str, Any]]:
    """For each α: the conditions on h_l = C l^−α, and exact bias and MSE with independent and with full gradients."""
    found = []
    for alpha in alphas:
        step_size = partial(falling_size, scale, alpha)
        checked = schedule_sums(step_size, ORDER, 10 * stops[-1])
        bound = [1 / total + ratio for total, ratio in zip(checked["sum"], checked["bias_ratio"], strict=True)]
        at = [checked["steps"].index(stop) for stop in stops]
        errors = {order: exact(order, step_size, stops[-1], at=stops) for order in ("iid", "full")}
        found.append(
            {"alpha": alpha, "consistent": checked["consistent"], "bound": [float(bound[i]) for i in at]}
            | {f"{order} bias": bias.tolist() for order, (bias, _) in errors.items()}
            | {f"{order} mse": mse.tolist() for order, (_, mse) in errors.items()}
        )
    return found


def sums(*, steps: int, alphas: list[float]) -> dict[str, Any]:
    """(Σ h^(K+1)/S_L) L^(Kα) at the decades up to `steps`; and Σ l^−1/2 up to 10 with the bounds on it."""
    scaled = {}
    for alpha in alphas:
        checked = schedule_sums(partial(falling_size, 1.0, alpha), ORDER, steps)
        scaled[f"{alpha:.3g}"] = [
            float(ratio * stop ** (ORDER * alpha))
            for ratio, stop in zip(checked["bias_ratio"], checked["steps"], strict=True)
        ]
    last = 10
    return {
        "scaled": scaled,
        "sum": float((np.arange(1.0, last + 1) ** -0.5).sum()),
        "printed": power_sum_bounds(0.5, last - 1)[1],
        "corrected": power_sum_bounds(0.5, last)[1],
    }


def temperatures(*, sizes: dict[str, float]) -> dict[str, float]:
    """Var_h(θ)/Var(θ) of the printed updates, and of the same with noise as the printed generators have it."""
    found = {}
    for dynamics, word in ((SGHMC(friction=FRICTION), WORD), (SGLD(), "euler")):
        name, step = type(dynamics).__name__, spell(dynamics, word)
        for which, tried in (("update", step), ("generator", with_noise_doubled(step))):
            ratio = linear.variance_ratio(tried, dynamics, measure.PRECISION, sizes[name])
            found[f"{name} {which}"] = float(ratio)
    return found


def with_noise_doubled(step: Step) -> Step:
    """The step whose noise has twice the variance: that of a generator with 2D (SGLD: 2) before the second derivative.

    Paper: 2D I : ∇∇ᵀ with updates √(2Dh) ξ. We: D, because ½ σσᵀ with σ = √(2D) is D (erratum A1).
    """

    def louder(dynamics, state, h, gradient, noise):
        return step(dynamics, state, h, gradient, tuple(np.sqrt(2) * xi for xi in noise))

    return Step(f"{step.name}, noise doubled", louder, order=0, gradients=step.gradients, noises=step.noises)


class Straight(SGRHMC):
    """SGRHMC with ν = 0."""

    def bend(self, position, momentum):
        return jax.tree.map(jnp.zeros_like, position)


def steep(position):
    """A metric without poles, so that quadrature is exact to rounding."""
    return jax.tree.map(lambda x: jnp.exp(0.3 * x), position)


def densities(*, degree: int) -> dict[str, float]:
    """The largest |E L f| over monomials f up to a degree: 0 for the density that an SDE keeps, here with U = θ²/2.

    Paper: exp(+p·p/2) in SGHMC and exp(+(ξ−D)²/2) in SGNHT. We: minus, because these have no integral (errata A3, A4).
    Their formal moments are those of variance −1: that of i z.
    """
    nodes, weights = gauss_hermite(24)
    z = np.stack([axis.ravel() for axis in np.meshgrid(nodes, nodes, indexing="ij")])
    pair = np.outer(weights, weights).ravel()
    few, light = gauss_hermite(8)
    y = np.stack([axis.ravel() for axis in np.meshgrid(few, few, few, indexing="ij")])
    triple = np.multiply.outer(np.outer(light, light), light).ravel()
    sghmc, sgnht, bent = SGHMC(friction=1.3), SGNHT(friction=1.3), [z[0], np.exp(0.15 * z[0]) * z[1]]
    cases = {
        "SGHMC corrected": (sghmc, [z[0], z[1]], pair),
        "SGHMC printed": (sghmc, [z[0], 1j * z[1]], pair),
        "SGNHT corrected": (sgnht, [y[0], y[1], 1.3 + y[2]], triple),
        "SGNHT printed": (sgnht, [y[0], y[1], 1.3 + 1j * y[2]], triple),
        "SGRHMC with ν": (SGRHMC(metric=steep, friction=1.3), bent, pair),
        "SGRHMC without ν": (Straight(metric=steep, friction=1.3), bent, pair),
    }
    return {
        name: drift_of_moments(dynamics, np.array(points), chances, degree)
        for name, (dynamics, points, chances) in cases.items()
    }


def drift_of_moments(dynamics: Any, points: np.ndarray, weights: np.ndarray, degree: int) -> float:
    """max |E L f| over the monomials f up to a degree, with the shipped drift and diffusion."""

    def parts_of(*coordinates):
        state = dynamics.at(*coordinates)
        return dynamics.drift(state, lambda theta: theta), dynamics.diffusion(state)

    with jax.enable_x64(True):
        slopes, amplitudes = (
            [np.asarray(part) for part in half] for half in jax.vmap(parts_of)(*map(jnp.asarray, points))
        )
    worst = 0.0
    for powers in product(range(degree + 1), repeat=len(points)):
        if 0 < sum(powers) <= degree:
            moved = sum(
                slope * derivative(points, powers, i, 1) + amplitude**2 / 2 * derivative(points, powers, i, 2)
                for i, (slope, amplitude) in enumerate(zip(slopes, amplitudes, strict=True))
            )
            worst = max(worst, float(abs(weights @ moved)))
    return worst


def derivative(points: np.ndarray, powers: Sequence[int], place: int, times: int) -> np.ndarray:
    """∂^times/∂x_place^times of the monomial Π x_i^powers_i."""
    left = [power - times * (i == place) for i, power in enumerate(powers)]
    if left[place] < 0:
        return np.zeros(points.shape[1])
    factor = np.prod([powers[place] - k for k in range(times)])
    return factor * np.prod([x**power for x, power in zip(points, left, strict=True)], axis=0)


def commutator() -> dict[str, float]:
    """The coefficient of [O,B] h² in log(e^{hA/2} e^{hO} e^{hA/2} e^{hB/2}), exact in the free algebra."""
    half = Fraction(1, 2)
    found: Element = {(): Fraction(1)}
    for letter, time in (("A", half), ("O", Fraction(1)), ("A", half), ("B", half)):
        found = multiply(found, exponential({(letter,): Fraction(1)}, time, 2), 2)
    linear_part: Element = {monomial: value for monomial, value in found.items() if len(monomial) == 1}
    square = multiply(linear_part, linear_part, 2)
    return {"found": float(found["O", "B"] - square["O", "B"] / 2), "printed": 0.5}
