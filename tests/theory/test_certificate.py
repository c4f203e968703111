"""Weak orders on the shipped steps, against the algebra, against broken steps and against the generator itself."""

from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import permutations, product
from math import factorial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import strang
from schemes import ALL, COORDINATE, KICK, RIEMANN, label, scheme
from strang.data.orders import ORDERS
from strang.dynamics.fields import example
from strang.dynamics.sghmc import damp, drift, kick_and_noise
from strang.dynamics.sgrhmc import bowl
from strang.integrators.words import Substep
from strang.theory.certificate import weak
from strang.theory.certificate.algebra import word_order
from strang.theory.certificate.invariant import invariant_order, second_moment
from strang.theory.certificate.problem import gradient, random_problem, state_at
from strang.theory.certificate.stationary import MAX_IMBALANCE, imbalance
from strang.theory.certificate.weak import exact_coefficients, weak_order
from strang.theory.cubature import circle, gaussian_cubature, taylor
from strang.theory.linear import linearise
from strang.util.errors import InputError


@pytest.fixture(autouse=True, scope="module")
def reference_once():
    """The SDE's own coefficients, with which steps are compared, do not depend on the step: each is computed once."""
    known, compute = {}, weak.exact_coefficients

    def exact(dynamics, problem, *numbers):
        key = dynamics, problem.slope.shape, *numbers
        if key not in known:
            known[key] = compute(dynamics, problem, *numbers)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weak, "exact_coefficients", exact)
        yield


@lru_cache
def certified(tested, batches="full", dimensions=(2,)):
    return weak_order(tested.step, tested.dynamics, batches, dimensions=dimensions)


SIMILAR = [s for s in ALL if isinstance(s.dynamics, strang.SGNHT) and len(s.letters) == 7 and s.letters.isupper()]
SELECTED = [s for s in ALL if s not in SIMILAR or s in SIMILAR[::4]]  # of the 24 palindromes of ABDO every fourth


@pytest.mark.parametrize("tested", SELECTED, ids=label)
def test_every_step_has_the_weak_order_it_claims(tested):
    certificate = certified(tested)
    assert certificate.order == tested.step.order
    *below, at = certificate.mismatch
    assert max(below) < 1e-11
    assert at > 1e-5


@pytest.mark.parametrize(
    "tested", [scheme("chen:ABOBA"), scheme("quicsort"), scheme("leimkuhler:BADODAB", strang.SGNHT)], ids=label
)
def test_in_one_dimension_too(tested):
    assert certified(tested, dimensions=(1,)).order == tested.step.order


def test_the_fixed_point_sweeps_of_the_riemannian_default_suffice():
    assert weak_order("chen:OBABO", strang.SGRHMC, dimensions=(1,)).order == 2


@pytest.mark.parametrize("friction", [0.05, 10.0, 200.0])
def test_the_order_does_not_depend_on_the_friction(friction):
    assert weak_order(scheme("quicsort").step, strang.SGHMC(friction=friction), dimensions=(2,)).order == 3


@pytest.mark.parametrize("batches", ORDERS)
@pytest.mark.parametrize("name", ["chen:ABOBA", "chen:OBABO", "leimkuhler:BAOAB", "ubu:BUB", "leimkuhler:BAOA"])
def test_minibatch_orders_are_those_of_the_algebra(name, batches):
    tested = scheme(name)
    expected = word_order(tested.letters, batches, kick=KICK[tested.alphabet], highest=3)
    assert certified(tested, batches).order == expected


def test_minibatch_orders_of_the_default_are_written_down():
    orders = {batches: certified(scheme("chen:ABOBA"), batches).order for batches in ORDERS}
    assert orders == {"full": 2, "iid": 1, "reshuffled": 2, "symmetric": 2, "cyclic": 1}


