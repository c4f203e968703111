"""Flax parameters as the position: classification of two moons, averaged over the posterior.

    python examples/flax_model.py

What `init` returns is a dict of arrays, which is a position as it stands; `apply` takes one.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

import strang
from strang import calibration


class Network(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(nn.tanh(nn.Dense(16)(x)))


def moons(count, seed):
    """Two half circles, with noise."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, count)
    angle = np.pi * (rng.random(count) + label)
    x = np.stack([np.cos(angle) + label - 0.5, np.sin(angle) + label * 0.5 - 0.25], axis=1)
    return (x + 0.25 * rng.normal(size=x.shape)).astype(np.float32), label.astype(np.int32)


network = Network()
points, labels = moons(300, seed=1)


def log_prior(parameters):
    return -sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(parameters)) / 2


def log_likelihood(parameters, datum):
    x, label = datum
    return jax.nn.log_softmax(network.apply(parameters, x))[label]


def probabilities(parameters):
    """Of the classes for every test case; their average over the run is the posterior's prediction."""
    return jax.nn.softmax(network.apply(parameters, points))


run = strang.sample(
    strang.Model(log_prior, log_likelihood, init=lambda key: network.init(key, points[0])),
    strang.data.arrays(moons(100, seed=0), batch_size=20, batch_order="symmetric"),
    strang.SGHMC(friction=3.0),
    step_size=0.02,
    steps=4_000,
    burn_in=1_000,
    chains=4,
    average=probabilities,
)
print(f"temperature {run.temperature:.3f}")
for name, prediction in {
    "one draw": probabilities(jax.tree.map(lambda leaf: leaf[0], run.chain.state.position)),
    "the posterior's mean": run.average,
}.items():
    score = calibration.score(prediction, labels)
    print(f"{name:22} accuracy {score.accuracy:.3f}, {score.nll:.3f} nats, calibration error {score.ece:.3f}")
