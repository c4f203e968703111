"""Fits of belief networks: the paper's settings as defaults, a folder from which a killed fit continues, and at every
save the temperature and a quick negative log likelihood of images held out for that. Also the search of the paper's
grid: each pair of a step size and a friction is a chain of one run."""

import warnings
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

from strang import data as sources
from strang import gradients
from strang.data.images import Images, load
from strang.dynamics import dynamics_class
from strang.dynamics.fields import make
from strang.run.api import request
from strang.run.driver import Look, Observer, drive
from strang.run.result import DivergenceWarning, Run, temperatures
from strang.sampling.job import Job
from strang.sampling.record import Chain
from strang.sbn.model import SBN, compiled
from strang.sbn.page import write_page
from strang.sbn.scoring import log_likelihood
from strang.storage.manifest import read_spec
from strang.storage.series import read_series, throughput
from strang.storage.store import Store, stored_parts
from strang.util.errors import InputError
from strang.util.files import write_npz
from strang.util.front_door import front_door
from strang.util.signatures import defaults, renamed, without

STEP_SIZES = (3e-4, 4e-4, 5e-4, 6e-4)  # the paper's grid
FRICTIONS = (0.9, 1.0, 5.0)  # over the square root of the step size
QUICK = {"images": 200, "temperatures": 200}  # of the score at every save
IN_JSON = {"batch_order": "batches", "final_fraction": "decay"}  # names that these settings have in results


