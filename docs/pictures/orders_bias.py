"""The figure of docs/understand/orders.md:  .venv/bin/python docs/pictures/orders_bias.py"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import strang

x = np.random.default_rng(0).normal(size=1000)
x = (x - x.mean()) / x.std() + 0.5
step, dynamics = strang.spell(strang.SGHMC, "chen:ABOBA"), strang.SGHMC(friction=50.0)
sizes = np.geomspace(2e-4, 1e-2, 14)
figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
for order, marker in zip(("iid", "reshuffled", "symmetric", "cyclic", "full"), "osD^x", strict=True):
    settings = {} if order == "full" else {"batch_size": 100}
    exact = [
        strang.theory.finite_time(
            step, dynamics, data=x, batch_order=order, step_size=h, steps=40_000, burn_in=20_000, **settings
        )
        for h in sizes
    ]
    axes.loglog(sizes, [1001 * abs(each.bias) for each in exact], marker=marker, ms=4, label=order)
axes.loglog(sizes, 300 * sizes, color="grey", ls=":", lw=1, label="slope 1")
axes.loglog(sizes, 300 * sizes**2, color="grey", ls="--", lw=1, label="slope 2")
axes.set(xlabel="step size h", ylabel="|bias of θ²| / posterior variance")
axes.legend(ncols=2, frameon=False)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=130)
