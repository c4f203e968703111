"""The command line. Results go to standard output (one JSON object with --json), progress and errors to standard error.

It ends with 0, or with 2 and one sentence for bad input.
"""

import math
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InputError, need
from .base import Json, emit
from .launch import Parts, join, launch, leave
from .lda import lda_app
from .runs import report, watch
from .sbn import data_app, sbn_app

app = typer.Typer(
    help="Stochastic-gradient MCMC with symmetric splitting integrators.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
sample_app = typer.Typer(help="Sample a model and compare with its known posterior.", no_args_is_help=True)
app.add_typer(sample_app, name="sample")
app.add_typer(lda_app, name="lda")
app.add_typer(sbn_app, name="sbn")
app.add_typer(data_app, name="data")
app.command()(report)
app.command()(watch)
app.command()(launch)

UsageError: Any = typer.BadParameter.__bases__[0]  # what every mistake on the command line is


Scheduler = Annotated[str | None, typer.Option(help="The address of a Dask scheduler whose workers are to run it.")]


class Shape(StrEnum):
    fixed = "fixed"
    decreasing = "decreasing"


def main() -> None:
    """The entry point: bad input ends with one sentence and status 2."""
    try:
        if join(sys.argv[1:]):
            leave(app(standalone_mode=False) or 0)
        return
    except InputError as error:
        sentence = str(error)
    except UsageError as error:
        sentence = f"{error.format_message().rstrip('.')}. Try --help."
        if "No such command" in sentence:
            known = ", ".join(sorted(error.ctx.command.commands))
            sentence = f"{error.format_message()} Choose one of: {known}."
    except OSError as error:
        sentence = f"cannot write or read {error.filename}: {error.strerror}."
    except typer.Abort:
        sentence = "stopped."
    print(f"strang: {sentence}", file=sys.stderr)
    leave(2)


def flat(position):
    """The metric G = 1, with which SGRHMC is SGHMC."""
    return 1 + 0 * position


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False) -> None:
    if show:
        from .. import __version__

        print(__version__)
        raise typer.Exit


@app.command()
def order(
    integrator: Annotated[str, typer.Argument(help="A word such as chen:ABOBA, or a name such as quicsort.")],
    dynamics: Annotated[str, typer.Option(help="sgld, sghmc, sgnht, sgrhmc or sgrld.")] = "sghmc",
    batches: Annotated[str, typer.Option(help="full, iid, reshuffled, symmetric or cyclic.")] = "full",
    json: Json = False,
) -> None:
    """Certify the weak order of an integrator on the shipped code, and its order in the invariant measure."""
    from ..certificate import invariant_order, weak_order
    from ..integrator import spell
    from ..words import dynamics_class

    kind = dynamics_class(dynamics)
    step = spell(kind, integrator)
    if step.name in ("mirrored-euler", "split"):
        raise InputError(f"{step.name} is not smooth at 0, so it has no Taylor series to certify; choose euler.")
    certificate = weak_order(step, kind, batches)
    invariant = invariant_order(step, kind, batches)
    result = {
        "integrator": step.name,
        "dynamics": dynamics.lower(),
        "batches": batches,
        "weak_order": certificate.order,
        "invariant_order": invariant,
        "gradients_per_step": step.gradients,
        "mismatch": list(certificate.mismatch),
    }
    texts: dict[Any, str] = {None: "not computed: the step is not linear on a Gaussian", "exact": "exact on Gaussians"}
    invariant_text = texts.get(invariant, f"order {invariant} on Gaussians")
    coefficients = ", ".join(f"h^{k}: {m:.1e}" for k, m in enumerate(certificate.mismatch, start=1))
    lines = [
        f"{step.name} of {kind.__name__} with {batches} gradients: weak order {certificate.order}, "
        f"{step.gradients} gradient{'s' * (step.gradients > 1)} a step",
        f"invariant measure: {invariant_text}",
        f"mismatch of the Taylor coefficients: {coefficients}",
    ]
    emit(result, json, lines)


