"""The paper's synthetic experiment: the average of θ² over the posterior of a Gaussian mean, with its exact errors."""

import warnings
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang import data, gradients, models, run
from strang import schedule as schedules
from strang.dynamics import dynamics_class
from strang.dynamics.fields import is_linear, make
from strang.integrators.words import spell
from strang.run import cluster
from strang.theory import finite_time, linear
from strang.util.errors import InputError, choose
from strang.util.memory import check_fits

GRADIENTS = {"minibatch": gradients.minibatch, "control-variate": gradients.control_variate, "svrg": gradients.svrg}
DTYPES = ("float32", "float64")
EXACT_ROWS = 100_000  # most rows of data on disk for which the exact errors are computed
EXACT_BATCHES = 2000  # most batches of an epoch for which they are: the errors of all pairs are held in memory


def square(position):
    """The paper's test function φ(θ) = θ²."""
    return position**2


def standardised(size: int, mean: float, seed: int) -> np.ndarray:
    """Normal draws shifted and scaled to this mean and unit population variance exactly.

    >>> x = standardised(10, 0.5, seed=0)
    >>> round(float(x.mean()), 12), round(float(x.var()), 12)
    (0.5, 1.0)
    """
    if seed < 0:
        raise InputError(f"seed is {seed}; write a whole number from 0 on.")
    if size < 2:
        raise InputError(f"data-size is {size}; two data at least have a variance to standardise.")
    check_fits(f"data-size is {size}: {size:,} data", 24 * size)
    x = np.random.default_rng(seed).normal(size=size)
    return (x - x.mean()) / x.std() + mean


def from_options(options: dict[str, Any], *, more: int = 0, **settings) -> dict[str, Any]:
    """Run the experiment with the options of the command line, `more` steps than these, and settings of `gaussian`."""
    options = dict(options)
    size, scale, alpha, kind = (options.pop(name) for name in ("step_size", "scale", "alpha", "schedule"))
    if [size is None, scale is None, alpha is None] not in ([False, True, True], [True, False, False]):
        raise InputError(
            "write either --step-size H, or --scale C and --alpha A (with --schedule fixed or decreasing)."
        )
    if size is None:
        fixed = kind != "decreasing"
        size = schedules.fixed(scale, alpha, options["steps"]) if fixed else schedules.decreasing(scale, alpha)
    options |= {"dynamics": dynamics_class(options["dynamics"]), "steps": options["steps"] + more}
    return gaussian(step_size=size, **options, **settings)


def resume(folder: Path, spec: dict[str, Any], more: int | None) -> dict[str, Any]:
    """Continue a stored run of the command line to the steps it was asked for, or for so many more."""
    about = spec["about"]
    try:
        options, every = dict(about["options"]), about["every"]
        missing = spec["steps"] - options["steps"]
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{folder / 'spec.json'} is damaged: its options are incomplete.") from None
    return from_options(options, more=missing + (more or 0), store=folder, every=every, about=about)


def make_dynamics(kind, friction: float, gradient_noise: float):
    """The dynamics with this friction, if it has one, and this known variance of the gradient noise."""
    if not gradient_noise >= 0:
        raise InputError(f"gradient-noise is {gradient_noise}; a variance is not negative.")
    if getattr(kind, "positive", False):
        raise InputError(f"{kind.__name__.lower()} is for positive parameters, and a mean has a sign; choose sghmc.")
    has_friction = "friction" in {field.name for field in fields(kind)}
    return make(kind, friction=friction if has_friction else None, gradient_noise=gradient_noise or None)


