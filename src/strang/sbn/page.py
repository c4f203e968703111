"""A fit as a page: learning curve, temperature, the dictionary as images, and images that the network makes up."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from strang.report.pages import Section, available, mosaic, plain_page
from strang.report.panels import Panel, Series, Table
from strang.sbn.files import load_model
from strang.storage.series import read_series
from strang.util.files import replace_file

COLUMNS = 20


def write_page(folder: Path, result: dict[str, Any]) -> str | None:
    """index.html in the folder, where what makes pages is installed."""
    if not available():
        return None
    replace_file(folder / "index.html", page(folder, result).encode())
    return str(folder / "index.html")


def page(folder: Path, result: dict[str, Any]) -> str:
    """The page of the fit in a folder."""
    series = read_series(folder)
    sections = [Section("How it went", panels=[curve(*shown, series) for shown in SHOWN if has(series, shown[0])])]
    if result["model"]:
        parameters = load_model(folder / "model.npz")
        height, width = picture_shape(len(parameters["c"]))
        atoms = mosaic(parameters["W"].T, height, width, COLUMNS, symmetric=True)
        made = mosaic(fantasies(parameters, 5 * COLUMNS), height, width, COLUMNS)
        sections += [
            Section(
                "The dictionary",
                "What each hidden unit adds to the pixels' log odds: dark where it turns them on, light where off.",
                pictures=[(atoms, f"{parameters['W'].shape[1]} columns of W")],
            ),
            Section(
                "Images from the model",
                "Hidden units are drawn from their prior; shown are the pixels' probabilities.",
                pictures=[(made, f"{5 * COLUMNS} draws")],
            ),
        ]
    rows = [[name, value if isinstance(value, int | float | None) else str(value)] for name, value in result.items()]
    sections.append(Section("Settings and results", tables=[Table("As in the JSON", ["name", "value"], rows)]))
    lead = (
        f"{result['dynamics'].upper()}, {result['steps']:,} steps with batches of {result['batch_size']} "
        f"({result['batches']}), {result['sweeps']} sweeps a gradient. Images: {result['binarisation']}."
    )
    return plain_page(f"Sigmoid belief network with {result['hidden']} hidden units", lead, sections)


SHOWN = (
    ("nll", "Negative log likelihood of held-out images (quick: some nats too large)", "nats an image"),
    ("temperature", "Mean p²: 1 where the law is right, above where gradients are noisy", "mean p²"),
)


def has(series: list[dict[str, Any]], name: str) -> bool:
    return any(isinstance(entry.get(name), int | float) for entry in series)


def curve(name: str, title: str, label: str, series: list[dict[str, Any]]) -> Panel:
    points = [{"x": entry["step"], "value": None, "se": None, "exact": entry.get(name)} for entry in series]
    return Panel(title, "steps", label, [Series(label, points)], log_x=False, log_y=False)


def picture_shape(pixels: int) -> tuple[int, int]:
    """Height and width: a square where there is one, else a row."""
    side = round(pixels**0.5)
    return (side, side) if side * side == pixels else (1, pixels)


def fantasies(parameters: dict[str, np.ndarray], count: int, seed: int = 0) -> np.ndarray:
    """Pixel probabilities of images drawn from the model."""
    odds = {name: array.astype(float) for name, array in parameters.items()}
    hidden = np.random.default_rng(seed).random((count, len(odds["b"]))) < expit(odds["b"])
    return expit(hidden @ odds["W"].T + odds["c"])
