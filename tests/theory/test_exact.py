"""Exact bias and error against enumeration of all batch sequences, the invariant measure, and simulation."""

from functools import cache, partial
from itertools import islice, permutations, product
from typing import NamedTuple

import jax
import numpy as np
import pytest

import strang
from strang import schedule
from strang.theory import exact
from strang.theory.exact import finite_time
from strang.theory.linear import covariance, linearise
from strang.theory.population import expectations, posterior, sweep_moments

PRIOR_VAR, NOISE_VAR, INIT_MEAN, INIT_VAR = 2.0, 0.8, 0.7, 1.3
MODEL = {"prior_var": PRIOR_VAR, "noise_var": NOISE_VAR, "init_mean": INIT_MEAN, "init_var": INIT_VAR}
SKEWED = np.array([-0.4, 0.1, 0.3, 1.9, 4.0, -2.5])  # third moments must matter

STEPS = [
    (strang.SGHMC(1.5), "chen:ABOBA"),
    (strang.SGHMC(1.5), "leimkuhler:BAOAB"),
    (strang.SGHMC(1.5), "ubu:UBU"),
    (strang.SGHMC(1.5), "euler-old"),
    (strang.SGHMC(1.5), "quicsort"),
    (strang.SGLD(), "euler"),
    (strang.SGLD(), "averaged-noise"),
]
NAMES = [name if isinstance(dynamics, strang.SGHMC) else f"sgld-{name}" for dynamics, name in STEPS]
every_step = pytest.mark.parametrize(("dynamics", "word"), STEPS, ids=NAMES)


def fixed(l):
    return 0.15 + 0 * l


def decreasing(l):
    return 0.3 * l**-0.4


class Setting(NamedTuple):
    size: int
    batch: int
    order: str
    replacement: bool
    steps: int


SETTINGS = [
    Setting(4, 4, "full", True, 5),
    Setting(3, 2, "iid", True, 4),
    Setting(4, 2, "iid", False, 4),
    Setting(4, 2, "reshuffled", False, 5),
    Setting(4, 1, "reshuffled", False, 6),
    Setting(5, 1, "reshuffled", False, 6),
    Setting(6, 1, "reshuffled", False, 6),
    Setting(5, 2, "reshuffled", False, 5),  # the last batch has one row
    Setting(3, 3, "reshuffled", False, 3),
    Setting(4, 2, "symmetric", False, 6),
    Setting(5, 1, "symmetric", False, 11),
    Setting(5, 2, "symmetric", False, 8),
    Setting(4, 2, "cyclic", False, 5),
    Setting(5, 2, "cyclic", False, 7),
]


def one_period(setting: Setting) -> list[tuple[tuple[int, ...], ...]]:
    """All equally likely row lists, one per step, until the order starts afresh."""
    rows, n = range(setting.size), setting.batch
    if setting.order == "iid":
        draws = product(rows, repeat=n) if setting.replacement else permutations(rows, n)
        return [(draw,) for draw in draws]
    shuffles = [tuple(rows)] if setting.order in ("full", "cyclic") else list(permutations(rows))
    sweeps = [tuple(shuffle[i : i + n] for i in range(0, setting.size, n)) for shuffle in shuffles]
    return [sweep + sweep[::-1] for sweep in sweeps] if setting.order == "symmetric" else sweeps


