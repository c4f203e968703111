"""The command line. Results go to standard output (one JSON object with --json), progress and errors to standard error.

It ends with 0, or with 2 and one sentence for bad input.
"""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InputError
from .base import Json, emit
from .launch import Parts, join, launch, leave
from .lda import lda_app
from .runs import report, resume, watch
from .sbn import data_app, sbn_app
from .schemes import integrators, order, rates

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
for command in (order, integrators, rates, resume, report, watch, launch):
    app.command()(command)

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
        if not error.format_message():  # nothing was asked, and the help has been shown
            leave(2)
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


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False) -> None:
    if show:
        from .. import __version__

        print(__version__)
        raise typer.Exit


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
        "path": None if data is None else str(data.resolve()),  # to be found from anywhere
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
def reproduce(
    figures: Annotated[list[str] | None, typer.Argument(help="Their names (see above); by default all.")] = None,
    full: Annotated[
        bool, typer.Option("--full/--quick", help="The paper's run counts in its figures, or fewer.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Where index.html and results.json go.")] = Path("report"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Make all parts anew, also those kept in OUT/parts.")] = False,
    corpus: Annotated[Path | None, typer.Option(help="Topic models on a prepared corpus, not on a drawn one.")] = None,
    scheduler: Scheduler = None,
    json: Json = False,
) -> None:
    """Reproduce the paper as one HTML page: simulated points over exact curves, and a verdict on every claim.

    Figures: fig1, fig2, fig3, unit (where the theory holds), order2 (how order 2 comes back), theorems, meanflow,
    topics and belief (these two: table1). A killed run goes on where it was.
    """
    from .. import reproduce as paper

    effort = (paper.FULL if full else paper.QUICK)._replace(corpus=str(corpus) if corpus else None)
    report = paper.reproduce(figures or [], effort=effort, out=out, fresh=fresh, scheduler=scheduler)
    emit(paper.results(report, paper.about_page(report)), json, paper.describe(report, out))
