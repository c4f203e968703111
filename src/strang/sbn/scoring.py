"""How well a belief network predicts: log p(v) of every image by annealed importance sampling, or exactly where the
hidden units are few.

AIS goes from the prior of h to its posterior given v through p(h) p(v | h)^β. At each β the weight is multiplied first
and a Gibbs sweep moves h then; so the mean weight is p(v) exactly, and minus its logarithm is too large on average:
what is printed errs on the safe side. (Moving first is in circulation. It is not AIS, and flatters by many nats.)
"""

import importlib.util
from dataclasses import dataclass
from typing import Any

import numpy as np

from strang.data.images import check_binary
from strang.util.errors import InputError, whole
from strang.util.progress import track

ENUMERABLE = 20  # hidden units up to which all their states are summed
IMAGES = 100  # scored together between two looks at the progress bar
STATES = 1 << 12  # of the hidden units, summed together


@dataclass(frozen=True)
class Score:
    """Negative log likelihoods image by image. Of several parameters: of the posterior predictive, the mean of p(v)."""

    each: np.ndarray

    @property
    def nll(self) -> float:
        return float(self.each.mean())

    @property
    def se(self) -> float:
        """The standard error that the choice of images leaves; comparisons on the same images use `paired`."""
        return float(self.each.std(ddof=1) / np.sqrt(len(self.each))) if len(self.each) > 1 else float("nan")


def check_parameters(parameters: dict[str, Any]) -> dict[str, np.ndarray]:
    """Arrays W (M, J), b (J) and c (M), finite, in single precision as the loops take them."""
    missing = [name for name in ("W", "b", "c") if name not in parameters]
    if missing:
        raise InputError(f"the model has no array {', '.join(missing)}; it needs W (M x J), b (J) and c (M).")
    try:
        found = {name: np.asarray(parameters[name]).astype(np.float64) for name in ("W", "b", "c")}
    except (TypeError, ValueError):
        raise InputError("W, b and c must be arrays of real numbers.") from None
    shapes = {name: array.shape for name, array in found.items()}
    if len(shapes["W"]) != 2 or 0 in shapes["W"] or shapes["b"] != shapes["W"][1:] or shapes["c"] != shapes["W"][:1]:
        raise InputError(
            f"W, b and c have shapes {shapes['W']}, {shapes['b']} and {shapes['c']}; "
            "they must be (M, J), (J,) and (M,) for M visible and J hidden units."
        )
    for name, array in found.items():
        if not np.isfinite(array).all() or np.abs(array).max() > np.finfo(np.float32).max:
            raise InputError(f"{name} holds numbers that are not finite.")
    return {name: np.ascontiguousarray(array, np.float32) for name, array in found.items()}


def check_images(images, width: int) -> np.ndarray:
    """A matrix of zeros and ones, one image a row, as wide as the model."""
    array = check_binary(np.asarray(images), "the image matrix")
    if array.shape[1] != width:
        raise InputError(f"images have {array.shape[1]} pixels, but the model has {width} visible units.")
    return array.astype(bool)


def powers(temperatures: int) -> np.ndarray:
    """β from 0 to 1 in so many equal steps."""
    return np.linspace(0.0, 1.0, temperatures + 1)


def log_likelihood(
    parameters, images, *, temperatures: int = 1000, particles: int = 1, seed: int = 0, progress: bool | None = None
) -> np.ndarray:
    """log p(v) of every image by AIS: the logarithm of the mean weight of its particles. An image's estimate depends on
    the seed and its place among the images, not on how many others there are. It is NaN where the loops cannot hold it:
    with weights beyond ±80, or activations beyond about ±85."""
    temperatures, particles = whole("temperatures", temperatures), whole("particles", particles)
    seed = whole("seed", seed, 0, 2**64 - 1)
    if importlib.util.find_spec("numba") is None:
        raise InputError("annealed importance sampling needs Numba: pip install 'strang[numba]'.")
    from strang.sbn.kernels import gibbs as sbn

    found = check_parameters(parameters)
    images = check_images(images, found["c"].shape[0])
    total = []
    for first in track(range(0, len(images), IMAGES), "scoring", progress):
        part = images[first : first + IMAGES]
        words = np.random.Philox(key=seed, counter=[0, 0, 0, first + 1]).random_raw(len(part) * particles)
        weights = sbn.ais(part, found["W"], found["b"], found["c"], words, powers(temperatures), particles)
        total.append(log_mean_exp(weights, axis=1))
    return np.concatenate(total)


def exact(parameters, images) -> np.ndarray:
    """log p(v) of every image, summed over all states of at most 20 hidden units."""
    found = {name: array.astype(np.float64) for name, array in check_parameters(parameters).items()}
    units = len(found["b"])
    if units > ENUMERABLE:
        raise InputError(f"{units} hidden units have too many states to sum; {ENUMERABLE} are the most.")
    images = check_images(images, found["c"].shape[0]).astype(np.float64)
    evidence = images @ found["W"]  # log p(v | h) = v·(W h + c) − Σ_m log(1 + e^{x_m}): the last is common to all v
    total = np.full(len(images), -np.inf)
    for first in range(0, 2**units, STATES):
        numbers = np.arange(first, min(first + STATES, 2**units))
        hidden = (numbers[:, None] >> np.arange(units) & 1).astype(np.float64)
        common = hidden @ found["b"] - np.logaddexp(0, hidden @ found["W"].T + found["c"]).sum(1)
        total = np.logaddexp(total, np.logaddexp.reduce(evidence @ hidden.T + common, axis=1))
    return total + images @ found["c"] - np.logaddexp(0, found["b"]).sum()


def log_mean_exp(values, axis: int) -> np.ndarray:
    """The logarithm of the mean of exponentials; NaN if one of them is."""
    values = np.asarray(values)
    with np.errstate(invalid="ignore"):
        return np.logaddexp.reduce(values, axis=axis) - np.log(values.shape[axis])


def score(samples: list[dict[str, Any]], images, *, seed: int = 0, progress: bool | None = None, **settings) -> Score:
    """The posterior predictive's negative log likelihoods, from one or several posterior samples of the parameters."""
    if not samples:
        raise InputError("there is no model to score.")
    values = [
        log_likelihood(parameters, images, seed=seed + 7919 * k, progress=progress, **settings)
        for k, parameters in enumerate(samples)
    ]
    return Score(-log_mean_exp(np.stack(values), axis=0))


def paired(first: Score, second: Score) -> tuple[float, float]:
    """How much more the first has, in nats an image, and the standard error of that over the images common to both."""
    if len(first.each) != len(second.each):
        raise InputError(f"scores of {len(first.each)} and of {len(second.each)} images cannot be compared in pairs.")
    difference = Score(first.each - second.each)
    return difference.nll, difference.se
