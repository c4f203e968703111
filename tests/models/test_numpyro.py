"""NumPyro models: the same law as NumPyro's own, from batches, and one sentence where that cannot be."""

import inspect
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import potential_energy

import strang
from strang.data.batches import as_data
from strang.models import from_numpyro
from strang.sampling.request import opened

RANDOM = np.random.default_rng(0)
SIZE = 60
X = RANDOM.normal(size=(SIZE, 2)).astype(np.float32)
Y = (X @ np.array([1.0, -2.0]) + RANDOM.normal(size=SIZE)).astype(np.float32)
GROUP = RANDOM.integers(0, 4, SIZE)
LABEL = (Y > 0).astype(np.int32)


def linear(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 3).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.0))
    numpyro.deterministic("precision", sigma**-2)
    mean = numpyro.deterministic("mean", x @ w)
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(mean, sigma), obs=y)


def without_a_plate(x, y):
    w = numpyro.sample("w", dist.Normal(jnp.zeros(2), 3.0))
    numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def subsampling(x, y):
    w = numpyro.sample("w", dist.Normal(jnp.zeros(2), 3.0))
    with numpyro.plate("rows", x.shape[0], subsample_size=20) as which:
        numpyro.sample("y", dist.Normal(x[which] @ w, 1.0), obs=y[which])


def of_constant_size(x, y):
    w = numpyro.sample("w", dist.Normal(jnp.zeros(2), 3.0))
    with numpyro.plate("rows", SIZE):
        numpyro.sample("y", dist.Normal(x @ w, 1.0), obs=y)


def hierarchical(group, y):
    mu, tau = numpyro.sample("mu", dist.Normal(0, 5)), numpyro.sample("tau", dist.HalfNormal(3))
    with numpyro.plate("groups", 4):
        level = numpyro.sample("level", dist.Normal(mu, tau))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(level[group], 1.0), obs=y)


def two_observed(x, y):
    shift = numpyro.sample("shift", dist.Normal(0, 1))
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("features", 2, dim=-1), numpyro.plate("rows", len(x), dim=-2):
        numpyro.sample("x", dist.Normal(shift, 1.0), obs=x)
    with numpyro.plate("rows", len(x)), numpyro.handlers.mask(mask=y > -1.0):
        numpyro.sample("y", dist.Normal(share @ jnp.arange(3.0), 2.0), obs=y)


def of_dependent_support(x, y):
    top = numpyro.sample("top", dist.Gamma(3.0, 1.0))
    below = numpyro.sample("below", dist.Uniform(0.0, top))
    with numpyro.handlers.scale(scale=0.5):
        numpyro.sample("y", dist.Normal(below, top), obs=y)


def correlated(x, y):
    corr = numpyro.sample("corr", dist.LKJCholesky(2, 1.0))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0).expand([2]))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("x", dist.MultivariateNormal(jnp.zeros(2), scale_tril=scale[:, None] * corr), obs=x)


GOOD = {
    linear: (X, Y), without_a_plate: (X, LABEL), subsampling: (X, Y), of_constant_size: (X, Y),
    hierarchical: (GROUP, Y), two_observed: (X, Y), of_dependent_support: (X, Y), correlated: (X, Y),
}  # fmt: skip
named = partial(pytest.mark.parametrize, ids=lambda value: getattr(value, "__name__", None))


def posterior_of(model, rows):
    return opened(from_numpyro(model), as_data(rows))


@cache
def good(model):
    """Looked at once for all tests."""
    return posterior_of(model, jax.tree.map(jnp.asarray, GOOD[model]))


@named("model", list(GOOD))
def test_densities_and_gradients_are_numpyros_own(model):
    rows = jax.tree.map(jnp.asarray, GOOD[model])
    posterior = good(model)
    free = jax.jit(lambda key: posterior.unconstrain(posterior.init(key)))(jax.random.key(3))
    free = jax.tree.map(lambda x: x + 0.1, free)
    whole = model if model is not subsampling else (lambda x, y: of_constant_size(x, y))

    def ours(free):
        return -posterior.log_prior(free) - posterior.batch_log_likelihood(free, rows).sum()

    def theirs(free):
        return potential_energy(whole, rows, {}, free)

    (value, slope), (wanted, expected) = (jax.jit(jax.value_and_grad(f))(free) for f in (ours, theirs))
    assert float(value) == pytest.approx(float(wanted), rel=1e-5)
    for a, b in zip(jax.tree.leaves(slope), jax.tree.leaves(expected), strict=True):
        assert np.allclose(a, b, rtol=1e-5, atol=1e-5 * max(1.0, float(jnp.abs(b).max())))
    # The lovely one: gradients of disjoint batches add up, whatever their lengths.
    cut = [jax.tree.map(lambda x, p=part: x[p], GOOD[model]) for part in (slice(0, 23), slice(23, SIZE))]
    one, other, both = jax.jit(lambda *given: [posterior.batch_log_likelihood(free, x).sum() for x in given])(
        *cut, rows
    )
    assert float(one) + float(other) == pytest.approx(float(both), rel=1e-5)


