"""What a step costs beyond its gradient and its noise, for models with a million parameters.

    .venv/bin/python benchmarks/step_cost.py

One SGHMC step of `strang.sample` (batch, gradient, noise, update, averages, divergence check) against the bare jitted
minibatch gradient plus the bare drawing of a million normals, interleaved in one process; the ratio is what counts.
"""

import itertools
import time

import jax
import jax.numpy as jnp
import numpy as np

import strang
from strang import random
from strang.chain import advance
from strang.gradient import batch_gradient
from strang.prepare import prepare

STEPS, ROUNDS = 64, 7


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


def compare(name: str, model, rows, batch: int) -> None:
    data = strang.data.arrays(rows, batch=batch)
    jobs = {
        what: prepare(model, data, strang.SGHMC(10.0), step_size=1e-6, steps=10**6, average=average)
        for what, average in (("no average", None), ("averaging all", lambda position: position))
    }
    position = jax.tree.map(lambda x: x[0], jobs["no average"].chain.state.position)
    keys = random.chain_keys(0, 1)

    @jax.jit
    def gradients(position, data):
        """The bare gradient on a new batch each time; taking a tiny step keeps the compiler from leaving any out."""

        def body(l, position):
            slope = batch_gradient(model, position, data.get(keys.batch[0], l.astype(jnp.uint32)), None)
            return jax.tree.map(lambda x, g: x - 1e-9 * g, position, slope)

        return jax.lax.fori_loop(0, STEPS, body, position)

    @jax.jit
    def noises(position):
        def body(l, total):
            drawn = random.normals(keys.noise[0], l.astype(jnp.uint32), position, 1)[0]
            return jax.tree.map(jnp.add, total, drawn)

        return jax.lax.fori_loop(0, STEPS, body, position)

    def steps(job):
        """Some steps of a run under way: not the first, with which the gradient's noise is measured."""
        chain = jax.block_until_ready(
            advance(job.program, job.inputs, job.chain, jnp.uint32(1), None, jnp.uint32(1))[0]
        )
        return lambda: advance(job.program, job.inputs, chain, jnp.uint32(1 + STEPS), None, jnp.uint32(1))

    runs = {"gradient": lambda: gradients(position, data), "noise": lambda: noises(position)}
    runs |= {what: steps(job) for what, job in jobs.items()}
    for function in runs.values():
        jax.block_until_ready(function())
    rounds = [{what: seconds(function) for what, function in runs.items()} for _ in range(ROUNDS)]
    best = {what: min(one[what] for one in rounds) for what in runs}
    count = sum(x.size for x in jax.tree.leaves(position))
    print(
        f"{name}, {count:,} parameters, batch {batch}: "
        f"gradient {1e3 * best['gradient']:.2f} ms, noise {1e3 * best['noise']:.2f} ms"
    )
    for what in jobs:
        ratio = best[what] / (best["gradient"] + best["noise"])
        print(f"  one step, {what}: {1e3 * best[what]:.2f} ms, {ratio:.3f} times gradient + noise")


def main() -> None:
    for batch in (100, 500):
        compare("network", *small_network(), batch)
    compare("logistic", *wide_logistic(), 10)


if __name__ == "__main__":
    main()
