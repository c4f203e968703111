"""How fast Strang is where users are, as ratios with their spread:  .venv/bin/python benchmarks/speed.py [ROW ...]

Every row compares things that are measured in turns, and prints the median ratio, and in brackets the least and the
largest over the turns. ROW is one of: logistic, large, first, import, orders. Data on disk, topics on several devices
and topics of new documents have scripts of their own: disk.py, processes.py, lda_transform.py.
"""

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))
TURNS = 7


def spread(ratios) -> str:
    """The median, and in brackets the extremes.

    >>> spread([1.0, 3.0, 2.0])
    '2.00 (1.00 to 3.00)'
    """
    return f"{np.median(ratios):.2f} ({np.min(ratios):.2f} to {np.max(ratios):.2f})"


def row(what: str, found: str, wanted: str) -> None:
    print(f"| {what} | {found} | {wanted} |", flush=True)


def in_turns(functions: dict, turns: int = TURNS) -> dict[str, np.ndarray]:
    """Seconds of each function, in turns; the first call of each compiles and does not count."""
    for function in functions.values():
        function()
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(turns):
        for name, function in functions.items():
            started = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - started)
    return {name: np.array(each) for name, each in seconds.items()}


def some_steps(model, rows, chains: int, steps: int, batch_order: str, **settings):
    """A function that makes so many steps of a run under way."""
    import jax
    import jax.numpy as jnp

    import strang
    from strang.sampling.chain import advance_alone as advance
    from strang.sampling.request import prepare

    data = strang.data.arrays(rows, batch_size=settings.pop("batch"), batch_order=batch_order)
    dynamics = strang.SGHMC(settings.pop("friction"))
    job = prepare(model, data, dynamics, steps=10**9, chains=chains, average=lambda q: (q, q**2), **settings)
    chain, _ = advance(job.program, job.inputs, job.chain, jnp.uint32(4096), None, jnp.uint32(1))
    stop, one = jnp.uint32(4096 + steps), jnp.uint32(1)
    return lambda: jax.block_until_ready(advance(job.program, job.inputs, chain, stop, None, one))


def logistic() -> None:
    """Logistic regression 10,000 x 20, batches of 100, 8 chains: against BlackJAX, and a loop written by hand."""
    import jax
    import jax.numpy as jnp
    from hand_written import logistic_loop
    from problem import logistic as make

    import strang
    from peers import PEERS, python_for

    problem, steps = make(), 8192
    model = strang.Model(
        lambda w: -jnp.sum(w**2) / 2,
        lambda w, row: row[1] * (row[0] @ w) - jax.nn.softplus(row[0] @ w),
        init=jnp.zeros(problem.x.shape[1]),
    )
    ours = some_steps(
        model, (problem.x, problem.y), problem.chains, steps, "iid",
        batch=problem.batch, friction=problem.friction, step_size=problem.step_size,
    )  # fmt: skip
    seconds = in_turns({"strang": ours, "by hand": logistic_loop(problem, steps)})
    python = python_for("with_blackjax.py", PEERS["with_blackjax.py"])
    rates = []
    for _ in range(3):
        done = subprocess.run(
            [python, HERE / "peers" / "with_blackjax.py", "logistic"], check=True, capture_output=True, text=True
        )
        rates.append(json.loads(done.stdout)["rate"])
    own = problem.chains * steps / np.median(seconds["strang"])
    row("logistic regression: Strang's rate over BlackJAX's", spread(own / np.array(rates)), "at least 2.5")
    row("the same: time over that of a loop by hand", spread(seconds["strang"] / seconds["by hand"]), "at most 1.5")


