"""Step sizes and frictions tried side by side, each a chain of one run, and judged by held-out images."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from strang.data.images import Images, load
from strang.run.driver import Observer, drive
from strang.run.result import temperatures
from strang.sbn.fitting import DEFAULTS, completed, job_of, parameters, quick_score, split
from strang.util.errors import InputError

STEP_SIZES = (3e-4, 4e-4, 5e-4, 6e-4)  # the paper's grid
FRICTIONS = (0.9, 1.0, 5.0)  # over the square root of the step size


class Trial(Observer):
    label = "trying settings"


def survey(
    sizes, frictions, *, images: Images | None = None, progress: bool | None = None, **given
) -> list[dict[str, Any]]:
    """Pairs of step size and friction (or step sizes alone, for dynamics without), each a chain of one run, judged by
    the held-out images: the score after the last step, the temperature, and whether the chain diverged."""
    settings = completed({**DEFAULTS, **given, "burn_in": 0})
    images = load(settings["data"], settings["binarisation"]) if images is None else images
    train, held_out = split(images.train, settings["validation"])
    if not len(held_out):
        raise InputError("validation is 0; settings are judged by held-out images.")
    points: dict[str, Any] = {"step_size": jnp.asarray(sizes, float), "chains": len(sizes)}
    if frictions is not None:
        points["friction"] = jnp.asarray(frictions, float)
    job = job_of(settings, train, **points)
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
