"""Learning a belief network: the settings of the paper as defaults, a folder that a killed fit goes on from, and at
every save the health of the run: mean p², and a quick negative log likelihood of images held out for that."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from .. import data, gradient
from ..chain import Chain
from ..errors import InputError, choose
from ..images import Images, load
from ..models import SBN
from ..models.sbn import compiled
from ..prepare import Job, prepare
from ..progress import bar
from ..run import DivergenceWarning, Run, run_blocks
from ..store import Store, cuts, read_series, read_spec, throughput
from ..words import dynamics_class, with_friction
from .files import keep_sample, save_model
from .page import write_page
from .scoring import log_likelihood

STEP_SIZES = (3e-4, 4e-4, 5e-4, 6e-4)  # the paper's grid
FRICTIONS = (0.9, 1.0, 5.0)  # over the square root of the step size
GLANCE = {"images": 200, "temperatures": 200}  # of the quick score at every save

DEFAULTS: dict[str, Any] = {
    "hidden": 100,
    "dynamics": "sghmc",
    "integrator": None,
    "step_size": None,  # 6e-4, or 1e-5 for SGLD, whose steps are of another kind and limited by 1.5e-5
    "friction": None,  # 0.9 / sqrt(step_size)
    "decay": 1.0,  # the share of the step size that is left at the end
    "steps": 5000,
    "burn_in": 2500,
    "every": 250,
    "batches": "iid",
    "batch_size": 200,
    "sweeps": 5,
    "update": "gibbs",
    "persistent": False,
    "chains": 1,
    "seed": 0,
    "parts": None,  # of a batch, to be shared by processes: by default one each
    "data": None,
    "binarisation": "bernoulli:0",
    "validation": 1000,
}


def fit(folder: str | Path, *, images: Images | None = None, progress: bool | None = None, **given) -> dict[str, Any]:
    """Learn a network in a folder and report. Settings as in DEFAULTS; the same call again goes on after a kill."""
    unknown = set(given) - set(DEFAULTS)
    if unknown:
        raise choose("setting", sorted(unknown)[0], DEFAULTS)
    settings = completed({**DEFAULTS, **given})
    settings["parts"] = cuts(folder, {"parts": settings["parts"]})["parts"]
    images = load(settings["data"], settings["binarisation"]) if images is None else images
    train, held_out = split(images.train, settings["validation"])
    job = job_of(settings, train)
    about = {"command": "sbn fit", "options": settings, "binarisation": images.binarisation}
    store = Store(folder, job, settings["every"], about)
    try:
        chain = learn(replace(job, chain=store.chain), store, held_out, settings, progress)
        result = summary(Path(folder), job, chain, settings, images.binarisation, store.writes)
        return result | {"page": write_page(Path(folder), result) if store.writes else None}
    finally:
        store.close()


def completed(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with the numbers that follow from others."""
    langevin = settings["dynamics"].lower() == "sgld"
    if settings["step_size"] is None:
        settings["step_size"] = 1e-5 if langevin else 6e-4
    if not settings["step_size"] > 0:
        raise InputError(f"step_size is {settings['step_size']}; it must be a positive number.")
    if not 0 < settings["decay"] <= 1:
        raise InputError(f"decay is {settings['decay']}; write the share of the step size left at the end, up to 1.")
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
    numbers = {**settings, **grid}
    kind = dynamics_class(settings["dynamics"])
    if kind.__name__ in ("SGRHMC", "SGRLD"):
        raise InputError(f"{kind.__name__.lower()} needs a metric, a function: use strang.sample, or choose sghmc.")
    model = SBN(settings["hidden"], train.shape[1], sweeps=settings["sweeps"], update=settings["update"])
    rows: Any = (train, np.arange(len(train))) if settings["persistent"] else train
    return prepare(
        model.started_at(train),
        data.arrays(rows, batch=settings["batch_size"], order=settings["batches"]),
        with_friction(kind, numbers["friction"]),
        integrator=settings["integrator"],
        step_size=cooling(numbers["step_size"], settings["decay"], settings["steps"]),
        steps=settings["steps"],
        chains=numbers["chains"],
        seed=settings["seed"],
        average=None,
        burn_in=settings["burn_in"],
        gradient=gradient.latent() if settings["persistent"] else None,
        parts=settings["parts"],
    )


