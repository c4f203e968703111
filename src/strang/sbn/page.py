"""The page of a fit: learning curve, temperature, the dictionary as images, and images drawn from the network."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from strang.report.pages import TEMPERATURE, Section, fit_page, learning_curves, mosaic, write_index
from strang.sbn.scoring import load_model
from strang.storage.series import read_series

COLUMNS = 20  # of images
DRAWS = 5 * COLUMNS
PANELS = {"Negative log likelihood of held-out images (quick: some nats too large)": {"nll": "nats per image"}}


def write_page(folder: Path, result: dict[str, Any]) -> str | None:
    """Writes index.html of the fit in a folder; None where the packages for pages are missing."""
    return write_index(folder, lambda: page(folder, result))


def page(folder: Path, result: dict[str, Any]) -> str:
    curves = learning_curves(read_series(folder), "step", PANELS | TEMPERATURE)
    sections = []
    if result["model"]:
        model = {name: array.astype(float) for name, array in load_model(folder / "model.npz").items()}
        hidden = np.random.default_rng(0).random((DRAWS, len(model["b"]))) < expit(model["b"])
        side = round(len(model["c"]) ** 0.5)
        height = side if side * side == len(model["c"]) else 1  # a square, or a row of pixels
        dictionary = mosaic(model["W"].T, height, COLUMNS, symmetric=True)
        sections = [
            Section(
                "The dictionary",
                "What each hidden unit adds to the pixels' log odds: dark where it turns them on, light where off.",
                pictures=[(dictionary, f"{model['W'].shape[1]} columns of W")],
            ),
            Section(
                "Images from the model",
                "The pixels' probabilities, for hidden units drawn from their prior.",
                pictures=[(mosaic(expit(hidden @ model["W"].T + model["c"]), height, COLUMNS), f"{DRAWS} draws")],
            ),
        ]
    lead = (
        f"{result['dynamics'].upper()}, {result['steps']:,} steps with batches of {result['batch_size']} "
        f"({result['batches']}), {result['sweeps']} sweeps per gradient. Images: {result['binarisation']}."
    )
    return fit_page(f"Sigmoid belief network with {result['hidden']} hidden units", lead, curves, sections, result)
