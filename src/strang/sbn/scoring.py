"""Scores of belief networks: log p(v) of every image by annealed importance sampling (AIS), or exactly where the hidden
units are few.

AIS goes from the prior of h to its posterior given v through p(h) p(v | h)^β. At each β the weight is multiplied first,
then a Gibbs sweep moves h. So the mean weight is p(v) exactly, and minus its logarithm is too large on average: printed
scores err on the safe side. (Moving before weighting is in circulation. It is not AIS: its scores are too good by many
nats.)
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from strang.data.images import check_binary, load
from strang.sbn.model import compiled
from strang.util.errors import InputError, whole
from strang.util.files import read_npz
from strang.util.memory import check_fits
from strang.util.progress import track

MAX_ENUMERATED_UNITS = 20
CHUNK_IMAGES = 100  # scored together; each chunk has its own random stream, so another number gives other estimates
MAX_TEMPERATURES = 10_000_000
CHANGE_IMAGES = 500  # on which the change with more temperatures is measured: a fifth of the cost of all of MNIST's
CHUNK_STATES = 1 << 12  # states of the hidden units, summed together
TOO_LARGE = (
    "the weights are too large to be scored by annealing: one is beyond ±80, or they take the log odds of a pixel "
    f"beyond about ±85. With at most {MAX_ENUMERATED_UNITS} hidden units write --exact."
)


@dataclass(frozen=True)
class Score:
    """Negative log likelihoods of images in nats; `each` has one number per image.

    Example:
        >>> score = Score(np.array([1.0, 3.0]))
        >>> score.nll, round(score.se, 6)
        (2.0, 1.0)
    """

    each: np.ndarray

    @property
    def nll(self) -> float:
        """The mean over images."""
        return float(self.each.mean())

    @property
    def se(self) -> float:
        """The standard error over images; compare scores on the same images by `paired` instead."""
        return float(self.each.std(ddof=1) / np.sqrt(len(self.each))) if len(self.each) > 1 else float("nan")


def check_parameters(parameters: dict[str, Any]) -> dict[str, np.ndarray]:
    """Checks that W (M, J), b (J) and c (M) fit together and are finite; returns them in single precision."""
    if missing := [name for name in ("W", "b", "c") if name not in parameters]:
        raise InputError(f"the model has no array {', '.join(missing)}; it needs W (M x J), b (J) and c (M).")
    try:
        arrays = {name: np.asarray(parameters[name]).astype(np.float64) for name in ("W", "b", "c")}
    except (TypeError, ValueError):
        raise InputError("W, b and c must be arrays of real numbers.") from None
    weights, b, c = (array.shape for array in arrays.values())
    if len(weights) != 2 or 0 in weights or b != weights[1:] or c != weights[:1]:
        expected = "(M, J), (J,) and (M,) for M visible and J hidden units"
        raise InputError(f"W, b and c have shapes {weights}, {b} and {c}; they must be {expected}.")
    for name, array in arrays.items():
        if not np.isfinite(array).all() or np.abs(array).max() > np.finfo(np.float32).max:
            raise InputError(f"{name} holds numbers that are not finite.")
    return {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}


def load_model(path: Path) -> dict[str, np.ndarray]:
    """Reads and checks the parameters in a file."""
    return check_parameters(read_npz(Path(path), "write a .npz file with arrays W, b and c."))


def load_samples(path: Path) -> list[dict[str, np.ndarray]]:
    """Reads the parameters in a file, or all samples in the folder of a fit (its model, where there are none)."""
    path = Path(path)
    if not path.is_dir():
        return [load_model(path)]
    files = sorted((path / "samples").glob("step-*.npz")) or list(path.glob("model.npz"))
    if not files:
        raise InputError(f"{path} holds no samples and no model.npz.")
    return [load_model(file) for file in files]


def check_images(images, width: int) -> np.ndarray:
    """Checks that a matrix of zeros and ones has one image per row, as wide as the model."""
    array = check_binary(np.asarray(images), "the image matrix")
    if array.shape[1] != width:
        raise InputError(f"images have {array.shape[1]} pixels, but the model has {width} visible units.")
    return array.astype(bool)


def log_likelihood(
    parameters, images, *, temperatures: int = 1000, particles: int = 1, seed: int = 0, progress: bool | None = None
) -> np.ndarray:
    """Estimates log p(v) of every image by AIS, as the logarithm of the mean weight of its particles.

    Args:
        parameters: arrays W (M, J), b (J) and c (M).
        images: a matrix of zeros and ones, one image of M pixels per row.
        temperatures: steps of the annealing.
        particles: runs of the annealing for each image.
        seed: of the annealing. An estimate depends on it and on the image's row, not on how many other rows there are.
        progress: whether to show a progress bar; None: on a terminal.

    Returns:
        One number per image; NaN beyond single precision: with weights beyond ±80, or log odds of a pixel beyond about
        ±85.

    Raises:
        InputError: an argument is invalid, or Numba is not installed.

    Example:
        >>> model = {"W": np.zeros((3, 2)), "b": np.zeros(2), "c": np.zeros(3)}  # all 8 images are equally likely
        >>> log_likelihood(model, [[0, 1, 1]], temperatures=10).round(4)
        array([-2.0794])
    """
    temperatures, particles = whole("temperatures", temperatures, 1, MAX_TEMPERATURES), whole("particles", particles)
    seed = whole("seed", seed, 0, 2**64 - 1)
    if not compiled():
        raise InputError("annealed importance sampling needs Numba: pip install 'strang[numba]'.")
    from strang.sbn.kernels.gibbs import ais

    model, powers = check_parameters(parameters), np.linspace(0.0, 1.0, temperatures + 1)
    images = check_images(images, len(model["c"]))
    check_fits(f"particles is {particles}: they", 4 * particles * min(len(images), CHUNK_IMAGES) * len(model["c"]))
    estimates = []
    for first in track(range(0, len(images), CHUNK_IMAGES), "scoring", progress):
        chunk = images[first : first + CHUNK_IMAGES]
        bits = np.random.Philox(key=seed, counter=[0, 0, 0, first + 1]).random_raw(len(chunk) * particles)
        weights = ais(chunk, model["W"], model["b"], model["c"], bits, powers, particles)
        estimates.append(log_mean_exp(weights, axis=1))
    return np.concatenate(estimates)


def exact(parameters, images) -> np.ndarray:
    """Computes log p(v) of every image by summing over all states of the hidden units.

    Args:
        parameters: arrays W (M, J), b (J) and c (M), with J at most 20.
        images: a matrix of zeros and ones, one image of M pixels per row.

    Returns:
        One number per image.

    Raises:
        InputError: an argument is invalid, or there are too many hidden units.

    Example:
        >>> model = {"W": np.zeros((3, 2)), "b": np.zeros(2), "c": np.zeros(3)}  # all 8 images are equally likely
        >>> exact(model, [[0, 1, 1]]).round(4)
        array([-2.0794])
    """
    model = {name: array.astype(np.float64) for name, array in check_parameters(parameters).items()}
    units = len(model["b"])
    if units > MAX_ENUMERATED_UNITS:
        raise InputError(f"{units} hidden units have too many states to sum; {MAX_ENUMERATED_UNITS} are the most.")
    images = check_images(images, len(model["c"])).astype(np.float64)
    evidence = images @ model["W"]  # log p(v | h) = v·(W h + c) − Σ_m log(1 + e^{x_m}): the last is common to all v
    total = np.full(len(images), -np.inf)
    for first in range(0, 2**units, CHUNK_STATES):
        numbers = np.arange(first, min(first + CHUNK_STATES, 2**units))
        hidden = (numbers[:, None] >> np.arange(units) & 1).astype(np.float64)
        common = hidden @ model["b"] - np.logaddexp(0, hidden @ model["W"].T + model["c"]).sum(1)
        total = np.logaddexp(total, np.logaddexp.reduce(evidence @ hidden.T + common, axis=1))
    return total + images @ model["c"] - np.logaddexp(0, model["b"]).sum()


def log_mean_exp(values, axis: int) -> np.ndarray:
    """The logarithm of the mean of exponentials; NaN if one of them is."""
    values = np.asarray(values)
    with np.errstate(invalid="ignore"):
        return np.logaddexp.reduce(values, axis=axis) - np.log(values.shape[axis])


def score(
    samples, images, *, temperatures: int = 1000, particles: int = 1, seed: int = 0, progress: bool | None = None
) -> Score:
    """Scores images by the posterior predictive: p(v) is averaged over posterior samples of the parameters.

    Args:
        samples: a list of one or several sets of parameters, each with arrays W, b and c.
        images, temperatures, particles, seed, progress: as for `log_likelihood`.

    Returns:
        The negative log likelihoods.

    Raises:
        InputError: an argument is invalid, or Numba is not installed.

    Example:
        >>> model = {"W": np.zeros((3, 2)), "b": np.zeros(2), "c": np.zeros(3)}
        >>> round(score([model, model], [[0, 1, 1], [1, 0, 0]], temperatures=10).nll, 4)
        2.0794
    """
    if not samples:
        raise InputError("there is no model to score.")
    settings: dict[str, Any] = {"temperatures": temperatures, "particles": particles, "progress": progress}
    values = [log_likelihood(sample, images, seed=seed + 7919 * k, **settings) for k, sample in enumerate(samples)]
    return Score(-log_mean_exp(values, axis=0))


def paired(first: Score, second: Score) -> tuple[float, float]:
    """Compares two scores image by image.

    Args:
        first: a score.
        second: another score of the same images.

    Returns:
        The mean of first minus second, in nats per image, and its standard error over images.

    Raises:
        InputError: the numbers of images differ.

    Example:
        >>> paired(Score(np.array([2.0, 5.0])), Score(np.array([1.0, 4.0])))
        (1.0, 0.0)
    """
    if len(first.each) != len(second.each):
        raise InputError(f"scores of {len(first.each)} and of {len(second.each)} images cannot be compared in pairs.")
    difference = Score(first.each - second.each)
    return difference.nll, difference.se


def annealing_change(
    first: list, second: list, images: np.ndarray, *, temperatures: int, particles: int = 1, seed: int = 0
) -> tuple[float, float]:
    """How much the difference of two scores changes with four times the temperatures, and the standard error of that.

    AIS scores are too large by an amount that shrinks with the number of temperatures and differs between models. The
    standard error over images does not show it; this change is about what a difference may err by.
    """
    settings: dict[str, Any] = {"particles": particles, "seed": seed}
    fine, coarse = (
        [score(samples, images, temperatures=count, **settings).each for samples in (first, second)]
        for count in (4 * temperatures, temperatures)
    )
    return paired(Score(fine[0] - fine[1]), Score(coarse[0] - coarse[1]))


def score_files(
    models: list[Path],
    *,
    data: str | None = None,
    binarisation: str = "bernoulli:0",
    count: int | None = None,
    temperatures: int = 1000,
    particles: int = 1,
    seed: int = 0,
    enumerate_all: bool = False,
    against: Path | None = None,
) -> dict[str, Any]:
    """Scores parameters in files or folders of fits on the first `count` test images, as `strang sbn score` does."""
    samples = [sample for path in models for sample in load_samples(path)]
    others = [] if against is None else load_samples(against)
    images = load(data, binarisation)
    if count is not None and not 1 <= count <= len(images.test):
        raise InputError(f"images is {count}; there are {len(images.test)} test images.")
    test = images.test[:count]

    def scored(samples: list[dict[str, np.ndarray]]) -> Score:
        if enumerate_all:
            return Score(-log_mean_exp([exact(sample, test) for sample in samples], axis=0))
        annealed = score(samples, test, temperatures=temperatures, particles=particles, seed=seed)
        if not np.isfinite(annealed.each).all():
            raise InputError(TOO_LARGE)
        return annealed

    own = scored(samples)
    result = {
        "nll": own.nll,
        "nll_se": own.se,
        "images": len(test),
        "temperatures": None if enumerate_all else temperatures,
        "particles": None if enumerate_all else particles,
        "samples": len(samples),
        "method": "enumeration" if enumerate_all else "annealed importance sampling from the prior",
        "binarisation": images.binarisation,
        "seed": seed,
    }
    if others:
        other = scored(others)
        difference, error = paired(own, other)
        result |= {"against": other.nll, "difference": difference, "difference_se": error}
        if not enumerate_all:
            few = test[:CHANGE_IMAGES]
            annealing: dict[str, Any] = {"temperatures": temperatures, "particles": particles, "seed": seed}
            change, error = annealing_change(samples, others, few, **annealing)
            result |= {"annealing_change": change, "annealing_change_se": error, "annealing_images": len(few)}
    return result