@front_door
def fit(
    folder: str | Path,
    *,
    hidden: int = 100,
    dynamics: str = "sghmc",
    integrator: str | None = None,
    step_size: float | None = None,
    friction: float | None = None,
    final_fraction: float = 1.0,
    steps: int = 5000,
    burn_in: int | None = None,
    every: int = 250,
    batch_order: str = "iid",
    batch_size: int = 200,
    sweeps: int = 5,
    update: str = "gibbs",
    persistent: bool = False,
    chains: int = 1,
    seed: int = 0,
    parts: int | None = None,
    data: str | Path | None = None,
    binarisation: str = "bernoulli:0",
    validation: int = 1000,
    images: Images | None = None,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Fits a sigmoid belief network and keeps it in a folder; the same call again continues after a kill.

    Args:
        folder: where `model.npz`, posterior samples, a page and all that the fit needs to continue are kept.
        hidden: hidden units J.
        dynamics: `sghmc`, `sgld` or `sgnht`.
        integrator: a scheme or its name; by default the dynamics' own.
        step_size: h; by default 6e-4, or 1e-5 for SGLD, whose steps are of another kind and limited by 1.5e-5.
        friction: D; by default 0.9 / sqrt(step_size).
        final_fraction: the fraction of the step size that is left at the end; it falls over the second half.
        steps: all steps, burn-in included.
        burn_in: steps before posterior samples are kept; by default half of them.
        every: steps between saves; after burn-in each save keeps a sample.
        batch_order: `iid`, `reshuffled`, `symmetric` or `cyclic`.
        batch_size: images per minibatch.
        sweeps: Gibbs sweeps over the hidden units per gradient.
        update: `gibbs`, or `polya-gamma` as a check.
        persistent: whether sweeps start from an image's hidden units at its last visit.
        chains: networks that are fitted side by side.
        seed: of starts, minibatches and noise.
        parts: parts of each minibatch, for processes to share; by default one per process.
        data: a folder of MNIST's files, a `.npz` with arrays `train` and `test`, or a `.npy`; by default MNIST.
        binarisation: `bernoulli:SEED` or `threshold`.
        validation: training images that are held out, to monitor the fit and to choose settings.
        images: images in memory, in place of `data`.
        progress: whether to show a progress bar; None: on a terminal.

    Returns:
        The settings and the results, as `strang sbn fit --json` prints them.

    Raises:
        InputError: a setting is invalid, or the folder holds another run.
        OSError: the folder could not be written.

    Example:
        >>> import tempfile
        >>> rows = np.random.default_rng(0).integers(0, 2, (40, 6))
        >>> images = Images(rows[:30], rows[30:], "random pixels")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = fit(folder, images=images, hidden=2, steps=4, every=2, batch_size=10, validation=0)
        >>> result["finished"], result["samples"]
        (True, 1)
    """
    settings = completed(without(locals(), "folder", "images", "progress"))
    settings["parts"] = stored_parts(folder, settings["parts"])
    images = load(settings["data"], settings["binarisation"]) if images is None else images
    train, held_out = split(images.train, settings["validation"])
    job = job_of(settings, train)
    settings["parts"] = job.program.parts  # also if none was asked for, so that the spec is that of a resumed fit
    about = {"command": "sbn fit", "options": settings, "binarisation": images.binarisation}
    with closing(Store(folder, job, settings["every"], about, files=("model.npz",))) as store:
        monitor = Monitor(replace(job, chain=store.chain), store, held_out, settings)
        chain = drive(monitor.job, monitor, store=store, progress=progress).chain
        result = monitor.result(chain, images.binarisation)
        return result | {"page": write_page(store.folder, result) if store.writes else None}


DEFAULTS = defaults(fit, "images", "progress")


def completed(settings: dict[str, Any]) -> dict[str, Any]:
    """Checks the settings and fills in those whose defaults depend on others."""
    langevin = settings["dynamics"].lower() == "sgld"
    if settings["step_size"] is None:
        settings["step_size"] = 1e-5 if langevin else 6e-4
    if not settings["step_size"] > 0:
        raise InputError(f"step_size is {settings['step_size']}; it must be a positive number.")
    if not 0 < settings["final_fraction"] <= 1:
        raise InputError(f"final_fraction is {settings['final_fraction']}; write a fraction of the step size, up to 1.")
    if settings["friction"] is None and not langevin:
        settings["friction"] = 0.9 / settings["step_size"] ** 0.5
    if settings["burn_in"] is None:
        settings["burn_in"] = settings["steps"] // 2
    if not 0 <= settings["burn_in"] < settings["steps"]:
        raise InputError(f"burn_in is {settings['burn_in']} of {settings['steps']} steps; write fewer.")
    if settings["data"] is not None:
        settings["data"] = str(Path(settings["data"]).resolve())  # to be found from anywhere
    settings["every"] = max(1, min(settings["every"], settings["steps"] - settings["burn_in"]))
    return settings


def split(train: np.ndarray, validation: int) -> tuple[np.ndarray, np.ndarray]:
    """Splits off the last training images, which are held out: settings are chosen by these, never by test images."""
    if not 0 <= validation < len(train):
        raise InputError(f"validation is {validation}; there are {len(train)} training images to take it from.")
    if validation and not compiled():
        raise InputError("held-out images are scored with Numba: pip install 'strang[numba]', or write --validation 0.")
    return train[: len(train) - validation], train[len(train) - validation :]


def job_of(settings: dict[str, Any], train: np.ndarray, **grid) -> Job:
    """The checked request to the sampler; `grid` may give a step size and a friction for each chain."""
    numbers, kind = {**settings, **grid}, dynamics_class(settings["dynamics"])
    if getattr(kind, "positive", False):
        raise InputError(f"{kind.__name__.lower()} is for positive parameters, and weights have signs; choose sghmc.")
    model = SBN(settings["hidden"], train.shape[1], sweeps=settings["sweeps"], update=settings["update"])
    return request(
        model.started_at(train),
        sources.arrays(train, batch_size=settings["batch_size"], batch_order=settings["batch_order"]),
        make(kind, friction=numbers["friction"]),
        step_size=cooling(numbers["step_size"], settings["final_fraction"], settings["steps"]),
        average=None,
        gradient=gradients.latent() if settings["persistent"] else None,
        **{name: numbers[name] for name in ("integrator", "steps", "chains", "seed", "burn_in", "parts")},
    )


def cooling(size, fraction: float, steps: int):
    """A fixed step size, or one that falls to a fraction of it over the second half of a run, along a cosine: minibatch
    noise heats a chain in proportion to its step size, so the last samples are cooler."""
    if fraction == 1:
        return size
    fall = optax.cosine_decay_schedule(size, steps - steps // 2, alpha=fraction)
    return optax.join_schedules([optax.constant_schedule(size), fall], [steps // 2])


class Monitor(Observer):
    """Measures the fit at every save, and after burn-in keeps the positions as posterior samples."""

    label = "fitting"

    def __init__(self, job: Job, store: Store, held_out: np.ndarray, settings: dict[str, Any]):
        self.job, self.store, self.held_out, self.settings = job, store, held_out, settings
        self.every = settings["every"]

    def look(self, chain: Chain, before: Look) -> Look:
        step = int(chain.step)
        if not self.store.writes or not (self.store.due(step) or step == self.job.steps):
            return before
        measured = self.measure(chain)
        text = ", ".join(f"{name} {measured[name]:.4g}" for name in ("nll", "temperature") if measured[name])
        return Look(None, measured, text)

    def line(self, chain: Chain, look: Look, seconds: float) -> dict[str, Any]:
        return look.measured or self.measure(chain)

    def write(self, chain: Chain, look: Look) -> None:
        if look.measured and int(chain.step) > self.settings["burn_in"]:
            folder = self.store.folder / "samples"
            folder.mkdir(exist_ok=True)
            for k in living(chain):
                write_npz(folder / f"step-{int(chain.step):07d}-chain-{k}.npz", parameters(chain, k))

    def measure(self, chain: Chain) -> dict[str, Any]:
        """The mean temperature and quick score of the chains that are alive; None where it is not finite."""
        alive = living(chain)
        heat = np.mean(temperatures(self.job, chain)[alive]) if alive else np.nan
        scored = alive if len(self.held_out) else []
        scores: Any = [quick_score(parameters(chain, k), self.held_out, self.settings["seed"]) for k in scored]
        return {
            "step": int(chain.step),
            "diverged": len(chain.alive) - len(alive),
            "temperature": float(heat) if np.isfinite(heat) else None,
            "nll": float(np.mean(scores)) if scores and None not in scores else None,
        }

    def result(self, chain: Chain, binarisation: str) -> dict[str, Any]:
        """The result of the fit; the position of the first living chain is saved as model.npz."""
        alive, outcome, model = living(chain), Run(self.job, chain, 0.0, None, False), self.store.folder / "model.npz"
        if alive and self.store.writes:
            write_npz(model, parameters(chain, alive[0]))
        elif not alive:
            warnings.warn(outcome.divergence(), DivergenceWarning, stacklevel=3)
        series = read_series(self.store.folder)
        last = series[-1] if series else {"nll": None, "temperature": None}
        return {
            **renamed(self.settings, IN_JSON),
            "steps": int(chain.step),
            "binarisation": binarisation,
            "nll_validation": last["nll"],
            "temperature": last["temperature"],
            "diverged": outcome.diverged,
            "finished": int(chain.step) >= self.job.steps,
            "model": str(model) if alive else None,
            "samples": len(list(model.parent.glob("samples/*.npz"))),
            "seconds": sum(seconds for _, seconds, _ in throughput(series, 1)),  # of this and earlier processes
        }


def living(chain: Chain) -> list[int]:
    """The numbers of the chains that have not diverged."""
    return np.flatnonzero(np.asarray(chain.alive)).tolist()


def parameters(chain: Chain, k: int) -> dict[str, np.ndarray]:
    """The position of chain k."""
    return {name: np.asarray(value)[k] for name, value in chain.state.position.items()}


def quick_score(position: dict[str, np.ndarray], held_out: np.ndarray, seed: int) -> float | None:
    """Scores a few images at few temperatures: enough for a learning curve, but some nats too large. None where the
    weights have grown too large to be scored."""
    images = held_out[: QUICK["images"]]
    each = log_likelihood(position, images, temperatures=QUICK["temperatures"], seed=seed, progress=False)
    return -float(each.mean()) if np.isfinite(each).all() else None


class Trial(Observer):
    label = "trying settings"


def survey(
    sizes, frictions, *, images: Images | None = None, progress: bool | None = None, **options
) -> list[dict[str, Any]]:
    """Tries step sizes, each with its friction (None for dynamics without): the score of held-out images after the last
    step, the temperature, and whether the chain diverged, one dict per step size."""
    settings = completed({**DEFAULTS, **options, "burn_in": 0})
    images = load(settings["data"], settings["binarisation"]) if images is None else images
    train, held_out = split(images.train, settings["validation"])
    if not len(held_out):
        raise InputError("validation is 0; settings are compared on held-out images.")
    grid: dict[str, Any] = {"step_size": jnp.asarray(sizes, float), "chains": len(sizes)}
    if frictions is not None:
        grid["friction"] = jnp.asarray(frictions, float)
    job = job_of(settings, train, **grid)
    chain = drive(job, Trial(), progress=progress).chain
    heat = temperatures(job, chain)
    return [
        {
            "step_size": float(h),
            "friction": None if frictions is None else float(frictions[k]),
            "nll": quick_score(parameters(chain, k), held_out, settings["seed"]) if chain.alive[k] else None,
            "temperature": float(heat[k]) if np.isfinite(heat[k]) else None,
            "diverged": not bool(chain.alive[k]),
        }
        for k, h in enumerate(sizes)
    ]


def search(*, grid_steps: int = 500, **options) -> dict[str, Any]:
    """Finds the pair of the paper's grid that scores best on held-out images after `grid_steps` steps."""
    if options.get("dynamics", "sghmc").lower() == "sgld":
        raise InputError("the paper's grid is one of step sizes and frictions, and sgld has none; give --step-size.")
    sizes, frictions = zip(*((h, scale / h**0.5) for h in STEP_SIZES for scale in FRICTIONS), strict=True)
    rows = survey(sizes, frictions, **{**options, "steps": grid_steps})
    if not (scored := [row for row in rows if row["nll"] is not None]):
        raise InputError("every point of the grid diverged; choose another integrator, or a step size of your own.")
    return {"grid": rows, "best": min(scored, key=lambda row: row["nll"])}


def chosen_for(folder: Path) -> dict[str, Any]:
    """The step size and friction of the fit in a folder."""
    options = read_spec(folder)["about"].get("options")
    if not isinstance(options, dict) or not {"step_size", "friction"} <= set(options):
        raise InputError(f"{folder} holds another run; write another folder.")
    return {name: options[name] for name in ("step_size", "friction")}


def resume(folder: Path, spec: dict[str, Any], more: int | None) -> dict[str, Any]:
    """Continues a stored fit to its end, or for some more steps."""
    options = spec["about"].get("options")
    if not isinstance(options, dict) or {*options, "parts"} != set(DEFAULTS):
        raise InputError(f"{folder / 'spec.json'} is damaged: its options are not whole.")
    if more and options["final_fraction"] != 1:
        raise InputError("the step size of this fit falls until its last step, which is fixed; write another folder.")
    return fit(folder, **{**options, "steps": spec["steps"] + (more or 0)})
