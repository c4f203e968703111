"""A model and data are enough, against NUTS:  .venv/bin/python benchmarks/posteriors.py [problems ...]

Each problem in Strang by `strang.sample(model, data)` alone and in NumPyro's NUTS with a dense mass matrix, one after
the other in one go: both times with compilation, and how far means and standard deviations are apart, in units of the
posterior. For `large-1e5` and the like Strang is asked for an error of 0.05, and NUTS is given 1000 iterations, or 130
above 200,000 rows; its time for 400 effective draws, which is that error, is extrapolated where it has fewer, and said
to be, and not given at all where its means show that it has not converged. `sghmc-large-1e5` is the race to that error
against BlackJAX's SGHMC at the best of 25 settings.
"""

import json
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

import strang

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE / "peers")]

from posterior_models import problem  # noqa: E402

from peers import PEERS, python_for  # noqa: E402

SMALL = ["breast_cancer", "breast_cancer-raw", "diabetes", "wine", "digits"]
NUMPYRO = ["jax==0.10.2", "numpyro", "scikit-learn"]
MEAN_BAR, SD_BAR = 0.1, 0.05  # posterior standard deviations; both samplers' Monte Carlo errors come on top
CELL_SECONDS, FINAL_SECONDS = 3.0, 90.0  # for each setting of SGHMC, and for the best two again


class Effort(NamedTuple):
    """What both samplers are asked for; `error` is Strang's, None for its own choice, and the rest is for NUTS."""

    chains: int = 4
    warmup: int = 1000
    draws: int = 4000
    mass: str = "dense"
    error: float | None = None


# A dense mass matrix of 650 parameters needs windows of many more draws than that. With 600 + 100 iterations every
# trajectory had the largest length allowed, 1023 gradients, and the fewest effective draws were 4 after 170 s; 2500 +
# 1000 iterations did not end in 25 minutes. Prior and posterior have similar scales, so a diagonal one is enough.
EFFORTS = {"digits": Effort(mass="diagonal", error=0.02)}


def with_strang(name: str, error: float | None) -> dict:
    """The same as `with_nuts` gives, by Strang."""
    posterior = problem(name)
    model = strang.Model(posterior.log_prior, posterior.log_likelihood, init=posterior.init)
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", strang.TrustWarning)
        run = strang.sample(model, posterior.rows, error=error, progress=False)
    seconds, columns = time.perf_counter() - started, run.summary().columns
    print(f"  {str(run.tuning).splitlines()[0]}", flush=True)
    errors = {
        "mean_error": run.estimates.mean.error / columns["sd"],
        "sd_error": run.estimates.sd.error / columns["sd"],
    }
    return errors | {
        "mean": columns["mean"], "sd": columns["sd"], "ess": columns["ess"].min(), "seconds": seconds,
        "tuning": run.tuning.seconds, "trusted": run.trusted, "reasons": run.reasons,
    }  # fmt: skip


def with_nuts(name: str, chains: int, warmup: int, draws: int, mass: str = "dense") -> dict:
    """Means, standard deviations, seconds and the fewest effective draws, by NUTS in an environment of its own."""
    python, script = python_for("with_numpyro.py", NUMPYRO), HERE / "peers" / "with_nuts.py"
    command = [python, script, name, str(chains), str(warmup), str(draws), mass]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=HERE / "peers")
    return json.loads(done.stdout.splitlines()[-1])


def largest_noise(errors: np.ndarray) -> float:
    """The largest of independent normal errors with these standard deviations, in the median of many draws."""
    draws = np.random.default_rng(0).normal(size=(2000, len(errors)))
    return float(np.median(np.abs(draws * errors).max(axis=1)))


def spread(differences: np.ndarray, noise: float, bar: float) -> str:
    """The largest, 99 % quantile and median of differences, beside the largest that noise alone would give."""
    largest, high, median = differences.max(), np.quantile(differences, 0.99), np.median(differences)
    verdict = "within" if largest <= bar else "within noise of" if largest <= bar + noise else "MORE THAN"
    return (
        f"at most {largest:.3f}, 99 % of them {high:.3f}, median {median:.3f} (noise alone: at most about "
        f"{noise:.3f}); {verdict} {bar:g}"
    )


def compare(name: str) -> None:
    """Agreement and times on a small problem."""
    print(name, flush=True)
    effort = EFFORTS.get(name, Effort())
    ours = with_strang(name, effort.error)
    theirs = with_nuts(name, effort.chains, effort.warmup, effort.draws, effort.mass)
    sd, own = np.array(theirs["sd"]), 1 / np.sqrt(theirs["ess"])
    off, wide = np.abs(ours["mean"] - theirs["mean"]) / sd, np.abs(ours["sd"] / sd - 1)
    mean_noise = largest_noise(np.hypot(ours["mean_error"], own))
    sd_noise = largest_noise(np.hypot(ours["sd_error"], own / np.sqrt(2)))
    print(
        f"  means in posterior sds: {spread(off, mean_noise, MEAN_BAR)}\n"
        f"  sds, relative: {spread(wide, sd_noise, SD_BAR)}\n"
        f"  trusted {ours['trusted']} {ours['reasons'][:1] or ''}; NUTS's own errors: {own:.3f} and "
        f"{100 * own / np.sqrt(2):.1f} %{', TOO FEW DRAWS TO JUDGE' * (theirs['ess'] < 400)}\n"
        f"  Strang {ours['seconds']:.1f} s (tuning {ours['tuning']:.1f}), ESS {ours['ess']:,.0f}; NUTS with a "
        f"{theirs.get('mass', 'dense')} mass matrix {theirs['seconds']:.1f} s, ESS {theirs['ess']:,.0f}, "
        f"{theirs['gradients']:,} gradients after warm-up",
        flush=True,
    )


