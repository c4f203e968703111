"""A model and data are enough, against NUTS:  .venv/bin/python benchmarks/posteriors.py [problems ...]

Each problem in Strang by `strang.sample(model, data)` alone and in NumPyro's NUTS with a dense mass matrix, one after
the other in one go: both times with compilation, and how far means and standard deviations are apart, in units of the
posterior. For `large-1e5` and the like Strang is asked for an error of 0.05, and NUTS is given 1000 iterations, or 130
above 200,000 rows; its time for 400 effective draws, which is that error, is extrapolated where it has fewer, and said
to be.
"""

import json
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

import strang

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE / "peers")]

from posterior_models import problem  # noqa: E402

from peers import python_for  # noqa: E402

SMALL = ["breast_cancer", "breast_cancer-raw", "diabetes", "wine", "digits"]
NUMPYRO = ["jax==0.10.2", "numpyro", "scikit-learn"]


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
    return {
        "mean": columns["mean"], "sd": columns["sd"], "ess": columns["ess"].min(), "seconds": seconds,
        "tuning": run.tuning.seconds, "trusted": run.trusted, "reasons": run.reasons,
    }  # fmt: skip


def with_nuts(name: str, chains: int, warmup: int, draws: int) -> dict:
    """Means, standard deviations, seconds and the fewest effective draws, by NUTS in an environment of its own."""
    python, script = python_for("with_numpyro.py", NUMPYRO), HERE / "peers" / "with_nuts.py"
    command = [python, script, name, str(chains), str(warmup), str(draws)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=HERE / "peers")
    return json.loads(done.stdout.splitlines()[-1])


def compare(name: str) -> None:
    """Agreement and times on a small problem."""
    print(name, flush=True)
    ours, theirs = with_strang(name, None), with_nuts(name, 4, 1000, 4000)
    sd = np.array(theirs["sd"])
    off, wide = np.abs(ours["mean"] - theirs["mean"]) / sd, np.abs(ours["sd"] / sd - 1)
    noise = 1 / np.sqrt(theirs["ess"])
    print(
        f"  means differ by at most {off.max():.3f} sd, sds by {100 * wide.max():.1f} % (NUTS's own errors: "
        f"{noise:.3f} and {100 * noise / np.sqrt(2):.1f} %); trusted {ours['trusted']} {ours['reasons'][:1] or ''}\n"
        f"  Strang {ours['seconds']:.1f} s (tuning {ours['tuning']:.1f}), ESS {ours['ess']:,.0f}; NUTS "
        f"{theirs['seconds']:.1f} s, ESS {theirs['ess']:,.0f}, {theirs['gradients']:,} gradients after warm-up",
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
    short = theirs["ess"] < 400
    needed = theirs["seconds"] * (400 / theirs["ess"] if short else 1)
    effective = 400 if short else theirs["ess"]
    off = (np.abs(ours["mean"] - theirs["mean"]) / ours["sd"]).max()
    print(
        f"  NUTS {theirs['seconds']:.1f} s for {warmup} + {made} iterations, effective draws {theirs['ess']:.0f}; "
        f"for {effective:.0f} {needed:.0f} s{' (extrapolated)' * short}: {effective / needed:.2f} per second\n"
        f"  Strang {rate * needed / effective:.0f} times as fast; means differ by at most {off:.2f} sd",
        flush=True,
    )


if __name__ == "__main__":
    for each in sys.argv[1:] or SMALL:
        (race if each.startswith("large-") else compare)(each)
