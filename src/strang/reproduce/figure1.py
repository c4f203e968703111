"""Figure 1: bias of the invariant measure against the step size, the splitting against the Eulers.

Paper: "the Euler integrator has larger biases in the invariant measure, and quickly explodes". Three different updates
are called Euler there (erratum A6), so all three stand here, each with its exact curve.
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .. import data, dynamics, experiment, models, run
from ..integrator import spell
from ..theory import linear

INTEGRATORS = {
    "chen:ABOBA": "splitting (chen:ABOBA)",
    "euler-old": "Euler, old momentum (appendix I)",
    "euler-new": "Euler, new momentum (Algorithm 2)",
    "euler-position-first": "Euler, position first (e^{hL2} e^{hL3})",
}
FRICTION = 10.0
SIZES = (0.001, 0.002, 0.003, 0.005, 0.007, 0.009, 0.012, 0.02, 0.03, 0.04, 0.05, 0.06)


def make(full: bool, out: Path) -> tuple[dict[str, Any], list[str]]:
    """Simulate all step sizes of an integrator as one grid of chains, and lay the result over the exact values."""
    steps, replicates = (1_000_000, 200) if full else (100_000, 40)
    x = experiment.standardised(1000, 0.5, seed=0).astype(np.float32)
    results = {word: measure(word, x, steps, replicates) for word in INTEGRATORS}
    picture = draw(results, out / "figure1.svg", steps, replicates)
    head = (
        f"Figure 1: bias of the mean of θ², {replicates} runs of {steps:,} steps a point, batches of 10 of 1000, D = 10"
    )
    return results, [head, *table(results), f"picture in {picture}"]


def measure(word: str, x: np.ndarray, steps: int, replicates: int) -> dict[str, Any]:
    """Bias at every step size: simulated with its standard error, and exact."""
    step, chosen = spell(dynamics.SGHMC, word), dynamics.SGHMC(friction=FRICTION)
    model = models.Gaussian()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", run.DivergenceWarning)  # a result here
        outcome = run.sample(
            model,
            data.arrays(x, batch=10),
            chosen,
            integrator=word,
            step_size=np.repeat(SIZES, replicates),
            steps=steps,
            chains=len(SIZES) * replicates,
            average=experiment.square,
        )
    true = experiment.truth(model, x)
    errors = (outcome.each.mean["average"] - true).reshape(len(SIZES), replicates)
    alive = outcome.alive.reshape(errors.shape)
    points = []
    for h, error, living in zip(SIZES, errors, alive, strict=True):
        point: dict[str, Any] = {"step_size": h, "diverged": int((~living).sum())}
        exact = experiment.exact_errors(step, chosen, x, batch=10, order="iid", step_size=h, steps=steps)["bias"]
        stable = bool(living.all())
        point |= {
            "value": float(error.mean()) if stable else None,
            "exact": exact if exact is not None and np.isfinite(exact) else None,
        }
        point["se"] = float(error.std(ddof=1) / np.sqrt(replicates)) if stable else None
        points.append(point)
    return {
        "points": points,
        "stability_limit": linear.stability_limit(step, chosen, 1001.0),
        "seconds": outcome.seconds,
    }


def table(results: dict[str, Any]) -> list[str]:
    """Bias by step size: simulated, standard errors from the exact value, or how many chains exploded."""
    lines = [f"{'step size':>10}" + "".join(f"{word:>24}" for word in results)]
    for i, h in enumerate(SIZES):
        cells = []
        for result in results.values():
            point = result["points"][i]
            if point["value"] is None:
                cells.append(f"{point['diverged']} exploded")
            else:
                cells.append(f"{point['value']:.4g} ({(point['value'] - point['exact']) / point['se']:+.1f} se)")
        lines.append(f"{h:>10g}" + "".join(f"{cell:>24}" for cell in cells))
    limits = "".join(f"{result['stability_limit']:>24.4g}" for result in results.values())
    return [*lines, f"{'limit':>10}" + limits]


def draw(results: dict[str, Any], path: Path, steps: int, replicates: int) -> Path:
    """Simulated points with error bars over exact curves, log-log."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    with plt.rc_context({"svg.hashsalt": "strang", "svg.fonttype": "none"}):
        figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
        for (word, result), marker in zip(results.items(), "os^v", strict=True):
            points = [p for p in result["points"] if p["value"] is not None]
            curve = [p for p in result["points"] if p["exact"] is not None]
            (line,) = axes.plot([p["step_size"] for p in curve], [p["exact"] for p in curve], lw=1)
            sizes, values, errors = ([p[key] for p in points] for key in ("step_size", "value", "se"))
            axes.errorbar(
                sizes, values, errors, fmt=marker, ms=5, mfc="none", color=line.get_color(), label=INTEGRATORS[word]
            )
            axes.axvline(result["stability_limit"], color=line.get_color(), ls=":", lw=0.8)
        axes.set(xscale="log", yscale="log", xlabel="step size h", ylabel="bias of the mean of θ²")
        axes.set_title(
            f"Points: {replicates} runs of {steps:,} steps. Curves: exact. Dotted: explodes beyond.", fontsize=9
        )
        axes.legend(fontsize=8)
        figure.savefig(path, metadata={"Date": None})
        figure.savefig(path.with_suffix(".png"), dpi=140)
        plt.close(figure)
    return path
