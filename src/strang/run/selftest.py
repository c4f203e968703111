"""`strang selftest`: whether this machine's device computes what it should, by checks whose answers are known.

Most are exact: a number from the device against the same number from the host in double precision. The law of a run is
checked by sampling: by chance it is found wrong once in a million times.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from strang.data.batches import arrays
from strang.dynamics.sghmc import SGHMC
from strang.gradients.full import batch_gradient, full_gradient
from strang.models.gaussian import Gaussian
from strang.models.logistic import Logistic
from strang.run.api import request
from strang.sampling import averages
from strang.sampling.chain import advance_alone as advance
from strang.util import random

FRICTION, STEP_SIZE, CHAINS, STEPS, BURN_IN = 10.0, 0.02, 1024, 4000, 400
ROWS, BATCH = 100, 50


class Check(NamedTuple):
    """What was found.

    Attributes:
        name: what is checked.
        error: how far the device is off.
        tolerance: how far it may be.
        advice: what to do where it is farther.
    """

    name: str
    error: float
    tolerance: float
    advice: str

    @property
    def passed(self) -> bool:
        return bool(self.error <= self.tolerance)  # a NaN does not pass


def relative(found: Any, true: np.ndarray) -> float:
    """The largest difference as a fraction of the largest number."""
    return float(np.abs(np.asarray(found, float) - true).max() / np.abs(true).max())


def check_bits() -> Check:
    """Integers have one right answer."""
    keys, counters = random.chain_keys(1, 1).noise, np.arange(1 << 14, dtype=np.uint32)
    found = jax.jit(lambda key, c: random.threefry(key, jnp.uint32(7), c))(keys, counters)
    true = random.threefry(np.asarray(keys), np.uint32(7), counters)
    wrong = sum(int((np.asarray(a) != b).sum()) for a, b in zip(found, true, strict=True))
    return Check("random bits: wrong ones", wrong, 0, "do not use this device: its integers are wrong")


def check_normals() -> Check:
    """Against quantiles in double precision."""
    from scipy.special import ndtri

    key, like = random.chain_keys(2, 1).noise[0], jax.ShapeDtypeStruct((1 << 14,), jnp.float32)
    found = jax.jit(lambda key: random.normals(key, jnp.uint32(3), like, 1)[0])(key)
    words = random.threefry(np.asarray(key), np.uint32(3), np.arange(1 << 13, dtype=np.uint32))
    cells = np.concatenate(words).view(np.int32) >> 8
    return Check(
        "normals: relative error",
        relative(found, ndtri(0.5 + (cells + 0.5) * 2.0**-24)),
        1e-5,
        "normals have the wrong scale or law: do not trust any run",
    )


def problem() -> tuple[Logistic, tuple[np.ndarray, np.ndarray], np.ndarray]:
    """A logistic regression, and a position."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 64)).astype(np.float32)
    return Logistic(64), (x, (rng.random(ROWS) < 0.5).astype(np.float32)), rng.normal(size=64).astype(np.float32) / 8


def check_products() -> Check:
    """A gradient, which is two products with a matrix."""
    model, (x, y), w = problem()
    found = jax.jit(full_gradient, static_argnums=0)(model, arrays((x, y)), w, np.zeros(2, np.uint32))
    wide, weights = x.astype(float), w.astype(float)
    true = weights - wide.T @ (y - 1 / (1 + np.exp(-wide @ weights)))
    return Check(
        "matrix products: relative error",
        relative(found, true),
        2e-5,
        "products keep fewer digits than single precision; write "
        "jax.config.update('jax_default_matmul_precision', 'highest')",
    )