def large() -> None:
    """A step of large models against bare gradient and noise."""
    import step_cost

    for name, problem, batch, wanted in (
        ("network of 1e6, batch 100", step_cost.small_network, 100, "1.15 and 1.25"),
        ("network of 1e6, batch 500", step_cost.small_network, 500, "1.08 and 1.10"),
        ("wide logistic of 1e6", step_cost.wide_logistic, 10, "1.15 and 1.25"),
    ):
        found = step_cost.ratios(*problem(), batch)
        row(f"{name}: a step over gradient and noise", " and ".join(map(spread, found)), f"at most {wanted}")


FIRST = """
import time, jax, strang, numpy as np, jax.numpy as jnp
strang.sample
data = strang.data.arrays(np.random.default_rng(0).normal(size=1000).astype(np.float32), batch_size=10)
for _ in range(2):
    model = strang.Model(lambda t: -t**2 / 2, lambda t, x: -(x - t)**2 / 2, init=jnp.zeros(()))
    started = time.perf_counter()
    strang.sample(model, data, strang.SGHMC(10.0), step_size=1e-3, steps=1000, chains=4)
    print(time.perf_counter() - started)
"""


def process(code: str, **environment: str) -> tuple[float, list[float]]:
    """Seconds of a process of its own, and the numbers that it prints."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True, text=True,
        env=os.environ | environment,
    )  # fmt: skip
    return time.perf_counter() - started, [float(line) for line in done.stdout.split()]


def first() -> None:
    """Seconds from a model to its first run, in a new process without and with compiled code on disk."""
    cold = np.array([process(FIRST, STRANG_COMPILED="off")[1] for _ in range(5)])
    row("first run of a small model, seconds after the import", spread(cold[:, 0]), "1.5")
    row("the same model written anew, seconds", spread(cold[:, 1]), "1.5")
    process(FIRST)
    row("first run in a second process, seconds", spread([process(FIRST)[1][0] for _ in range(5)]), "")


def imports() -> None:
    """Imports in processes of their own, less the interpreter's start."""
    codes = {
        "nothing": "",
        "jax": "import jax",
        "strang": "import strang",
        "sample": "import strang; strang.sample",
        "help": "import sys; sys.argv = ['strang', '--help']; from strang.cli import main; main()",
    }
    run = {name: (lambda code=code: subprocess.run([sys.executable, "-c", code], capture_output=True))
           for name, code in codes.items()}  # fmt: skip
    seconds = in_turns(run)
    bare = seconds["jax"] - seconds["nothing"]
    for name, what, wanted in (
        ("strang", "`import strang` over `import jax`", "at most 1.2"),
        ("sample", "`import strang; strang.sample` over `import jax`", "at most 1.2"),
        ("help", "`strang --help` over `import jax`", "without JAX"),
    ):
        row(what, spread((seconds[name] - seconds["nothing"]) / bare), wanted)


def orders() -> None:
    """Sweeps on the paper's Gaussian model against independent batches."""
    import jax.numpy as jnp
    from problem import gaussian

    import strang

    problem = gaussian()
    model = strang.Model(lambda t: -(t**2) / 2, lambda t, x: -((x - t) ** 2) / 2, init=jnp.zeros(()))
    make = partial(
        some_steps, model, problem.x, problem.chains, 1 << 14,
        batch=problem.batch, friction=problem.friction, step_size=problem.step_size,
    )  # fmt: skip
    seconds = in_turns({order: make(batch_order=order) for order in ("iid", "reshuffled", "symmetric", "cyclic")})
    for order in ("reshuffled", "symmetric"):
        row(f"{order} batches: rate over that of iid ones", spread(seconds["iid"] / seconds[order]), "at least 0.7")
    rate = problem.chains * (1 << 14) / seconds["iid"].min() / 1e6
    row("iid batches, million chain-steps per second", f"{rate:.1f} at most", "")


ROWS = {"logistic": logistic, "large": large, "first": first, "import": imports, "orders": orders}


def main() -> None:
    print("| work | measured | wanted |\n|---|---|---|")
    for name in sys.argv[1:] or ROWS:
        ROWS[name]()


if __name__ == "__main__":
    main()
