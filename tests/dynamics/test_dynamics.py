"""Dynamics keep their densities, their letters add up to the SDE, and any pytree and dtype will do."""

from decimal import Decimal, localcontext
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import strang
from schemes import ALL, COORDINATE, RIEMANN, label, palindromes, scheme
from strang.dynamics.fields import example
from strang.dynamics.sghmc import SGHMCState, free
from strang.integrators.exponentials import decay, decay_gap, tanh_gap
from strang.integrators.words import Substep


def dense(position):
    """A full metric matrix."""
    flat = ravel_pytree(position)[0]
    return 1.5 * jnp.eye(flat.size, dtype=flat.dtype) + 0.3 * jnp.outer(flat, flat)


def elementwise(position):
    """A diagonal metric, each entry a function of its own coordinate."""
    return jax.tree.map(lambda x: 1 + x * x / 2, position)


def diagonal_matrix(position):
    """The same as a matrix."""
    return jnp.diag(ravel_pytree(elementwise(position))[0])


DENSE = strang.SGRHMC(metric=dense, friction=1.3)
DYNAMICS = [example(kind) for kind in (strang.SGLD, strang.SGHMC, strang.SGNHT)] + [COORDINATE, RIEMANN, DENSE]
names = ["SGLD", "SGHMC", "SGNHT", "SGNHT coordinate", "SGRHMC", "SGRHMC dense"]


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def potential(q):
    return jnp.sum(jnp.cos(q)) + 0.3 * jnp.sum(q) ** 2 + 0.1 * jnp.sum(q**4)


force = jax.grad(potential)


def somewhere(dynamics, dimension=3, seed=0):
    """A random point of the SDE's coordinates, flat, and the way to a state."""
    zero = jnp.zeros(dimension)
    flat, unravel = ravel_pytree(dynamics.coordinates(dynamics.init(zero, zero)))
    return jnp.asarray(np.random.default_rng(seed).normal(size=flat.size)), lambda x: dynamics.at(*unravel(x))


# Densities.


def log_density(dynamics, state):
    """The logarithm of the density that the dynamics' docstring promises."""
    T = dynamics.temperature
    if isinstance(dynamics, strang.SGLD):
        return -potential(state.base) / T
    result = -potential(state.position)
    if isinstance(dynamics, strang.SGRHMC):
        metric = dynamics.metric(state.position)
        metric = metric if metric.ndim == 2 else jnp.diag(metric)
        kinetic = 0.5 * state.momentum @ jnp.linalg.solve(metric, state.momentum)
        return (result - kinetic) / T - 0.5 * jnp.linalg.slogdet(metric)[1]
    result = result - 0.5 * state.momentum @ state.momentum
    if isinstance(dynamics, strang.SGNHT):
        weight = 1 if dynamics.thermostat == "coordinate" else state.momentum.size
        result = result - weight * jnp.sum((state.thermostat - dynamics.friction) ** 2) / (2 * dynamics.gain)
    return result / T


def stationarity(dynamics, log_density):
    """(L* π)/π at a random point, which is 0 if the SDE keeps π."""
    point, state_at = somewhere(dynamics)

    def drift(x):
        return ravel_pytree(dynamics.drift(state_at(x), force))[0]

    def logarithm(x):
        return log_density(dynamics, state_at(x))

    @jax.jit
    def change(x):
        amplitude = ravel_pytree(dynamics.diffusion(state_at(x)))[0]  # constant in all of them
        slope, bend = jax.grad(logarithm)(x), jnp.diagonal(jax.hessian(logarithm)(x))
        flow = jnp.trace(jax.jacfwd(drift)(x)) + drift(x) @ slope
        return -flow + 0.5 * amplitude**2 @ (bend + slope**2)

    return float(change(point))


@pytest.mark.parametrize("dynamics", DYNAMICS, ids=names)
def test_the_sde_keeps_the_density_it_promises(dynamics):
    assert stationarity(dynamics, log_density) == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("dynamics", DYNAMICS[1:], ids=names[1:])
def test_the_sde_does_not_keep_another_density(dynamics):
    def colder(dynamics, state):
        return 1.1 * log_density(dynamics, state)

    assert abs(stationarity(dynamics, colder)) > 1e-3


# Letters add up.


ALPHABETS = [(d, name, alphabet) for d, name in zip(DYNAMICS, names, strict=True) for alphabet in d.alphabets]


