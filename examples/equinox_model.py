"""An Equinox module as the position: regression with a small network, and how sure it is where there are no data.

    python examples/equinox_model.py

A module is a pytree, but not all of it is numbers to sample: `eqx.partition` takes the arrays out, which become the
position, and `eqx.combine` puts them back wherever the module is called.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import strang

rng = np.random.default_rng(0)
x = rng.uniform(-2, 2, (200, 1)).astype(np.float32)
y = (np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=200)).astype(np.float32)

network = eqx.nn.MLP(1, "scalar", width_size=20, depth=1, activation=jnp.tanh, key=jax.random.key(0))
weights, static = eqx.partition(network, eqx.is_inexact_array)


def log_prior(weights):
    return -sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(weights)) / 2


def log_likelihood(weights, datum):
    x, y = datum
    return -((y - eqx.combine(weights, static)(x)) ** 2) / (2 * 0.1**2)


places = jnp.linspace(-4, 4, 9)


def curve(weights):
    """The network's values at some places, and their squares, to be averaged over the posterior."""
    values = jax.vmap(eqx.combine(weights, static))(places[:, None])
    return {"mean": values, "square": values**2}


run = strang.sample(
    strang.Model(log_prior, log_likelihood, init=weights),
    strang.data.arrays((x, y), batch_order="full"),  # so few data need no minibatches
    strang.SGHMC(friction=5.0),
    step_size=2e-3,
    steps=10_000,
    burn_in=2_000,
    chains=4,
    average=curve,
)
mean = run.average["mean"]
sd = np.sqrt(run.average["square"] - mean**2)
print(f"temperature {run.temperature:.3f}")
for place, m, s in zip(places, mean, sd, strict=True):
    print(f"f({place:+.0f}) = {m:+.2f} ± {s:.2f}" + ("" if abs(place) <= 2 else "   no data here"))
