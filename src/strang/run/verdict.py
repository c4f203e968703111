"""Whether a run is to be trusted: every check that was made, and what it found wrong, worst first.

A run is trusted where all that can go wrong was looked for and not found: chains that diverged, temperatures other than
1, bias and Monte Carlo error of every number that is reported, chains that disagree. What was not measured does not
count as found right.
"""

import jax
import numpy as np

from strang.data.orders import Stream
from strang.run import health
from strang.sampling import averages
from strang.sampling.estimates import Estimates

MAX_RHAT = 1.01  # Vehtari et al. 2021
MAX_ERROR = 0.05  # Monte Carlo, in posterior standard deviations, where no other goal was set: 400 effective draws
MAX_MEAN_BIAS, MAX_SD_BIAS = 0.1, 0.05  # in posterior standard deviations
MAX_HEAT = health.MAX_HEAT
MAX_SWEEP = 1.0  # R h in coordinates of unit curvature, above which gradient noise does not cancel over an epoch
MIN_MEASURED = 8  # times in each chain that the configurational temperature is measured before it counts
SURE = 4.0  # standard errors that a temperature must be off by, since there may be thousands of them


def reasons(run) -> list[str]:
    """Why a run is not to be trusted, worst first; empty where it is."""
    if not run.alive.any():
        return [run.divergence()]
    if run.job.program.average is None:
        return ["nothing was averaged (average=None), so there is nothing to check"]
    if run.own_settings:
        return ["chains have settings of their own: one average over them means nothing; see run.by_setting()"]
    if run.steps <= int(run.job.inputs.burn_in):
        ended = "" if run.goal is None else f": {run.goal.why}"
        return [f"the run ended in its burn-in, before anything was averaged{ended}"]
    checks = [
        [run.divergence()] if run.diverged else [],
        list(run.tuning.problems) if run.tuning is not None else [],
        temperature(run),
        bias(run, sure=True),
        foretold(run),
        configuration(run),
        disagreement(run.estimates, () if run.tuning is None else run.tuning.notes),
        sweeps(run),
        bias(run, sure=False),
        precision(run),
        health.rounding(run),
        unmeasured(run),
    ]
    return [reason.rstrip(".") for found in checks for reason in found]


def serious(run) -> list[str]:
    """The reasons that say that something is wrong, not only that a run is short or that something is not known."""
    if run.job.program.average is None or run.own_settings:
        return []
    notes = () if run.tuning is None else run.tuning.notes
    checks = (bias(run, sure=False), precision(run), unmeasured(run), disagreement(run.estimates, notes))
    mild = {reason.rstrip(".") for found in checks for reason in found}
    return [reason for reason in run.reasons if reason not in mild]


def reassurance(run) -> str:
    """What was measured of a run that is trusted."""
    random, bias = (float(np.nanmax(values)) for values in run.estimates.farthest())
    parts = [f"Monte Carlo errors are at most {random:.2g} and biases at most {bias:.2g} posterior standard deviations"]
    rhat = np.max(run.estimates.rhat)
    parts += [f"R-hat is at most {rhat:.4f}"] if np.isfinite(rhat) else ["R-hat is not known"]
    return "; ".join([*parts, *([f"temperature {run.temperature:.4f}"] if run.temperature is not None else [])])


def temperature(run) -> list[str]:
    """The kinetic temperature of each coordinate, and of all together."""
    found = health.temperature(run)
    lines = [line for line in found if "another distribution" in line]
    heat = run.chain.average.total.get("heat")
    if lines or heat is None:
        return lines
    means = health.flat(run.over_chains(averages.means(run.chain.average)["heat"]), 1)[0]
    errors = health.flat(averages.error_over_chains(run.chain.average, run.alive, shared=False)["heat"], 1)[0]
    off = np.abs(means - 1) - SURE * errors
    worst = int(np.argmax(off))
    if not off[worst] > MAX_HEAT:
        return []
    return [
        f"the temperature of {health.direction(run, worst)} is {means[worst]:.4g}, and it should be 1 (on average over "
        f"all {len(means)} it is {means.mean():.4g}); write a smaller step_size"
    ]


def configuration(run) -> list[str]:
    """The configurational temperature, the mean of (z − centre) ∂U/∂z: it shows what a long step does to positions."""
    value, error = run.configurational_temperature
    if not abs(value - 1) > MAX_HEAT + SURE * error:
        return []
    return [
        f"the configurational temperature is {value:.3g} ± {error:.2g}, and it should be 1: positions are too "
        f"{'spread out' if value > 1 else 'narrow'}; write a smaller step_size, or run longer from better starts"
    ]