@pytest.mark.parametrize(
    ("kind", "name", "orders"),
    [
        (strang.SGLD, "euler", [1, 1, 1, 1, 1]),
        (strang.SGLD, "averaged-noise", [1, 1, 1, 1, 1]),
        (strang.SGHMC, "nogin", [2, 1, 2, 2, 1]),
        (strang.SGHMC, "quicsort", [3, 1, 2, 2, 1]),
    ],
)
def test_minibatch_orders_of_steps_that_are_no_words(kind, name, orders):
    certificates = [certified(scheme(name, kind), batches) for batches in ORDERS]
    assert [certificate.order for certificate in certificates] == orders
    assert max(gap for certificate in certificates for gap in certificate.mismatch[:-1]) < 1e-11


def test_thermostats_do_not_change_what_reshuffling_gives():
    tested = scheme("chen:ABOBA", strang.SGNHT)
    assert [certified(tested, batches).order for batches in ("iid", "reshuffled", "symmetric")] == [1, 2, 2]


def test_a_word_whose_letters_commute_is_better_than_it_looks():
    step = strang.spell(strang.SGNHT, "leimkuhler:BADOADB")  # D and A commute: it is BADODAB
    assert step.order == 1
    assert weak_order(step, strang.SGNHT, dimensions=(2,)).order == 2


# Broken steps must be demoted.


def substeps(dynamics, state, moves, gradient, noise, h):
    """Apply (flow, fraction of the step) pairs with the gradient at the current position."""
    for flow, fraction in moves:
        state = flow(dynamics, state, Substep(fraction * h, gradient(state.position), noise, h))
    return state


def loud(factor, dynamics, state, h, gradient, noise):
    """chen:ABOBA with noise of a wrong variance."""
    noise = tuple(np.sqrt(factor) * xi for xi in noise)
    return scheme("chen:ABOBA").step.function(dynamics, state, h, gradient, noise)


def lumped(dynamics, state, h, gradient, noise):
    """All friction after the kick."""
    moves = ((drift, 0.5), (kick_and_noise, 1), (damp, 1), (drift, 0.5))
    return substeps(dynamics, state, moves, gradient, noise, h)


def one_sided(dynamics, state, h, gradient, noise):
    """The second half of the drift is made with the first."""
    moves = ((drift, 1), (damp, 0.5), (kick_and_noise, 1), (damp, 0.5))
    return substeps(dynamics, state, moves, gradient, noise, h)


def forgetful(dynamics, state, h, gradient, noise):
    """The second half of the drift is missing altogether."""
    moves = ((drift, 0.5), (damp, 0.5), (kick_and_noise, 1), (damp, 0.5))
    return substeps(dynamics, state, moves, gradient, noise, h)


def linear_friction(dynamics, state, h, gradient, noise):
    """1 − Dh/2 in place of e^{−Dh/2}."""
    return strang.spell(strang.SGHMC, "chen:AbObA").function(dynamics, state, h, gradient, noise)


def restless(dynamics, state, h, gradient, noise):
    """Noise that is there at h = 0."""
    return lumped(dynamics, state._replace(momentum=state.momentum + 1e-3 * noise[0]), h, gradient, noise)


@pytest.mark.parametrize(
    ("function", "order"),
    [
        (partial(loud, 2.0), 0),
        (partial(loud, 1.1), 0),
        (partial(loud, 1.0), 2),
        (lumped, 1),
        (one_sided, 1),
        (forgetful, 0),
        (linear_friction, 1),
        (restless, 0),
    ],
    ids=[
        "noise 4D",
        "noise +10 %",
        "as it should be",
        "lumped",
        "one-sided",
        "forgetful",
        "linear friction",
        "restless",
    ],
)
def test_broken_steps_are_demoted(function, order):
    broken = strang.Step("broken", function, order=2, gradients=1, noises=1)
    assert weak_order(broken, strang.SGHMC, dimensions=(1,)).order == order


def test_a_step_may_have_no_noise():
    idle = strang.Step("idle", lambda dynamics, state, *rest: state, order=0, gradients=0, noises=0)
    assert weak_order(idle, strang.SGHMC, dimensions=(1,)).order == 0


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Straight(strang.SGRHMC):
    """SGRHMC without ν, as the paper's appendix leaves it."""

    def bend(self, position, momentum):
        return jax.tree.map(jnp.zeros_like, position)


