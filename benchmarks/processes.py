"""What a step costs when processes or devices share its minibatch, or devices its chains, and how much they send.

    python benchmarks/processes.py              # 1 and 2 processes, 1 and 2 devices
    python benchmarks/processes.py 1 2 4        # so many processes
    python benchmarks/processes.py --only "4000 documents"

A small model (a Gaussian mean: all waiting), a network of a million weights, and 200 topics over 7702 words with
batches of 1000 and of 4000 documents. A minibatch has a part for each process, as is the default; a single process
does not cut it at all. Every process computes on one core of its own, as far as there are cores. One and several take
turns: the ratios have the median and the range over the turns, each of which counts its fastest block of steps.
"""

import json
import os
import subprocess
import sys
import time

from strang.parallel import processes
from strang.parallel.launch import STRANG

WIDTHS = (784, 1000, 210, 10)
NUMBERS = {"gaussian": 1, "network": 997_320, "1000 documents": 200 * 7702, "4000 documents": 200 * 7702}
STEPS = {"gaussian": 2000, "network": 5, "1000 documents": 2, "4000 documents": 4}  # per block
BLOCKS, TURNS = 8, 3


def job_of(name: str, devices):
    import numpy as np

    import strang
    from strang.run.api import request

    rng = np.random.default_rng(0)
    settings = {"average": None, "steps": 10**6, "devices": devices}
    if name == "gaussian":
        data = strang.data.arrays(rng.normal(size=1000).astype(np.float32), batch_size=100)
        return request(strang.models.Gaussian(), data, strang.SGHMC(friction=10.0), step_size=1e-3, **settings)
    if name == "network":
        rows = rng.normal(size=(5000, 784)).astype(np.float32), rng.integers(10, size=5000).astype(np.int32)
        data = strang.data.arrays(rows, batch_size=1000)
        return request(strang.models.BNN(WIDTHS), data, strang.SGHMC(friction=10.0), step_size=1e-4, **settings)
    from strang.lda import from_csr

    words = [f"w{k}" for k in range(7702)]
    batch = int(name.split()[0])
    indices = np.concatenate([rng.choice(7702, 100, replace=False) for _ in range(4 * batch)])
    corpus = from_csr(np.arange(0, len(indices) + 1, 100), indices, np.ones(len(indices), int), words)
    model = strang.lda.TopicModel(200, 7702, parametrisation="expanded-mean", documents=corpus)
    data = strang.data.arrays(np.arange(4 * batch, dtype=np.uint32), batch_size=batch, batch_order="reshuffled")
    return request(model, data, strang.SGRLD(), step_size=1e-4, **settings)


def measure(name: str, devices: int) -> None:
    """Seconds per step in this process, printed by the first; so many devices of a single process share it."""
    cores = sorted(os.sched_getaffinity(0))
    if devices == 1:
        os.sched_setaffinity(0, {cores[int(os.environ.get(processes.RANK, 0)) % len(cores)]})
    processes.start()
    if devices > 1:
        import jax

        jax.config.update("jax_num_cpu_devices", devices)
    from strang.run.driver import runner_of

    runner = runner_of(job_of(name, 1 if devices == 1 else (1, devices)))
    runner.advance(2)  # compiles
    best = work = float("inf")
    for k in range(BLOCKS):
        started, worked = time.perf_counter(), time.process_time()
        runner.advance(2 + (k + 1) * STEPS[name])
        best = min(best, time.perf_counter() - started)
        work = min(work, time.process_time() - worked)
    if processes.rank() == 0:
        print(json.dumps({"seconds": best / STEPS[name], "cpu": work / STEPS[name]}))


def measure_devices(count: int) -> None:
    """Seconds per step of the paper's Gaussian model with 200 chains."""
    import jax

    jax.config.update("jax_num_cpu_devices", count)
    import numpy as np

    import strang
    from strang.run.api import request
    from strang.run.driver import runner_of

    data = strang.data.arrays(np.random.default_rng(0).normal(size=1000).astype(np.float32), batch_size=10)
    settings = {"step_size": 1e-3, "chains": 200, "steps": 10**6, "average": None, "devices": count}
    runner = runner_of(request(strang.models.Gaussian(), data, strang.SGHMC(friction=10.0), **settings))
    runner.advance(256)
    started = time.perf_counter()
    runner.advance(20_000)
    print(json.dumps({"seconds": (time.perf_counter() - started) / 19_744}))


def ask(*command: str) -> dict[str, float]:
    return ask_at_once(command)[0]


def ask_at_once(*commands: tuple[str, ...]) -> list[dict[str, float]]:
    one = dict.fromkeys(("NPROC", "NUMBA_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **one}) for command in commands]
    printed = [process.communicate()[0] for process in started]
    return [json.loads(text) for text in printed]


def measure_limit(alone: float, *command: str) -> str:
    """What two cores can give: two runs at once that share nothing, over one run alone."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    both = ask_at_once(*(("taskset", "-c", str(core), *command) for core in cores))
    return f"{sum(alone / each['seconds'] for each in both):.2f}"


def main(counts: list[int], names: list[str]) -> None:
    for name in names:
        command = sys.executable, __file__, "--measure", name
        launched = {
            f"{count} process{'es' * (count > 1)}": (*STRANG, "launch", "-n", str(count), "--", *command, "1")
            for count in counts
        }
        ways = {**launched, "2 devices of one process": (*command, "2")}
        turns = [{what: ask(*line) for what, line in ways.items()} for _ in range(TURNS)]
        first = next(iter(launched))
        for what in turns[0]:
            faster = sorted(turn[first]["seconds"] / turn[what]["seconds"] for turn in turns)
            less = sorted(turn[first]["cpu"] / turn[what]["cpu"] for turn in turns)
            milliseconds = 1e3 * min(turn[what]["seconds"] for turn in turns)
            print(
                f"{name}: {what}: {milliseconds:.3g} ms per step, {faster[TURNS // 2]:.2f} times as fast "
                f"({faster[0]:.2f} to {faster[-1]:.2f}), {less[TURNS // 2]:.2f} times less CPU time of a process",
                flush=True,
            )
        limits = [measure_limit(turn[first]["seconds"], *command, "1") for turn in turns]
        print(f"  two runs at once that share nothing, over one alone: {', '.join(limits)}", flush=True)
        print(f"  every one of 2 receives {4 * NUMBERS[name]:,} bytes per step", flush=True)
    for count in (1, 2) if len(names) > 1 else ():
        seconds = ask(sys.executable, __file__, "--devices", str(count))["seconds"]
        print(f"200 chains on {count} device{'s' * (count > 1)}: {200 / seconds:,.0f} chain-steps per second")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--measure", name, devices]:
            measure(name, int(devices))
        case ["--devices", count]:
            measure_devices(int(count))
        case ["--only", name]:
            main([1, 2], [name])
        case counts:
            main([int(count) for count in counts] or [1, 2], list(NUMBERS))
