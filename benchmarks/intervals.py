"""What intervals cover, and what companions cost:  .venv/bin/python benchmarks/intervals.py [replicates]

Nominal 90 % intervals of posterior means and standard deviations, value ± (1.645 Monte Carlo errors + bias), and the
same without the bias, on posteriors that are known: the paper's Gaussian with noisy batches, a double well by
quadrature, a logistic regression by a long run with exact steps. Then the time that 16 coupled of 200 chains add.
"""

import sys
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np

import strang
from strang.run.api import request
from strang.run.driver import runner_of
from strang.sampling.estimates import estimates

RNG = np.random.default_rng(0)
LEVEL = 1.645


def gaussian():
    """Independent batches whose noise makes the variance a fifth too large."""
    x = RNG.normal(0.5, 1.0, 1000).astype(np.float32)
    model = strang.models.Gaussian()
    mean, variance = model.posterior(x)
    data = strang.data.arrays(x, batch_size=20)
    noise = 1000**2 * x.var() / 20
    friction = 40.0
    settings = {"step_size": 0.4 * friction / noise, "integrator": "chen:ABOBA", "steps": 4000, "burn_in": 400}
    return model, data, strang.SGHMC(friction), settings, np.array([mean]), np.array([np.sqrt(variance)])


def double_well():
    """U = x⁴ − 2x², full gradients, a long step."""
    model = strang.Model(lambda q: -(q**4) + 2 * q**2 + 0.3 * q, lambda q, x: 0 * q * x, init=np.float32(0.1))
    grid = np.linspace(-4, 4, 20_001)
    density = np.exp(-(grid**4) + 2 * grid**2 + 0.3 * grid)
    density /= density.sum()
    mean = (grid * density).sum()
    sd = np.sqrt(((grid - mean) ** 2 * density).sum())
    data = strang.data.arrays(np.zeros(2, np.float32), batch_order="full")
    settings = {"step_size": 0.3, "integrator": "chen:ABOBA", "steps": 8000, "burn_in": 400}
    return model, data, strang.SGHMC(1.0), settings, np.array([mean]), np.array([sd])


def regression():
    """Logistic, 200 rows and 5 columns, independent batches of 40 in whitened coordinates."""
    x = RNG.normal(size=(200, 5)).astype(np.float32)
    y = np.where(RNG.random(200) < 1 / (1 + np.exp(-x @ np.linspace(-1, 1, 5))), 1, -1).astype(np.float32)
    model = strang.Model(
        lambda q: -jnp.sum(q**2) / 2, lambda q, row: jax.nn.log_sigmoid(row[1] * (row[0] @ q)), np.zeros(5, np.float32)
    )
    exact = strang.sample(model, (x, y), error=0.003, progress=False)
    assert exact.trusted, exact.reasons
    data = strang.data.arrays((x, y), batch_size=40)
    settings = {"step_size": 0.05, "integrator": "leimkuhler:BAOA", "steps": 6000, "burn_in": 400}
    settings |= {"coordinates": exact.tuning.coordinates, "init": exact.tuning.mode}
    return model, data, strang.SGHMC(2.0), settings, np.asarray(exact.average), np.asarray(exact.sd)


def covered(name: str, replicates: int) -> tuple[np.ndarray, np.ndarray]:
    """How often both kinds of intervals of means and of standard deviations hold the truth."""
    model, data, dynamics, settings, mean, sd = globals()[name]()
    with_bias, without = [], []
    for seed in range(replicates):
        run = strang.sample(model, data, dynamics, chains=16, coupled=16, seed=seed, progress=False, **settings)
        found = estimates(run.job, run.chain)
        for estimate, true in ((found.mean, mean), (found.sd, sd)):
            off = np.abs(estimate.value - true)
            with_bias.append(off <= LEVEL * estimate.error + estimate.bias_bound)
            without.append(off <= LEVEL * estimate.error)
    both, alone, means, sds = (100 * np.mean(part) for part in (with_bias, without, without[::2], without[1::2]))
    print(
        f"{name:12} {replicates} replicates: value ± (Monte Carlo and bias) {both:.1f} %, ± Monte Carlo alone "
        f"{alone:.1f} % (means {means:.0f}, standard deviations {sds:.0f})",
        flush=True,
    )
    return np.concatenate(with_bias), np.concatenate(without)


def cost() -> None:
    """The time of 200 chains with 16 of them coupled, over that of none, in turns."""
    x = RNG.normal(size=(10_000, 20)).astype(np.float32)
    y = np.where(RNG.random(10_000) < 0.5, 1, -1).astype(np.float32)
    model = strang.Model(
        lambda q: -jnp.sum(q**2) / 2, lambda q, row: jax.nn.log_sigmoid(row[1] * (row[0] @ q)), np.zeros(20, np.float32)
    )
    numbers = RNG.normal(size=1000).astype(np.float32)
    cases = {
        "logistic, iid batches of 100": (model, strang.data.arrays((x, y), batch_size=100), 256),
        "Gaussian, iid batches of 10": (strang.models.Gaussian(), strang.data.arrays(numbers, batch_size=10), 16_384),
        "Gaussian, symmetric batches": (
            strang.models.Gaussian(), strang.data.arrays(numbers, batch_size=10, batch_order="symmetric"), 8192,
        ),
    }  # fmt: skip
    for name, (one, data, steps) in cases.items():
        runners = {}
        for coupled in (0, 16):
            job = request(
                one, data, strang.SGHMC(10.0), step_size=1e-4, steps=10**8, chains=200, coupled=coupled, progress=False
            )
            runners[coupled] = [runner_of(job), 0, []]
        for _ in range(8):
            for entry in runners.values():
                runner, at, times = entry
                started = time.perf_counter()
                runner.advance(at + steps)
                times.append(time.perf_counter() - started)
                entry[1] = at + steps
        alone, coupled = (np.array(runners[k][2][1:]) for k in (0, 16))
        ratio = coupled / alone
        spread = f"{ratio.min():.2f} to {ratio.max():.2f}"
        print(f"{name}: 16 of 200 coupled take {np.median(ratio):.3f} times as long ({spread})")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    parts = [covered(name, count) for name in ("gaussian", "double_well", "regression")]
    both, alone = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    print(f"pooled: with bias {100 * both.mean():.1f} %, without {100 * alone.mean():.1f} %")
    cost()