def limits(dynamics, pieces, euler):
    """Per unit time: the sum of the letters' moves, and of the variances of their noise."""
    h = 1e-7
    point, state_at = somewhere(dynamics)
    state = state_at(point)
    gradient = force(state.position)

    def moved(piece, noise):
        move = piece.euler if euler and piece.euler else piece.flow
        return ravel_pytree(dynamics.coordinates(move(dynamics, state, Substep(h, gradient, noise, h))))[0]

    drift = variance = 0
    for piece in pieces:
        silence = (jnp.zeros_like(state.position),) * piece.noises
        drift = drift + (moved(piece, silence) - point) / h
        for i in range(piece.noises):
            one = jnp.sqrt(dynamics.temperature) * jnp.ones_like(state.position)  # a step's normals have the variance T
            loud = (*silence[:i], one, *silence[i + 1 :])
            variance = variance + (moved(piece, loud) - moved(piece, silence)) ** 2 / h
    expected = [ravel_pytree(part)[0] for part in (dynamics.drift(state, force), dynamics.diffusion(state))]
    return (drift, variance), (expected[0], expected[1] ** 2)


@pytest.mark.parametrize("euler", [False, True], ids=["flows", "Euler steps"])
@pytest.mark.parametrize(("dynamics", "name", "alphabet"), ALPHABETS, ids=[f"{n} {a}" for _, n, a in ALPHABETS])
def test_letters_add_up_to_the_sde(dynamics, name, alphabet, euler):
    actual, expected = limits(dynamics, dynamics.alphabets[alphabet].values(), euler)
    np.testing.assert_allclose(actual[0], expected[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(actual[1], expected[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("dynamics", "name", "alphabet"), ALPHABETS, ids=[f"{n} {a}" for _, n, a in ALPHABETS])
def test_letters_do_not_add_up_without_one_of_them(dynamics, name, alphabet):
    pieces = list(dynamics.alphabets[alphabet].values())
    for left_out in range(len(pieces)):
        actual, expected = limits(dynamics, pieces[:left_out] + pieces[left_out + 1 :], False)
        assert not np.allclose(actual[0], expected[0], rtol=1e-3, atol=1e-3)


# Any pytree, dtype and metric.

TREES = [
    *(scheme(name, strang.SGLD) for name in strang.SGLD.steps),
    *(scheme(name) for name in ("chen:ABOBA", "leimkuhler:BAOAB", "ubu:UBU", *strang.SGHMC.steps)),
    *(scheme(name, strang.SGNHT) for name in ("chen:ABOBA", "leimkuhler:BADODAB", "euler")),
    next(s for s in ALL if s.dynamics is COORDINATE),
    scheme("chen:BOAOB", strang.SGRHMC)._replace(dynamics=strang.SGRHMC(metric=elementwise, iterations=3)),
]


def tree(dtype=float):
    """A position with structure."""
    return {"a": jnp.linspace(-1, 1, 3).astype(dtype), "b": [jnp.full((2, 2), 0.4, dtype), jnp.asarray(0.2, dtype)]}


def vector_gradient(position):
    flat, unravel = ravel_pytree(position)
    return unravel(force(flat))


@pytest.mark.parametrize("tested", TREES, ids=label)
def test_the_position_may_be_any_tree(tested):
    @jax.jit
    def move(position, normals):
        state = tested.dynamics.init(position, position)
        return tested.step(tested.dynamics, state, 0.1, vector_gradient, normals)

    flat, unravel = ravel_pytree(tree())
    normals = tuple(jnp.sin(flat + i) for i in range(tested.step.noises))
    structured, plain = move(tree(), tuple(map(unravel, normals))), move(flat, normals)
    np.testing.assert_allclose(ravel_pytree(structured)[0], ravel_pytree(plain)[0], rtol=1e-13)


def kept_types(tested, dtype, size_type):
    """Dtypes of the state before and after a step, traced under jit and vmap."""

    def move(state, h, normals):
        return tested.step(tested.dynamics, state, h, partial(jax.tree.map, jnp.sin), normals)

    state = tested.dynamics.init(tree(dtype), tree(dtype))
    batch = partial(jax.tree.map, lambda x: jnp.stack([x, x]))
    normals = tuple(tree(dtype) for _ in range(tested.step.noises))
    after = jax.eval_shape(jax.jit(jax.vmap(move)), batch(state), jnp.ones(2, size_type), batch(normals))
    return [[leaf.dtype for leaf in jax.tree.leaves(s)] for s in (state, after)]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("tested", TREES[:-1], ids=label)
def test_states_keep_their_dtype(tested, dtype):
    for size_type in ("float32", "float64"):
        before, after = kept_types(tested, dtype, size_type)
        assert before == after


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_riemannian_states_keep_their_dtype(dtype):
    before, after = kept_types(TREES[-1], dtype, "float64")
    assert before == after


def test_numbers_of_the_dynamics_may_be_a_batch_axis():
    step = scheme("ubu:UBU").step
    state, normals = SGHMCState(jnp.asarray(0.5), jnp.asarray(-0.2)), tuple(jnp.asarray([0.3, -1.0, 0.7, 0.1]))

    def move(friction, h):
        return step(strang.SGHMC(friction=friction), state, h, lambda q: q, normals)

    frictions, sizes = jnp.asarray([0.5, 10.0, 30.0]), jnp.asarray([0.1, 0.01, 0.2])
    together = jax.jit(jax.vmap(move))(frictions, sizes)
    for i in range(3):
        np.testing.assert_allclose([part[i] for part in together], move(frictions[i], sizes[i]), rtol=1e-13)


@pytest.mark.parametrize("word", palindromes("ABO"))
def test_the_riemannian_dynamics_with_metric_one_is_sghmc(word):
    flat = strang.SGRHMC(metric=lambda q: jax.tree.map(jnp.ones_like, q), friction=1.3)
    plain = strang.SGHMC(friction=1.3)
    q, p = jnp.asarray([0.3, -0.8]), jnp.asarray([0.5, 0.9])
    steps = [strang.spell(kind, f"chen:{word}") for kind in (flat, plain)]
    normals = tuple(jnp.asarray([0.4, -0.6]) * (i + 1) for i in range(steps[0].noises))
    actual, expected = (s(d, SGHMCState(q, p), 0.1, force, normals) for s, d in zip(steps, (flat, plain), strict=True))
    for part in range(2):
        np.testing.assert_allclose(actual[part], expected[part], rtol=0, atol=5e-16)


def test_a_diagonal_metric_may_be_a_matrix():
    q, p, z = (jnp.asarray(x) for x in ([0.3, -0.8], [0.5, 0.9], [0.4, -0.6]))
    step = strang.spell(strang.SGRHMC, "chen:BOAOB")
    diagonal, matrix = (strang.SGRHMC(metric=m, friction=1.3) for m in (elementwise, diagonal_matrix))
    actual, expected = (step(d, d.init(q, p), 0.1, force, (z, -z)) for d in (matrix, diagonal))
    np.testing.assert_allclose(actual, expected, rtol=1e-13)
    state = diagonal.init(q, p)
    np.testing.assert_allclose(state.momentum, jnp.sqrt(elementwise(q)) * p, rtol=1e-15)
    for dynamics in (diagonal, matrix):
        assert float(dynamics.kinetic_temperature(state)) == pytest.approx(float(p @ p) / 2, rel=1e-13)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_a_large_metric_matrix_in_single_precision_keeps_its_volume(scale):
    """det G is 1e150 or 1e-150 here, which no single-precision number is."""
    q = jnp.linspace(-1, 1, 50, dtype=jnp.float32)
    metrics = [lambda q: scale * elementwise(q), lambda q: scale * diagonal_matrix(q)]
    expected, actual = (strang.SGRHMC(metric=metric).slope(q, jnp.zeros_like(q)) for metric in metrics)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-7)
    assert float(jnp.abs(expected).max()) > 0.1


def test_one_thermostat_each_is_one_for_all_in_one_dimension():
    one, each = (strang.SGNHT(friction=1.3, gain=0.7, thermostat=kind) for kind in ("scalar", "coordinate"))
    step, q, p = scheme("leimkuhler:BADODAB", strang.SGNHT).step, jnp.asarray([0.3]), jnp.asarray([1.5])
    actual, expected = (step(d, d.init(q, p), 0.1, force, (q,)) for d in (each, one))
    np.testing.assert_allclose(ravel_pytree(actual)[0], ravel_pytree(expected)[0], rtol=1e-14)


def test_one_thermostat_each_feels_its_own_coordinate_only():
    step = next(s.step for s in ALL if s.dynamics is COORDINATE)
    q, p = jnp.zeros(2), jnp.asarray([2.0, 0.1])
    hot, cold = step(COORDINATE, COORDINATE.init(q, p), 0.1, force, (q,)).thermostat
    assert hot > COORDINATE.friction > cold


def test_a_thermostat_starts_at_start_or_at_the_friction():
    q = jnp.zeros(3)
    assert strang.SGNHT(friction=2.0).init(q, q).thermostat == 2.0
    assert strang.SGNHT(friction=2.0, start=5.0).init(q, q).thermostat == 5.0
    started = strang.SGNHT(friction=2.0, start=5.0, thermostat="coordinate").init(q, q).thermostat
    assert started.tolist() == [5.0] * 3


def test_a_thermostat_of_either_sign_damps_or_drives():
    """dp = −ξ p dt + √(2D) dW has variance D (1 − e^−2ξt)/ξ also where ξ < 0, and 2Dt at ξ = 0."""
    piece, dynamics = strang.SGNHT.alphabets["leimkuhler"]["O"], strang.SGNHT(friction=1.3)
    for xi, variance in ((2.0, 1.3 * -np.expm1(-0.4) / 2), (-2.0, 1.3 * np.expm1(0.4) / 2), (0.0, 0.26)):
        state = dynamics.at(jnp.zeros(1), jnp.zeros(1), jnp.asarray(xi))
        moved = piece.flow(dynamics, state, Substep(0.1, None, (jnp.ones(1),), 0.1))
        assert moved.momentum[0] ** 2 == pytest.approx(variance, rel=1e-13)


# Coefficients without cancellation, against fifty-digit arithmetic.

ARGUMENTS = [0.0, 1e-6, 1e-4, 1e-3, 0.03, 0.3, 0.9, 1.1, 2.0, 3.9, 4.1, 10.0]


def precise(formula, x: float) -> float:
    """formula(x) in fifty digits."""
    with localcontext() as context:
        context.prec = 50
        return float(formula(Decimal(x)))


def tanh(x: Decimal) -> Decimal:
    return ((2 * x).exp() - 1) / ((2 * x).exp() + 1)


FORMULAS = {
    decay: (lambda x: (1 - (-x).exp()) / x, 1.0),
    decay_gap: (lambda x: (x - 1 + (-x).exp()) / x**2, 0.5),
    tanh_gap: (lambda x: 2 * (x - 2 * tanh(x / 2)) / x**2, 0.0),
}


@pytest.mark.parametrize(("dtype", "accuracy"), [("float32", 4e-7), ("float64", 2e-15), ("complex128", 2e-15)])
@pytest.mark.parametrize("function", FORMULAS, ids=lambda f: f.__name__)
def test_exponential_coefficients(function, dtype, accuracy):
    formula, limit = FORMULAS[function]
    for x in np.asarray(ARGUMENTS, dtype):
        expected = precise(formula, float(x.real)) if x else limit
        assert complex(function(jnp.asarray(x))) == pytest.approx(expected, rel=accuracy)


def test_the_naive_formula_would_fail_in_single_precision():
    x = np.float32(1e-3)
    naive = 2 * (x - 2 * np.tanh(x / 2)) / x**2
    assert naive != pytest.approx(precise(FORMULAS[tanh_gap][0], float(x)), rel=1e-2)


@pytest.mark.parametrize("x", ARGUMENTS[1:])
def test_the_joint_flow_of_ubu_is_accurate_in_single_precision(x):
    """Friction 1, time x: the response to p, ξ1 and ξ2, each to a few roundings."""
    x = float(np.float32(x))

    def response(momentum, along, aside):
        zero = jnp.zeros((), jnp.float32)
        normals = tuple(jnp.asarray(n, jnp.float32) for n in (along, aside))
        state = SGHMCState(zero, jnp.asarray(momentum, jnp.float32))
        return free(strang.SGHMC(friction=1.0), state, Substep(jnp.float32(x), None, normals, None))

    position, momentum = response(1, 0, 0)
    assert float(position) == pytest.approx(precise(lambda x: 1 - (-x).exp(), x), rel=1e-6)
    assert float(momentum) == pytest.approx(precise(lambda x: (-x).exp(), x), rel=1e-6)
    position, momentum = response(0, 1, 0)
    assert float(momentum) == pytest.approx(precise(lambda x: (1 - (-2 * x).exp()).sqrt(), x), rel=1e-6)
    covariance = precise(lambda x: (1 - (-x).exp()) ** 2, x)
    assert float(position) * float(momentum) == pytest.approx(covariance, rel=2e-6)
    aside, still = response(0, 0, 1)
    assert still == 0
    variance = precise(lambda x: 2 * x - 3 + 4 * (-x).exp() - (-2 * x).exp(), x)
    assert float(position) ** 2 + float(aside) ** 2 == pytest.approx(variance, rel=4e-6)
