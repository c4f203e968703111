"""What a step costs beyond its gradient and its noise, for models with a million parameters.

    .venv/bin/python benchmarks/step_cost.py

One SGHMC step of `strang.sample` (batch, gradient, noise, update, averages, divergence check) against the bare jitted
minibatch gradient plus the bare drawing of a million normals, interleaved in one process; the ratio is what counts.
Two readings of "bare": jitted functions that are called, as in a loop of one's own, and the harder one, each alone in a
compiled loop that never hands its arrays back. Steps are those of a run under way: what is averaged is added up over
256 of them, as it is from step 8192 on, and the loops have as many.
"""

import itertools
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import strang
from strang.gradients.full import batch_gradient
from strang.sampling import averages
from strang.sampling.chain import advance_alone as advance
from strang.sampling.request import prepare
from strang.util import random

STEPS, ROUNDS = 256, 7
AVERAGES = {"no average": None, "averaging all": lambda position: position}
BARE = ("called", "looped")


def network(position, x):
    for k, (weights, bias) in enumerate(position):
        x = x @ weights + bias
        x = jnp.tanh(x) if k < len(position) - 1 else x
    return x


def small_network():
    """784-1000-200-10 with a softmax: 987,210 parameters."""
    sizes, rows, generator = (784, 1000, 200, 10), 5000, np.random.default_rng(0)
    start = [
        (generator.normal(size=shape).astype(np.float32) / np.sqrt(shape[0]), np.zeros(shape[1], np.float32))
        for shape in itertools.pairwise(sizes)
    ]
    model = strang.Model(
        lambda position: -sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(position)) / 2,
        lambda position, row: jax.nn.log_softmax(network(position, row[0]))[row[1]],
        init=start,
    )
    return model, (generator.normal(size=(rows, 784)).astype(np.float32), generator.integers(10, size=rows))


def wide_logistic():
    """Logistic regression on a million features."""
    rows, features, generator = 100, 1_000_000, np.random.default_rng(0)
    x = generator.standard_normal((rows, features), np.float32)
    y = generator.integers(2, size=rows).astype(np.float32)
    return strang.models.Logistic(features, prior_var=1.0), (x, y)


def seconds(function) -> float:
    started = time.perf_counter()
    jax.block_until_ready(function())
    return (time.perf_counter() - started) / STEPS


def measure(model, rows, batch: int) -> tuple[list[dict[str, float]], int]:
    """Seconds of each way in every round, and the number of parameters."""
    data = strang.data.arrays(rows, batch_size=batch)
    jobs = {
        what: prepare(model, data, strang.SGHMC(10.0), step_size=1e-6, steps=10**6, average=average)
        for what, average in AVERAGES.items()
    }
    position = jax.tree.map(lambda x: x[0], jobs["no average"].chain.state.position)
    keys = random.chain_keys(0, 1)

    def gradient(position, data, l):
        return batch_gradient(model, position, data.get(keys.batch[0], l), None)

    def noise(position, l):
        return random.normals(keys.noise[0], l, position, 1)[0]

    def called(function):
        compiled = jax.jit(function)
        return lambda *given: [jax.block_until_ready(compiled(*given, jnp.uint32(l))) for l in range(STEPS)][-1]

    def looped(function):
        """Adding a little of each result keeps the compiler from leaving any out."""

        @jax.jit
        def run(position, *given):
            def body(l, position):
                result = function(position, *given, l.astype(jnp.uint32))
                return jax.tree.map(lambda x, y: x - 1e-9 * y, position, result)

            return jax.lax.fori_loop(0, STEPS, body, position)

        return run

    def steps(job):
        """Some steps of a run under way: not the first, with which the gradient's noise is measured."""
        chain, _ = advance(job.program, job.inputs, job.chain, jnp.uint32(1), None, jnp.uint32(1))
        longest = averages.LONGEST_BLOCK // averages.SHORTEST_BLOCK
        chain = jax.block_until_ready(chain._replace(average=chain.average._replace(length=jnp.uint32(longest))))
        return lambda: advance(job.program, job.inputs, chain, jnp.uint32(1 + STEPS), None, jnp.uint32(1))

    bare = dict(zip(BARE, (called, looped), strict=True))
    runs = {f"gradient {how}": partial(make(gradient), position, data) for how, make in bare.items()}
    runs |= {f"noise {how}": partial(make(noise), position) for how, make in bare.items()}
    runs |= {what: steps(job) for what, job in jobs.items()}
    for function in runs.values():
        jax.block_until_ready(function())
    count = sum(x.size for x in jax.tree.leaves(position))
    return [{what: seconds(function) for what, function in runs.items()} for _ in range(ROUNDS)], count


def ratios(model, rows, batch: int) -> list[list[float]]:
    """For each round, a step over gradient and noise in loops of their own: without an average, and averaging all."""
    rounds, _ = measure(model, rows, batch)
    return [[one[what] / (one["gradient looped"] + one["noise looped"]) for one in rounds] for what in AVERAGES]


def compare(name: str, model, rows, batch: int) -> None:
    rounds, count = measure(model, rows, batch)
    best = {what: 1e3 * min(one[what] for one in rounds) for what in rounds[0]}
    print(f"{name}, {count:,} parameters, batch {batch}")
    for how in BARE:
        print(f"  {how}: gradient {best[f'gradient {how}']:.2f} ms, noise {best[f'noise {how}']:.2f} ms")
    for what in AVERAGES:
        found = [best[what] / (best[f"gradient {how}"] + best[f"noise {how}"]) for how in BARE]
        print(f"  one step, {what}: {best[what]:.2f} ms, {found[0]:.3f} times called, {found[1]:.3f} times looped")


def main() -> None:
    for batch in (100, 500):
        compare("network", *small_network(), batch)
    compare("logistic", *wide_logistic(), 10)


if __name__ == "__main__":
    main()
