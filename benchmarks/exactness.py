"""Random settings that nobody tuned for: does the simulation agree with its exact bias and MSE?

    .venv/bin/python benchmarks/exactness.py [COUNT [SEED]]

Integrator, data, batches, schedule, friction, start and burn-in are drawn at random within stability; each line gives
the two z-scores over 2000 chains. Right code has root mean squares near 1 and, in 40 settings, no |z| above 4.
"""

import sys

import numpy as np

import strang
from strang import schedule
from strang.data.orders import ORDERS
from strang.integrators.schemes import named
from strang.paper import gaussian as experiment
from strang.theory.linear import stability_limit


def draw(random: np.random.Generator) -> dict:
    kind = strang.SGLD if random.random() < 0.15 else strang.SGHMC
    word = str(random.choice(named(kind)))
    size = int(random.integers(20, 2000))
    precision = 1.0 + size
    friction = float(random.uniform(0.3, 3) * np.sqrt(precision))
    dynamics = kind() if kind is strang.SGLD else kind(friction)
    limit = min(stability_limit(strang.spell(kind, word), dynamics, precision), 1 / np.sqrt(precision))
    h = float(random.uniform(0.02, 0.6) * limit)
    steps = int(random.integers(50, 3000))
    return {
        "dynamics": kind,
        "integrator": word,
        "friction": friction,
        "step_size": schedule.decreasing(h, float(random.uniform(0.1, 0.6))) if random.random() < 0.4 else h,
        "steps": steps,
        "chains": 2000,
        "batch_order": str(random.choice(list(ORDERS))),
        "batch_size": int(random.integers(1, min(size, 60))),
        "replacement": bool(random.random() < 0.6),
        "data_size": size,
        "data_mean": float(random.normal()),
        "seed": int(random.integers(10**6)),
        "init_mean": float(random.normal()),
        "init_var": float(random.uniform(0, 2)),
        "burn_in": int(random.integers(0, steps // 2)),
    }


def main() -> None:
    count, seed = (int(a) for a in [*sys.argv[1:], *("40", "1")[len(sys.argv) - 1 :]])
    random = np.random.default_rng(seed)
    scores = []
    for _ in range(count):
        settings = draw(random)
        result = experiment.gaussian(**settings)
        z = [(result[name] - result["exact"][name]) / result[f"{name}_se"] for name in ("bias", "mse")]
        scores.append(z)
        what = f"{result['dynamics']} {result['integrator']}, {result['batches']} {result['batch_size']}"
        print(f"{what:50} of {settings['data_size']:5} z = {z[0]:+.2f} {z[1]:+.2f}", flush=True)
    square = np.sqrt(np.mean(np.square(scores), axis=0))
    print(f"root mean squares {square[0]:.2f} {square[1]:.2f}, largest {np.abs(scores).max():.2f} of {2 * count}")


if __name__ == "__main__":
    main()
