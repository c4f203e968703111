"""What the verdicts on the theorems are computed from: each function is a part of the report, nothing is sampled."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.dynamics import SGHMC, SGLD, SGNHT, SGRHMC
from strang.dynamics.sgrhmc import bowl
from strang.integrators.words import spell
from strang.paper import measure
from strang.theory import finite_time, linear, power_sum_bounds, schedule_sums
from strang.theory.certificate import imbalance, invariant_order, weak_order
from strang.theory.certificate.algebra import Element, exponential, multiply
from strang.theory.cubature import circle, taylor

WORD, FRICTION, ORDER = "chen:ABOBA", 10.0, 2
KINDS: dict[str, Any] = {"SGLD": SGLD, "SGHMC": SGHMC, "SGNHT": SGNHT, "SGRHMC": SGRHMC}
CLOSE = 0.1  # by which a measured power of h or L may differ from a whole number
ROUNDING = 1e-9


def certified(scheme: str, kind: Any, batch_order: str = "full") -> dict[str, Any]:
    """Weak and invariant order of a scheme, on the shipped code."""
    weak = weak_order(scheme, kind, batch_order, max_order=3, dimensions=(2,)).order
    return {"weak": weak, "invariant": invariant_order(scheme, kind, batch_order)}


def orders(*, schemes: dict[str, list[str]]) -> list[dict[str, Any]]:
    """Gradients per step and orders of each scheme, by the name of its dynamics."""
    return [
        {"dynamics": name, "word": word, "gradients": spell(kind, word).gradients, **certified(word, kind)}
        for name, kind in KINDS.items()
        for word in schemes.get(name, ())
    ]


def batch_orders(*, word: str, batches: list[str]) -> dict[str, Any]:
    """Orders of SGHMC over a period of each minibatch order."""
    return {batch_order: certified(word, SGHMC, batch_order) for batch_order in batches}


def constants(*, models: list[list[Any]], words: list[str]) -> dict[str, dict[str, float]]:
    """c in Var_h(θ)/Var(θ) = 1 + c h² + ... with full gradients, from complex step sizes; 0 for what is exact."""
    leading: dict[str, dict[str, float]] = {}
    for name, precision, friction, radius in models:
        dynamics, h = SGHMC(friction=friction), circle(radius, 32)
        leading[name] = {}
        for word in words:
            error = linear.variance_ratio(spell(dynamics, word), dynamics, precision, h) - 1
            leading[name][word] = float(taylor(error, h, 2)[2]) if np.abs(error).max() > ROUNDING * radius else 0.0
    return leading


def exact(batch_order: str, step_size: Any, steps: int, **settings: Any) -> tuple[np.ndarray, np.ndarray]:
    """Relative bias and MSE of the average of θ² by chen:ABOBA on the paper's model."""
    dynamics, x = SGHMC(friction=FRICTION), np.asarray(measure.PAPER_DATA, float)
    settings |= {"batch_size": measure.BATCH, "batch_order": batch_order, "step_size": step_size, "steps": steps}
    errors = finite_time(spell(dynamics, WORD), dynamics, data=x, **settings)
    return np.asarray(errors.bias) * measure.PRECISION, np.asarray(errors.mse) * measure.PRECISION**2


def biases(*, sizes: list[float], orders: list[str]) -> dict[str, list[float]]:
    """The asymptotic relative bias: over two epochs after time 10, by which the start is forgotten to e^−50."""
    period, asymptotic = 2 * measure.SIZE // measure.BATCH, {}
    settled = [int(np.ceil(10 / h / period)) * period for h in sizes]
    for order in orders:
        lengths = zip(sizes, settled, strict=True)
        asymptotic[order] = [float(exact(order, h, start + period, burn_in=start)[0]) for h, start in lengths]
    return asymptotic


