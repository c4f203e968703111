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
    }
    texts: dict[Any, str] = {None: "not computed: the step is not linear on a Gaussian", "exact": "exact on Gaussians"}
    invariant_text = texts.get(invariant, f"order {invariant} on Gaussians")
    coefficients = ", ".join(f"h^{k}: {m:.1e}" for k, m in enumerate(certificate.mismatch, start=1))
    lines = [
        f"{step.name} of {kind.__name__} with {batch_order} gradients: weak order {certificate.order}, "
        f"{step.gradients} gradient{'s' * (step.gradients > 1)} per step",
        f"invariant measure: {invariant_text}",
        f"mismatch of the Taylor coefficients: {coefficients}",
    ]
    emit(result, json, lines)


def integrators(
    dynamics: Annotated[str, typer.Option(help="sgld, sghmc, sgnht, sgrld, or sgrhmc with G = 1.")] = "sghmc",
    precision: Annotated[float, typer.Option(help="Posterior precision K of the Gaussian model.")] = 1001.0,
    friction: Annotated[float, typer.Option(help="Friction D.")] = 10.0,
    step_size: Annotated[float, typer.Option(help="Step size h at which the bias is given.")] = 0.005,
    gradient_noise: Annotated[float, typer.Option(help="Variance V of independent minibatch gradients.")] = 1e5,
    json: Json = False,
) -> None:
    """Every named scheme: order, gradients per step, stability limit, and exact bias on a Gaussian."""
    from strang.dynamics import dynamics_class
    from strang.dynamics.fields import make
    from strang.integrators.schemes import named
    from strang.integrators.words import spell
    from strang.theory import linear

    kind = dynamics_class(dynamics)
    given = (precision, friction, step_size, gradient_noise)
    if not (all(map(math.isfinite, given)) and min(given[:3]) > 0 and gradient_noise >= 0):
        raise InputError("precision, friction and step-size must be positive, gradient-noise not negative.")
    numbers = {"friction": friction, "metric": flat}
    chosen = make(kind, **{f.name: numbers[f.name] for f in fields(kind) if f.name in numbers})
    rows = []
    for word in named(kind):
        step = spell(kind, word)
        row: dict[str, Any] = {"integrator": word, "order": step.order, "gradients_per_step": step.gradients}
        try:
            limit = linear.stability_limit(step, chosen, precision)
            bias = [
                float(linear.variance_ratio(step, chosen, precision, step_size, v)) - 1
                if step_size < limit
                else math.inf
                for v in (0.0, gradient_noise)
            ]
            row |= {"stability_limit": limit, "variance_bias": bias[0], "variance_bias_noisy": bias[1]}
        except InputError:
            row |= {"stability_limit": None, "variance_bias": None, "variance_bias_noisy": None}
        rows.append(row)
    head = f"{'integrator':28}{'order':>6}{'gradients':>10}{'stable below':>14}{'bias':>12}{'bias, noisy':>13}"
    lines = [
        f"{kind.__name__} on N(0, 1/{precision:g}), friction {friction:g}; relative bias of the variance at "
        f"h = {step_size:g}, with full gradients and with independent gradient noise V = {gradient_noise:g}",
        head,
    ]
    for row in rows:
        cells = [row["stability_limit"], row["variance_bias"], row["variance_bias_noisy"]]
        shown = ["-" if c is None else "explodes" if i and c == math.inf else f"{c:.4g}" for i, c in enumerate(cells)]
        lines.append(
            f"{row['integrator']:28}{row['order']:>6}{row['gradients_per_step']:>10}"
            f"{shown[0]:>14}{shown[1]:>12}{shown[2]:>13}"
        )
    settings = {"dynamics": dynamics.lower(), "precision": precision, "friction": friction, "step_size": step_size}
    emit({**settings, "gradient_noise": gradient_noise, "integrators": rows}, json, lines)


def flat(position):
    """The metric G = 1, with which SGRHMC is SGHMC."""
    return 1 + 0 * position


def rates(
    order: Annotated[int, typer.Option(help="Weak order K of the integrator.")] = 2,
    steps: Annotated[int, typer.Option(help="Number of steps L.")] = 100_000,
    noise: Annotated[bool, typer.Option("--noise", help="Independent minibatches: the effective order is 1.")] = False,
    json: Json = False,
) -> None:
    """Optimal rates alpha of the step size C L^-alpha, and the step size that minimises the bound."""
    from strang import theory

    found = theory.rates(order, noise=noise)
    best = {goal: theory.best_step_size(order, steps, noise=noise, goal=goal) for goal in ("bias", "mse")}
    result: dict[str, Any] = {"order": order, "steps": steps, "noise": noise, "effective_order": found.order}
    lines = [
        f"order {order}, {'independent minibatches' if noise else 'full gradients'}: "
        f"effective order {found.order}, {steps:,} steps"
    ]
    for goal, alpha, rate in (("bias", found.bias_alpha, found.bias_rate), ("mse", found.mse_alpha, found.mse_rate)):
        result[goal] = {"alpha": alpha, "rate": rate, "step_size": best[goal].step_size, "bound": best[goal].error}
        lines.append(
            f"{goal}: h ~ L^-{alpha:.4g}, error ~ L^-{rate:.4g}; with unit constants h = {best[goal].step_size:.4g}, "
            f"bound {best[goal].error:.4g}"
        )
    emit(result, json, lines)