def race(name: str) -> None:
    """Effective draws per second, with everything, to an error of 0.05."""
    print(name, flush=True)
    ours = with_strang(name, 0.05)
    rate = ours["ess"] / ours["seconds"]
    took = f"{ours['seconds']:.1f} s (tuning {ours['tuning']:.1f})"
    print(f"  Strang {took}, fewest effective draws {ours['ess']:,.0f}: {rate:.1f} per second", flush=True)
    warmup, made = (500, 500) if float(name.removeprefix("large-")) <= 200_000 else (100, 30)
    theirs = with_nuts(name, 1, warmup, made)
    off = (np.abs(ours["mean"] - theirs["mean"]) / ours["sd"]).max()
    print(
        f"  NUTS {theirs['seconds']:.1f} s for {warmup} + {made} iterations, effective draws {theirs['ess']:.0f}, "
        f"{theirs['gradients']:,} gradients after warm-up; means differ by at most {off:.2f} sd\n"
        f"  {verdict(ours, theirs, off)}",
        flush=True,
    )


def verdict(ours: dict, theirs: dict, off: float) -> str:
    """How many times as fast Strang is, if NUTS agrees with it: the ESS of a chain on its way there means nothing."""
    if off > 5 / np.sqrt(theirs["ess"]) + 0.25:
        return "NUTS has not converged in these iterations: no ratio can be given"
    short = theirs["ess"] < 400
    effective = 400 if short else theirs["ess"]
    needed = theirs["seconds"] * effective / theirs["ess"]
    faster = ours["ess"] / ours["seconds"] * needed / effective
    return (
        f"NUTS needs {needed:.0f} s for {effective:.0f}{' (extrapolated)' * short}: {effective / needed:.2f} per "
        f"second; Strang is {needed / ours['seconds']:.0f} times as fast to an error of 0.05, {faster:.0f} times per "
        "effective draw"
    )


def with_sghmc(name: str, coordinates: str, reference: dict) -> dict:
    """How far BlackJAX's SGHMC comes in its best setting, by its script in an environment of its own."""
    python, script = python_for("with_blackjax.py", PEERS["with_blackjax.py"]), HERE / "peers" / "with_sghmc.py"
    command = [python, script, name, coordinates, str(CELL_SECONDS), str(FINAL_SECONDS)]
    given = json.dumps({key: reference[key].tolist() for key in ("mean", "sd")})
    done = subprocess.run(command, check=True, capture_output=True, input=given, text=True, cwd=HERE / "peers")
    return json.loads(done.stdout.splitlines()[-1])


def outcome(best: dict, ours: float) -> str:
    """How long a setting took to an error of 0.05, or how far it came, beside the seconds that Strang took."""
    seconds = best["reached"] or best["seconds"]
    times = f"{seconds:.1f} s, {seconds / ours:.1f} times Strang's"
    if best["reached"]:
        return f"0.05 reached after {times}: {400 / seconds:.1f} per second"
    return (
        f"0.05 NOT REACHED within {times}: fewer than {400 / seconds:.1f} per second; then means are off by up to "
        f"{best['mean_error']:.2f} sd, sds by {100 * best['sd_error']:.0f} %, the larger never was below "
        f"{best['least']:.2f}, and {100 * best['within']:.0f} % of the parameters have both within 0.05"
    )


def race_sghmc(name: str) -> None:
    """Effective draws per second, with everything, to an error of 0.05, against BlackJAX's SGHMC at its best."""
    print(f"{name}, against BlackJAX's SGHMC", flush=True)
    ours, reference = with_strang(name, 0.05), with_strang(name, 0.02)
    off = (np.abs(ours["mean"] - reference["mean"]) / reference["sd"]).max()
    wide = np.abs(ours["sd"] / reference["sd"] - 1).max()
    print(
        f"  Strang {ours['seconds']:.1f} s (tuning {ours['tuning']:.1f}), fewest effective draws {ours['ess']:,.0f}: "
        f"{ours['ess'] / ours['seconds']:.1f} per second; means are off by up to {off:.3f} sd, sds by "
        f"{100 * wide:.1f} %, from its run for 0.02, the reference ({reference['seconds']:.1f} s, trusted "
        f"{reference['trusted']} {reference['reasons'][:1] or ''})",
        flush=True,
    )
    for coordinates in ("plain", "scaled"):
        best = with_sghmc(name, coordinates, reference)
        print(
            f"  SGHMC in {coordinates} coordinates (condition number {best['condition']:.2g}) from the mode, best of "
            f"{best['settings']} settings: step {best['relative']:g} / sqrt(largest curvature), friction "
            f"{best['damping']:g} / step, {best['steps']:,} steps of {best['chains']} chains\n"
            f"    {outcome(best, ours['seconds'])}",
            flush=True,
        )


if __name__ == "__main__":
    for each in sys.argv[1:] or SMALL:
        if each.startswith("sghmc-"):
            race_sghmc(each.removeprefix("sghmc-"))
        else:
            (race if each.startswith("large-") else compare)(each)
