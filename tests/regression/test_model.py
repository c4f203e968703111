"""The regression model against closed forms: densities, units, covariances, and coordinates that are exactly white."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from jax.flatten_util import ravel_pytree
from scipy import integrate, stats

from strang.data.batches import arrays
from strang.gradients.full import full_potential
from strang.regression import covariance
from strang.regression.defaults import all_priors
from strang.regression.effects import Term, Whitened
from strang.regression.families import FAMILIES, family_of
from strang.regression.fit import arrow_pass, fitted_coordinates, host, whitened_at
from strang.regression.formula import parse
from strang.regression.gradient import Known, linear, remainder
from strang.regression.learning import learn
from strang.regression.model import RegressionModel, labels_of
from strang.regression.priors import ARGUMENTS, POSITIVE, REAL, prior
from strang.regression.rows import Request, build
from strang.regression.several import reparametrised
from strang.regression.tables import open_table
from strang.util.errors import InputError

OPTIONS = {"weights": None, "trials": None, "missing": "error"}


def modelled(formula, table, family="normal", **options):
    """The model of a table, and its rows."""
    source = open_table(table)
    encoding = learn(parse(formula), family_of(family), source, {**OPTIONS, **options})
    model = RegressionModel(encoding, all_priors(encoding, None), labels_of(encoding))
    return model, build(Request(encoding, source, 0.0, 0), None, False).data.rows


def table(rows=60, groups=5, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"x": rng.normal(2000, 5, rows), "w": rng.normal(size=rows), "g": rng.integers(0, groups, rows)}
    )
    frame["y"] = 3 + 0.2 * (frame["x"] - 2000) + rng.normal(size=groups)[frame["g"]] + rng.normal(size=rows)
    return frame.assign(k=rng.poisson(2.0, rows), c=rng.choice(["a", "b", "c"], rows))


DENSITIES = {  # η, y, parameters, trials, and what SciPy has for it
    "normal": (0.3, 1.2, {"sigma": 0.7}, None, stats.norm(0.3, 0.7).logpdf(1.2)),
    "student": (0.3, 1.2, {"sigma": 0.7, "nu": 4.5}, None, stats.t(4.5, 0.3, 0.7).logpdf(1.2)),
    "bernoulli": (0.3, 1.0, {}, None, stats.bernoulli(1 / (1 + np.exp(-0.3))).logpmf(1)),
    "bernoulli(probit)": (0.3, 0.0, {}, None, stats.bernoulli(stats.norm.cdf(0.3)).logpmf(0)),
    "bernoulli(cloglog)": (0.3, 1.0, {}, None, np.log(1 - np.exp(-np.exp(0.3)))),
    "binomial": (0.3, 4.0, {}, 9.0, stats.binom(9, 1 / (1 + np.exp(-0.3))).logpmf(4)),
    "poisson": (0.3, 4.0, {}, None, stats.poisson(np.exp(0.3)).logpmf(4)),
    "negative_binomial": (0.3, 4.0, {"alpha": 2.5}, None, stats.nbinom(2.5, 2.5 / (2.5 + np.exp(0.3))).logpmf(4)),
    "gamma": (0.3, 1.7, {"alpha": 2.5}, None, stats.gamma(2.5, scale=np.exp(0.3) / 2.5).logpdf(1.7)),
}


@pytest.mark.parametrize("name", DENSITIES)
def test_densities_are_those_of_scipy(name):
    eta, y, q, trials, expected = DENSITIES[name]
    with jax.enable_x64():
        given = {key: jnp.asarray(value) for key, value in q.items()}
        count = None if trials is None else jnp.array([trials])
        found = family_of(name).log_density(jnp.array([eta]), jnp.array([y]), given, count)
    assert float(found[0]) == pytest.approx(expected, abs=1e-10)


def test_negative_binomial_does_not_cancel_near_the_poisson_limit():
    q = {"alpha": jnp.float32(1e6)}
    found = family_of("negative_binomial").log_density(jnp.float32([1.0]), jnp.float32([7.0]), q, None)
    assert float(found[0]) == pytest.approx(stats.nbinom(1e6, 1e6 / (1e6 + np.e)).logpmf(7), abs=1e-3)


@pytest.mark.parametrize("name", ["categorical", "ordinal"])
def test_probabilities_of_classes_add_up_and_are_those_of_the_density(name):
    family, classes = family_of(name), 4
    q = {"cuts": jnp.array([-1.0, 0.2, 1.5])} if name == "ordinal" else {}
    eta = jnp.full((classes,), 0.4) if name == "ordinal" else jnp.tile(jnp.array([0.4, -1.0, 2.0]), (classes, 1))
    found = np.exp(family.log_density(eta, jnp.arange(4.0), q, None))
    assert found.sum() == pytest.approx(1, abs=1e-6)
    assert found == pytest.approx(np.asarray(family.mean(eta, q))[0], abs=1e-6)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_draws_have_the_mean_that_the_family_says(name):
    """4 standard errors of 20,000 draws: a false alarm once in 16,000 families."""
    family, count = family_of(name), 20_000
    q = {"sigma": 0.5, "nu": 5.0, "alpha": 3.0, "cuts": jnp.array([-1.0, 0.2, 1.5])}
    eta = jnp.tile(jnp.array([0.4, -0.3]), (count, 1)) if name == "categorical" else jnp.full(count, 0.4)
    trials = jnp.full(count, 5.0) if name == "binomial" else None
    drawn = np.asarray(family.draw(jax.random.key(1), eta, q, trials), float)
    mean = np.asarray(family.mean(eta, q))[0]
    expected = (mean * np.arange(len(mean))).sum() if mean.ndim else mean * (1 if trials is None else 5)
    assert abs(drawn.mean() - expected) < 4 * drawn.std() / np.sqrt(count)


@pytest.mark.parametrize("kind", [kind for kind in (*REAL, *POSITIVE) if kind != "flat"])
def test_priors_are_densities(kind):
    numbers = {"mean": 0.3, "scale": 0.7, "df": 4.0, "rate": 1.5, "shape": 2.5}
    text = f"{kind}({', '.join(str(numbers[name]) for name in ARGUMENTS[kind].split(', '))})"
    with jax.enable_x64():
        found = prior(text)
        density = jax.jit(lambda x: jnp.exp(found.log_density(x)))
        ends = (1e-9, np.inf) if kind in POSITIVE else (-np.inf, np.inf)
        total, _ = integrate.quad(lambda x: float(density(x)), *ends, limit=200)
    assert total == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("text", ["normal(0)", "normal(0, -1)", "normel(0, 1)", "normal(a, b)", "lkj(0)", 3])
def test_priors_that_are_none_are_refused(text):
    with pytest.raises(InputError, match=r"write|choose"):
        prior(text)


@pytest.mark.parametrize(("formula", "family"), [
    ("y ~ x + w + (1 + x | g)", "normal"), ("k ~ x + (1 | g)", "poisson"), ("y ~ 0 + x + w", "student"),
    ("c ~ x + w", "categorical"), ("k ~ x + w", "ordinal"),
])  # fmt: skip
def test_users_see_the_tables_own_units(formula, family):
    """The linear predictor of raw columns and coefficients as users see them is that of what chains move."""
    frame = table().assign(k=lambda t: np.minimum(t["k"], 3)) if family == "ordinal" else table()
    model, rows = modelled(formula, frame, family)
    with jax.enable_x64():
        rng = np.random.default_rng(1)
        free = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=np.shape(x))), model.unconstrain(model.init()))
        seen = model.constrain(free)
        again = model.unconstrain(seen)
        assert all(
            np.allclose(a, b, atol=1e-8) for a, b in zip(jax.tree.leaves(free), jax.tree.leaves(again), strict=True)
        )
        raw = np.stack([np.ones(len(frame)) if n == "Intercept" else frame[n] for n in model.encoding.names], 1)
        expected = raw @ np.asarray(seen["coefficient"])
        if "effect_0" in seen:
            z = np.stack(
                [np.ones(len(frame)) if n == "Intercept" else frame[n] for n in model.encoding.groups[0].names], 1
            )
            expected += (
                z * np.asarray(seen["effect_0"])[[model.encoding.groups[0].levels.index(str(g)) for g in frame["g"]]]
            ).sum(1)
        eta = np.asarray(model.predictor(free, jax.tree.map(lambda x: jnp.asarray(x), rows)))
        if family == "ordinal":  # thresholds less the predictor are what counts
            expected, eta = expected - seen["family"]["cuts"][0], eta - model.parameters(free)["cuts"][0]
        assert np.allclose(eta, expected, atol=2e-3)  # the columns are in single precision


@pytest.mark.parametrize("size", [2, 3, 4])
def test_lkj_is_the_density_of_the_correlation_matrix(size):
    """det(correlation)^(shape − 1) times the Jacobian, up to a constant: differences of two places agree."""
    count, shape = size * (size - 1) // 2, 1.7
    with jax.enable_x64():

        def expected(x):
            given = covariance.correlations(x, size)
            matrix = np.eye(size)
            for n, (i, j) in enumerate(covariance.pairs(size)):
                matrix[i, j] = matrix[j, i] = given[n]
            jacobian = jax.jacobian(lambda v: covariance.correlations(v, size))(x)
            return (shape - 1) * np.linalg.slogdet(matrix)[1] + np.linalg.slogdet(jacobian)[1]

        one, other = np.random.default_rng(0).normal(size=(2, count)) / 2
        found = [float(covariance.log_lkj(jnp.asarray(x), size, shape)) for x in (one, other)]
        assert found[0] - found[1] == pytest.approx(expected(jnp.asarray(one)) - expected(jnp.asarray(other)), abs=1e-9)
        back = covariance.free_correlations(covariance.correlations(jnp.asarray(one), size), size)
        assert np.allclose(back, one)


def test_effects_have_the_density_of_their_covariance():
    with jax.enable_x64():
        log_sd, partial = jnp.array([0.2, -0.5, 0.1]), jnp.array([0.3, -0.4, 0.6])
        a = np.array([[float(x) for x in row] for row in covariance.root(log_sd, partial)])
        effects = np.random.default_rng(0).normal(size=(5, 3))
        expected = stats.multivariate_normal(np.zeros(3), a @ a.T).logpdf(effects).sum()
        assert float(covariance.log_normal(jnp.asarray(effects), log_sd, partial)) == pytest.approx(expected, abs=1e-9)
        assert np.sqrt(np.diag(a @ a.T)) == pytest.approx(np.exp(np.asarray(log_sd)))


@pytest.fixture(scope="module")
def normal_groups():
    """A normal regression with groups, the change of variables at its start, and a place."""
    model, rows = modelled("y ~ w + (1 + w | g)", table())
    data = arrays(rows, batch_order="full")
    with jax.enable_x64():
        start = jax.tree.map(lambda x: jnp.asarray(x, float), model.unconstrain(model.init()))
        whitened = whitened_at(model, start, host(jax.jit(arrow_pass(model))(data, start)))
        rng = np.random.default_rng(3)
        z = jax.tree.map(lambda x: x + 0.3 * rng.normal(size=x.shape), start)
        yield model, data, whitened, z


def potential(model, data, coordinates, z):
    """U as a function of z, with the volume."""
    position, volume = coordinates.with_volume(z)
    return full_potential(model, data, position) - volume


def effects_curvature(model, data, z):
    """A function of the coordinates: second derivatives of U in the effects, and between them and all else."""
    flat, unravel = ravel_pytree(z)
    names = np.concatenate(
        [np.full(np.size(x), name.startswith("effect")) for name, x in sorted(z.items()) for x in jax.tree.leaves(x)]
    )
    curvature = jax.jit(jax.hessian(lambda v, given: potential(model, data, given, unravel(v))))

    def parts(coordinates):
        matrix = np.asarray(curvature(flat, coordinates))
        return matrix[np.ix_(names, names)], matrix[np.ix_(names, ~names)]

    return parts


def test_effects_are_exactly_white_where_the_likelihood_is_normal(normal_groups):
    """At any coefficients, covariance and noise; negative control: with twice the information they are not."""
    model, data, whitened, z = normal_groups
    curvature = effects_curvature(model, data, z)
    own, between = curvature(whitened)
    assert np.allclose(own, np.eye(len(own)), atol=1e-5)
    assert np.abs(between).max() < 1e-4
    term = whitened.terms[0]
    wrong = Whitened((Term(2 * term.information, term.score, term.cross),), whitened.b, whitened.precision, "normal")
    own, _ = curvature(wrong)
    assert not np.allclose(own, np.eye(len(own)), atol=0.1)


def test_the_change_of_variables_has_its_inverse_volume_and_gradient(normal_groups):
    model, data, whitened, z = normal_groups
    flat, unravel = ravel_pytree(z)

    @jax.jit  # all at once: piece by piece, hundreds of small programs would be compiled
    def found(flat):
        z = unravel(flat)
        position, volume = whitened.with_volume(z)
        gradient = jax.grad(lambda p: full_potential(model, data, p))(position)
        return (
            volume,
            ravel_pytree(whitened.inverse(position))[0],
            jax.jacobian(lambda v: ravel_pytree(whitened(unravel(v)))[0])(flat),
            ravel_pytree(whitened.pull_back(z, gradient))[0],
            ravel_pytree(jax.grad(lambda z: potential(model, data, whitened, z))(z))[0],
        )

    volume, back, jacobian, pulled, expected = found(flat)
    assert np.allclose(back, flat, atol=1e-6)
    assert float(volume) == pytest.approx(np.linalg.slogdet(jacobian)[1], abs=1e-5)
    assert np.allclose(pulled, expected, atol=1e-5)


def test_the_fit_finds_the_mode_where_effects_are_at_their_means():
    model, rows = modelled("k ~ w + (1 + w | g)", table(200, 12), "poisson")
    data = arrays(rows, batch_order="full")
    change = fitted_coordinates(model, data, False)
    z = jax.tree.map(jnp.zeros_like, model.unconstrain(model.init()))

    def total(z):
        position, volume = change.outer.with_volume(change.inner(z))
        return full_potential(model, data, position) - volume

    flat, unravel = ravel_pytree(z)
    slope, curvature = jax.jit(lambda v: (jax.grad(total)(unravel(v)), jax.hessian(lambda v: total(unravel(v)))(v)))(
        flat
    )
    others = ravel_pytree({name: x for name, x in slope.items() if name != "effect_0"})[0]
    assert np.abs(others).max() < 0.1  # standard deviations
    values = np.linalg.eigvalsh(curvature)
    assert values.min() > 0.4
    assert values.max() < 2.5  # of raw columns and effects: thousands


@pytest.mark.parametrize(
    ("formula", "family"), [("y ~ w + (1 + w | g) + (1 | c)", "student"), ("k ~ x + w", "poisson")]
)
def test_the_quadratic_control_variate_is_unbiased_and_of_second_order(formula, family):
    """What is known and what is left to rows add up to the gradient of all rows, at any place; the rest falls as the
    square of the distance from the anchor, for one group term or none."""
    model, rows = modelled(formula, table(), family)
    with jax.enable_x64():
        rows, rng = jax.tree.map(jnp.asarray, rows), np.random.default_rng(2)
        anchor = jax.tree.map(lambda x: jnp.asarray(x, float), model.unconstrain(model.init()))
        move = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), anchor)
        shared = Known(anchor, jax.jit(arrow_pass(model, exact=True))(arrays(rows, batch_order="full"), anchor))

        @jax.jit
        def at(distance):
            place = jax.tree.map(lambda x, y: x + distance * y, anchor, move)
            known = linear(model, shared, jax.tree.map(jnp.subtract, place, anchor))
            rest = remainder(model, anchor, place, rows, None)
            expected = jax.grad(lambda p: jnp.sum(model.batch_log_likelihood(p, rows)))(place)
            return [ravel_pytree(tree)[0] for tree in (jax.tree.map(jnp.add, known, rest), expected, rest)]

        found, expected, rest = at(0.3)
        assert np.allclose(found, expected, rtol=1e-4, atol=1e-4)
        if family == "poisson":
            sizes = [np.abs(each).max() for each in (at(0.003)[2], rest)]
            assert sizes[0] < 2e-4 * sizes[1]  # a hundredth of the distance


def test_several_terms_have_coordinates_that_are_a_change_of_variables():
    """The model as a function of whitened effects has the posterior's density, volume and all; and a way back."""
    model, rows = modelled("k ~ w + (1 + w | g) + (1 | c)", table(), "poisson")
    found = reparametrised(model, arrays(rows, batch_order="full"), False)
    with jax.enable_x64():
        start = jax.tree.map(lambda x: jnp.asarray(x, float), found.unconstrain(model.init()))
        flat, unravel = ravel_pytree(start)
        assert all(
            np.allclose(a, b, atol=1e-4)
            for a, b in zip(*(jax.tree.leaves(x) for x in (found.constrain(start), model.init())), strict=True)
        )
        jacobian, expected, density = jax.jit(
            lambda v: (
                jax.jacobian(lambda v: ravel_pytree(found.change(unravel(v)))[0])(v),
                model.log_prior(found.change(unravel(v))),
                found.log_prior(unravel(v)),
            )
        )(flat)
        assert float(density) == pytest.approx(float(expected) + np.linalg.slogdet(jacobian)[1], rel=1e-5)
