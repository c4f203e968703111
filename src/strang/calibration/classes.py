"""How good predicted probabilities are: accuracy, log score, and whether predictions with probability 90 % are right
90 % of the time."""

from typing import NamedTuple

import numpy as np

from strang.util.errors import InputError


class Bin(NamedTuple):
    """Predictions of about the same confidence: their mean confidence, fraction of right ones, and number."""

    confidence: float
    accuracy: float
    cases: int


class Score(NamedTuple):
    """How good predictions are.

    Attributes:
        accuracy: the fraction of right predictions.
        nll: the mean of −log of the true class's probability, in nats.
        ece: the expected calibration error: the mean of |accuracy − confidence| over bins, weighted by cases.
    """

    accuracy: float
    nll: float
    ece: float


def reliability(probabilities, labels, bins: int = 15) -> list[Bin]:
    """Compares confidence and accuracy of predictions, sorted into bins by the probability of the predicted class.

    Args:
        probabilities: one row of class probabilities per case.
        labels: the number of the true class of each case.
        bins: the number of bins, which have equal width.

    Returns:
        The bins that are not empty, from low to high confidence.

    Raises:
        InputError: a row is not a distribution, or a label is not the number of a class.

    Example:
        >>> reliability([[0.75, 0.25], [0.25, 0.75]], [0, 0], bins=2)
        [Bin(confidence=0.75, accuracy=0.5, cases=2)]
    """
    probabilities, labels = checked(probabilities, labels)
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    return [
        Bin(float(confidence[inside].mean()), float(right[inside].mean()), int(inside.sum()))
        for inside in (place == k for k in range(bins))
        if inside.any()
    ]


def score(probabilities, labels, bins: int = 15) -> Score:
    """Computes accuracy, log score and calibration error of predictions.

    Args:
        probabilities: one row of class probabilities per case.
        labels: the number of the true class of each case.
        bins: the number of bins of the calibration error.

    Returns:
        The three numbers.

    Raises:
        InputError: a row is not a distribution, or a label is not the number of a class.

    Example:
        >>> score([[0.5, 0.5], [1.0, 0.0]], [0, 0])
        Score(accuracy=1.0, nll=0.34657359027997264, ece=0.25)
    """
    probabilities, labels = checked(probabilities, labels)
    own = probabilities[np.arange(len(labels)), labels]
    gaps = [abs(each.accuracy - each.confidence) * each.cases for each in reliability(probabilities, labels, bins)]
    nll = -np.log(np.maximum(own, np.finfo(np.float32).tiny)).mean()  # a probability that is rounded to 0 is not 0
    return Score(float((probabilities.argmax(1) == labels).mean()), float(nll), sum(gaps) / len(labels))


def checked(probabilities, labels) -> tuple[np.ndarray, np.ndarray]:
    """Converts both to arrays and checks that rows are distributions and labels number their columns."""
    probabilities, labels = np.asarray(probabilities, float), np.asarray(labels)
    if probabilities.ndim != 2 or labels.shape != probabilities.shape[:1] or not labels.size:
        raise InputError(
            f"probabilities have shape {probabilities.shape}, labels {labels.shape}; give a row and a label per case."
        )
    if not (np.isfinite(probabilities).all() and np.allclose(probabilities.sum(1), 1, atol=1e-3)):
        raise InputError("a row of the probabilities does not sum to 1; give the output of softmax, not logits.")
    if labels.dtype.kind not in "iu" or not ((labels >= 0) & (labels < probabilities.shape[1])).all():
        raise InputError(f"labels must be whole numbers from 0 to {probabilities.shape[1] - 1}.")
    return probabilities, labels