def mse_floors(*, floors: dict[str, dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """The relative MSE after so many steps that only the squared bias is left."""
    errors: dict[str, dict[str, list[float]]] = {}
    for order, floor in floors.items():
        bias, mse = np.transpose([exact(order, h, floor["steps"]) for h in floor["sizes"]]).tolist()
        errors[order] = {"bias": bias, "mse": mse}
    return errors


def lengths(*, h: float, stops: list[int], orders: list[str]) -> dict[str, dict[str, list[float]]]:
    """Relative bias and variance by the number of steps at one step size, and the bias that stays."""
    stays, errors = biases(sizes=[h], orders=orders), {}
    for order in orders:
        bias, mse = exact(order, h, stops[-1], at=stops)
        errors[order] = {"bias": bias.tolist(), "variance": (mse - bias**2).tolist(), "stays": stays[order]}
    return errors


def decreasing(*, scale: float, alphas: list[float], stops: list[int]) -> list[dict[str, Any]]:
    """For each α: the conditions on h_l = C l^−α, and exact bias and MSE with independent and with full gradients."""
    results = []
    for alpha in alphas:
        step_size = measure.power_law(scale, alpha)
        checked = schedule_sums(step_size, ORDER, 10 * stops[-1])
        at = [checked["steps"].index(stop) for stop in stops]
        bound = [float(1 / checked["sum"][i] + checked["bias_ratio"][i]) for i in at]
        result = {"alpha": alpha, "consistent": checked["consistent"], "bound": bound}
        for order in ("iid", "full"):
            bias, mse = exact(order, step_size, stops[-1], at=stops)
            result |= {f"{order} bias": bias.tolist(), f"{order} mse": mse.tolist()}
        results.append(result)
    return results


def sums(*, steps: int, alphas: list[float]) -> dict[str, Any]:
    """(Σ h^(K+1)/S_L) L^(Kα) at the decades up to `steps`; and Σ l^−1/2 up to 10 with the bounds on it."""
    scaled = {}
    for alpha in alphas:
        checked = schedule_sums(measure.power_law(1.0, alpha), ORDER, steps)
        decades = zip(checked["bias_ratio"], checked["steps"], strict=True)
        scaled[f"{alpha:.3g}"] = [float(ratio * stop ** (ORDER * alpha)) for ratio, stop in decades]
    total = float((np.arange(1.0, 11.0) ** -0.5).sum())
    printed, corrected = (power_sum_bounds(0.5, last)[1] for last in (9, 10))
    return {"scaled": scaled, "sum": total, "printed": printed, "corrected": corrected}


def temperatures(*, sizes: dict[str, float]) -> dict[str, float]:
    """Var_h(θ)/Var(θ) of the printed updates, and of the same with noise as the printed generators have it.

    Paper: 2D I : ∇∇ᵀ (SGLD: 2) with updates √(2Dh) ξ. We: D, because ½ σσᵀ with σ = √(2D) is D (erratum A1). So the
    printed generator is the update with noise of twice the variance.
    """
    ratios = {}
    for dynamics, word in ((SGHMC(friction=FRICTION), WORD), (SGLD(), "euler")):
        name, step = type(dynamics).__name__, spell(dynamics, word)

        def doubled(dynamics, state, h, gradient, noise, step=step):
            return step.function(dynamics, state, h, gradient, tuple(np.sqrt(2) * xi for xi in noise))

        generator = replace(step, name=f"{step.name}, noise doubled", function=doubled, order=0)
        for which, tried in (("update", step), ("generator", generator)):
            ratios[f"{name} {which}"] = float(linear.variance_ratio(tried, dynamics, measure.PRECISION, sizes[name]))
    return ratios


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WithoutCurvatureForce(SGRHMC):
    """SGRHMC with ν = 0."""

    def bend(self, position, momentum):
        return jax.tree.map(jnp.zeros_like, position)


def densities() -> dict[str, float | None]:
    """How far each SDE is from keeping a density: |L*ρ/ρ| over the sizes of its terms, at random points.

    Paper: exp(+p·p/2) in SGHMC and exp(+(ξ−D)²/2) in SGNHT. We: minus, because only these are kept, and because the
    others have no integral (errata A3, A4).
    """

    def printed_sghmc(state, potential):
        return potential(state.position) - jnp.sum(state.momentum**2) / 2

    def printed_sgnht(state, potential):
        return potential(state.position) + jnp.sum(state.momentum**2) / 2 - (state.thermostat - 1.3) ** 2 / 2

    sghmc, sgnht = SGHMC(friction=1.3), SGNHT(friction=1.3)
    cases = {
        "SGHMC corrected": (sghmc, None),
        "SGHMC printed": (sghmc, printed_sghmc),
        "SGNHT corrected": (sgnht, None),
        "SGNHT printed": (sgnht, printed_sgnht),
        "SGRHMC with ν": (SGRHMC(metric=bowl, friction=1.3), None),
        "SGRHMC without ν": (WithoutCurvatureForce(metric=bowl, friction=1.3), None),
    }
    return {name: imbalance(dynamics, energy) for name, (dynamics, energy) in cases.items()}


def commutator() -> dict[str, float]:
    """The coefficient of [O,B] h² in log(e^{hA/2} e^{hO} e^{hA/2} e^{hB/2}), exact in the free algebra."""
    series: Element = {(): Fraction(1)}
    for letter, halves in (("A", 1), ("O", 2), ("A", 1), ("B", 1)):
        series = multiply(series, exponential({(letter,): Fraction(1)}, Fraction(halves, 2), 2), 2)
    linear_part: Element = {monomial: value for monomial, value in series.items() if len(monomial) == 1}
    square = multiply(linear_part, linear_part, 2)
    return {"found": float(series["O", "B"] - square["O", "B"] / 2), "printed": 0.5}
