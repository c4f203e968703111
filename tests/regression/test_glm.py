"""Regressions from end to end: against closed forms and quadrature, from Python and from the command line."""

import json

import numpy as np
import pandas as pd
import pytest

import browser
import strang
from command_line import call
from strang.util.errors import InputError


def table(rows=300, groups=8, seed=0):
    rng = np.random.default_rng(seed)
    x, g = rng.normal(50, 10, rows), rng.integers(0, groups, rows)
    effect = rng.normal(0, 0.8, groups)
    frame = pd.DataFrame({"x": x, "g": [f"s{k}" for k in g], "r": rng.choice(["a", "b"], rows)})
    frame["y"] = 2 + 0.1 * x + 0.5 * (frame["r"] == "b") + effect[g] + rng.normal(size=rows)
    frame["n"] = rng.poisson(np.exp(0.02 * x - 0.5 + effect[g] / 2))
    return frame


FORMULA = "y ~ x + C(r) + (1 | g)"
SETTINGS = {"holdout": 0.1, "error": 0.1, "progress": False}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return tmp_path_factory.mktemp("stored") / "run"


@pytest.fixture(scope="module")
def grouped(stored):
    return strang.glm(FORMULA, table(), **SETTINGS, store=stored)


def test_a_regression_without_groups_is_that_of_quadrature(tmp_path, capsys):
    """An intercept and a slope of Poisson counts by the command line, against quadrature over both. The bounds are 6
    Monte Carlo errors, 0.1 sd at most: chance is below 1e-6."""
    frame = table()
    frame.to_csv(tmp_path / "t.csv", index=False)
    arguments = [
        "glm",
        str(tmp_path / "t.csv"),
        "n ~ x",
        "--family",
        "poisson",
        "--prior",
        "x=normal(0, 0.1)",
        "--json",
    ]
    status, told, _ = call(capsys, *arguments)
    assert status == 0
    found = json.loads(told)
    assert found["trusted"], found["reasons"]
    assert found["rows"] == 300
    assert list(found["summary"]) == ["Intercept", "x"]
    assert set(found["summary"]["x"]) >= {"mean", "sd", "q05", "q95", "mc_error", "bias", "ess", "rhat"}
    assert found["priors"]["x"] == "normal(0, 0.1)"
    x, n = frame["x"].to_numpy() - frame["x"].mean(), frame["n"].to_numpy()
    a = np.linspace(np.log(n.mean()) - 0.6, np.log(n.mean()) + 0.5, 201)[:, None]
    b = np.linspace(-0.03, 0.06, 241)[None, :]
    log_density = n.sum() * a + (n * x).sum() * b - np.exp(a + b * x[:, None, None]).sum(0)
    log_density = log_density - (a - np.log(n.mean())) ** 2 / (2 * 2.5**2) - b**2 / (2 * 0.1**2)
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    for name, value in (("x", b + 0 * a), ("Intercept", a - b * frame["x"].mean())):
        mean = (weight * value).sum()
        sd = np.sqrt((weight * (value - mean) ** 2).sum())
        assert abs(found["summary"][name]["mean"] - mean) < 0.1 * sd
        assert found["summary"][name]["sd"] == pytest.approx(sd, rel=0.06)


def test_group_effects_and_their_spread_are_those_of_quadrature():
    """Normal counts of one observation per group: given the spread all is normal, so that one integral is left. Eight
    schools (Rubin 1981), with known errors as weights. Bounds as above; the spread is known to 0.1 of its sd."""
    y = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
    error = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
    rows = np.repeat(np.arange(8), 2)  # two rows with half of the weight each: a level has more than one row
    frame = pd.DataFrame({"y": y[rows] + np.tile([1e-3, -1e-3], 8), "school": rows, "w": 1 / (2 * error[rows] ** 2)})
    priors = {"Intercept": "normal(0, 20)", "sd(school)": "half_normal(10)", "sigma": "gamma(1e6, 1e6)"}
    found = strang.glm("y ~ 1 + (1 | school)", frame, weights="w", priors=priors, error=0.05, progress=False)
    assert found.trusted, found.reasons

    # σ is pinned to 1 by its prior; what its density adds for weights that do not add up to rows is constant there
    t, m = np.linspace(0.02, 60, 1500)[:, None], np.linspace(-50, 60, 1101)[None, :]
    log_density = -(m**2) / 800 - t**2 / 200
    for value, own in zip(y, error, strict=True):
        log_density = log_density - np.log(own**2 + t**2) / 2 - (value - m) ** 2 / (own**2 + t**2) / 2
    weight = np.exp(log_density - log_density.max())

    def expected(function):
        return float((weight * function(t, m)).sum() / weight.sum())

    tau, mu = expected(lambda t, m: t), expected(lambda t, m: m)
    spread = np.sqrt(expected(lambda t, m: t**2) - tau**2)
    summary = found.summary().to_dict()
    assert summary["sd(Intercept | school)"]["mean"] == pytest.approx(tau, abs=0.1 * spread)
    assert summary["sd(Intercept | school)"]["sd"] == pytest.approx(spread, rel=0.08)
    assert summary["Intercept"]["mean"] == pytest.approx(mu, abs=0.1 * summary["Intercept"]["sd"])
    first = expected(lambda t, m: (y[0] - m) * t**2 / (t**2 + error[0] ** 2))
    effects = found.effects().set_index("level")
    assert effects.loc["0", "mean"] == pytest.approx(first, abs=0.1 * effects.loc["0", "sd"])
    assert (effects["pooling"] > 0.2).all()


