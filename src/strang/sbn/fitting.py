"""Learning a belief network: the settings of the paper as defaults, a folder that a killed fit goes on from, and at
every save the health of the run: temperature, and a quick negative log likelihood of images held out for that."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from strang.sampling.chain import Chain
from strang.sampling.request import Job
from strang.sbn.files import keep_sample, save_model
from strang.sbn.model import SBN, compiled
from strang.sbn.page import write_page
from strang.sbn.scoring import log_likelihood
from strang.storage.manifest import read_spec
from strang.storage.series import read_series, throughput
from strang.storage.store import Store, stored_parts
from strang.util.errors import InputError
from strang.util.front_door import front_door
from strang.util.signatures import defaults, renamed

GLANCE = {"images": 200, "temperatures": 200}  # of the quick score at every save
IN_JSON = {"batch_order": "batches", "final_fraction": "decay"}  # names that results have had from the first


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
    burn_in: int = 2500,
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
    """Learn a sigmoid belief network in a folder; the same call again goes on after a kill.

    Args:
        folder: where `model.npz`, posterior samples, a page and what the fit needs to go on are kept.
        hidden: hidden units J.
        dynamics: `sghmc`, `sgld` or `sgnht`.
        integrator: a word or name; by default the dynamics' own.
        step_size: h; by default 6e-4, or 1e-5 for SGLD, whose steps are of another kind and limited by 1.5e-5.
        friction: D; by default 0.9 / sqrt(step_size).
        final_fraction: the fraction of the step size that is left at the end; it falls over the latter half.
        steps: steps in all.
        burn_in: steps before posterior samples are kept.
        every: steps between saves; after burn-in each save keeps a sample.
        batch_order: `iid`, `reshuffled`, `symmetric` or `cyclic`.
        batch_size: images per minibatch.
        sweeps: Gibbs sweeps over the hidden units for a gradient.
        update: `gibbs`, or `polya-gamma` as a check.
        persistent: whether sweeps go on from an image's hidden units at its last visit.
        chains: networks learned side by side.
        seed: of starts, minibatches and noise.
        parts: what a minibatch is cut in for processes to share; by default one part for each.
        data: a folder of MNIST's files, a `.npz` with arrays `train` and `test`, or a `.npy`; by default MNIST.
        binarisation: `bernoulli:SEED` or `threshold`.
        validation: training images held out to watch and to choose by.
        images: images in memory, in place of `data`.
        progress: whether to show a progress bar; None: on a terminal.

    Returns:
        The settings and what came out, as `strang sbn fit --json` prints it.

    Raises:
        InputError: a setting cannot be, or the folder holds another run.
        OSError: the folder could not be written.
    """
    given = {name: value for name, value in locals().items() if name in DEFAULTS}
    settings = completed(given)
    settings["parts"] = stored_parts(folder, settings["parts"])
    images = load(settings["data"], settings["binarisation"]) if images is None else images
    train, held_out = split(images.train, settings["validation"])
    job = job_of(settings, train)
    about = {"command": "sbn fit", "options": settings, "binarisation": images.binarisation}
    store = Store(folder, job, settings["every"], about, files=("model.npz",))
    try:
        observer = Glances(replace(job, chain=store.chain), store, held_out, settings)
        chain = drive(observer.job, observer, store=store, progress=progress).chain
        result = summary(Path(folder), job, chain, settings, images.binarisation, store.writes)
        return result | {"page": write_page(Path(folder), result) if store.writes else None}
    finally:
        store.close()


DEFAULTS = defaults(fit, "images", "progress")


def completed(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with the numbers that follow from others."""
    langevin = settings["dynamics"].lower() == "sgld"
    if settings["step_size"] is None:
        settings["step_size"] = 1e-5 if langevin else 6e-4
    if not settings["step_size"] > 0:
        raise InputError(f"step_size is {settings['step_size']}; it must be a positive number.")
    if not 0 < settings["final_fraction"] <= 1:
        raise InputError(
            f"final_fraction is {settings['final_fraction']}; write the fraction of the step size left at the end, up "
            "to 1."
        )
    if settings["friction"] is None and not langevin:
        settings["friction"] = 0.9 / settings["step_size"] ** 0.5
    if not 0 <= settings["burn_in"] < settings["steps"]:
        settings["burn_in"] = settings["steps"] // 2
    if settings["data"] is not None:
        settings["data"] = str(Path(settings["data"]).resolve())  # to be found from anywhere
    settings["every"] = max(1, min(settings["every"], settings["steps"] - settings["burn_in"]))
    return settings


def split(train: np.ndarray, validation: int) -> tuple[np.ndarray, np.ndarray]:
    """Training images, and the last few, which are held out: settings are chosen by these, never by test images."""
    if not 0 <= validation < len(train):
        raise InputError(f"validation is {validation}; there are {len(train)} training images to take it from.")
    if validation and not compiled():
        raise InputError(
            "held-out images are scored with Numba: pip install 'strang[numba]', or hold out none by --validation 0."
        )
    return train[: len(train) - validation], train[len(train) - validation :]


def job_of(settings: dict[str, Any], train: np.ndarray, **grid) -> Job:
    """The checked request to the core; `grid` may give a step size and a friction for each chain."""
    numbers, kind = {**settings, **grid}, dynamics_class(settings["dynamics"])
    if getattr(kind, "positive", False):
        raise InputError(f"{kind.__name__.lower()} is for positive parameters, and weights have signs; choose sghmc.")
    model = SBN(settings["hidden"], train.shape[1], sweeps=settings["sweeps"], update=settings["update"])
    return request(
        model.started_at(train),
        sources.arrays(train, batch_size=settings["batch_size"], batch_order=settings["batch_order"]),
        make(kind, friction=numbers["friction"]),
        integrator=settings["integrator"],
        step_size=cooling(numbers["step_size"], settings["final_fraction"], settings["steps"]),
        steps=settings["steps"],
        chains=numbers["chains"],
        seed=settings["seed"],
        average=None,
        burn_in=settings["burn_in"],
        gradient=gradients.latent() if settings["persistent"] else None,
        parts=settings["parts"],
    )


