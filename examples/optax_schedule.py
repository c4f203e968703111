"""An Optax schedule as the step size: large steps to get there, small ones to be right.

    python examples/optax_schedule.py

Any function of the step number will do; averages are weighted by it, as they must be. The data are the paper's, so that
the truth is known: with independent minibatches the error of the variance is proportional to the step.
"""

import numpy as np
import optax

import strang

x = np.random.default_rng(0).normal(0.5, 1.0, size=1000).astype(np.float32)
model = strang.models.Gaussian()
mean, variance = model.posterior(x)
steps = 10_000

step_sizes = {
    "fixed, large": 1e-3,
    "fixed, small": 1e-5,
    "cosine, large to small": optax.cosine_decay_schedule(1e-3, steps, alpha=0.01),
}
print(f"{'':24}error of the mean    error of the variance    (in posterior standard deviations; relative)")
for name, step_size in step_sizes.items():
    run = strang.sample(
        model,
        strang.data.arrays(x, batch_size=10),
        strang.SGHMC(friction=50.0),
        step_size=step_size,
        steps=steps,
        burn_in=8_000,
        chains=200,
        init=np.float32(10.0),  # far away
        average=lambda theta: {"mean": theta, "spread": (theta - mean) ** 2},
    )
    off = (run.average["mean"] - mean) / variance**0.5
    print(f"{name:24}{off:>+17.2f}    {run.average['spread'] / variance - 1:>+21.0%}")
