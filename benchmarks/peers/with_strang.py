"""The ordinary `strang.sample` with a log likelihood written as any user would."""

import jax
import jax.numpy as jnp
import numpy as np
from problem import chosen, report

import strang

problem = chosen()
if problem.y is None:
    rows = problem.x
    model = strang.Model(lambda t: -(t**2) / 2, lambda t, x: -((x - t) ** 2) / 2, init=jnp.zeros(()))
else:
    rows = (problem.x, problem.y)
    model = strang.Model(
        lambda w: -jnp.sum(w**2) / 2,
        lambda w, row: row[1] * (row[0] @ w) - jax.nn.softplus(row[0] @ w),
        init=jnp.zeros(problem.x.shape[1]),
    )


def moments(position):
    return position, position**2


STEPS = 200_000 if problem.y is None else 40_000
VARIANTS = {
    "strang chen:ABOBA": {},
    "strang euler-old": {"integrator": "euler-old"},
    "strang, symmetric batches": {"batch_order": "symmetric"},
    "strang, control variates": {"gradient": strang.gradients.control_variate()},
}
for name, changes in VARIANTS.items():
    settings = dict(changes)
    data = strang.data.arrays(rows, batch_size=problem.batch, batch_order=settings.pop("batch_order", "iid"))
    run = strang.sample(
        model,
        data,
        strang.SGHMC(friction=problem.friction),
        step_size=problem.step_size,
        steps=STEPS,
        burn_in=STEPS // 10,
        chains=problem.chains,
        average=moments,
        **settings,
    )
    mean, second = run.each.mean["average"]
    shape = (problem.chains, -1)
    report(problem, name, STEPS, run.seconds, np.reshape(mean, shape), np.reshape(second, shape))
