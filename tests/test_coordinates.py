"""Coordinates: what chains move is another thing than what the model sees, and nobody but the chain notices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import strang
from strang.coordinates import Blocks, Chained, Dense, Diagonal, Turned, leads_with_chains, whitened
from strang.gradients.full import full_potential
from strang.sampling.chain import advance_alone
from strang.storage.store import named_leaves
from strang.tuning.pilot import improved
from strang.util.errors import InputError

RNG = np.random.default_rng(0)
ROWS = (RNG.normal(size=(200, 3)) * [100.0, 1.0, 0.01] + [50.0, 0, 0]).astype(
    np.float32
)  # with unequal, shifted columns
TARGETS = (ROWS @ [0.02, 1.0, 30.0] + RNG.normal(size=200)).astype(np.float32)
MODEL = strang.Model(
    lambda q: -jnp.sum(q["w"] ** 2) / 2e4 - q["b"] ** 2 / 2e4,
    lambda q, row: -((row[1] - row[0] @ q["w"] - q["b"]) ** 2) / 2,
    init={"w": np.zeros(3, np.float32), "b": np.zeros((), np.float32)},
)


def data(order="full", size=None):
    return strang.data.arrays((ROWS, TARGETS), batch_order=order, batch_size=size)


def posterior():
    """Mean and covariance matrix of (b, w), in closed form and in the order of `ravel_pytree`."""
    x = np.column_stack([np.ones(200), ROWS]).astype(float)
    precision = x.T @ x + np.eye(4) / 1e4
    return np.linalg.solve(precision, x.T @ TARGETS), np.linalg.inv(precision)


SETTINGS = {"step_size": 0.3, "steps": 4000, "burn_in": 200, "chains": 20, "progress": False}


def moments(q):
    flat = ravel_pytree(q)[0]
    centred = flat - jnp.asarray(posterior()[0], jnp.float32)
    return {"mean": flat, "square": centred**2}


def test_a_model_of_any_scale_is_sampled_with_one_step_size():
    """Means and variances of a linear regression within 5 errors of the exact ones, at the exact step's variance bias;
    in the model's own variables the same step diverges."""
    run = strang.sample(MODEL, data(), strang.SGHMC(1.5), coordinates="dense", average=moments, **SETTINGS)
    mean, covariance = posterior()
    ratio = strang.theory.variance_ratio(strang.spell(strang.SGHMC, "chen:ABOBA"), strang.SGHMC(1.5), 1.0, 0.3)
    assert (np.abs(run.average["mean"] - mean) < 5 * run.error["mean"] + 1e-3 * np.sqrt(np.diag(covariance))).all()
    variance = float(ratio) * np.diag(covariance)
    assert (np.abs(run.average["square"] - variance) < 5 * run.error["square"] + 0.01 * variance).all()
    assert run.temperature == pytest.approx(1, abs=0.05)
    with pytest.warns(strang.DivergenceWarning):
        strang.sample(MODEL, data(), strang.SGHMC(1.5), average=None, **SETTINGS)


@pytest.mark.parametrize("dense", [False, True])
def test_curvature_at_the_mode_is_one(dense):
    found = whitened(MODEL, data(), MODEL.init, dense=dense)
    np.testing.assert_allclose(ravel_pytree(found.centre)[0], posterior()[0], rtol=2e-3, atol=1e-3)

    def potential(vector):
        return full_potential(MODEL, data(), found(ravel_pytree(found.centre)[1](vector)))

    hessian = jax.hessian(potential)(jnp.zeros(4))
    np.testing.assert_allclose(np.diag(hessian), 1, rtol=1e-3)
    if dense:
        np.testing.assert_allclose(hessian, np.eye(4), atol=2e-3)


@pytest.mark.parametrize("kind", ["diagonal", "dense"])
def test_gradients_are_pulled_back(kind):
    """As automatic differentiation of U(coordinates(z)) has it, and the way back leads back."""
    with jax.enable_x64():
        position = {"w": jnp.asarray([1.0, 2.0, 3.0]), "b": jnp.asarray(0.5)}
        factor = np.random.default_rng(0).normal(size=(4, 4)) + 3 * np.eye(4)
        scale = jax.tree.map(lambda x: 1 + jnp.abs(x), position)
        found = {
            "diagonal": Diagonal(position, scale),
            "dense": Dense(position, jnp.asarray(factor), jnp.asarray(np.linalg.inv(factor))),
        }[kind]

        def potential(q):
            return jnp.sum(jnp.cos(q["w"])) * q["b"] ** 2

        z = {"w": jnp.asarray([0.3, -1.0, 0.2]), "b": jnp.asarray(-0.4)}
        expected = jax.grad(lambda z: potential(found(z)))(z)
        pulled = found.pull_back(z, jax.grad(potential)(found(z)))
        again = found.inverse(found(z))
        for one, other in ((expected, pulled), (z, again)):
            np.testing.assert_allclose(ravel_pytree(one)[0], ravel_pytree(other)[0], rtol=1e-12)