@app.command()
def integrators(
    dynamics: Annotated[str, typer.Option(help="sgld, sghmc, sgnht, sgrld, or sgrhmc with G = 1.")] = "sghmc",
    precision: Annotated[float, typer.Option(help="Posterior precision K of the Gaussian model.")] = 1001.0,
    friction: Annotated[float, typer.Option(help="Friction D.")] = 10.0,
    step_size: Annotated[float, typer.Option(help="Step size h at which the bias is given.")] = 0.005,
    gradient_noise: Annotated[float, typer.Option(help="Variance V of independent minibatch gradients.")] = 1e5,
    json: Json = False,
) -> None:
    """Every named scheme: order, gradients a step, stability limit, and exact bias on a Gaussian."""
    from ..integrator import spell
    from ..theory import linear
    from ..words import dynamics_class, named

    kind = dynamics_class(dynamics)
    given = (precision, friction, step_size, gradient_noise)
    if not (all(map(math.isfinite, given)) and min(given[:3]) > 0 and gradient_noise >= 0):
        raise InputError("precision, friction and step-size must be positive, gradient-noise not negative.")
    numbers: dict[str, Any] = {} if kind.__name__ in ("SGLD", "SGRLD") else {"friction": friction}
    if kind.__name__ == "SGRHMC":
        numbers["metric"] = flat
    chosen = kind(**numbers)
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


@app.command()
def rates(
    order: Annotated[int, typer.Option(help="Weak order K of the integrator.")] = 2,
    steps: Annotated[int, typer.Option(help="Number of steps L.")] = 100_000,
    noise: Annotated[bool, typer.Option("--noise", help="Independent minibatches: the effective order is 1.")] = False,
    json: Json = False,
) -> None:
    """Optimal rates alpha of the step size C L^-alpha, and the step size that minimises the bound."""
    from .. import theory

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


