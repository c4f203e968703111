"""An Equinox module as the model: regression with a small network, and how sure it is where there are no data.

    python examples/equinox_model.py

`from_equinox` makes the module's arrays the position, with a normal prior; `model.module` puts a position back.
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
model = strang.models.from_equinox(
    network, lambda net, row: -((row[1] - net(row[0])) ** 2) / (2 * 0.1**2), prior={"*": 1.0}
)
places = jnp.linspace(-4, 4, 9)


def curve(position):
    """The network's values at some places, and their squares, to be averaged over the posterior."""
    values = jax.vmap(model.module(position))(places[:, None])
    return {"mean": values, "square": values**2}


run = strang.sample(
    model,
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