def check_sweeps() -> Check:
    """The mean of the gradients of an epoch's batches is the full gradient."""
    model, rows, w = problem()

    @jax.jit
    def gap(w, data):
        batches = jnp.arange(data.batch_order.epoch, dtype=jnp.uint32)
        key = random.chain_keys(3, 1).batch[0]
        each = jax.lax.map(lambda l: batch_gradient(model, w, data.get(key, l), None), batches)
        full = full_gradient(model, data, w, jnp.zeros(2, jnp.uint32))
        return jnp.abs(each.mean(0) - full).max() / jnp.abs(full).max()

    orders = ("reshuffled", "symmetric", "cyclic")
    found = max(float(gap(w, arrays(rows, batch_size=BATCH, batch_order=order))) for order in orders)
    return Check("sweeps through the data: relative error", found, 2e-5, "gradients lose digits; see matrix products")


def gaussian(average: Callable, chains: int, batch_order: str = "iid"):
    """A run on the Gaussian model whose law is known: the job."""
    x = np.random.default_rng(4).normal(size=ROWS)
    data = arrays(((x - x.mean()) / x.std()).astype(np.float32), batch_size=BATCH, batch_order=batch_order)
    return request(
        model=Gaussian(), data=data, dynamics=SGHMC(FRICTION), integrator="chen:ABOBA", step_size=STEP_SIZE,
        steps=STEPS, burn_in=BURN_IN, chains=chains, average=average,
    )  # fmt: skip


def check_sums() -> Check:
    """The average of a constant, whose sum is rounded at every step unless roundings are made up for."""
    job = gaussian(lambda position: jnp.full((), 1000.1, position.dtype) + 0 * position, 2)
    chain, _ = advance(job.program, job.inputs, job.chain, jnp.uint32(STEPS), None, jnp.uint32(1))
    found = averages.means(chain.average)["average"]
    true = np.full(2, float(np.float32(1000.1)))
    return Check(
        "averages: relative error",
        relative(found, true),
        1e-6,
        "sums are reordered; leave out flags for fast mathematics",
    )


def check_resume() -> Check:
    """1000 steps are 311 + 689 steps, bit for bit."""
    job, one = gaussian(lambda position: position, 4, "symmetric"), jnp.uint32(1)
    whole, _ = advance(job.program, job.inputs, job.chain, jnp.uint32(1000), None, one)
    part, _ = advance(job.program, job.inputs, job.chain, jnp.uint32(311), None, one)
    part, _ = advance(job.program, job.inputs, part, jnp.uint32(1000), None, one)
    pairs = zip(jax.tree.leaves(whole), jax.tree.leaves(part), strict=True)
    wrong = sum(int((np.asarray(a) != np.asarray(b)).sum()) for a, b in pairs)
    return Check("runs that are stopped and resumed: numbers that differ", wrong, 0, "resumed runs are not exact here")


def check_law() -> Check:
    """The variance of the Gaussian model with minibatches, to a fraction of a percent."""
    job = gaussian(lambda position: position**2, CHAINS)
    chain, _ = advance(job.program, job.inputs, job.chain, jnp.uint32(STEPS), None, jnp.uint32(1))
    each = np.asarray(averages.means(chain.average)["average"], float)
    angle, noise = FRICTION * STEP_SIZE / 2, ROWS**2 / BATCH  # the rows have variance 1
    true = angle / np.sinh(angle) * (1 + STEP_SIZE * noise / (2 * FRICTION)) / (ROWS + 1)
    error = abs(each.mean() - true) / (each.std(ddof=1) / np.sqrt(len(each)))
    return Check("law of a run: standard errors off", float(error), 4.9, "runs do not have the law they should have")


# All of them, on JAX's default device and with the settings that are in force.
CHECKS = (check_bits, check_normals, check_products, check_sweeps, check_sums, check_resume, check_law)


def report(checks: list[Check], started: float) -> dict[str, Any]:
    """What `--json` prints."""
    device = jax.devices()[0]
    return {
        "passed": all(check.passed for check in checks),
        "checks": [{**check._asdict(), "passed": check.passed} for check in checks],
        "device": device.device_kind,
        "platform": device.platform,
        "jax": jax.__version__,
        "matmul_precision": str(jax.config.jax_default_matmul_precision),  # type: ignore[attr-defined]
        "seconds": time.perf_counter() - started,
    }
