"""Sums over posterior samples of a fit, kept beside the chain that they belong to."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from strang.lda.completion import HeldOut, Score, begin
from strang.lda.model import TopicModel
from strang.util.files import damaged, read_npz, write_npz

ELSEWHERE = "the fit cannot go on from it. Begin in another folder."


class SampleSums(NamedTuple):
    """What is averaged over posterior samples: the held-out words' probabilities, the topics, and their squares."""

    score: Score
    mean: np.ndarray  # Σ φ, (V, K)
    square: np.ndarray  # Σ φ²


def no_samples(test: HeldOut, model: TopicModel) -> SampleSums:
    """The sums before the first sample."""
    zeros = np.zeros((model.vocabulary, model.topics), np.float32)
    return SampleSums(begin(test), zeros, zeros)


def path_of(folder: Path, step: int) -> Path:
    return folder / f"kept-{step}.npz"


def save_sums(folder: Path, sums: SampleSums, step: int) -> None:
    """The sums of the chain at this step."""
    write_npz(path_of(folder, step), {**sums.score._asdict(), "mean": sums.mean, "square": sums.square})


def forget_sums(folder: Path, step: int) -> None:
    """Remove those of chains that have been replaced."""
    for path in folder.glob("kept-*.npz"):
        if path != path_of(folder, step):
            path.unlink()


def load_sums(folder: Path, empty: SampleSums, model: TopicModel, step: int) -> SampleSums:
    """The sums when the chain was saved, in the shapes of empty ones."""
    path = path_of(folder, step)
    arrays = read_npz(path, ELSEWHERE)
    try:
        score = Score(arrays["topics"], arrays["total"], arrays["last"], int(arrays["samples"]))
        sums = SampleSums(score, arrays["mean"], arrays["square"])
        same = [np.shape(a) == np.shape(b) for a, b in zip(score[:3], empty.score[:3], strict=True)]
        same += [sums.mean.shape == empty.mean.shape, sums.square.shape == empty.square.shape]
        known = score.topics.dtype == np.int32 and np.isin(score.topics, np.arange(model.topics)).all()
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, error, ELSEWHERE) from None
    if not (known and all(same)):
        raise damaged(path, "other shapes or topics", ELSEWHERE)
    return sums