def test_the_riemannian_dynamics_without_nu_is_another_sde():
    step = scheme("chen:BOAOB", strang.SGRHMC).step
    crooked = Straight(metric=bowl, friction=1.3, iterations=3)
    broken = strang.Step("no nu", lambda dynamics, *rest: step(crooked, *rest), order=2, gradients=1, noises=2)
    assert weak_order(broken, RIEMANN, dimensions=(1,)).order == 0


def test_a_thermostat_that_forgets_to_divide_by_n_is_another_sde():
    step = scheme("leimkuhler:BADODAB", strang.SGNHT).step

    def hot(dynamics, state, h, gradient, noise):
        return step(strang.SGNHT(1.3, gain=1.4), state, h, gradient, noise)

    broken = strang.Step("hot", hot, order=2, gradients=2, noises=1)
    assert weak_order(broken, strang.SGNHT, dimensions=(2,)).order == 0


@pytest.mark.parametrize("pair", [(0, 2), (1, 6)])
def test_a_normal_that_two_coordinates_share_is_noticed(pair):
    """Two coordinates alone would not show it: the certificate looks at three, and at eight for the first order."""
    first, second = pair

    def sharing(dynamics, state, h, gradient, noise):
        (normals,) = noise
        if len(normals) > second:
            normals = normals.at[second].set(normals[first])
        return scheme("chen:ABOBA").step.function(dynamics, state, h, gradient, (normals,))

    broken = strang.Step("sharing", sharing, order=2, gradients=1, noises=1)
    assert weak_order(broken, strang.SGHMC, max_order=2).order == 0
    assert weak_order(broken, strang.SGHMC, max_order=2, dimensions=(1, 2)).order == 2


@pytest.mark.parametrize(("factor", "order"), [(1.0, 1), (1.01, 0)])
def test_the_position_that_is_averaged_is_looked_at(factor, order):
    """The base of SGLD's state is right here, and its position is not."""

    def shifted(dynamics, state, h, gradient, noise):
        moved = strang.SGLD.steps["euler"].function(dynamics, state, h, gradient, noise)
        return moved._replace(position=factor * moved.position)

    step = strang.Step("shifted", shifted, order=1, gradients=1, noises=1)
    assert weak_order(step, strang.SGLD, max_order=2, dimensions=(1,)).order == order


@pytest.mark.parametrize("word", ["chen:ABOBA", "chen:BOA"])
@pytest.mark.parametrize("iterations", [1, 2])
def test_spelling_knows_the_accuracy_of_the_implicit_flow(word, iterations):
    dynamics = strang.SGRHMC(metric=bowl, friction=1.3, iterations=iterations)
    assert weak_order(word, dynamics, max_order=2, dimensions=(2,)).order == strang.spell(dynamics, word).order
    assert strang.spell(strang.SGRHMC, "chen:ABOBA").order == 2


# Densities.

KEPT = {
    **{kind.__name__: example(kind) for kind in (strang.SGLD, strang.SGHMC, strang.SGNHT, strang.SGRHMC)},
    "one thermostat per coordinate": COORDINATE,
    "SGRLD": strang.SGRLD(),
    "SGRLD, own metric": strang.SGRLD(inverse_metric=lambda t: 1 / (1.2 + 0.4 * t * t)),
    "SGRHMC, matrix": strang.SGRHMC(
        metric=lambda q: (2 + jnp.sum(q * q)) * jnp.eye(len(q)) + 0.3 * jnp.outer(q, q), friction=1.3
    ),
}
LOST = {
    "SGRHMC, one number for a vector": strang.SGRHMC(metric=lambda q: 1.2 + jnp.sum(q * q), friction=1.3),
    "SGRHMC without ν": Straight(metric=bowl, friction=1.3),
    "SGRLD, mixed coordinates": strang.SGRLD(inverse_metric=lambda t: jnp.full_like(t, 1 / (1.2 + jnp.sum(t * t)))),
}


@pytest.mark.parametrize("name", KEPT)
def test_every_dynamics_keeps_its_density(name):
    assert all(imbalance(KEPT[name], dimension=n) < 1e-12 for n in (1, 3))