def gaussian(
    *,
    dynamics,
    step_size,
    chains: int,
    integrator: str | None = None,
    friction: float = 10.0,
    batch_order: str = "iid",
    batch_size: int = 10,
    replacement: bool = True,
    gradient: str = "minibatch",
    gradient_noise: float = 0.0,
    data_size: int = 1000,
    data_mean: float = 0.5,
    path: str | None = None,
    column: str | None = None,
    burn_in: int = 0,
    seed: int = 0,
    init_mean: float = 0.0,
    init_var: float = 1.0,
    dtype: str = "float32",
    scheduler: str | None = None,
    tasks: int | None = None,
    **others: Any,
) -> dict[str, Any]:
    """Bias and MSE of the average of θ² over many chains, with standard errors and the exact values.

    With `path` the data stay on disk (in this `column` of a table). `scheduler` and `tasks` are arguments of
    `strang.cluster.sample`; `others` are those of `strang.sample`.
    """
    in_tasks = scheduler is not None or tasks is not None
    kept = {name: others.pop(name, None) for name in ("store", "every", "about", "parts")}
    if in_tasks and any(kept[name] is not None for name in ("store", "every", "parts")):
        raise InputError(
            "a run in tasks is not stored in a folder, and its batches are not cut in parts: leave out --store, "
            "--every and --parts, or --scheduler and --tasks."
        )
    if gradient not in GRADIENTS:
        raise choose("gradient", gradient, GRADIENTS)
    if dtype not in DTYPES:
        raise choose("dtype", dtype, DTYPES)
    if not init_var >= 0:
        raise InputError(f"init-var is {init_var}; a variance is not negative.")
    chosen = make_dynamics(dynamics, friction, gradient_noise)
    with jax.enable_x64(dtype == "float64"):
        model = models.Gaussian(start_mean=init_mean, start_var=init_var)
        batches: dict[str, Any] = {"batch_size": batch_size, "batch_order": batch_order, "replacement": replacement}
        if path is None:
            x: np.ndarray | None = standardised(data_size, data_mean, seed).astype(dtype)
            rows, true = data.arrays(x, **batches), truth(model, x)
        else:
            rows = data.files(path, columns=column, **batches)
            x, true = on_disk(rows, model, path)
        others |= {"integrator": integrator, "step_size": step_size, "chains": chains, "burn_in": burn_in, "seed": seed}
        others |= {"gradient": GRADIENTS[gradient](), "average": square}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", run.RunWarning)  # the result says it
            sample: Any = partial(cluster.sample, scheduler, tasks=tasks) if in_tasks else partial(run.sample, **kept)
            outcome = sample(model, rows, chosen, **others)
        result = measured(outcome, true)
    step = spell(chosen, integrator or chosen.default_integrator)
    if gradient != "minibatch":
        # On this model variance reduction removes all gradient noise and leaves the full gradient, unless a sweep's
        # last batch is shorter: the slopes of its batches differ.
        batches |= {"batch_size": None, "batch_order": "full"}
        known = not rows.batch_order.ragged
    else:
        known = rows.batch_order.full or rows.batch_order.independent or rows.batch_order.epoch <= EXACT_BATCHES
    result["exact"] = {"bias": None, "mse": None}
    if x is not None and known and is_linear(chosen) and outcome.steps > burn_in:
        sizes = on_arrays(step_size) if callable(step_size) else step_size
        start: dict[str, Any] = {"init_mean": init_mean, "init_var": init_var}
        made: dict[str, Any] = {"steps": outcome.steps, "burn_in": burn_in}  # fewer steps than asked for after Ctrl-C
        exact = finite_time(step, chosen, data=np.asarray(x, float), step_size=sizes, **batches, **made, **start)
        result["exact"] = {"bias": float(exact.bias), "mse": float(exact.mse)}
    if is_linear(chosen):
        result["stability_limit"] = linear.stability_limit(step, chosen, 1.0 + rows.size)
    settings = {"dynamics": dynamics.__name__.lower(), "integrator": step.name, "friction": friction}
    settings |= {"steps": outcome.steps, "interrupted": outcome.interrupted, "chains": chains, "batches": batch_order}
    settings |= {"batch_size": batch_size, "data_size": rows.size, "gradient": gradient, "burn_in": burn_in}
    return {**settings, "seed": seed, "dtype": dtype, **result}


def truth(model: models.Gaussian, x) -> float:
    """The posterior mean of θ²."""
    mean, variance = model.posterior(x)
    return mean**2 + variance


