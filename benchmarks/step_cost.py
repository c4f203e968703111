"""What a step costs beyond its gradient and its noise, for a network with a million parameters.

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
from strang.run import prepare

SIZES, ROWS, BATCH, STEPS, ROUNDS = (784, 1000, 200, 10), 5000, 100, 256, 5


def network(position, x):
    for k, (weights, bias) in enumerate(position):
        x = x @ weights + bias
        x = jnp.tanh(x) if k < len(position) - 1 else x
    return x


def log_likelihood(position, row):
    return jax.nn.log_softmax(network(position, row[0]))[row[1]]


def log_prior(position):
    return -sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(position)) / 2


def best(function, count):
    started = time.perf_counter()
    jax.block_until_ready(function())
    return (time.perf_counter() - started) / count


def main() -> None:
    generator = np.random.default_rng(0)
    start = [
        (generator.normal(size=shape).astype(np.float32) / np.sqrt(shape[0]), np.zeros(shape[1], np.float32))
        for shape in itertools.pairwise(SIZES)
    ]
    rows = (generator.normal(size=(ROWS, SIZES[0])).astype(np.float32), generator.integers(10, size=ROWS))
    model = strang.Model(log_prior, log_likelihood, init=start)
    data = strang.data.arrays(rows, batch=BATCH)
    position = jax.tree.map(jnp.asarray, start)
    keys = random.chain_keys(0, 1)

    @jax.jit
    def gradients(position, data):
        """The bare gradient, on a new batch each time; its sign is folded in so that nothing can be left out."""

        def body(l, position):
            slope = batch_gradient(model, position, data.get(keys.batch[0], l.astype(jnp.uint32)), None)
            return jax.tree.map(lambda x, g: x - 1e-9 * g, position, slope)

        return jax.lax.fori_loop(0, STEPS, body, position)

    @jax.jit
    def noises(position):
        def body(l, total):
            drawn = random.normals(keys.noise[0], l.astype(jnp.uint32), position, 1)[0]
            return jax.tree.map(lambda t, z: t + z, total, drawn)

        return jax.lax.fori_loop(0, STEPS, body, position)

    jobs = {
        name: prepare(
            model, data, strang.SGHMC(10.0), step_size=1e-5, steps=10**6, average=average, integrator="chen:ABOBA"
        )
        for name, average in (("no average", None), ("averaging all parameters", lambda position: position))
    }
    runs = {
        "gradient": lambda: gradients(position, data),
        "noise": lambda: noises(position),
        **{
            name: lambda job=job: advance(job.program, job.inputs, job.chain, jnp.uint32(STEPS), None, jnp.uint32(1))
            for name, job in jobs.items()
        },
    }
    for function in runs.values():
        jax.block_until_ready(function())
    times = {name: min(best(function, STEPS) for _ in range(ROUNDS)) for name, function in runs.items()}
    count = sum(x.size for x in jax.tree.leaves(position))
    print(
        f"{count:,} parameters, batch {BATCH}: "
        f"gradient {1e3 * times['gradient']:.2f} ms, noise {1e3 * times['noise']:.2f} ms"
    )
    for name in jobs:
        ratio = times[name] / (times["gradient"] + times["noise"])
        print(f"one step, {name}: {1e3 * times[name]:.2f} ms, {ratio:.3f} times gradient + noise")


if __name__ == "__main__":
    main()