def test_the_result_has_names_errors_and_a_verdict(grouped):
    assert grouped.summary().names == ["Intercept", "x", "C(r)[T.b]", "sigma", "sd(Intercept | g)"]
    assert grouped.trusted, grouped.reasons
    assert len(grouped.effects()) == 8
    assert grouped.held_out.each.shape == (len(grouped.held["y"]),)
    assert grouped.rows + len(grouped.held["y"]) == 300
    text = str(grouped)
    for part in ("y ~ x + C(r) + (1 | g)", "trusted", "rows held out", "priors: Intercept normal("):
        assert part in text
    assert json.loads(json.dumps(grouped.to_dict()))["held_out"]["rows"] == len(grouped.held["y"])
    tree = grouped.to_arviz()
    assert tree.posterior["coefficient"].sel(column="x").shape[0] == 16
    assert list(tree.posterior["level_0"].values) == [f"s{k}" for k in range(8)]


def test_predictions_are_those_of_the_draws(grouped):
    """The mean of a row is that of its coefficients, by hand; a new level is as wide as the levels are."""
    new = pd.DataFrame({"x": [50.0, 60.0], "r": ["a", "b"], "g": ["s1", "s1"]})
    samples = {name: np.asarray(x, float) for name, x in grouped.run.samples.items() if name != "family"}
    coefficient, effect = samples["coefficient"], samples["effect_0"][..., 1, 0]
    first = coefficient[..., 0] + 50 * coefficient[..., 1] + effect
    second = coefficient[..., 0] + 60 * coefficient[..., 1] + coefficient[..., 2] + effect
    found = grouped.predict(new, interval=0.8, draws=10**6, progress=False)
    assert found.mean == pytest.approx([first.mean(), second.mean()], abs=2e-3)
    assert found.low[0] == pytest.approx(np.quantile(first, 0.1), abs=5e-3)
    assert list(found.to_frame().columns) == ["mean", "sd", "low", "high"]
    noisy = grouped.predict(new, "response", progress=False)
    sigma = np.asarray(grouped.run.samples["family"]["sigma"], float)
    assert noisy.sd[0] == pytest.approx(np.sqrt(first.var() + (sigma**2).mean()), rel=0.05)
    unseen = grouped.predict(new.assign(g="new"), progress=False)
    average = coefficient[..., 0] + 50 * coefficient[..., 1]
    assert unseen.sd[0] == pytest.approx(np.sqrt(average.var() + (samples["sd_0"] ** 2).mean()), rel=0.1)
    with pytest.raises(InputError, match="not seen: 'c'"):
        grouped.predict(new.assign(r="c"))
    with pytest.raises(InputError, match="no column 'x'"):
        grouped.predict(new.drop(columns="x"))
    with pytest.raises(InputError, match="kind"):
        grouped.predict(new, "means")


def test_contrasts_and_marginal_effects_of_a_linear_model_are_its_coefficients(grouped):
    summary = grouped.summary().to_dict()
    found = grouped.marginal_effects().to_dict()
    assert found["x"]["mean"] == pytest.approx(summary["x"]["mean"], rel=0.02)
    assert found["r: b − a"]["sd"] == pytest.approx(summary["C(r)[T.b]"]["sd"], rel=0.06)
    both = grouped.contrast({"x": 10, "C(r)[T.b]": -1}).to_dict()
    assert both["10 x − C(r)[T.b]"]["mean"] == pytest.approx(
        10 * summary["x"]["mean"] - summary["C(r)[T.b]"]["mean"], abs=0.02
    )
    with pytest.raises(InputError, match="there is no coefficient 'z'"):
        grouped.contrast({"z": 1})


def test_the_page_is_whole_in_a_browser(grouped, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(grouped.page())
    text = path.read_text()
    for part in ("Trusted", "Coefficients", "Effects", "Groups", "Predictive check of y", "Rows held out", "Priors"):
        assert part in text
    with browser.chromium() as chromium:
        assert browser.problems(chromium, path) == []


def test_the_same_call_goes_on_from_what_is_stored(grouped, stored):
    """Coordinates and tuning are read from the folder, and the run has reached its goal: nothing is sampled again."""
    again = strang.glm(FORMULA, table(), **SETTINGS, store=stored)
    assert again.summary().to_dict() == grouped.summary().to_dict()
    assert again.run.steps == grouped.run.steps
    with pytest.raises(
        InputError, match=r"begun from Python with a table in memory: make the same call of strang\.glm"
    ):
        strang.resume(stored)
    with pytest.raises(InputError, match="holds another run"):
        strang.glm(FORMULA, table(seed=1), **SETTINGS, store=stored)


@pytest.mark.parametrize(("arguments", "sentence"), [
    (["nothing.csv", "y ~ x"], "there is no file"),
    (["t.csv", "y ~ x", "--family", "beta"], "family 'beta' is unknown; choose one of"),
    (["t.csv", "y ~ x", "--prior", "normal(0, 1)"], "write a term and its prior"),
    (["t.csv", "y ~ x", "--prior", "z=normal(0, 1)"], "priors has 'z', which is no term"),
    (["t.csv", "y ~ x", "--missing", "skip"], "missing 'skip' is unknown"),
    (["t.csv", "y ~ x", "--holdout", "2"], "holdout is 2"),
    (["t.csv", "y ~ z"], "has no column 'z'"),
    (["t.csv", "r ~ x + (1 | g)", "--family", "categorical"], "group terms are not there"),
])  # fmt: skip
def test_the_command_line_says_what_is_wrong(arguments, sentence, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table(30).to_csv("t.csv", index=False)
    status, told, error = call(capsys, "glm", *arguments)
    assert (status, told) == (2, "")
    assert sentence in error
    assert error.count("\n") == 1
