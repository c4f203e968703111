"""A run in a few lines for people."""

import numpy as np

from strang.run import health, verdict
from strang.run.table import SHOWN

NUMBERS = 3  # of an average that are shown of each setting


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


def lines(run) -> list[str]:
    """The run in a few lines: what was done, the table of what was averaged, the verdict, and the health of the run."""
    return [title(run), *table(run), *judged(run), *notes(run)]


def table(run) -> list[str]:
    """What was averaged, with both errors; by setting where chains have settings of their own."""
    if run.job.program.average is None or not run.alive.any():
        return []
    return by_setting(run) if run.own_settings else run.summary().lines(SHOWN)


def judged(run) -> list[str]:
    """The verdict, with its reasons."""
    if run.job.program.average is None or run.own_settings:
        return []
    if run.trusted:
        return [f"trusted: {verdict.reassurance(run)}"]
    first, *others = run.reasons
    return [f"NOT TO BE TRUSTED: {first}", *(f"  also: {reason}" for reason in others)]


def notes(run) -> list[str]:
    """The health of a run, waiting and divergence."""
    told = set(verdict.reasons(run)) if run.job.program.average is not None else set()
    text = [line for line in health.notes(run) if line.rstrip(".") not in told]
    if run.waiting is not None:
        text.append(f"waiting for data {100 * run.waiting:.2g} % of the time")
    if run.goal is not None:
        text.append(run.goal.why)
    if run.tuning is not None:
        text += run.tuning.notes
    if run.diverged and (run.own_settings or run.job.program.average is None):
        text.append(run.divergence())
    return text


def by_setting(run) -> list[str]:
    """A line for each setting of a grid: its numbers, what was averaged with both errors, temperature, divergence."""
    rows = [["setting", "chains", "diverged", "temperature", "average ± Monte Carlo (± bias)"]]
    for each in run.by_setting():
        found, heat = each["estimates"], each["temperature"]
        values = [
            f"{value:.6g} ± {error:.2g}" + ("" if np.isnan(bias) else f" ± {bias:.2g}")
            for value, error, bias in zip(
                found.mean.value[:NUMBERS], found.mean.error[:NUMBERS], found.mean.bias_bound[:NUMBERS], strict=True
            )
        ]
        more = ", ..." if len(found.names) > NUMBERS else ""
        label = ", ".join(f"{name} {value:.4g}" for name, value in each["setting"].items())
        temperature = "–" if heat is None else f"{heat:.4g}"
        rows.append([label, str(each["chains"]), str(each["diverged"]), temperature, ", ".join(values) + more])
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