@named("model", list(GOOD))
def test_the_way_back(model):
    posterior = good(model)
    values = jax.jit(posterior.init)(jax.random.key(5))
    again = jax.jit(lambda v: posterior.constrain(posterior.unconstrain(v)))(values)
    for name, value in values.items():
        assert np.allclose(again[name], value, rtol=1e-4, atol=1e-5)


def by_hand(x_y):
    """`linear`, written by hand over numbers without constraints."""

    def log_prior(u):
        sigma = jnp.exp(u["sigma"])
        return -jnp.sum(u["w"] ** 2) / 18 - jnp.log1p((sigma / 2) ** 2) + u["sigma"]

    def log_likelihood(u, row):
        return -((row[1] - row[0] @ u["w"]) ** 2) / (2 * jnp.exp(2 * u["sigma"])) - u["sigma"]

    return strang.Model(log_prior, log_likelihood, init={"sigma": jnp.zeros(()), "w": jnp.zeros(2)})


def test_draws_are_those_of_the_model_written_by_hand():
    data = strang.data.arrays((X, Y), batch_size=10, batch_order="iid")
    given = {"dynamics": strang.SGHMC(2.0), "step_size": 0.02, "steps": 200, "chains": 3, "thin": 20}
    start = {"sigma": jnp.ones(()), "w": jnp.zeros(2)}
    ours = strang.sample(from_numpyro(linear), data, **given, init=start).samples
    theirs = strang.sample(by_hand((X, Y)), data, **given).samples
    assert np.allclose(ours["w"], theirs["w"], atol=1e-4)
    assert np.allclose(ours["sigma"], np.exp(theirs["sigma"]), rtol=1e-4)
    assert np.allclose(ours["precision"], np.exp(-2 * theirs["sigma"]), rtol=1e-3)
    assert set(ours) == {"w", "sigma", "precision"}  # the mean of each row is no draw


def test_rows_from_disk_give_the_same_bits(tmp_path, optimised):
    np.save(tmp_path / "x.npy", X), np.save(tmp_path / "y.npy", Y)
    given = {"dynamics": strang.SGHMC(2.0), "step_size": 0.02, "steps": 100, "chains": 2, "thin": 10}
    memory = strang.data.arrays((X, Y), batch_size=7)
    disk = strang.data.files((tmp_path / "x.npy", tmp_path / "y.npy"), batch_size=7)
    one, other = (strang.sample(from_numpyro(linear), data, **given).samples for data in (memory, disk))
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_a_model_and_rows_are_enough():
    run = strang.sample(from_numpyro(linear), {"x": X, "y": Y}, error=0.05)
    assert run.trusted, run.reasons
    assert run.summary().names == ["precision", "sigma", "w[0]", "w[1]"]
    weights, *_ = np.linalg.lstsq(X, Y, rcond=None)
    assert np.allclose(run.average["w"], weights, atol=0.15)


def per_row(y):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    with numpyro.plate("schools", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, 1.0))
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)


def discrete(y):
    kind = numpyro.sample("kind", dist.Bernoulli(0.5))
    numpyro.sample("y", dist.Normal(kind, 1.0), obs=y)


def outside(y):
    mu = numpyro.sample("mu", dist.Normal(y.mean(), 1.0))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def across_rows(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y - y.mean())


def jointly(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.MultivariateNormal(mu * jnp.ones(len(y)), jnp.eye(len(y))), obs=y)


def in_two_plates(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("one", len(y)):
        numpyro.sample("a", dist.Normal(mu, 1.0), obs=y)
    with numpyro.plate("two", len(y)):
        numpyro.sample("b", dist.Normal(mu, 1.0), obs=y)


def of_a_total(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)
    numpyro.factor("penalty", -(mu**2) * jnp.sum(y**2))


def by_values(y):
    levels = len(np.unique(y))
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0).expand([levels]))
    numpyro.sample("y", dist.Normal(mu[0], 1.0), obs=y)


def of_nothing(y):
    numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)


def unobserved(y):
    numpyro.sample("mu", dist.Normal(0.0, 1.0))


def of_the_largest(y):
    mu = numpyro.sample("mu", dist.Uniform(0.0, jnp.abs(y).max()))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def of_the_share_of_a_rare_class(y):
    mu, rare = numpyro.sample("mu", dist.Normal(0.0, 1.0)), y > jnp.sort(Y)[-3]
    with numpyro.handlers.scale(scale=jnp.where(rare, 1.0, 1.0 + rare.sum())):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def of_neighbours(y):
    phi = numpyro.sample("phi", dist.Normal(0.0, 1.0))
    before = jnp.concatenate([y[:1], y[:-1]])
    numpyro.sample("y", dist.Normal(phi * jnp.where(jnp.abs(before - y) < 5, before, 0.0), 1.0), obs=y)


