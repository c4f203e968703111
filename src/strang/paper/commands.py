"""The commands `strang sample gaussian` (the paper's experiment) and `strang reproduce` (the whole paper)."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from strang.util.command_line import BatchOrder, Json, Parts, Scheduler, emit
from strang.util.cores import cores
from strang.util.signatures import without


class ModelsToo(TyperGroup):
    """`strang sample FILE.py:model ...` is `strang sample model FILE.py:model ...`, and so is `strang sample gaussian`
    where nothing is given that only the paper's experiment has: then everything is chosen."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = {option for parameter in self.commands["model"].params for option in parameter.opts}
        plain = all(arg.partition("=")[0] in known for arg in args[1:] if arg.startswith("-") and arg != "--help")
        is_model = ":" in args[0] or (args[0] == "gaussian" and plain and "--help" not in args)
        return super().resolve_command(ctx, ["model", *args] if is_model else args)


sample_app = typer.Typer(
    help="Sample a model of your own, FILE.py:model FILE.py:data; or the paper's, beside its known posterior.",
    no_args_is_help=True,
    cls=ModelsToo,
)


class Shape(StrEnum):
    fixed = "fixed"
    decreasing = "decreasing"


@sample_app.command()
def gaussian(
    dynamics: Annotated[str, typer.Option(help="sgld, sghmc or sgnht.")] = "sghmc",
    integrator: Annotated[str | None, typer.Option(help="A word or name; by default the dynamics' own.")] = None,
    friction: Annotated[float, typer.Option(help="Friction D.")] = 10.0,
    step_size: Annotated[float | None, typer.Option(help="A fixed step size h.")] = None,
    scale: Annotated[float | None, typer.Option(help="C of h = C L^-alpha or h_l = C l^-alpha.")] = None,
    alpha: Annotated[float | None, typer.Option(help="alpha of the same formula.")] = None,
    schedule: Annotated[Shape, typer.Option(help="fixed: h = C L^-alpha; decreasing: h_l = C l^-alpha.")] = Shape.fixed,
    steps: Annotated[int, typer.Option(help="Steps per chain, burn-in included.")] = 100_000,
    chains: Annotated[int, typer.Option(help="Number of independent chains.")] = 200,
    batch_order: BatchOrder = "iid",
    batch_size: Annotated[int, typer.Option(help="Rows per batch.")] = 10,
    replacement: Annotated[bool, typer.Option(help="Whether an iid batch may contain a row twice.")] = True,
    gradient: Annotated[str, typer.Option(help="minibatch, control-variate or svrg.")] = "minibatch",
    gradient_noise: Annotated[float, typer.Option(help="Known variance V for SGHMC to subtract.")] = 0.0,
    data_size: Annotated[int, typer.Option(help="Number of simulated data N, without --data.")] = 1000,
    data_mean: Annotated[float, typer.Option(help="Their exact mean.")] = 0.5,
    data: Annotated[Path | None, typer.Option(help="Data on disk: .npy, a folder of them, or a table.")] = None,
    column: Annotated[str | None, typer.Option(help="The column of a table (Parquet, Arrow).")] = None,
    burn_in: Annotated[int, typer.Option(help="Steps left out of the average.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of data, starts, batches and noise.")] = 0,
    init_mean: Annotated[float, typer.Option(help="Mean of the starts.")] = 0.0,
    init_var: Annotated[float, typer.Option(help="Variance of the starts.")] = 1.0,
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    store: Annotated[Path | None, typer.Option(help="A folder to save the run in; strang resume continues it.")] = None,
    every: Annotated[int | None, typer.Option(help="Steps between saves; by default about ten seconds.")] = None,
    thin: Annotated[int | None, typer.Option(help="Keep every n-th position in the folder.")] = None,
    parts: Parts = None,
    scheduler: Scheduler = None,
    tasks: Annotated[int | None, typer.Option(help="Tasks for the chains; by default one per worker.")] = None,
    json: Json = False,
) -> None:
    """The paper's experiment: the average of θ² over a Gaussian posterior, with its exact bias and MSE beside it."""
    options = without(locals(), "data", "store", "every", "scheduler", "tasks", "json")
    options["schedule"] = schedule.value
    options["path"] = None if data is None else str(data.resolve())  # valid from any working directory
    from strang.paper import gaussian as experiment

    about = {"command": "sample gaussian", "options": options, "every": every}
    result = experiment.from_options(options, store=store, every=every, about=about, scheduler=scheduler, tasks=tasks)
    emit(result, json, experiment.describe(result))


def register(app: typer.Typer) -> None:
    app.add_typer(sample_app, name="sample")
    app.command()(reproduce)


def resume_gaussian(folder: Path, spec: dict[str, Any], steps: int | None) -> tuple[dict[str, Any], list[str]]:
    from strang.paper import gaussian as experiment

    result = experiment.resume(folder, spec, steps)
    return result, experiment.describe(result)


STORED = {"sample gaussian": resume_gaussian}


def reproduce(
    figures: Annotated[list[str] | None, typer.Argument(help="Names of figures (see above); by default all.")] = None,
    full: Annotated[bool, typer.Option("--full/--quick", help="As many runs as the paper has, or fewer.")] = False,
    out: Annotated[Path, typer.Option(help="The folder for index.html and results.json.")] = Path("report"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute all parts again, also those in OUT/parts.")] = False,
    corpus: Annotated[Path | None, typer.Option(help="Topic models on a prepared corpus, not a simulated one.")] = None,
    scheduler: Scheduler = None,
    processes: Annotated[int | None, typer.Option(help="Processes that compute; by default one per core.")] = None,
    json: Json = False,
) -> None:
    """Reproduce the paper as one HTML page: simulated points over exact curves, and a verdict on every claim.

    Figures: fig1, fig2, fig3, unit (where the theory holds), order2 (how order 2 comes back), theorems, meanflow,
    topics and belief (these two: table1). A killed run continues where it stopped.
    """
    from strang.paper import reproduce as paper

    effort = (paper.FULL if full else paper.QUICK)._replace(corpus=str(corpus) if corpus else None)
    spread: dict[str, Any] = {"scheduler": scheduler, "processes": cores() if processes is None else processes}
    report = paper.reproduce(figures or [], effort=effort, out=out, fresh=fresh, **spread)
    emit(paper.results(report), json, paper.describe(report, out))
