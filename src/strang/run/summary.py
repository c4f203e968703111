"""A run in a few lines for people."""

import jax
import numpy as np

from strang.run import health

SHOWN = 6  # numbers of each average


def title(run) -> str:
    """What was run, in one line."""
    job, data = run.job, run.job.inputs.data
    chains, order = job.program.chains, data.batch_order
    batches = "full gradients" if order.full else f"{order.name} batches of {data.batch_size} of {data.size}"
    return (
        f"{type(job.inputs.dynamics).__name__} {job.program.step.name}, {batches}: {run.steps:,} steps of {chains} "
        f"chain{'s' * (chains > 1)} in {run.seconds:.1f} s ({run.speed:,.0f} steps/s)"
        + (", interrupted" if run.interrupted else "")
    )


def rows(run, most: int | None = None) -> list[tuple[str, str, str]]:
    """Name, mean and Monte Carlo error of the numbers that were averaged, at most `most` of each leaf."""
    cells: list[tuple[str, str, str]] = []
    if run.job.program.average is None or not run.alive.any():
        return cells
    errors = jax.tree.leaves(run.error)
    for (path, value), error in zip(jax.tree_util.tree_leaves_with_path(run.average), errors, strict=True):
        for index in list(np.ndindex(np.shape(value)))[:most]:
            name = f"average{jax.tree_util.keystr(path)}{list(index) if index else ''}"
            cells.append((name, f"{np.asarray(value)[index]:.6g}", f"{np.asarray(error)[index]:.2g}"))
    return cells


def lines(run) -> list[str]:
    """The run in a few lines: what was done, the averages with errors, and the health of the run."""
    text = [title(run)]
    if run.job.program.average is not None and run.alive.any():
        means, errors = jax.tree.leaves(run.average), jax.tree.leaves(run.error)
        paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(run.average)]
        for path, value, error in zip(paths, means, errors, strict=True):
            pairs = zip(np.ravel(value)[:SHOWN], np.ravel(error)[:SHOWN], strict=True)
            shown = ", ".join(f"{m:.6g} ± {e:.2g}" for m, e in pairs)
            more = f", ... ({np.size(value)} numbers)" if np.size(value) > SHOWN else ""
            text.append(f"average{path}: {shown}{more}")
    return text + notes(run)


def notes(run) -> list[str]:
    """The health of a run, waiting and divergence."""
    text = health.notes(run)
    if run.waiting is not None:
        text.append(f"waiting for data {100 * run.waiting:.2g} % of the time")
    if run.diverged:
        text.append(run.divergence())
    return text
