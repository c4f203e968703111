"""bde's regressor on a split that it is given, with the settings of its own airfoil example but four layers and ten
members:  python with_bde.py split.npz

The file has x, y, x_test and y_test, all standardised; a line of JSON with RMSE and NLL of the test rows comes back.
Its units are its default ones (relu; it has no tanh). bde shares its members among devices: there is one for each core.
"""

import json
import os
import sys
import time

os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={len(os.sched_getaffinity(0))}"

import numpy as np
from bde import BdeRegressor
from bde.loss import GaussianNLL

split = np.load(sys.argv[1])
x, y, x_test, y_test = (split[name].astype(np.float32) for name in ("x", "y", "x_test", "y_test"))
regressor = BdeRegressor(
    hidden_layers=[16] * 4, n_members=10, seed=int(split["seed"]), loss=GaussianNLL(), epochs=200,
    validation_split=0.15, lr=1e-3, weight_decay=1e-4, warmup_steps=5000, n_samples=2000, n_thinning=2, patience=10,
)  # fmt: skip
started = time.perf_counter()
regressor.fit(x=x, y=y[:, None])
seconds = time.perf_counter() - started
raw = np.asarray(regressor.predict(x_test, raw=True), float)  # member, sample, row, (mean, scale)
raw = raw.reshape(-1, *raw.shape[2:])
mean, sd = raw[..., 0], np.logaddexp(0, raw[..., 1]) + 1e-6
log_density = -(((y_test - mean) / sd) ** 2) / 2 - np.log(sd) - np.log(2 * np.pi) / 2
nll = -np.mean(np.logaddexp.reduce(log_density, axis=0) - np.log(len(mean)))
rmse = np.sqrt(np.mean((mean.mean(0) - y_test) ** 2))
print(json.dumps({"nll": float(nll), "rmse": float(rmse), "seconds": seconds}))