def on_disk(rows: data.Data, model: models.Gaussian, path: str) -> tuple[np.ndarray | None, float]:
    """The numbers on disk, or None if they are too many for the exact errors, and the posterior mean of θ²."""
    if jax.tree.structure(rows.datum) != jax.tree.structure(0) or rows.datum.shape:  # type: ignore[operator]
        shapes = jax.tree.map(lambda row: row.shape, rows.datum)
        raise InputError(
            f"{path} has rows of shape {shapes}; this model takes one number per row (of a table, write --column NAME)."
        )
    rows.verify()
    chunks = rows.source.columns[0].chunks()  # type: ignore[union-attr]
    if rows.size <= EXACT_ROWS:
        x = np.concatenate(list(chunks)).astype(float)
        return x, truth(model, x)
    total = sum(float(chunk.sum(dtype=float)) for chunk in chunks)
    precision = 1 / model.prior_var + rows.size / model.noise_var
    return None, (total / model.noise_var / precision) ** 2 + 1 / precision


def measured(outcome: run.Run, true: float) -> dict[str, Any]:
    """Bias and MSE over the chains that did not diverge, with standard errors over chains, and the run's health."""
    error = outcome.each.mean["average"][outcome.alive] - true
    result = {}
    for name, values in (("bias", error), ("mse", error**2)):
        result[name] = float(values.mean()) if len(values) else np.nan
        result[f"{name}_se"] = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.nan
    return {
        **result,
        "mean": true + result["bias"],
        "truth": true,
        "diverged": outcome.diverged,
        "kinetic_temperature": outcome.temperature,
        "gradient_noise": float(outcome.gradient_noise),
        "seconds": outcome.seconds,
        **({} if outcome.waiting is None else {"waiting": outcome.waiting}),
        "steps_per_second": outcome.speed,
    }


def on_arrays(schedule: Callable) -> Callable[[np.ndarray], np.ndarray]:
    """The schedule as a function of an array of step numbers."""
    return lambda numbers: np.asarray(schedule(jnp.asarray(numbers, float)), float) * np.ones_like(numbers)


def describe(result: dict[str, Any]) -> list[str]:
    """The result as lines for the terminal."""

    def compared(name):
        exact, se = result["exact"][name], result[f"{name}_se"]
        if exact is not None:
            off = f", {(result[name] - exact) / se:+.1f} standard errors off" if se and np.isfinite(exact) else ""
            return f"exact {exact:.6g}{off}"
        if result["steps"] <= result["burn_in"]:
            return "no exact value: no step was averaged"
        if is_linear(dynamics_class(result["dynamics"])):
            return "no exact value: there are too many data, or uneven batches"
        return "no exact value: the step is not linear"

    lines = [
        f"{result['dynamics']} {result['integrator']}, {result['batches']} batches of {result['batch_size']}: "
        f"{result['steps']:,} steps of {result['chains']} chains in {result['seconds']:.1f} s "
        f"({result['steps_per_second']:,.0f} steps/s)" + ", interrupted" * result["interrupted"],
        f"mean of θ²  {result['mean']:.8g}   truth {result['truth']:.8g}",
        f"bias        {result['bias']:.6g} ± {result['bias_se']:.2g}   {compared('bias')}",
        f"MSE         {result['mse']:.6g} ± {result['mse_se']:.2g}   {compared('mse')}",
    ]
    if result["kinetic_temperature"] is not None:
        lines.append(f"temperature {result['kinetic_temperature']:.5g} (should be 1)")
    lines.append(f"gradient noise V {result['gradient_noise']:.5g}")
    if "waiting" in result:
        lines.append(f"waiting for data {100 * result['waiting']:.2g} % of the time")
    if result["diverged"]:
        limit = result.get("stability_limit")
        hint = f"; {result['integrator']} is stable below {limit:.4g} here" if limit else ""
        lines.append(f"{result['diverged']} of {result['chains']} chains diverged{hint}")
    return lines