def bias(run, *, sure: bool) -> list[str]:
    """The bias that was measured, where it is worst: where it is surely too large, or where it is not known to be small
    enough."""
    found, text = run.estimates, []
    if found.sd is None or found.order is None:
        return []
    if np.isinf(found.mean.bias).any():
        why = "a step of twice the size diverges, so the bias could not be measured: write a smaller step_size"
        return [why] if sure else []
    allowed = 0.0 if run.goal is None else run.goal.error or 0.0
    scale = np.where(found.sd.value > 0, found.sd.value, np.nan)
    for what, estimate, most in (("mean", found.mean, MAX_MEAN_BIAS), ("sd", found.sd, MAX_SD_BIAS)):
        value, error, bound = (np.abs(x) / scale for x in (estimate.bias, estimate.bias_error, estimate.bias_bound))
        most = max(most, allowed)
        surely = value - 2 * error > most
        wrong = surely if sure else (bound > most) & ~surely
        if wrong.any() and (sure or not surely.any()):
            worst = int(np.nanargmax(np.where(wrong, bound, 0.0)))
            text.append(
                f"the bias of the {what} of {found.names[worst]} is up to {bound[worst]:.2g} posterior standard "
                f"deviations (measured {value[worst]:.2g} ± {error[worst]:.1g}); "
                + ("write a smaller step_size" if sure else "run longer, or couple more chains, to know it better")
            )
    return text


def foretold(run) -> list[str]:
    """What gradient noise does to temperatures, from its measured variance, where the bias was not measured."""
    order = run.job.inputs.data.batch_order
    if order.full or not order.independent or run.estimates.order is not None:
        return []
    found = health.temperatures(run)
    if found is None or not np.isfinite(found).all() or not np.abs(found - 1).max() > 2 * MAX_SD_BIAS:
        return []
    if getattr(run.job.inputs.dynamics, "thermostat", None) == "coordinate":
        return []
    which = "if the loader's batches are independent, " if isinstance(order, Stream) else ""
    return [which + line for line in health.heating(run)]


def disagreement(found: Estimates, notes: tuple[str, ...] = ()) -> list[str]:
    """Chains whose averages differ, with what is known of other modes."""
    rhat = np.nan_to_num(found.rhat, nan=1.0)
    apart = rhat > MAX_RHAT
    if not apart.any():
        return []
    worst = int(np.argmax(rhat))
    more = f" and above {MAX_RHAT} for {apart.sum() - 1} more" if apart.sum() > 1 else ""
    return [
        f"chains disagree: R-hat is {rhat[worst]:.3g} for {found.names[worst]}{more}; "
        + ("; ".join(notes) or "run longer, or look for several modes")
    ]


def sweeps(run) -> list[str]:
    """Sweeps that are too long for gradient noise to cancel, where the scale is known."""
    order = run.job.inputs.data.batch_order
    if run.job.inputs.coordinates is None or order.independent or order.full:
        return []
    length = order.epoch * float(health.mean_steps(run).max())
    if not length > MAX_SWEEP:
        return []
    return [
        f"{order.name} batches: an epoch takes R h = {length:.3g} in units of the posterior's scale, and gradient "
        f"noise cancels below about {MAX_SWEEP:g}; write a larger batch_size, or a smaller step_size"
    ]


def precision(run) -> list[str]:
    """Monte Carlo errors that are too large, or a goal that was not reached."""
    found = run.estimates
    if found.sd is None:
        return ["there are too many numbers for their standard deviations to be kept; give average= a few of interest"]
    still = [name for name, scale in zip(found.names, found.scale, strict=True) if not scale > 0]
    if still:
        return [f"{still[0]} did not move at all; chains need steps, starts and numbers at which they can"]
    if run.goal is not None and run.goal.error is not None:
        return [] if run.goal.reached else [run.goal.why]
    random, _ = found.farthest()
    worst = int(np.nanargmax(random)) if np.isfinite(random).any() else 0
    if random[worst] <= MAX_ERROR:
        return []
    return [
        f"the Monte Carlo error of {found.names[worst]} is {random[worst]:.2g} posterior standard deviations, more "
        f"than {MAX_ERROR}; run longer"
    ]


def unmeasured(run) -> list[str]:
    """What was not looked at."""
    text = []
    if run.job.program.chains == 1:
        text.append("one chain cannot be compared with another, so it may be in one of several modes; write chains=4")
    if run.estimates.order is None:
        text.append(
            "the bias was not measured; write coupled=4, say, so that four chains are followed at twice the step"
        )
    return text


def configurational_temperature(run) -> tuple[float, float]:
    """The mean of (z − centre) ∂U/∂z over coordinates, chains and the times it was measured at, in units of the
    dynamics' temperature, and its standard error; NaN where it was not, or where the temperature changes."""
    temperature = getattr(run.job.inputs.dynamics, "temperature", 1.0)
    if callable(temperature) or np.ndim(temperature):
        return np.nan, np.nan
    each = np.asarray(run.chain.measured, float)[run.alive]
    count = each.sum()
    if not each.size or each.max() < MIN_MEASURED:
        return np.nan, np.nan
    total, squares = (
        health.flat(jax.tree.map(lambda x: np.asarray(x, float)[run.alive].sum(0), tree), 1)[0] / count
        for tree in run.chain.virial
    )
    variance = np.maximum(squares - total**2, 0)
    T = float(temperature)
    return float(total.mean()) / T, float(np.sqrt(variance.sum() / count) / len(total)) / T
