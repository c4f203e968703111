"""Sums over the posterior samples of a fit, saved beside the chain that they belong to."""

from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from strang.lda.completion import HeldOut, Score, begin
from strang.lda.model import TopicModel
from strang.util.files import damaged, read_npz, write_npz

ADVICE = "the fit cannot go on from it. Begin in another folder."


class SampleSums(NamedTuple):
    """Sums over posterior samples of the held-out words' probabilities, the topics, and their squares."""

    score: Score
    mean: np.ndarray  # Σ φ, (V, K)
    square: np.ndarray  # Σ φ²


def save_sums(folder: Path, sums: SampleSums, step: int) -> None:
    """Save the sums that belong to the chain at this step."""
    write_npz(folder / f"kept-{step}.npz", {**sums.score._asdict(), "mean": sums.mean, "square": sums.square})


def remove_other_sums(folder: Path, step: int) -> None:
    """Remove the sums of all other steps, whose chains have been replaced."""
    for path in folder.glob("kept-*.npz"):
        if path.name != f"kept-{step}.npz":
            path.unlink()


def load_sums(folder: Path, test: HeldOut, model: TopicModel, step: int) -> SampleSums:
    """Load and check the sums of this step; at step 0 they are empty."""
    zeros = np.zeros((model.vocabulary, model.topics), np.float32)
    empty, path = SampleSums(begin(test), zeros, zeros), folder / f"kept-{step}.npz"
    if step == 0:
        return empty
    arrays = read_npz(path, ADVICE)
    try:
        score = Score(arrays["topics"], arrays["total"], arrays["last"], int(arrays["samples"]))
        sums = SampleSums(score, arrays["mean"], arrays["square"])
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, error, ADVICE) from None
    same = jax.tree.map(np.shape, sums) == jax.tree.map(np.shape, empty) and score.topics.dtype == np.int32
    if not (same and np.isin(score.topics, np.arange(model.topics)).all()):
        raise damaged(path, "other shapes or topics", ADVICE)
    return sums
