"""The results of the commands, for machines and for people."""

from pathlib import Path
from typing import Any

import numpy as np

from strang.data.images import load
from strang.sbn.files import load_model, samples_of
from strang.sbn.scoring import ENUMERABLE, Score, exact, log_mean_exp, paired, score
from strang.util.errors import InputError


def score_files(
    paths: list[Path],
    data: str | None,
    binarisation: str,
    count: int | None,
    temperatures: int,
    particles: int,
    seed: int,
    enumerate_all: bool,
    against: Path | None = None,
) -> dict[str, Any]:
    """Score the parameters in files on test images, and compare them with others image by image."""
    models, others = samples_in(paths), samples_in([] if against is None else [against])
    images = load(data, binarisation)
    if count is not None and not 1 <= count <= len(images.test):
        raise InputError(f"images is {count}; there are {len(images.test)} test images.")
    test = images.test[:count]

    def judged(samples) -> Score:
        if enumerate_all:
            return Score(-log_mean_exp([exact(sample, test) for sample in samples], axis=0))
        found = score(samples, test, temperatures=temperatures, particles=particles, seed=seed)
        if not np.isfinite(found.each).all():
            raise InputError(
                "the weights are too large to be scored by annealing: one is beyond ±80, or they take the log odds "
                f"of a pixel beyond about ±85. With at most {ENUMERABLE} hidden units write --exact."
            )
        return found

    found = judged(models)
    result = {
        "nll": found.nll,
        "nll_se": found.se,
        "images": len(test),
        "temperatures": None if enumerate_all else temperatures,
        "particles": None if enumerate_all else particles,
        "samples": len(models),
        "method": "enumeration" if enumerate_all else "annealed importance sampling from the prior",
        "binarisation": images.binarisation,
        "seed": seed,
    }
    if others:
        other = judged(others)
        difference, error = paired(found, other)
        result |= {"against": other.nll, "difference": difference, "difference_se": error}
    return result


def samples_in(paths: list[Path]) -> list[dict[str, np.ndarray]]:
    """The parameters in files and in folders of fits."""
    return [load_model(file) for path in paths for file in samples_of(path)]


def describe_score(result: dict[str, Any]) -> list[str]:
    samples = result["samples"]
    what = "one model" if samples == 1 else f"the posterior predictive of {samples} samples"
    lines = [
        f"negative log likelihood {result['nll']:.3f} ± {result['nll_se']:.3f} nats an image: {what}, "
        f"{result['images']:,} test images (binarisation {result['binarisation']})"
    ]
    if "against" in result:
        lines.append(
            f"against {result['against']:.3f} of the other: {result['difference']:+.3f} ± "
            f"{result['difference_se']:.3f}, image by image (below 0: better)"
        )
    if result["temperatures"]:
        lines.append(
            f"by {result['method']}, {result['temperatures']} temperatures, {result['particles']} "
            "particle(s): on average above the truth, never below"
        )
    return lines


def describe_grid(found: dict[str, Any]) -> list[str]:
    """The grid that was searched."""

    def row(point):
        score_ = "diverged" if point["nll"] is None else f"{point['nll']:.2f}"
        chosen = "  <- chosen" if point == found["best"] else ""
        size, friction, heat = point["step_size"], point["friction"], point["temperature"]
        return f"{size:12.1e}{friction:10.2f}{score_:>10}{'-' if heat is None else f'{heat:.3g}':>12}{chosen}"

    return [f"{'step size':>12}{'friction':>10}{'nll':>10}{'mean p^2':>12}", *map(row, found["grid"])]


def describe(folder: Path, result: dict[str, Any]) -> list[str]:
    """The fit for people."""
    friction = "" if result["friction"] is None else f", friction {result['friction']:.4g}"
    lines = [
        f"{result['dynamics']}{' ' + result['integrator'] if result['integrator'] else ''}, "
        f"{result['hidden']} hidden units, h {result['step_size']:g}{friction}, {result['batches']} batches of "
        f"{result['batch_size']}: {result['steps']:,} steps in {result['seconds']:.0f} s"
    ]
    if result["nll_validation"] is not None:
        lines.append(
            f"negative log likelihood of held-out images about {result['nll_validation']:.2f} (quick, some nats too "
            f"large); score it with: strang sbn score {folder}"
        )
    if result["temperature"] is not None:
        lines.append(f"mean p² {result['temperature']:.3g} (1 where the law is right)")
    if result["diverged"]:
        lines.append(f"{result['diverged']} of {result['chains']} chains diverged; write a smaller --step-size")
    if result["model"]:
        page = "" if result["page"] is None else f", {result['page']}"
        lines.append(f"{result['model']}, {result['samples']} posterior samples{page}")
    return lines