def test_estimators_and_orders_work_in_coordinates():
    """Control variates leave little noise in whitened coordinates; sweeps keep the temperature near 1."""
    mean, covariance = posterior()
    for order, gradient in (("iid", strang.gradients.control_variate()), ("symmetric", strang.gradients.svrg(50))):
        run = strang.sample(
            MODEL,
            data(order, 20),
            strang.SGHMC(1.5),
            coordinates="dense",
            gradient=gradient,
            **{**SETTINGS, "step_size": 0.1, "average": lambda q: ravel_pytree(q)[0]},
        )
        assert (np.abs(run.average - mean) < 5 * run.error + 2e-3 * np.sqrt(np.diag(covariance))).all()
        assert run.temperature == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(
    ("dynamics", "integrator", "h"),
    [
        (strang.SGLD(), None, 0.1),
        (strang.SGNHT(1.5), "leimkuhler:BADODAB", 0.2),
        (strang.SGHMC(np.linspace(1.0, 2.0, 20)), "ubu:UBU", 0.2),  # a grid
    ],
)
def test_every_dynamics_works_in_coordinates(dynamics, integrator, h, tmp_path):
    """From disk, with sweeps through all data in two batches; the mean is exact, whatever the variance's bias."""
    np.save(tmp_path / "x.npy", ROWS)
    np.save(tmp_path / "y.npy", TARGETS)
    rows = strang.data.files((tmp_path / "x.npy", tmp_path / "y.npy"), batch_size=100, batch_order="symmetric")
    settings = {**SETTINGS, "step_size": h, "average": lambda q: ravel_pytree(q)[0]}
    run = strang.sample(MODEL, rows, dynamics, integrator=integrator, coordinates="dense", **settings)
    mean, covariance = posterior()
    assert (np.abs(run.average - mean) < 5 * run.error + 5e-3 * np.sqrt(np.diag(covariance))).all()


def test_starts_are_scattered_about_the_mode():
    """By default; a start that is given is kept."""
    few = {**SETTINGS, "steps": 1, "burn_in": 0, "step_size": 1e-6, "chains": 200}
    run = strang.sample(MODEL, data(), strang.SGHMC(1.5), coordinates="dense", **few)
    mean, covariance = posterior()
    flat = np.stack([np.concatenate([[b], w]) for b, w in zip(run.positions["b"], run.positions["w"], strict=True)])
    z = (flat - mean) / np.sqrt(np.diag(covariance))
    assert np.abs(z.mean(0)).max() < 5 / np.sqrt(200)
    assert np.abs(z.var(0) - 1).max() < 5 * np.sqrt(2 / 200)
    own = strang.sample(MODEL, data(), strang.SGHMC(1.5), coordinates="dense", init=MODEL.init, **few)
    assert np.abs(own.positions["b"]).max() < 1e-2


def test_draws_and_positions_are_the_models_own():
    run = strang.sample(MODEL, data(), strang.SGHMC(1.5), coordinates="diagonal", thin=10, **SETTINGS)
    last = jax.tree.map(lambda draws: draws[:, -1], run.samples)
    np.testing.assert_allclose(last["w"], run.positions["w"], rtol=1e-6)
    assert abs(np.mean(run.samples["w"][..., 2]) - posterior()[0][3]) < 5


def test_a_stored_run_goes_on_bit_for_bit(tmp_path):
    settings = {**SETTINGS, "steps": 300, "coordinates": "dense", "thin": 10}
    whole = strang.sample(MODEL, data("iid", 20), strang.SGHMC(1.5), **settings)
    strang.sample(MODEL, data("iid", 20), strang.SGHMC(1.5), **{**settings, "steps": 210}, store=tmp_path)
    again = strang.sample(MODEL, data("iid", 20), strang.SGHMC(1.5), **settings, store=tmp_path)
    one, other = named_leaves(whole.chain), named_leaves(again.chain)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    with pytest.raises(InputError, match="settings or starts differ"):
        strang.sample(MODEL, data("iid", 20), strang.SGHMC(1.5), **{**settings, "coordinates": None}, store=tmp_path)