def cooling(size, fraction: float, steps: int):
    """A fixed step, or one that falls to a fraction of it over the latter half of a run, along a cosine: minibatch
    noise heats a chain in proportion to its step, so that its last samples are cooler."""
    if fraction == 1:
        return size
    fall = optax.cosine_decay_schedule(size, steps - steps // 2, alpha=fraction)
    return optax.join_schedules([optax.constant_schedule(size), fall], [steps // 2])


class Glances(Observer):
    """At every save: a quick score of held-out images and the temperature; after burn-in the positions are kept."""

    label = "learning"

    def __init__(self, job: Job, store: Store, held_out: np.ndarray, settings: dict[str, Any]):
        self.job, self.store, self.held_out, self.settings = job, store, held_out, settings
        self.every = settings["every"]

    def look(self, chain: Chain, before: Look) -> Look:
        step = int(chain.step)
        if not self.store.writes or not (self.store.due(step) or step == self.job.steps):
            return before
        found = glance(self.job, chain, self.held_out, self.settings["seed"])
        shown = [f"{name} {found[name]:.4g}" for name in ("nll", "temperature") if found[name]]
        return Look(None, found, ", ".join(shown))

    def line(self, chain: Chain, look: Look, seconds: float) -> dict[str, Any]:
        return look.measured or glance(self.job, chain, self.held_out, self.settings["seed"])

    def write(self, chain: Chain, look: Look) -> None:
        if look.measured and int(chain.step) > self.settings["burn_in"]:
            keep_sample(self.store.folder, chain)


def parameters(chain: Chain, k: int) -> dict[str, np.ndarray]:
    """The position of chain k."""
    return {name: np.asarray(value[k]) for name, value in chain.state.position.items()}


def glance(job: Job, chain: Chain, held_out: np.ndarray, seed: int) -> dict[str, Any]:
    """What is measured at a save, over the chains that are alive: temperature, and a quick score of held-out images."""
    alive = np.flatnonzero(np.asarray(chain.alive))
    line: dict[str, Any] = {"step": int(chain.step), "diverged": len(chain.alive) - len(alive)}
    line["temperature"] = float(np.mean(temperatures(job, chain)[alive])) if len(alive) else None
    line["nll"] = None
    if len(held_out) and len(alive):
        scores = [quick_score(parameters(chain, int(k)), held_out, seed) for k in alive]
        known = [score for score in scores if score is not None]
        line["nll"] = float(np.mean(known)) if len(known) == len(scores) else None
    if line["temperature"] is not None and not np.isfinite(line["temperature"]):
        line["temperature"] = None
    return line


def quick_score(position: dict[str, np.ndarray], held_out: np.ndarray, seed: int) -> float | None:
    """A few images at few temperatures: good to see a curve by, too large by some nats. None where the weights have
    grown beyond what can be scored."""
    part = held_out[: GLANCE["images"]]
    each = log_likelihood(position, part, temperatures=GLANCE["temperatures"], seed=seed, progress=False)
    return -float(each.mean()) if np.isfinite(each).all() else None


def summary(
    folder: Path, job: Job, chain: Chain, settings: dict[str, Any], binarisation: str, writes: bool
) -> dict[str, Any]:
    """What came out, with the model of the first living chain saved beside its posterior samples."""
    alive = np.flatnonzero(np.asarray(chain.alive))
    outcome = Run(job, chain, 0.0, None, False)
    if len(alive) and writes:
        save_model(folder / "model.npz", parameters(chain, int(alive[0])))
    elif not len(alive):
        warnings.warn(outcome.divergence(), DivergenceWarning, stacklevel=3)
    series = read_series(folder)
    return {
        **renamed(settings, IN_JSON),
        "parts": job.program.parts,  # also where none was asked for
        "steps": int(chain.step),
        "binarisation": binarisation,
        "nll_validation": series[-1]["nll"] if series else None,
        "temperature": series[-1]["temperature"] if series else None,
        "diverged": outcome.diverged,
        "finished": int(chain.step) >= job.steps,
        "model": str(folder / "model.npz") if len(alive) else None,
        "samples": len(list((folder / "samples").glob("*.npz"))),
        "seconds": sum(seconds for _, seconds, _ in throughput(series, 1)),  # of all processes that made the steps
    }


def chosen_for(folder: Path) -> dict[str, Any]:
    """The step size and friction that the fit in a folder was begun with."""
    options = read_spec(folder)["about"].get("options")
    if not isinstance(options, dict) or not {"step_size", "friction"} <= set(options):
        raise InputError(f"{folder} holds another run; write another folder.")
    return {name: options[name] for name in ("step_size", "friction")}


def resume(folder: Path, spec: dict[str, Any], more: int | None) -> dict[str, Any]:
    """Go on with a stored fit to its end, or for so many more steps."""
    options = spec["about"].get("options")
    if not isinstance(options, dict) or {*options, "parts"} != set(DEFAULTS):
        raise InputError(f"{folder / 'spec.json'} is damaged: its options are not whole.")
    if more and options["final_fraction"] != 1:
        raise InputError("the steps of this fit fall to an end that was fixed at its beginning; write another folder.")
    return fit(folder, **{**options, "steps": spec["steps"] + (more or 0)})
