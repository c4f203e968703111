"""A Flax NNX module as the model: classification of two moons, averaged over the posterior.

    python examples/flax_model.py

`from_nnx` makes the module's parameters the position, with a normal prior; `model.module` puts a position back.
"""

import jax
import numpy as np
from flax import nnx

import strang
from strang import calibration


class Network(nnx.Module):
    def __init__(self, rngs):
        self.hidden, self.out = nnx.Linear(2, 16, rngs=rngs), nnx.Linear(16, 2, rngs=rngs)

    def __call__(self, x):
        return self.out(nnx.tanh(self.hidden(x)))


def moons(count, seed):
    """Two half circles, with noise."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, count)
    angle = np.pi * (rng.random(count) + label)
    x = np.stack([np.cos(angle) + label - 0.5, np.sin(angle) + label * 0.5 - 0.25], axis=1)
    return (x + 0.25 * rng.normal(size=x.shape)).astype(np.float32), label.astype(np.int32)


points, labels = moons(300, seed=1)
model = strang.models.from_nnx(
    Network(nnx.Rngs(0)), lambda net, row: jax.nn.log_softmax(net(row[0]))[row[1]], prior=3.0
)


def probabilities(position):
    """Of the classes for every test case; their average over the run is the posterior's prediction."""
    return jax.nn.softmax(model.module(position)(points))


run = strang.sample(
    model,
    strang.data.arrays(moons(100, seed=0), batch_size=20, batch_order="symmetric"),
    strang.SGHMC(friction=3.0),
    step_size=0.02,
    steps=4_000,
    burn_in=1_000,
    chains=4,
    init=lambda key: model.position(Network(nnx.Rngs(key))),  # so that chains start apart
    average=probabilities,
)
print(f"temperature {run.temperature:.3f}")
for name, prediction in {
    "one draw": probabilities(jax.tree.map(lambda leaf: leaf[0], run.positions)),
    "the posterior's mean": run.average,
}.items():
    score = calibration.score(prediction, labels)
    print(f"{name:22} accuracy {score.accuracy:.3f}, {score.nll:.3f} nats, calibration error {score.ece:.3f}")
