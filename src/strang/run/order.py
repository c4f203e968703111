"""The order at which the bias of a run falls with its step size, from a third level: steps of four times the size."""

from dataclasses import dataclass, replace

import jax
import numpy as np

from strang.run.driver import Observer, drive
from strang.sampling.chain import begin
from strang.sampling.estimates import Estimates, estimates
from strang.sampling.record import input_axes
from strang.schedule import Function
from strang.util import random
from strang.util.errors import InputError

SEEN = 3.0  # standard errors from which on a difference is seen
THIRD = 7  # sets its randomness apart from that of the run


@dataclass(frozen=True)
class Order:
    """What `run.measure_order` gives: p = log2 of the ratio of f(4h) − f(2h) to f(2h) − f(h).

    Attributes:
        value: p, over all quantities whose differences are seen; NaN where none is.
        error: its standard error.
        assumed: the order that `run.bias` was computed with.
        names: of the quantities whose differences are seen: means, and standard deviations.
    """

    value: float
    error: float
    assumed: int
    names: list[str]

    def __str__(self) -> str:
        if not self.names:
            return (
                f"the order cannot be told: differences are smaller than their errors; it is taken to be {self.assumed}"
            )
        verdict = "is no lower than" if self.value > self.assumed - SEEN * self.error else "is LOWER than"
        return (
            f"the bias falls with the step size at order {self.value:.2f} ± {self.error:.2f}, which {verdict} the "
            f"{self.assumed} that it was computed with ({len(self.names)} quantities)"
        )


def measure_order(run, steps: int | None = None, progress: bool | None = None) -> Order:
    """See `Run.measure_order`."""
    job, chain = run.job, run.chain
    if not chain.companion:
        raise InputError("no chain of the run has a companion; write coupled=4, say.")
    if run.own_settings:
        raise InputError("the chains have settings of their own; measure one setting at a time.")
    schedule, burn_in = job.inputs.schedule, -(-int(job.inputs.burn_in) // 2)
    steps = max(1, (run.steps - int(job.inputs.burn_in)) // 2) if steps is None else int(steps)
    # A companion's step is two of its chain's; these chains make such steps, and their companions four at a time.
    inputs = job.inputs._replace(
        schedule=Function(lambda l: schedule(2 * l) + schedule(2 * l - 1)), burn_in=jax.numpy.uint32(burn_in)
    )
    positions = chain.state.position
    if inputs.coordinates is not None:
        own = input_axes(job.program).coordinates
        positions = jax.vmap(lambda change, z: change(z), (own, 0))(inputs.coordinates, positions)
    keys = jax.tree.map(lambda key: random.fold(key, THIRD), chain.keys)
    coarse = replace(job, inputs=inputs, thin=None, steps=burn_in + steps)
    coarse = replace(coarse, chain=jax.block_until_ready(begin(job.program, inputs, keys, positions)))
    outcome = drive(coarse, Observer(), progress=progress)
    return compare(run.estimates, estimates(coarse, outcome.chain))


def compare(fine: Estimates, coarse: Estimates) -> Order:
    """The order from the differences of both."""
    assert fine.order is not None
    factor = 2.0**fine.order - 1

    def differences(found: Estimates) -> tuple[np.ndarray, np.ndarray]:
        parts = [found.mean, *([] if found.sd is None else [found.sd])]
        bias, error = (np.concatenate([getattr(part, name) for part in parts]) for name in ("bias", "bias_error"))
        return factor * bias, factor * error

    (first, own), (second, other) = differences(fine), differences(coarse)
    names = [*fine.names, *([] if fine.sd is None else (f"sd of {name}" for name in fine.names))]
    with np.errstate(invalid="ignore", divide="ignore"):
        seen = np.isfinite(first) & np.isfinite(second) & (np.abs(first) > SEEN * own) & (first * second > 0)
        seen &= np.abs(second) > SEEN * other
        if not seen.any():
            return Order(np.nan, np.nan, fine.order, [])
        order = np.log2(second[seen] / first[seen])
        error = np.hypot(own[seen] / first[seen], other[seen] / second[seen]) / np.log(2)
    weight = error**-2.0
    # Quantities share their noise: the error of the mean is not below that of the best of them.
    value = float((weight * order).sum() / weight.sum())
    return Order(value, float(error.min()), fine.order, [names[k] for k in np.flatnonzero(seen)])