def test_each_chain_may_have_coordinates_of_its_own(tmp_path):
    """Two chains with scales s and 2s are, to rounding, the same two chains of two runs with one scale each."""
    mean, covariance = posterior()
    _, unravel = ravel_pytree(jax.tree.map(jnp.asarray, MODEL.init))
    one = Diagonal(unravel(jnp.asarray(mean, jnp.float32)), unravel(jnp.asarray(np.diag(covariance) ** 0.5 / 30)))
    scales = [one, Diagonal(one.centre, jax.tree.map(lambda x: 2 * x, one.scale))]
    own = jax.tree.map(lambda *x: jnp.stack(x), *scales)
    settings = {"step_size": 0.1, "steps": 40, "chains": 2, "thin": 10, "progress": False, "average": None}
    settings |= {"init": one.centre, "coupled": 2}
    together = strang.sample(MODEL, data("iid", 50), strang.SGHMC(1.5), coordinates=own, store=tmp_path, **settings)
    for chain, change in enumerate(scales):
        alone = strang.sample(MODEL, data("iid", 50), strang.SGHMC(1.5), coordinates=change, **settings)
        for a, b in zip(*map(jax.tree.leaves, (together.samples, alone.samples)), strict=True):
            np.testing.assert_allclose(a[chain], b[chain], rtol=1e-5, atol=1e-6)
        assert jnp.allclose(together.positions["w"][chain], alone.positions["w"][chain], rtol=1e-5)
    assert not np.allclose(together.samples["w"][0], alone.samples["w"][0], rtol=1e-2)  # the scale matters


def test_another_scale_recompiles_nothing():
    def run(scale):
        tree = jax.tree.map(lambda x: jnp.full_like(x, scale), MODEL.init)
        found = Diagonal(MODEL.init, tree)
        settings = {**SETTINGS, "step_size": 1e-3, "steps": 50, "burn_in": 0}
        return strang.sample(MODEL, data(), strang.SGHMC(1.5), coordinates=found, **settings)

    first = run(1e-3)
    compiled = advance_alone._cache_size()
    second = run(2e-3)
    assert advance_alone._cache_size() == compiled
    assert np.abs(first.average["w"] - second.average["w"]).max() > 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"coordinates": "dens"}, "choose one of: dense, diagonal, none"),
        ({"coordinates": 3}, "coordinates is 3; write 'dense', 'diagonal', 'none'"),
        ({"coordinates": Diagonal}, "write 'dense', 'diagonal', 'none'"),
        ({"coordinates": Diagonal(jnp.zeros(2), jnp.ones(2))}, "coordinates do not fit the position"),
        (
            {"coordinates": jax.tree.map(lambda x: jnp.ones((3, *x.shape)), Diagonal(MODEL.init, MODEL.init))},
            "coordinates do not fit the position",  # three chains' own, where there are 20
        ),
        ({"coordinates": "dense", "dynamics": strang.SGRLD()}, "SGRLD moves positive numbers; leave out coordinates="),
    ],
)
def test_bad_coordinates(changes, reason):
    arguments = {"model": MODEL, "data": data(), "dynamics": strang.SGHMC(1.5), **SETTINGS, **changes}
    with pytest.raises(InputError, match=reason):
        strang.sample(**arguments)


def test_scales_that_vanish_are_refused():
    flat = Diagonal(MODEL.init, jax.tree.map(lambda x: 0 * x, MODEL.init))
    with pytest.raises(InputError, match="cannot be inverted at the start"):
        strang.sample(MODEL, data(), strang.SGHMC(1.5), coordinates=flat, **SETTINGS)


@pytest.mark.parametrize(
    ("prior", "reason"),
    [
        (lambda q: -((q[0] + q[1]) ** 2), "flat in a direction"),
        (lambda q: -(q[0] ** 2), r"no curvature along position\[1\] at the mode"),
    ],
)
def test_a_posterior_without_a_scale_is_refused(prior, reason):
    model = strang.Model(prior, lambda q, x: 0 * x, init=np.ones(2, np.float32))
    rows = strang.data.arrays(np.zeros(3, np.float32), batch_order="full")
    with pytest.raises(InputError, match=reason):
        strang.sample(model, rows, strang.SGHMC(1.5), coordinates="dense", **SETTINGS)


