"""A run in a few lines for people."""

import jax
import jax.numpy as jnp
import numpy as np

from strang.data.orders import Stream
from strang.util.trees import mean, size, spread

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
    """The run in a few lines: what was done, the averages with errors, the health signals, what bias to expect."""
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
    """The health of a run: temperature, gradient noise, the bias to expect, waiting, divergence."""
    text = []
    if run.temperature is not None:
        text.append(f"kinetic temperature {run.temperature:.4g} (should be 1)")
    noise = mean(run.gradient_noise)
    if np.isfinite(noise):  # as it is not where nothing was measured
        text.append(f"gradient noise V {noise:.4g} per coordinate on average ({size(run.gradient_noise)} coordinates)")
    text.extend(expected_bias(run))
    if run.waiting is not None:
        text.append(f"waiting for data {100 * run.waiting:.2g} % of the time")
    if run.diverged:
        text.append(run.divergence())
    return text


def expected_bias(run) -> list[str]:
    """What gradient noise adds to the variances: h V / (2 D), to first order, when batches are independent."""
    data, dynamics = run.job.inputs.data, run.job.inputs.dynamics
    order = data.batch_order
    if not order.independent and hasattr(run.job.program.model, "likelihood_gradient"):
        return ["the model's own gradient may be random: its noise, which is not measured separately, does not cancel"]
    if order.full:
        return ["full gradients: the bias is the integrator's alone"]
    if not order.independent:
        return [f"{order.name} batches: gradient noise cancels over an epoch once its length R h is short"]
    if hasattr(dynamics, "thermostat"):
        return ["independent batches: the thermostat absorbs constant gradient noise"]
    h, left = mean_step(run), mean(run.gradient_noise) - known_noise(run)
    if hasattr(dynamics, "inverse_metric") or not np.isfinite(h * left):  # with a metric it depends on the position
        return []
    excess = h * left / (2 * float(np.mean(getattr(dynamics, "friction", 1.0))))
    which = "if the loader's batches are independent," if isinstance(order, Stream) else "independent batches:"
    return [f"{which} expect variances about {100 * excess:.3g} % too large (h V / 2D), to first order in h"]


def mean_step(run) -> float:
    """The mean step size after burn-in with the weights of an average, which are the step sizes: Σ h² / Σ h."""
    first, last = int(run.job.inputs.burn_in) + 1, run.steps
    if last < first:
        return np.nan
    numbers = np.unique(np.geomspace(first, last, 1000).round())
    sizes = np.asarray(jax.vmap(run.job.inputs.schedule)(jnp.asarray(numbers, float)), float).reshape(len(numbers), -1)
    spans = np.gradient(numbers)[:, None] if len(numbers) > 1 else 1.0
    return float(((spans * sizes**2).sum(0) / (spans * sizes).sum(0)).mean())


def known_noise(run) -> float:
    """The known variance that is taken out of the noise, per coordinate on average."""
    dynamics, like = run.job.inputs.dynamics, run.gradient_noise
    known = spread(getattr(dynamics, "gradient_noise", 0.0), like)
    if run.job.program.grid:
        known = jax.tree.map(lambda x: np.mean(x, 0) if np.ndim(x) else x, known)
    return mean(jax.tree.map(lambda x, like: np.broadcast_to(x, np.shape(like)), known, like))