@sample_app.command()
def gaussian(
    dynamics: Annotated[str, typer.Option(help="sgld, sghmc or sgnht.")] = "sghmc",
    integrator: Annotated[str | None, typer.Option(help="A word or name; by default the dynamics' own.")] = None,
    friction: Annotated[float, typer.Option(help="Friction D.")] = 10.0,
    step_size: Annotated[float | None, typer.Option(help="A fixed step size h.")] = None,
    scale: Annotated[float | None, typer.Option(help="C of h = C L^-alpha or h_l = C l^-alpha.")] = None,
    alpha: Annotated[float | None, typer.Option(help="alpha of the same.")] = None,
    schedule: Annotated[Shape, typer.Option(help="Which of the two.")] = Shape.fixed,
    steps: Annotated[int, typer.Option(help="All steps, burn-in included.")] = 100_000,
    chains: Annotated[int, typer.Option(help="Replicates.")] = 200,
    batches: Annotated[str, typer.Option(help="full, iid, reshuffled, symmetric or cyclic.")] = "iid",
    batch_size: Annotated[int, typer.Option(help="Rows a batch.")] = 10,
    replacement: Annotated[bool, typer.Option(help="Whether an iid batch may hold a row twice.")] = True,
    gradient: Annotated[str, typer.Option(help="minibatch, control-variate or svrg.")] = "minibatch",
    gradient_noise: Annotated[float, typer.Option(help="Known variance V for SGHMC to subtract.")] = 0.0,
    data_size: Annotated[int, typer.Option(help="Number of data N, where none are given.")] = 1000,
    data_mean: Annotated[float, typer.Option(help="Their exact mean.")] = 0.5,
    data: Annotated[Path | None, typer.Option(help="Data on disk: .npy, a folder of them, or a table.")] = None,
    column: Annotated[str | None, typer.Option(help="The column of a table (Parquet, Arrow).")] = None,
    burn_in: Annotated[int, typer.Option(help="Steps left out of the average.")] = 0,
    seed: Annotated[int, typer.Option(help="Of data, starts, batches and noise.")] = 0,
    init_mean: Annotated[float, typer.Option(help="Mean of the starts.")] = 0.0,
    init_var: Annotated[float, typer.Option(help="Variance of the starts.")] = 1.0,
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    store: Annotated[Path | None, typer.Option(help="A folder to save the run in; go on with strang resume.")] = None,
    every: Annotated[int | None, typer.Option(help="Steps between saves; by default about ten seconds.")] = None,
    thin: Annotated[int | None, typer.Option(help="Keep every so manieth position in the folder.")] = None,
    parts: Parts = None,
    scheduler: Scheduler = None,
    groups: Annotated[
        int | None, typer.Option(help="Run the chains in so many groups; by default one a worker.")
    ] = None,
    json: Json = False,
) -> None:
    """The paper's experiment: the average of θ² over a Gaussian posterior, with its exact bias and MSE beside it."""
    from .. import experiment

    options = {
        "dynamics": dynamics,
        "integrator": integrator,
        "friction": friction,
        "step_size": step_size,
        "scale": scale,
        "alpha": alpha,
        "schedule": schedule.value,
        "steps": steps,
        "chains": chains,
        "batches": batches,
        "batch_size": batch_size,
        "replacement": replacement,
        "gradient": gradient,
        "gradient_noise": gradient_noise,
        "data_size": data_size,
        "data_mean": data_mean,
        "path": None if data is None else str(data),
        "column": column,
        "burn_in": burn_in,
        "seed": seed,
        "init_mean": init_mean,
        "init_var": init_var,
        "dtype": dtype,
        "thin": thin,
        "parts": parts,
    }
    about = {"command": "sample gaussian", "options": options, "every": every}
    kept: dict[str, Any] = {"store": store, "every": every, "about": about}
    result = experiment.from_options(options, **kept, scheduler=scheduler, groups=groups)
    emit(result, json, experiment.describe(result))


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="The folder given as --store.")],
    steps: Annotated[int | None, typer.Option(help="So many more; by default to what was first asked for.")] = None,
    json: Json = False,
) -> None:
    """Go on with a stored run, bit for bit as if it had never stopped, and print what it would have printed."""
    from .. import experiment, sbn
    from ..store import read_spec

    if steps is not None and steps < 1:
        raise InputError(f"steps is {steps}; write how many more to make, at least 1.")
    spec = read_spec(folder)
    match spec["about"].get("command"):
        case "sample gaussian":
            result = experiment.resume(folder, spec, steps)
            emit(result, json, experiment.describe(result))
        case "sbn fit":
            result = sbn.resume(folder, spec, steps)
            emit(result, json, sbn.describe(folder, result))
        case "lda fit":
            lda = need("strang.lda", "lda")
            result = lda.learning.resume(folder, spec, steps)
            emit(result, json, lda.tell.describe(folder, result))
        case _:
            raise InputError(f"{folder} was begun from Python: to go on, make the same call of strang.sample again.")


@app.command()
def reproduce(
    figures: Annotated[list[str] | None, typer.Argument(help="Their names (see above); by default all.")] = None,
    full: Annotated[bool, typer.Option("--full/--quick", help="The paper's own run counts, or fewer.")] = False,
    out: Annotated[Path, typer.Option(help="Where index.html and results.json go.")] = Path("report"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Make all parts anew, also those kept in OUT/parts.")] = False,
    corpus: Annotated[Path | None, typer.Option(help="Topic models on a prepared corpus, not on a drawn one.")] = None,
    scheduler: Scheduler = None,
    json: Json = False,
) -> None:
    """Reproduce the paper as one HTML page: simulated points over exact curves, and a verdict on every claim.

    Figures: fig1, fig2, fig3, unit (where the theory holds), order2 (how order 2 comes back), theorems, meanflow and
    table1. A killed run goes on where it was.
    """
    from .. import reproduce as paper

    effort = (paper.FULL if full else paper.QUICK)._replace(corpus=str(corpus) if corpus else None)
    report = paper.reproduce(figures or [], effort=effort, out=out, fresh=fresh, scheduler=scheduler)
    emit(paper.results(report, paper.about_page(report)), json, paper.describe(report, out))