@pytest.mark.parametrize("name", LOST)
def test_a_dynamics_of_another_density_is_noticed(name):
    """The coded SDE is then consistent with its steps, but not with exp(−U)."""
    assert imbalance(LOST[name]) > 1e-3 > MAX_IMBALANCE
    word = "euler" if isinstance(LOST[name], strang.SGRLD) else "chen:ABOBA"
    certificate = weak_order(word, LOST[name], max_order=2, dimensions=(2,))
    assert certificate.order == 0
    assert certificate.mismatch[0] < 1e-11  # the step is right for the wrong SDE


def test_a_dynamics_that_does_not_say_what_it_keeps():
    @jax.tree_util.register_dataclass
    @dataclass(frozen=True)
    class Silent(strang.SGLD):
        energy = None

    assert imbalance(Silent()) is None
    assert weak_order("euler", Silent(), max_order=1, dimensions=(1,)).order == 1


# The parts.


@pytest.mark.parametrize("dynamics", [example(strang.SGLD), COORDINATE, RIEMANN], ids=lambda d: type(d).__name__)
def test_the_reference_is_the_generator(dynamics):
    """L f and L² f / 2 by Euler steps are those of automatic differentiation."""
    with jax.enable_x64(True):
        problem = random_problem(dynamics, 2)
        force = partial(gradient, problem, (0.5, 0.5))
        point = jnp.asarray(problem.points[0])
        direction = jnp.asarray(problem.tests[0, : len(point)])

        def generator(f):
            def applied(x):
                state = jax.tree.map(jnp.real, state_at(dynamics, problem, x))
                slope, amplitude = (
                    ravel_pytree(t)[0] for t in (dynamics.drift(state, force), dynamics.diffusion(state))
                )
                return slope @ jax.grad(f)(x) + 0.5 * amplitude**2 @ jnp.diagonal(jax.hessian(f)(x))

            return applied

        once = generator(lambda y: (1 + direction @ (y - point)) ** 8)
        expected = [jax.jit(once)(point), jax.jit(generator(once))(point) / 2]
        coefficients = exact_coefficients(dynamics, problem, 1, 3, 0.01)[0, 0, 1:3]
    np.testing.assert_allclose(coefficients, expected, rtol=1e-9)


