"""The order of the bias, measured by a third level, is what is known of the integrator."""

import numpy as np
import pytest

import strang

X = np.random.default_rng(0).normal(size=20).astype(np.float32)


def run(integrator, batch_order, step_size, **more):
    data = strang.data.arrays(X, batch_size=20 if batch_order == "full" else 5, batch_order=batch_order)
    given = {"step_size": step_size, "steps": 60_000, "burn_in": 1000, "chains": 32, "coupled": 32, **more}
    dynamics = strang.SGHMC(3.0)
    return strang.sample(
        strang.models.Gaussian(), data, dynamics, integrator=integrator, average=lambda t: t**2, **given
    )


@pytest.mark.filterwarnings("ignore::strang.TrustWarning")
@pytest.mark.parametrize(
    ("integrator", "batch_order", "step_size", "order"),
    [("chen:ABOBA", "full", 0.08, 2), ("euler-old", "full", 0.003, 1), ("chen:ABOBA", "iid", 0.02, 1)],
)
def test_the_measured_order_is_the_known_one(integrator, batch_order, step_size, order):
    """Within 5 standard errors, which are small enough to tell 1 from 2; the next order counts as a tenth."""
    found = run(integrator, batch_order, step_size).measure_order()
    assert found.error < 0.15
    assert abs(found.value - order) < 5 * found.error + 0.1
    assert found.assumed <= order
    assert "is no lower than" in str(found)


def test_what_cannot_be_measured_is_said():
    short = run("chen:ABOBA", "full", 0.001, steps=400, burn_in=10)
    assert "cannot be told" in str(short.measure_order(steps=50))
    with pytest.raises(strang.InputError, match="coupled=4"):
        run("chen:ABOBA", "full", 0.1, steps=10, burn_in=0, coupled=0).measure_order()
    with pytest.raises(strang.InputError, match="settings of their own"):
        run("chen:ABOBA", "full", np.linspace(0.1, 0.2, 32), steps=10, burn_in=0).measure_order()
