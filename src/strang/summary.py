"""A run in a few lines for people."""

import jax
import jax.numpy as jnp
import numpy as np


def lines(run) -> list[str]:
    """The run in a few lines: what was done, the averages with errors, the health signals, what bias to expect."""
    job, data = run.job, run.job.inputs.data
    chains = job.program.chains
    order = data.order if data.order == "full" else f"{data.order} batches of {data.batch} of {data.size}"
    told = [
        f"{type(job.inputs.dynamics).__name__} {job.program.step.name}, {order}: {run.steps:,} steps of {chains} "
        f"chain{'s' * (chains > 1)} in {run.seconds:.1f} s ({run.steps * chains / max(run.seconds, 1e-9):,.0f} steps/s)"
        + (", interrupted" if run.interrupted else "")
    ]
    if job.program.average is not None and run.alive.any():
        means, errors = jax.tree.leaves(run.average), jax.tree.leaves(run.error)
        paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(run.average)]
        for path, mean, error in zip(paths, means, errors, strict=True):
            shown = [f"{m:.6g} ± {e:.2g}" for m, e in zip(np.ravel(mean)[:6], np.ravel(error)[:6], strict=True)]
            more = f", ... ({np.size(mean)} numbers)" if np.size(mean) > 6 else ""
            told.append(f"average{path}: {', '.join(shown)}{more}")
    if run.temperature is not None:
        told.append(f"kinetic temperature {run.temperature:.4g} (1 where the law is right)")
    noise = np.concatenate([np.ravel(x) for x in jax.tree.leaves(run.gradient_noise)])
    if np.isfinite(noise).all():  # as it is not where nothing was measured
        told.append(f"gradient noise V {noise.mean():.4g} a coordinate on average ({noise.size} coordinates)")
    told.extend(expected_bias(run, float(noise.mean())))
    if run.waiting is not None:
        told.append(f"waiting for data {100 * run.waiting:.2g} % of the time")
    if run.diverged:
        told.append(run.divergence())
    return told


def expected_bias(run, variance: float) -> list[str]:
    """What gradient noise adds to the variances: h V / (2 D), to first order, when batches are independent."""
    data, dynamics = run.job.inputs.data, run.job.inputs.dynamics
    if data.order == "full":
        return ["full gradients: the bias is the integrator's alone"]
    if data.order not in ("iid", "stream"):
        return [f"{data.order} batches: gradient noise cancels over an epoch once its length R h is short"]
    if hasattr(dynamics, "thermostat"):
        return ["independent batches: the thermostat absorbs constant gradient noise"]
    if not np.isfinite(variance):
        return []
    h = float(np.mean(np.asarray(run.job.inputs.schedule(jnp.asarray(run.steps, float)))))
    friction = float(np.mean(getattr(dynamics, "friction", 1.0)))
    left = variance - float(np.mean([np.mean(v) for v in jax.tree.leaves(getattr(dynamics, "gradient_noise", 0.0))]))
    share = h * left / (2 * friction)
    which = "independent batches:" if data.order == "iid" else "if the loader's batches are independent,"
    return [f"{which} expect variances about {100 * share:.3g} % too large (h V / 2D), to first order in h"]
