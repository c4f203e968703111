"""Search for a step size and a friction: each pair is a chain of one run, and is scored on held-out images."""

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
    sizes, frictions, *, images: Images | None = None, progress: bool | None = None, **options
) -> list[dict[str, Any]]:
    """Tries step sizes, each with its friction (None for dynamics without), and scores them on held-out images.

    Returns the score after the last step, the temperature, and whether the chain diverged, one dict per step size.
    """
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
    scored = [row for row in rows if row["nll"] is not None]
    if not scored:
        raise InputError("every point of the grid diverged; choose another integrator, or a step size of your own.")
    return {"grid": rows, "best": min(scored, key=lambda row: row["nll"])}
