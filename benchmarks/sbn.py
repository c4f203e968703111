"""The cost of a belief network: one iteration against hidden units, batch and sweeps; against the best plain compiled
loop; and annealed importance sampling. CPU seconds of one thread, the least of several, in one run.

    python benchmarks/sbn.py
"""

import os
import time

os.environ["NUMBA_NUM_THREADS"] = os.environ["NPROC"] = "1"

import jax.numpy as jnp
import numpy as np

import strang
from strang.sampling.chain import advance_alone as advance
from strang.sampling.request import prepare
from strang.sbn.kernels import gibbs as kernel
from strang.sbn.model import SBN
from strang.util.host_random import streams

PIXELS = 784
rng = np.random.default_rng(0)
IMAGES = (rng.random((2000, PIXELS)) < 0.13).astype(np.uint8)


def least(function, times: int = 5) -> float:
    """The least CPU seconds of several calls."""
    function()
    found = []
    for _ in range(times):
        started = time.process_time()
        function()
        found.append(time.process_time() - started)
    return min(found)


def iteration(hidden: int, batch: int, sweeps: int, steps: int = 10) -> float:
    """CPU milliseconds of one SGHMC iteration: batch, sweeps, gradient, step."""
    data = strang.data.arrays(IMAGES, batch_size=batch)
    job = prepare(
        SBN(hidden, PIXELS, sweeps=sweeps), data, strang.SGHMC(friction=36.0), step_size=1e-5, steps=100, average=None
    )
    first, _ = advance(job.program, job.inputs, job.chain, jnp.uint32(1))
    return 1e3 * least(lambda: advance(job.program, job.inputs, first, jnp.uint32(1 + steps))[0].step.item()) / steps


def bare_sweep(hidden: int, batch: int) -> float:
    """CPU milliseconds of the compiled sweep alone, called from Python."""
    weights = (0.1 * rng.normal(size=(PIXELS, hidden))).astype(np.float32)
    seeds = streams(np.array([1, 2], np.uint32), batch)
    rows, prior, bias = IMAGES[:batch].astype(bool), np.zeros(hidden, np.float32), np.zeros(PIXELS, np.float32)
    return 1e3 * least(lambda: kernel.gibbs(rows, None, weights, prior, bias, seeds, 1))


def annealing(hidden: int, temperatures: int = 100, images: int = 50) -> float:
    """CPU minutes of AIS for 10,000 images at T = 1000, from a part of it."""
    model = {"W": 0.5 * rng.normal(size=(PIXELS, hidden)), "b": np.zeros(hidden), "c": np.full(PIXELS, -2.0)}
    settings = {"temperatures": temperatures, "progress": False}
    seconds = least(lambda: strang.sbn.log_likelihood(model, IMAGES[:images], **settings), 3)
    return seconds * (10_000 / images) * (1000 / temperatures) / 60


if __name__ == "__main__":
    print("one iteration, CPU ms: J, batch, sweeps")
    for setting in ((100, 200, 1), (200, 200, 1), (400, 200, 1), (100, 400, 1), (100, 200, 3), (100, 200, 5)):
        print(f"{setting!s:18}{iteration(*setting):8.2f}")
    print(f"the compiled sweep alone, J = 100, batch 200: {bare_sweep(100, 200):.2f} ms")
    for hidden in (100, 200):
        print(f"AIS of 10,000 images, T = 1000, J = {hidden}: {annealing(hidden):.1f} CPU minutes of one core")