def far_from_its_start(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1e-3))
    numpyro.factor("penalty", -jnp.maximum(mu - 0.05, 0.0) * jnp.sum(y**2))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def hardly(y):
    mu = numpyro.sample("mu", dist.Normal(y.mean(), 10.0))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def one_site_per_row(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    for k in range(len(y)):
        numpyro.sample(f"y{k}", dist.Normal(mu, 1.0), obs=y[k])


BAD = {
    of_the_largest: "'mu' depends on data", of_the_share_of_a_rare_class: "'y' depends on other rows",
    of_neighbours: "'y' depends on other rows", far_from_its_start: "'penalty' depends on data",
    hardly: "'mu' depends on data", one_site_per_row: "the site 'y11' is there for some numbers of rows",
    per_row: "'theta' is a latent variable of each row", discrete: "'kind' is discrete",
    outside: "'mu' depends on data outside the plate", across_rows: "'y' depends on other rows",
    jointly: "'y' is one number for all rows together", in_two_plates: "plates 'one', 'two'",
    of_a_total: "'penalty' depends on data outside", by_values: "decides by the values of its rows",
    of_nothing: "nothing to sample", unobserved: "no observed site",
}  # fmt: skip


@named("model", list(BAD))
def test_what_cannot_be_sampled_is_refused_in_a_sentence_that_names_the_site(model):
    with pytest.raises(strang.InputError, match=BAD[model]) as caught:
        posterior_of(model, Y)
    assert "\n" not in str(caught.value)


def test_what_is_forgotten_or_too_much_is_said():
    with pytest.raises(strang.InputError, match="'y' is a latent variable of each row, or was to be observed"):
        posterior_of(linear, X)
    with pytest.raises(strang.InputError, match="fails on a batch"):
        posterior_of(linear, {"x": X, "z": Y})
    with pytest.raises(strang.InputError, match="a tuple of them, or a dict"):
        posterior_of(linear, (X, Y, Y))
    with pytest.raises(strang.InputError, match="is a function"):
        from_numpyro(3)
    with pytest.raises(strang.InputError, match=r"without jax\.jit"):
        from_numpyro(jax.jit(linear))
    with pytest.raises(strang.InputError, match="no plate 'row'; it has rows"):
        opened(from_numpyro(linear, plate="row"), as_data((X, Y)))
    data = strang.data.arrays((X, Y), batch_size=10)
    with pytest.raises(strang.InputError, match="no value of the site 'sigma'"):
        strang.sample(from_numpyro(linear), data, strang.SGHMC(1.0), step_size=0.1, steps=2, init={"w": jnp.zeros(2)})


def test_rows_are_looked_at_wherever_they_are():
    """Sorted rows, of which the first are all alike."""
    y = np.repeat(np.float32([0, 1]), [3000, 1000])
    with pytest.raises(strang.InputError, match="'mu' depends on data"):
        opened(from_numpyro(outside), strang.data.arrays(y, batch_size=100))


def test_constants_of_a_factor_are_no_numbers_that_do_not_move():
    fixed = {"step_size": 1e-3, "steps": 400, "burn_in": 100, "chains": 4}
    data = strang.data.arrays((X, Y), batch_order="full")
    run = strang.sample(from_numpyro(correlated), data, strang.SGHMC(friction=2.0), seed=1, **fixed)
    assert "corr[0,0]" in run.estimates.names
    assert run.estimates.fixed.sum() == 2  # the corner, and above the diagonal
    assert not any("did not move" in reason for reason in run.reasons)


def test_functions_without_second_derivatives_are_sampled_too():
    def censored(y):
        shape = numpyro.sample("shape", dist.Gamma(4.0, 2.0))
        numpyro.factor("y", jax.scipy.special.gammaincc(shape, jnp.abs(y)))

    run = strang.sample(from_numpyro(censored), Y, error=0.2)
    assert run.tuning is not None


def test_the_functions_of_numpyro_that_are_used_are_public():
    """A release that takes one of them away, or renames what is read of a site, is noticed here."""
    import numpyro.handlers
    import numpyro.infer
    import numpyro.primitives

    for home, names in {
        numpyro.handlers: ("seed", "substitute", "trace"),
        numpyro.infer: ("Predictive", "init_to_median", "init_to_sample", "init_to_uniform"),
        numpyro.primitives: ("Messenger",),
        dist: ("biject_to", "constraints"),
    }.items():
        assert all(hasattr(home, name) for name in names)
    with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as sites:
        linear(jnp.asarray(X), jnp.asarray(Y))
    site = sites["y"]
    assert {"type", "fn", "value", "scale", "is_observed", "intermediates", "cond_indep_stack"} <= set(site)
    assert [frame.name for frame in site["cond_indep_stack"]] == ["rows"]
    assert sites["rows"]["args"] == (SIZE, None)
    assert "batch_ndims" in inspect.signature(numpyro.infer.Predictive).parameters
