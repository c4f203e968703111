"""Streaming averages: what their Monte Carlo errors cover, and what shows that chains disagree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import lfilter

from strang.sampling import averages

RUNS = 400
# Coverage between 0.92 and 0.99, give or take 3.5 standard deviations of 400 runs: a false alarm in 2000 at the most.
LEAST, MOST = 0.92 - 3.5 * np.sqrt(0.92 * 0.08 / RUNS), 0.99 + 3.5 * np.sqrt(0.99 * 0.01 / RUNS)


def autoregressive(rng, shape, steps, time):
    """Stationary chains of mean 0 and variance 1 that forget in about `time` steps."""
    keep = np.exp(-1 / time)
    noise = rng.normal(size=(*shape, steps))
    noise[..., 1:] *= np.sqrt(1 - keep**2)
    return lfilter([1], [1, -keep], noise, axis=-1)


def two_wells(rng, runs, chains, steps):
    """Chains that stay in the one of two wells in which they began."""
    return rng.choice([-1.0, 1.0], (runs, chains, 1)) + 0.1 * autoregressive(rng, (runs, chains), steps, 2.0)


@jax.jit
def book(values, weights, burn_in):
    """The sums of many chains whose values are given: chain, then step."""
    short = averages.SHORTEST_BLOCK
    close = jax.vmap(averages.close_block, (averages.CHAIN_AXES,), averages.CHAIN_AXES)

    def block(average, given):
        last, x, weights = given
        total = {"average": weights @ x, "weight": jnp.full(x.shape[1], weights.sum())}
        average = average._replace(partial=jax.tree.map(jnp.add, average.partial, jax.vmap(averages.pack)(total)))
        due = (last % averages.block_length(average) == 0) & (last > burn_in)
        return jax.lax.cond(due, close, lambda average: average, average), None

    steps = len(weights)
    weights = jnp.where(jnp.arange(1, steps + 1) > burn_in, weights, 0)
    empty = jax.vmap(averages.start, out_axes=averages.CHAIN_AXES)({"average": values[:, 0], "weight": values[:, 0]})
    ends = jnp.arange(short, steps + 1, short, dtype=jnp.uint32)
    return jax.lax.scan(block, empty, (ends, values.T.reshape(-1, short, len(values)), weights.reshape(-1, short)))[0]


def booked(values, weights=None, burn_in=0):
    """The sums of each run, of values by run, chain and step."""
    runs, chains, steps = values.shape
    weights = np.ones(steps, np.float32) if weights is None else weights
    sums = jax.tree.map(np.asarray, book(values.reshape(-1, steps).astype(np.float32), weights, burn_in))
    for run in range(runs):
        yield jax.tree.map(lambda x, run=run: x[run * chains : (run + 1) * chains] if x.ndim else x, sums)


def coverage(values, **settings):
    """How often 1.96 errors reach the true mean 0."""
    alive, reached = np.ones(values.shape[1], bool), []
    for sums in booked(values, **settings):
        error = averages.error_over_chains(sums, alive, shared=False)["average"]
        reached.append(abs(averages.means(sums)["average"].mean()) < 1.96 * error)
    return np.mean(reached)


@pytest.mark.parametrize(("chains", "steps"), [(1, 512), (1, 4096), (2, 512), (2, 2048), (5, 1024), (20, 512)])
@pytest.mark.parametrize("slow", [False, True])
def test_intervals_cover(chains, steps, slow):
    rng = np.random.default_rng(chains + steps)
    assert LEAST < coverage(autoregressive(rng, (RUNS, chains), steps, steps / 30 if slow else 1.0)) < MOST


@pytest.mark.parametrize("chains", [1, 4])
def test_intervals_of_decreasing_steps_cover(chains):
    """With a burn-in that is no multiple of a block. What is forgotten in a time takes ever more steps."""
    steps = 4096
    h = (np.arange(1, steps + 1) ** -0.33).astype(np.float32)
    at = (np.cumsum(h) / h.sum() * 4 * steps).astype(int).clip(1, 4 * steps) - 1
    path = autoregressive(np.random.default_rng(0), (RUNS, chains), 4 * steps, 20.0)
    assert LEAST < coverage(path[..., at], weights=h, burn_in=300) < MOST


def test_intervals_have_the_disagreement_of_chains_in_them():
    """Twenty chains in two wells. From what each chain knows by itself, hardly any interval would reach."""
    values = two_wells(np.random.default_rng(0), RUNS, 20, 512)
    assert coverage(values) > LEAST
    each = [averages.summarise(sums) for sums in booked(values)]
    reached = [abs(one.mean["average"].mean()) < 1.96 * np.sqrt((one.error["average"] ** 2).sum()) / 20 for one in each]
    assert np.mean(reached) < 0.3


def disagreement(values):
    alive = np.ones(values.shape[1], bool)
    found = [averages.disagreement(sums, alive) for sums in booked(values)]
    return (np.array([part["average"] for part in parts]) for parts in zip(*found, strict=True))


def test_disagreement_shows():
    """Where chains agree, R-hat is about 1 and the probability uniform, with mean 1/2 within 5 standard deviations."""
    rng = np.random.default_rng(0)
    rhat, chance = disagreement(autoregressive(rng, (RUNS, 4), 1024, 2.0))
    assert rhat.max() < 1.15
    assert abs(chance.mean() - 0.5) < 5 / np.sqrt(12 * RUNS)
    values = two_wells(rng, 50, 4, 1024)
    rhat, chance = disagreement(values)
    stuck = abs(values.mean((1, 2))) < 0.9  # not all in one well
    assert rhat[stuck].min() > 5
    assert chance[stuck].max() < 1e-6


def test_one_chain_cannot_disagree():
    rhat, chance = disagreement(np.zeros((1, 1, 64)))
    assert np.isnan([rhat, chance]).all()


@pytest.mark.parametrize("burn_in", [0, 20, 300])
def test_batches_hold_all_but_the_last_steps_about_evenly(burn_in):
    """However long a run is: what is in no batch yet is less than a batch, and none has three times as much as another
    but the last."""
    for steps in (512, 1024, 2048, 4096, 8192, 16384):
        (sums,) = booked(np.ones((1, 1, steps)), burn_in=burn_in)
        *weights, rest = averages._pieces(sums)["weight"][0]
        filled = np.array([weight for weight in weights if weight > 0])
        assert np.sum(weights) + rest == pytest.approx(steps - burn_in)
        assert 14 <= len(filled) <= averages.BATCHES
        assert rest <= filled.max()
        assert filled.max() <= 3 * filled[1:-1].min()