def cooling(size, share: float, steps: int):
    """A fixed step, or one that falls to a share of it over the latter half of a run, along a cosine: minibatch noise
    heats a chain in proportion to its step, so that its last samples are cooler."""
    if share == 1:
        return size
    fall = optax.cosine_decay_schedule(size, steps - steps // 2, alpha=share)
    return optax.join_schedules([optax.constant_schedule(size), fall], [steps // 2])


def learn(job: Job, store: Store, held_out, settings: dict[str, Any], progress: bool | None) -> Chain:
    """Advance to the end or until Ctrl-C; at every save keep the positions (after burn-in) and what was measured."""
    chain, every, text = job.chain, settings["every"], ""
    with bar(job.steps, "learning", progress) as done:
        try:
            done(int(chain.step))
            for chain, _ in run_blocks(job, None, every):
                step = int(chain.step)
                if store.writes and (store.due(step) or step == job.steps):
                    line = glance(job, chain, held_out, settings["seed"])
                    if step > settings["burn_in"]:
                        with store.telling():
                            keep_sample(store.folder, chain)
                    store.save(chain, line)
                    text = ", ".join(f"{name} {line[name]:.4g}" for name in ("nll", "temperature") if line[name])
                done(step, text)
                if not chain.alive.any():
                    break
        except KeyboardInterrupt:
            pass
    if store.writes and int(chain.step) > store.step:
        store.save(chain, glance(job, chain, held_out, settings["seed"]))
    return chain


def parameters(chain: Chain, k: int) -> dict[str, np.ndarray]:
    """The position of chain k."""
    return {name: np.asarray(value[k]) for name, value in chain.state.position.items()}


def glance(job: Job, chain: Chain, held_out: np.ndarray, seed: int) -> dict[str, Any]:
    """What is measured at a save: mean p² and a quick score of held-out images, over the living chains."""
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


def temperatures(job: Job, chain: Chain) -> np.ndarray:
    """Mean p² of each chain as it stands; NaN where the dynamics have no momentum."""
    dynamics = job.inputs.dynamics
    if not hasattr(dynamics, "temperature"):
        return np.full(len(chain.alive), np.nan)
    axis = 0 if job.program.grid else None
    return np.asarray(jax.vmap(lambda d, state: d.temperature(state), (axis, 0))(dynamics, chain.state))


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
        **settings,
        "parts": job.program.cuts.parts,  # also where none was asked for
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


def survey(
    sizes, frictions, *, images: Images | None = None, progress: bool | None = None, **given
) -> list[dict[str, Any]]:
    """Pairs of step size and friction (or step sizes alone, for dynamics without), each a chain of one run, judged by
    the held-out images: the score after the last step, mean p², and whether the chain left the finite numbers."""
    settings = completed({**DEFAULTS, **given, "burn_in": 0})
    images = load(settings["data"], settings["binarisation"]) if images is None else images
    train, held_out = split(images.train, settings["validation"])
    if not len(held_out):
        raise InputError("validation is 0; settings are judged by held-out images.")
    points: dict[str, Any] = {"step_size": jnp.asarray(sizes, float), "chains": len(sizes)}
    if frictions is not None:
        points["friction"] = jnp.asarray(frictions, float)
    job = job_of(settings, train, **points)
    with bar(job.steps, "trying settings", progress) as done:
        for chain, _ in run_blocks(job, None):
            done(int(chain.step))
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


def paper_grid() -> tuple[list[float], list[float]]:
    """The paper's twelve pairs of step size and friction."""
    pairs = [(h, scale / h**0.5) for h in STEP_SIZES for scale in FRICTIONS]
    return [h for h, _ in pairs], [friction for _, friction in pairs]


def search(*, grid_steps: int = 500, **given) -> dict[str, Any]:
    """The pair of the paper's grid that is best on held-out images after a few steps."""
    if given.get("dynamics", "sghmc").lower() == "sgld":
        raise InputError("the paper's grid is one of step sizes and frictions, and sgld has none; give --step-size.")
    rows = survey(*paper_grid(), **{**given, "steps": grid_steps})
    living = [row for row in rows if row["nll"] is not None]
    if not living:
        raise InputError("every point of the grid diverged; choose another integrator, or a step size of your own.")
    return {"grid": rows, "best": min(living, key=lambda row: row["nll"])}


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
    if more and options["decay"] != 1:
        raise InputError("the steps of this fit fall to an end that was fixed at its beginning; write another folder.")
    return fit(folder, **{**options, "steps": spec["steps"] + (more or 0)})
