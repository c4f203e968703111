"""How good predicted probabilities are: accuracy, log score, and whether what is called 90 % sure is right 90 % of
the time."""

from typing import NamedTuple

import numpy as np

from strang.util.errors import InputError


class Bin(NamedTuple):
    """Predictions of about the same confidence: its mean, the share of them that is right, and how many they are."""

    confidence: float
    accuracy: float
    cases: int


class Score(NamedTuple):
    """Share of right predictions, mean −log probability of what is so (nats), expected calibration error."""

    accuracy: float
    nll: float
    ece: float


def reliability(probabilities, labels, bins: int = 15) -> list[Bin]:
    """Predictions sorted into `bins` of equal width by the probability of the class they chose; empty ones are left
    out.

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
    """Accuracy, log score and calibration at once.

    >>> score([[0.5, 0.5], [1.0, 0.0]], [0, 0])
    Score(accuracy=1.0, nll=0.34657359027997264, ece=0.25)
    """
    probabilities, labels = checked(probabilities, labels)
    own = probabilities[np.arange(len(labels)), labels]
    gaps = [abs(each.accuracy - each.confidence) * each.cases for each in reliability(probabilities, labels, bins)]
    nll = -np.log(np.maximum(own, np.finfo(np.float32).tiny)).mean()  # single precision's 0 is not an infinite surprise
    return Score(float((probabilities.argmax(1) == labels).mean()), float(nll), sum(gaps) / len(labels))


def checked(probabilities, labels) -> tuple[np.ndarray, np.ndarray]:
    """Both as arrays, if the rows are distributions and the labels number their columns."""
    probabilities, labels = np.asarray(probabilities, float), np.asarray(labels)
    if probabilities.ndim != 2 or labels.shape != probabilities.shape[:1] or not labels.size:
        raise InputError(
            f"probabilities have shape {probabilities.shape} and labels {labels.shape}; give a row and a label a case."
        )
    if not (np.isfinite(probabilities).all() and np.allclose(probabilities.sum(1), 1, atol=1e-3)):
        raise InputError("a row of the probabilities does not sum to 1; give what softmax gives, not logits.")
    if labels.dtype.kind not in "iu" or not ((labels >= 0) & (labels < probabilities.shape[1])).all():
        raise InputError(f"labels must be whole numbers from 0 to {probabilities.shape[1] - 1}.")
    return probabilities, labels