def gaussian_moment(powers) -> int:
    """E Π ξ_i^p_i."""
    return (
        0
        if any(p % 2 for p in powers)
        else int(np.prod([factorial(p) // (2 ** (p // 2) * factorial(p // 2)) for p in powers]))
    )


@pytest.mark.parametrize(("dimension", "degree"), [(1, 8), (2, 7), (3, 6), (5, 4), (6, 8)])
def test_the_cubature_is_exact_up_to_its_degree(dimension, degree):
    nodes, weights = gaussian_cubature(dimension, degree)
    exact = 2 * (degree // 2) + 1
    for powers in product(range(exact + 1), repeat=dimension) if dimension < 4 else spread_powers(dimension, exact):
        if sum(powers) <= exact:
            assert weights @ np.prod(nodes**powers, axis=1) == pytest.approx(gaussian_moment(powers), abs=1e-10)
    assert weights @ nodes[:, 0] ** (4 * degree) != pytest.approx(gaussian_moment((4 * degree,)))


def spread_powers(dimension: int, degree: int):
    """Some of each kind of exponent, in many coordinates."""
    kinds = [(degree - 1,), (4, 2), (2, 2, 2), (2, 2, 2, 2), (1, 2), (3, 1), (4, 4), (6, 2), (3, 3, 2), (1,) * 4]
    for kind in kinds:
        for places in list(permutations(range(dimension), len(kind)))[::7]:
            powers = np.zeros(dimension, int)
            powers[list(places)] = kind
            yield tuple(powers)


def test_taylor_coefficients_of_a_function_with_a_square_root_inside():
    h = circle(0.2)
    np.testing.assert_allclose(taylor(np.sqrt(h) * np.tanh(np.sqrt(h)), h, 3), [0, 1, -1 / 3, 2 / 15], atol=1e-12)


# Orders of the invariant measure.


@pytest.mark.parametrize("tested", [s for s in ALL if s.dynamics is not RIEMANN], ids=label)
def test_invariant_orders_with_full_gradients(tested):
    assert invariant_order(tested.step, tested.dynamics) == tested.invariant


@pytest.mark.parametrize(
    ("name", "orders"),
    [
        ("chen:ABOBA", [2, 1, 2, 2, 2]),
        ("euler-old", [1, 1, 1, 1, 1]),
        ("euler-new", [2, 1, 2, 2, 2]),
        ("leimkuhler:BAOAB", ["exact", 1, 3, 4, 4]),
        ("opsi4o-mclachlan", [4, 1, 3, 4, 4]),
        ("quicsort", [3, 1, 3, 3, 3]),
    ],
)
def test_invariant_orders_with_minibatches(name, orders):
    assert [invariant_order(scheme(name).step, strang.SGHMC, batches) for batches in ORDERS] == orders


def test_invariant_orders_of_averaged_noise():
    step = strang.SGLD.steps["averaged-noise"]
    assert [invariant_order(step, strang.SGLD, batches) for batches in ORDERS] == ["exact", 1, 2, 2, 2]


def test_known_gradient_noise_is_corrected_with_independent_batches_only():
    known = strang.SGHMC(friction=1.3, gradient_noise=0.8)
    assert [invariant_order(scheme(name).step, known, "iid") for name in ("chen:ABOBA", "nogin")] == [2, "exact"]
    assert [invariant_order(scheme(name).step, known) for name in ("chen:ABOBA", "nogin")] == [1, 1]


def test_the_riemannian_dynamics_is_linear_where_its_metric_is_constant():
    step = scheme("chen:BOAOB", strang.SGRHMC).step
    assert invariant_order(step, strang.SGRHMC) == 2
    assert invariant_order(step, RIEMANN) is None


def test_a_step_with_strong_noise_has_no_invariant_order():
    broken = strang.Step("loud", partial(loud, 1.1), order=2, gradients=1, noises=1)
    assert invariant_order(broken, strang.SGHMC) == 0


@pytest.mark.parametrize("forever", [False, True])
def test_the_second_moment_over_a_period_is_that_of_a_long_run_of_moments(forever):
    """Two batches ±√V: enumerate the orders and iterate the exact moments until they settle."""
    maps = linearise(scheme("chen:ABOBA").step, example(strang.SGHMC), 1.0, np.array([0.7]))
    rows = np.array([[1.5], [-1.5]])
    transition, push, noise = (m[0] for m in maps)
    mean, second = np.zeros(2), np.zeros((2, 2))
    for _ in range(400):
        after, second_moments = [], []
        for order in ([0, 1],) if forever else ([0, 1], [1, 0]):
            m, s = mean, second
            for batch in order:
                b = push * rows[batch, 0]
                s = transition @ s @ transition.T + noise @ noise.T
                s = s + np.outer(transition @ m, b) + np.outer(b, transition @ m) + np.outer(b, b)
                m = transition @ m + b
                second_moments.append(s[0, 0])
            after.append((m, s))
        mean, second = (np.mean(part, axis=0) for part in zip(*after, strict=True))
    assert second_moment(maps, rows, forever)[0] == pytest.approx(np.mean(second_moments), rel=1e-12)


@pytest.mark.parametrize("function", [weak_order, invariant_order])
def test_refusals(function):
    with pytest.raises(InputError, match="batch_order 'random' is unknown; choose one of: full, iid, reshuffled"):
        function("chen:ABOBA", strang.SGHMC, "random")
    with pytest.raises(InputError, match="'ABOBA' is ambiguous for SGHMC"):
        function("ABOBA", strang.SGHMC)


def test_orders_beyond_four_are_not_looked_for():
    with pytest.raises(InputError, match="max_order 5 is unknown; choose one of: 1, 2, 3, 4"):
        weak_order("chen:ABOBA", strang.SGHMC, max_order=5)