@cache
def sequences(setting: Setting) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row counts and row sums of every batch, for all distinct sequences of `steps` batches, and their chances."""
    choices, data = one_period(setting), SKEWED[: setting.size]
    chances: dict[tuple, float] = {(): 1.0}
    for start in range(0, setting.steps, len(choices[0])):
        parts: dict[tuple, float] = {}
        for choice in choices:
            part = tuple(tuple(sorted(rows)) for rows in islice(choice, setting.steps - start))
            parts[part] = parts.get(part, 0) + 1 / len(choices)
        chances = {a + b: p * q for a, p in chances.items() for b, q in parts.items()}
    counts = np.array([[len(rows) for rows in sequence] for sequence in chances])
    sums = np.array([[data[list(rows)].sum() for rows in sequence] for sequence in chances])
    return counts, sums, np.array(list(chances.values()))


@partial(jax.jit, static_argnums=0)
def shipped_step(step, dynamics, state, h, count, total, noise):
    def gradient(q):
        return q / PRIOR_VAR + (count * q - total) / NOISE_VAR

    return step(dynamics, state, h, gradient, tuple(noise))


def padded(array):
    """Flat, at a multiple of 2^15 entries, so that all settings share one compilation."""
    return np.pad(array.ravel(), (0, -array.size % 2**15))


def positions(dynamics, word, setting: Setting, sizes):
    """θ_l without noise and its response to every normal of the run, for all sequences, from the shipped step alone."""
    counts, sums, _ = sequences(setting)
    step, (runs, steps) = strang.spell(dynamics, word), counts.shape
    scale = setting.size / setting.batch if setting.order in ("full", "iid") else -(-setting.size // setting.batch)
    normals = np.eye(3 + step.noises * steps)[1:]  # column 0: no noise; column j: normal j is 1
    shape, theta = (runs, normals.shape[1]), []
    noise = [padded(np.broadcast_to(row, shape)) for row in normals]
    with jax.enable_x64(True):
        state = dynamics.init(INIT_MEAN + np.sqrt(INIT_VAR) * noise[0], noise[1])
        for l in range(steps):
            count, total = (padded(scale * np.broadcast_to(part[:, [l]], shape)) for part in (counts, sums))
            used = np.stack(noise[2 + step.noises * l : 2 + step.noises * (l + 1)])
            state = shipped_step(step, dynamics, state, sizes[l], count, total, used)
            theta.append(np.asarray(state.position)[: runs * shape[1]].reshape(shape))
    path = np.stack(theta, axis=1)
    return path[..., 0], path[..., 1:] - path[..., :1]


def enumerated(dynamics, word, setting: Setting, sizes, burn_in: int):
    """Bias and MSE by Gaussian integrals over the normals and the mean over all sequences of batches."""
    mean, response = positions(dynamics, word, setting, sizes)
    chances = sequences(setting)[2]
    spread = response @ np.swapaxes(response, 1, 2)
    weights = np.where(np.arange(len(sizes)) < burn_in, 0, sizes)
    weights = weights / weights.sum()
    target = posterior(SKEWED[: setting.size], PRIOR_VAR, NOISE_VAR)
    average = (mean**2 + np.einsum("rll->rl", spread) - target.mean**2 - 1 / target.precision) @ weights
    pairs = 2 * spread**2 + 4 * spread * mean[:, :, None] * mean[:, None, :]
    variance = np.einsum("k,rkl,l->r", weights, pairs, weights)
    return chances @ average, chances @ (average**2 + variance)


def run(dynamics, word, setting: Setting, step_size, **options):
    data, step = SKEWED[: setting.size], strang.spell(dynamics, word)
    settings = {
        "batch_size": setting.batch,
        "batch_order": setting.order,
        "replacement": setting.replacement,
        "steps": setting.steps,
    }
    return finite_time(step, dynamics, data=data, step_size=step_size, **{**settings, **MODEL, **options})


@every_step
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: "-".join(map(str, setting)))
def test_equals_enumeration(dynamics, word, setting, monkeypatch):
    monkeypatch.setattr(exact, "BLOCK", 3)  # so that a few independent steps are more than one period
    l = np.arange(1.0, setting.steps + 1)
    for shape, burn_in in ((fixed, 0), (fixed, 2), (decreasing, 1)):
        result = run(dynamics, word, setting, 0.15 if shape is fixed else shape, burn_in=burn_in)
        truth = enumerated(dynamics, word, setting, shape(l), burn_in)
        np.testing.assert_allclose([result.bias, result.mse], truth, rtol=1e-12, atol=1e-13)


def test_enumeration_tells_the_orders_apart():
    """Negative control: what is compared above to 1e-12 differs between the orders by far more."""
    sizes = fixed(np.arange(4.0))
    settings = [
        Setting(4, 2, "iid", True, 4),
        *(s._replace(size=4, batch=2, steps=4) for s in SETTINGS[2:4] + SETTINGS[9:10]),
    ]
    mse = [enumerated(*STEPS[0], setting, sizes, 0)[1] for setting in settings]
    assert np.abs(np.subtract.outer(mse, mse))[np.triu_indices(4, 1)].min() > 1e-4


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: "-".join(map(str, setting)))
@pytest.mark.parametrize("burn_in", [0, 5])
def test_traces_are_the_runs_they_contain(setting, burn_in):
    stops = [6, 7, 11, 20, 21, 39, 60]
    for step_size in (0.15, decreasing):
        trace = run(*STEPS[0], setting, step_size, steps=60, burn_in=burn_in, at=stops)
        alone = [run(*STEPS[0], setting, step_size, steps=stop, burn_in=burn_in) for stop in stops]
        np.testing.assert_allclose(trace.bias, [one.bias for one in alone], rtol=1e-12)
        np.testing.assert_allclose(trace.mse, [one.mse for one in alone], rtol=1e-12)
        np.testing.assert_allclose(trace.mean, trace.truth + trace.bias, rtol=1e-12)
        assert (trace.mse >= trace.bias**2).all()


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: "-".join(map(str, setting)))
def test_powers_equal_walking(setting):
    """A step size that changes by one rounding at the end is walked period by period, a constant one is not."""
    walked = run(*STEPS[0], setting, lambda l: np.where(l == 1000, np.nextafter(0.1, 1), 0.1), steps=1000, burn_in=77)
    leapt = run(*STEPS[0], setting, schedule.fixed(0.1), steps=1000, burn_in=77)
    np.testing.assert_allclose([leapt.bias, leapt.mse], [walked.bias, walked.mse], rtol=1e-11)
    assert leapt == run(*STEPS[0], setting, 0.1, steps=1000, burn_in=77)


@every_step
@pytest.mark.parametrize("replacement", [True, False])
def test_long_runs_reach_the_invariant_measure(dynamics, word, replacement):
    setting, h = Setting(6, 2, "iid", replacement, 10**5 + 1), 0.1
    target = posterior(SKEWED, PRIOR_VAR, NOISE_VAR)
    shrink = 1.0 if replacement else 4 / 5  # finite population: (N - n)/(N - 1)
    noise = 6**2 / 2 * SKEWED.var() / NOISE_VAR**2 * shrink
    linear = linearise(strang.spell(dynamics, word), dynamics, target.precision, h)
    result = run(dynamics, word, setting, h, burn_in=10**5)
    expected = covariance(linear, noise)[0, 0] - 1 / target.precision
    assert result.bias == pytest.approx(expected, rel=1e-9, abs=1e-10)


def test_the_variance_vanishes_and_the_bias_does_not():
    """Erratum A15: at a fixed step size the variance falls like 1/L and bias² stays."""
    stops = [10**5, 10**7]
    result = run(*STEPS[0], Setting(6, 2, "reshuffled", False, 10**7), 0.1, at=stops)
    variance = result.mse - result.bias**2
    assert variance[0] / variance[1] == pytest.approx(100, rel=1e-2)
    assert result.bias[0] == pytest.approx(result.bias[1], rel=1e-2)


def test_instability_is_infinite_and_silent():
    for order in ("full", "iid", "reshuffled", "symmetric", "cyclic"):
        for step_size in (5.0, lambda l: 5.0 - 1e-6 * l):
            result = run(*STEPS[0], Setting(6, 2, order, False, 10**4), step_size, at=[1, 10**4])
            assert np.isfinite(result.bias[0])
            assert result.bias[1] == result.mse[1] == np.inf


def test_sweep_moments_are_means_over_permutations():
    values = SKEWED - SKEWED.mean()
    draws = np.array([[p[0] + p[1], p[2] + p[3], p[4] + p[5]] for p in permutations(values)])
    one_each = np.array(list(permutations(values)))[:, :5]
    rng = np.random.default_rng(0)
    for batch, sums in ((2, draws), (2, draws[:, :2]), (1, one_each)):
        count = sums.shape[1]
        forms = rng.normal(size=(2, count, count))
        forms = forms + np.swapaxes(forms, 1, 2)
        over = expectations(forms, sweep_moments(values, batch))
        quadratic = np.einsum("dj,ijk,dk->di", sums, forms, sums)
        np.testing.assert_allclose(over.mean, quadratic.mean(0), rtol=1e-11)
        np.testing.assert_allclose(over.third, quadratic.T @ sums / len(sums), rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(over.product, quadratic.T @ quadratic / len(sums), rtol=1e-11)


def simulated(order, chains, steps, h, friction, amplification, seed):
    """Averages of θ² by chen:ABOBA written out anew, with `amplification` times the right noise."""
    rng, size, batch = np.random.default_rng(seed), len(SKEWED), 2
    scale, damp = size / batch, np.exp(-friction * h / 2)
    theta = INIT_MEAN + np.sqrt(INIT_VAR) * rng.normal(size=chains)
    p, total = rng.normal(size=chains), np.zeros(chains)
    for l in range(steps):
        number = l % (6 if order == "symmetric" else 3)
        if order == "iid" or number == 0:
            shuffled = rng.permuted(np.tile(SKEWED, (chains, 1)), axis=1)
        place = 0 if order == "iid" else min(number, 5 - number)
        rows = shuffled[:, batch * place : batch * (place + 1)]
        theta = theta + h / 2 * p
        force = theta / PRIOR_VAR + scale * (theta[:, None] - rows).sum(1) / NOISE_VAR
        p = damp * (damp * p - h * force + amplification * np.sqrt(2 * friction * h) * rng.normal(size=chains))
        theta = theta + h / 2 * p
        total += theta**2
    return total / steps


@pytest.mark.parametrize("order", ["iid", "reshuffled", "symmetric"])
def test_simulation_agrees(order):
    """Six comparisons at |z| < 5: a false alarm in 3e-6 of all seeds. With 10 % too much noise both must fail."""
    steps, h, friction = 50, 0.1, 1.5
    result = run(strang.SGHMC(friction), "chen:ABOBA", Setting(6, 2, order, False, steps), h)

    def scores(amplification):
        error = simulated(order, 20_000, steps, h, friction, amplification, seed=1) - result.truth
        samples = np.stack([error - result.bias, error**2 - result.mse])
        return np.abs(samples.mean(1)) / samples.std(1) * np.sqrt(samples.shape[1])

    assert (scores(1.0) < 5).all()
    assert (scores(1.1) > 5).all()


def test_what_has_no_answer_is_refused():
    sghmc, setting = STEPS[0], Setting(6, 2, "iid", False, 10)
    with pytest.raises(strang.InputError, match="SGNHT is not linear"):
        run(strang.SGNHT(), "chen:ABOBA", setting, 0.1)
    with pytest.raises(strang.InputError, match="batch_order 'random' is unknown"):
        run(*sghmc, setting, 0.1, batch_order="random")
    with pytest.raises(strang.InputError, match="batch_size is 7, but there are 6 rows"):
        run(*sghmc, setting, 0.1, batch_size=7)
    with pytest.raises(strang.InputError, match="burn_in is 10 of 10 steps"):
        run(*sghmc, setting, 0.1, burn_in=10)
    with pytest.raises(strang.InputError, match="increasing step numbers from 3 to 10"):
        run(*sghmc, setting, 0.1, burn_in=2, at=[2, 5])
    with pytest.raises(strang.InputError, match="positive and finite"):
        run(*sghmc, setting, lambda l: 2.0 - l)
    with pytest.raises(strang.InputError, match="init_var >= 0 and the others > 0"):
        run(*sghmc, setting, 0.1, prior_var=0.0)
    with pytest.raises(strang.InputError, match="one-dimensional array of finite numbers"):
        finite_time(strang.spell(*sghmc), sghmc[0], data=[[1.0]], batch_size=1, step_size=0.1, steps=1)
    with pytest.raises(strang.InputError, match="smaller step_size or gradient_noise"):
        run(strang.SGHMC(1.0, gradient_noise=100.0), "chen:ABOBA", setting, 0.1)
