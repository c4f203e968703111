"""Data on disk against the same data in memory, and what the number of rows costs.

    .venv/bin/python benchmarks/disk.py [--small]

First: steps of `strang.sample` on a network whose gradient takes about a millisecond of a core, from memory and from a
file in turns in one process; the ratio counts, and the share of the time that the run waits for rows. Once with one
thread computing, so that reading has a core of its own where there are two, and once with all cores computing, which
then lose what reading costs. Second: a file of 1e4, 1e6 and 1e8 rows, each sampled in a process of its own: what a step
costs, and the most memory that it ever had.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import strang
from strang.run.result import finish
from strang.sampling.request import prepare

ROUNDS, FEATURES, BATCH = 15, 256, 256


def network(position, x):
    for weights in position[:-1]:
        x = jnp.tanh(x @ weights)
    return x @ position[-1]


def model(*sizes: int):
    generator = np.random.default_rng(0)
    shapes = [*itertools.pairwise(sizes), sizes[-1:]]
    return strang.Model(
        lambda position: -sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(position)) / 2,
        lambda position, row: -((network(position, row[:-1]) - row[-1]) ** 2) / 2,
        init=[generator.normal(size=shape).astype(np.float32) / shape[0] ** 0.5 for shape in shapes],
    )


def write(path: Path, rows: int, *shape: int) -> None:
    """Normal numbers, some at a time."""
    generator, piece = np.random.default_rng(1), 1 << 20
    file = np.lib.format.open_memmap(path, "w+", np.float32, (rows, *shape))
    for at in range(0, rows, piece):
        file[at : at + piece] = generator.standard_normal((min(piece, rows - at), *shape), np.float32)
    file.flush()


def against_memory(folder: Path, rows: int, steps: int) -> None:
    """Seconds and CPU seconds per step from memory and from disk, in turns."""
    path, how = folder / "rows.npy", {"batch_size": BATCH, "batch_order": "reshuffled"}
    if not path.exists():
        write(path, rows, FEATURES + 1)
    sources = {"memory": strang.data.arrays(np.load(path), **how), "disk": strang.data.files(path, **how)}
    sources["disk"].verify()
    chosen = model(FEATURES, 192)
    jobs = {
        name: prepare(chosen, data, strang.SGHMC(10.0), step_size=1e-6, steps=steps, average=None)
        for name, data in sources.items()
    }
    rounds = []
    for _ in range(ROUNDS):
        found = {}
        for name, job in jobs.items():
            began = time.process_time()
            run = finish(job, False)
            found[name] = run.seconds / steps, (time.process_time() - began) / steps, run.waiting
        rounds.append(found)
    best = {name: min(each[name][0] for each in rounds) for name in jobs}
    cpu = {name: min(each[name][1] for each in rounds) for name in jobs}
    waiting = float(np.median([each["disk"][2] for each in rounds]))
    computing = "one thread computes" if os.environ.get("NPROC") == "1" else "all cores compute"
    size = f"{path.stat().st_size / 1e6:.0f} MB, {rows:,} rows"
    print(f"{computing}; {size}, batches of {BATCH}, {steps} steps, best of {ROUNDS} rounds")
    for name in jobs:
        print(f"  from {name}: {1e3 * best[name]:.2f} ms per step, {1e3 * cpu[name]:.2f} ms of CPU")
    ratio = best["memory"] / best["disk"]
    print(f"  throughput from disk: {ratio:.3f} of memory's; waiting for data {100 * waiting:.1f} % of the time")


def one_size(path: str, steps: int) -> None:
    """In a process of its own: seconds per step, and the most memory ever."""
    data = strang.data.files(path, batch_size=BATCH, batch_order="reshuffled")
    data.verify()
    job = prepare(model(1, 256, 128), data, strang.SGHMC(10.0), step_size=1e-9, steps=steps, average=None)
    finish(replace(job, steps=10), False)  # compiles
    began = time.process_time()
    run = finish(job, False)
    cpu = time.process_time() - began
    # getrusage would count the process that started this one too.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    memory = int(status["VmHWM"].split()[0]) / 1024
    print(json.dumps([run.seconds / steps, cpu / steps, memory, run.waiting]))


def sizes(folder: Path, counts: list[int], steps: int) -> None:
    for rows in counts:
        path = folder / f"{rows}.npy"
        write(path, rows, 2)
        command = [sys.executable, __file__, "--one", str(path), str(steps)]
        answer = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
        seconds, cpu, memory, waiting = json.loads(answer.stdout)
        print(
            f"{rows:>11,} rows, {path.stat().st_size / 1e6:>6.1f} MB: {1e3 * seconds:.2f} ms per step, "
            f"{1e3 * cpu:.2f} ms of CPU, {memory:.0f} MB at most, waiting {100 * waiting:.0f} % of the time"
        )
        path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true", help="fewer rows and steps")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--against-memory", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        return one_size(given.one[0], int(given.one[1]))
    if given.against_memory:
        return against_memory(given.against_memory, *((20_000, 200) if given.small else (200_000, 500)))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--against-memory", folder, *(["--small"] if given.small else [])]
        for threads in ({"NPROC": "1"}, {}):
            subprocess.run(command, check=True, env={**os.environ, **threads})
        sizes(Path(folder), [10**4, 10**6] if given.small else [10**4, 10**6, 10**8], 500)
    return None


if __name__ == "__main__":
    main()