def test_blocks_and_chains_of_coordinates_have_their_inverse_and_gradient():
    """Each gives back where it came from, and ∇U as the chain rule has it."""
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(3, 3)) + 3 * np.eye(3)
    dense = Dense({"a": jnp.ones(2), "c": jnp.zeros(())}, jnp.asarray(factor), jnp.asarray(np.linalg.inv(factor)))
    blocks = Blocks(dense, Diagonal({"b": jnp.ones((2, 2))}, {"b": jnp.full((2, 2), 3.0)}))
    outer = Diagonal({"a": jnp.ones(2), "b": jnp.ones((2, 2)), "c": jnp.ones(())}, {"a": 2.0, "b": 3.0, "c": 4.0})
    z = {"a": jnp.array([0.3, -1.0]), "b": jnp.array([[1.0, 2.0], [3.0, 4.0]]), "c": jnp.asarray(0.5)}

    def potential(position):
        return sum(jnp.sum(jnp.sin(x) * (k + 1)) for k, x in enumerate(jax.tree.leaves(position)))

    for coordinates in (blocks, Chained(outer, blocks)):
        position = coordinates(z)
        back = coordinates.inverse(position)
        assert all(np.allclose(back[name], z[name], atol=1e-5) for name in z)
        found = coordinates.pull_back(z, jax.grad(potential)(position))
        expected = jax.grad(lambda z: potential(coordinates(z)))(z)  # noqa: B023
        assert all(np.allclose(found[name], expected[name], atol=1e-4) for name in z)
        both = jax.tree.map(lambda x: jnp.stack([x, x]), z)
        each = jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * 2), coordinates)
        assert not leads_with_chains(coordinates, both)
        assert leads_with_chains(each, both)


def turned(chains: int) -> Turned:
    """Of a layer with its biases, one that is turned on one side only, and a number."""
    rng = np.random.default_rng(3)
    like = {"first": {"w": (3, 4), "b": (4,)}, "second": {"w": (2, 2, 5)}, "scale": ()}

    def positive():
        return jax.tree.map(
            lambda shape: rng.uniform(0.5, 2, (chains, *shape)), like, is_leaf=lambda x: isinstance(x, tuple)
        )

    def orthogonal(n):
        return np.linalg.qr(rng.normal(size=(chains, n, n)))[0]

    # leaves: first.b, first.w, scale, second.w
    return Turned(
        positive(), positive(), positive(), (orthogonal(4), None), (orthogonal(4), orthogonal(5)), ((1, 0), (3,))
    )


def test_turned_coordinates_have_their_inverse_and_gradient():
    """For each of three chains: there and back, and gradients by automatic differentiation."""

    def potential(position):
        return sum(jnp.sum(jnp.cos(x) * (2 + x)) for x in jax.tree.leaves(position))

    with jax.enable_x64(True):
        every = jax.tree.map(jnp.asarray, turned(3))
        assert leads_with_chains(every, every.centre)
        for k in range(3):
            change = jax.tree.map(lambda x, k=k: x[k], every)
            z = jax.tree.map(lambda x: jnp.sin(1 + jnp.arange(float(x.size))).reshape(x.shape), change.centre)
            back = change.inverse(change(z))
            jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-10), back, z)
            found = change.pull_back(z, jax.grad(potential)(change(z)))
            expected = jax.grad(lambda z, change=change: potential(change(z)))(z)
            jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-10), found, expected)
            # Turning keeps lengths, and mixes the rows of a layer with its biases.
            ones = jax.tree.map(jnp.ones_like, z)
            pure = Turned(ones, ones, ones, change.left, change.right, change.blocks)
            flat, moved = (ravel_pytree(x)[0] for x in (z, pure.turn(z)))
            np.testing.assert_allclose(jnp.sum(flat**2), jnp.sum(moved**2), rtol=1e-10)
            assert not np.allclose(pure.turn(z)["first"]["b"], z["first"]["b"])
            assert pure.turn(z)["scale"] == z["scale"]


def test_pilot_runs_improve_blocks_inside_a_chain_by_their_own_draws():
    """Draws that are too wide in one number of each block: both get the scale that they have."""
    like = {"a": jnp.zeros(2), "b": jnp.zeros(2)}
    dense = Dense({"a": like["a"]}, jnp.eye(2), jnp.eye(2))
    chained = Chained(
        Diagonal(like, {"a": 1.0, "b": 1.0}), Blocks(dense, Diagonal({"b": like["b"]}, {"b": jnp.ones(2)}))
    )
    draws = np.random.default_rng(0).normal(size=(500, 16, 4)) * [5.0, 1.0, 1.0, 7.0]
    better = improved(chained, draws, effective=1e5)
    root = np.asarray(better.inner.dense.factor, float)
    assert np.allclose(root @ root.T, np.diag([25.0, 1.0]), rtol=0.1, atol=0.4)
    assert np.allclose(better.inner.diagonal.scale["b"], [1.0, 7.0], rtol=0.1)
    assert improved(better, np.random.default_rng(1).normal(size=(500, 16, 4)), effective=1e5) is None
