"""The results of the commands as lines for people."""

from pathlib import Path
from typing import Any


def describe_score(result: dict[str, Any]) -> list[str]:
    samples = result["samples"]
    what = "one model" if samples == 1 else f"the posterior predictive of {samples} samples"
    lines = [
        f"negative log likelihood {result['nll']:.3f} ± {result['nll_se']:.3f} nats per image: {what}, "
        f"{result['images']:,} test images (binarisation {result['binarisation']})"
    ]
    if "against" in result:
        lines.append(
            f"compared with {result['against']:.3f} of the other: {result['difference']:+.3f} ± "
            f"{result['difference_se']:.3f}, image by image (below 0: better)"
        )
    if result["temperatures"]:
        lines.append(
            f"by {result['method']}, {result['temperatures']} temperatures, {result['particles']} "
            "particle(s): on average above the truth, never below"
        )
    return lines


def describe_grid(result: dict[str, Any]) -> list[str]:
    """The grid that was searched, one line per point."""
    lines = [f"{'step size':>12}{'friction':>10}{'nll':>10}{'temperature':>13}"]
    for point in result["grid"]:
        nll = "diverged" if point["nll"] is None else f"{point['nll']:.2f}"
        temperature = "-" if point["temperature"] is None else f"{point['temperature']:.3g}"
        chosen = "  <- chosen" if point == result["best"] else ""
        lines.append(f"{point['step_size']:12.1e}{point['friction']:10.2f}{nll:>10}{temperature:>13}{chosen}")
    return lines


def describe(folder: Path, result: dict[str, Any]) -> list[str]:
    """A fit."""
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
        lines.append(f"kinetic temperature {result['temperature']:.3g} (should be 1)")
    if result["diverged"]:
        lines.append(f"{result['diverged']} of {result['chains']} chains diverged; write a smaller --step-size")
    if result["model"]:
        page = "" if result["page"] is None else f", {result['page']}"
        lines.append(f"{result['model']}, {result['samples']} posterior samples{page}")
    return lines
