"""`strang order`, `strang integrators` and `strang rates`: what theory says of a scheme before it is run."""

import math
from dataclasses import fields
from typing import Annotated, Any

import typer

from strang.util.command_line import BatchOrder, Json, emit
from strang.util.errors import InputError


def order(
    integrator: Annotated[str, typer.Argument(help="A word such as chen:ABOBA, or a name such as quicsort.")],
    dynamics: Annotated[str, typer.Option(help="sgld, sghmc, sgnht, sgrhmc or sgrld.")] = "sghmc",
    batch_order: BatchOrder = "full",
    json: Json = False,
) -> None:
    """Certify the weak order of an integrator on the shipped code, and its order in the invariant measure."""
    from strang.dynamics import dynamics_class
    from strang.integrators.words import spell
    from strang.theory.certificate import invariant_order, weak_order
    from strang.theory.certificate.stationary import MAX_IMBALANCE

    kind = dynamics_class(dynamics)
    step = spell(kind, integrator)
    if not step.smooth:
        raise InputError(f"{step.name} is not smooth at 0, so it has no Taylor series to certify; choose euler.")
    certificate = weak_order(step, kind, batch_order)
    invariant = invariant_order(step, kind, batch_order)
    result = {
        "integrator": step.name,
        "dynamics": dynamics.lower(),
        "batches": batch_order,
        "weak_order": certificate.order,
        "invariant_order": invariant,
        "gradients_per_step": step.gradients,
        "mismatch": list(certificate.mismatch),
        "density_imbalance": certificate.imbalance,
    }
    texts: dict[Any, str] = {None: "not computed: the step is not linear on a Gaussian", "exact": "exact on Gaussians"}
    coefficients = ", ".join(f"h^{k}: {m:.1e}" for k, m in enumerate(certificate.mismatch, start=1))
    lines = [
        f"{step.name} of {kind.__name__} with {batch_order} gradients: weak order {certificate.order}, "
        f"{step.gradients} gradient{'s' * (step.gradients > 1)} per step",
        f"invariant measure: {texts.get(invariant, f'order {invariant} on Gaussians')}",
        f"mismatch of the Taylor coefficients: {coefficients}",
    ]
    if certificate.imbalance is not None:
        kept = certificate.imbalance < MAX_IMBALANCE
        what = "kept by the coded drift and diffusion" if kept else "NOT kept: samples are of another density"
        lines.append(f"the density exp(-U): {what} (imbalance {certificate.imbalance:.1e})")
    emit(result, json, lines)


def integrators(
    dynamics: Annotated[str, typer.Option(help="sgld, sghmc, sgnht, sgrld, or sgrhmc with G = 1.")] = "sghmc",
    precision: Annotated[float, typer.Option(help="Posterior precision K of the Gaussian model.")] = 1001.0,
    friction: Annotated[float, typer.Option(help="Friction D.")] = 10.0,
    step_size: Annotated[float, typer.Option(help="Step size h at which the bias is computed.")] = 0.005,
    gradient_noise: Annotated[float, typer.Option(help="Variance V of independent minibatch gradients.")] = 1e5,
    json: Json = False,
) -> None:
    """List every named scheme: order, gradients per step, stability limit, and exact bias on a Gaussian.

    A minus sign stands for what has no exact value: a step that is not linear, or one whose bias double precision
    cannot resolve.
    """
    from strang.dynamics import dynamics_class
    from strang.dynamics.fields import make
    from strang.integrators.schemes import named
    from strang.integrators.words import spell

    kind = dynamics_class(dynamics)
    positive = (precision, friction, step_size)
    if not (all(map(math.isfinite, (*positive, gradient_noise))) and min(positive) > 0 and gradient_noise >= 0):
        raise InputError("precision, friction and step-size must be positive, gradient-noise not negative.")
    settings = {"friction": friction, "metric": unit_metric}
    chosen = make(kind, **{f.name: settings[f.name] for f in fields(kind) if f.name in settings})
    rows: list[dict[str, Any]] = []
    for word in named(kind):
        step = spell(kind, word)
        exact = stability_and_bias(step, chosen, precision, step_size, gradient_noise)
        names = ("stability_limit", "variance_bias", "variance_bias_noisy")
        known = {"integrator": word, "order": step.order, "gradients_per_step": step.gradients}
        rows.append(known | dict(zip(names, exact, strict=True)))
    lines = [
        f"{kind.__name__} on N(0, 1/{precision:g}), friction {friction:g}; relative bias of the variance at "
        f"h = {step_size:g}, with full gradients and with independent gradient noise V = {gradient_noise:g}",
        f"{'integrator':28}{'order':>6}{'gradients':>10}{'stable below':>14}{'bias':>12}{'bias, noisy':>13}",
    ]
    for row in rows:
        name, accuracy, gradients, *numbers = row.values()
        cells = ["-" if x is None else "explodes" if i and x == math.inf else f"{x:.4g}" for i, x in enumerate(numbers)]
        lines.append(f"{name:28}{accuracy:>6}{gradients:>10}{cells[0]:>14}{cells[1]:>12}{cells[2]:>13}")
    result = {"dynamics": dynamics.lower(), "precision": precision, "friction": friction, "step_size": step_size}
    emit({**result, "gradient_noise": gradient_noise, "integrators": rows}, json, lines)


def stability_and_bias(step: Any, dynamics: Any, precision: float, h: float, gradient_noise: float) -> list[Any]:
    """The stability limit and the relative bias of the variance, without and with gradient noise: infinite beyond the
    limit, None where the step is not linear or double precision cannot resolve the bias."""
    from strang.theory import linear

    def bias(variance: float) -> float | None:
        try:
            error = float(linear.variance_ratio(step, dynamics, precision, h, variance)) - 1
        except InputError:  # unresolved: one scheme must not hide the others
            return None
        return error if -1 <= error < math.inf else None

    try:
        limit = linear.stability_limit(step, dynamics, precision)
    except linear.NotLinear:
        return [None, None, None]
    if h >= limit:
        return [limit, math.inf, math.inf]
    return [limit, bias(0.0), bias(gradient_noise)]


def unit_metric(position):
    """The metric G = 1, with which SGRHMC is SGHMC."""
    return 1 + 0 * position


def rates(
    order: Annotated[int, typer.Option(help="Weak order K of the integrator.")] = 2,
    steps: Annotated[int, typer.Option(help="Number of steps L.")] = 100_000,
    noise: Annotated[bool, typer.Option("--noise", help="Independent minibatches: the effective order is 1.")] = False,
    json: Json = False,
) -> None:
    """Print the optimal exponents alpha of step sizes C L^-alpha, and the step size that minimises the error bound."""
    from strang import theory

    best_rates = theory.rates(order, noise=noise)
    result: dict[str, Any] = {"order": order, "steps": steps, "noise": noise, "effective_order": best_rates.order}
    lines = [
        f"order {order}, {'independent minibatches' if noise else 'full gradients'}: "
        f"effective order {best_rates.order}, {steps:,} steps"
    ]
    for goal, (alpha, rate) in {"bias": best_rates[1:3], "mse": best_rates[3:5]}.items():
        h, bound = theory.best_step_size(order, steps, noise=noise, goal=goal)
        result[goal] = {"alpha": alpha, "rate": rate, "step_size": h, "bound": bound}
        lines.append(
            f"{goal}: h ~ L^-{alpha:.4g}, error ~ L^-{rate:.4g}; with unit constants h = {h:.4g}, bound {bound:.4g}"
        )
    emit(result, json, lines)
