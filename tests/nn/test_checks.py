"""scikit-learn's own checks of both estimators, and its words for bad input.

The checks fit some hundred times, on data of ever other shapes, each of which is compiled: five minutes and a half,
after which all pass. They look at conventions. So some of them, `REAL`, use the sampler, with few steps; for the others
it is replaced by a network without hidden layers that least squares finds. Nothing else is changed.
"""

import re

import jax
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelEncoder, StandardScaler
from sklearn.utils import check_array
from sklearn.utils.estimator_checks import parametrize_with_checks

import strang
from strang.nn import estimator as module
from strang.nn import fitting
from strang.nn.fitting import Fitted
from strang.nn.health import Health
from strang.nn.pilots import Choice
from strang.util.errors import InputError

HEALTH = Health({}, 1.0, 1.0, [0.0], 0.0, 0.0, 0)
NOISE = 0.1
REAL = {
    "check_methods_subset_invariance",
    "check_methods_sample_order_invariance",
    "check_dict_unchanged",
}  # all on rows of one shape


def least_squares(net, rows, settings, before=None) -> Fitted:
    """One draw: the weights of a linear fit to the targets, or to large logits of the classes."""
    x, y = np.asarray(rows[0], float), np.asarray(rows[1])
    classes = (net.bare or net).model.widths[-1]
    outputs = np.column_stack([y, np.full(len(y), np.log(np.expm1(NOISE)))]) if net.output == "number" else None
    outputs = 20 * np.eye(classes)[y.astype(int)] if outputs is None else outputs
    design = np.column_stack([x, np.ones(len(x))])
    found = np.linalg.lstsq(design.T @ design + 1e-3 * np.eye(design.shape[1]), design.T @ outputs, rcond=None)[0]
    position = ({"weights": found[:-1].astype(np.float32), "biases": found[-1].astype(np.float32)},)
    position = position if net.bare is None else jax.tree.map(np.asarray, net.model.lifted(position))
    draws = jax.tree.map(lambda leaf: leaf[None, None], position)
    first = jax.tree.map(lambda leaf: leaf[0], draws)
    return Fitted(draws, first, first, HEALTH, np.zeros(1), 1, 0.1, 1.0, Choice(1.0))


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(module, "fit_network", least_squares)
    monkeypatch.setattr(module, "continued", lambda before: least_squares)


@parametrize_with_checks([strang.BNNClassifier((), starts=1), strang.BNNRegressor((), starts=1)])
def test_scikit_learn_s_own_checks(request, monkeypatch, estimator, check):
    if check.func.__name__ in REAL:
        estimator.set_params(steps=20, draws=4)
        monkeypatch.setattr(fitting, "LOOKS", 10)
    else:
        request.getfixturevalue("quick")
    check(estimator)


def test_grid_search_over_a_pipeline(quick):
    x, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), strang.BNNClassifier((), starts=1))
    search = GridSearchCV(pipeline, {"bnnclassifier__prior_sd": [1.0, 2.0]}, cv=2).fit(x, y)
    assert search.predict_proba(x).shape == (150, 3)
    assert search.score(x, y) > 0.7


def test_classes_may_come_later(quick):
    x, y = load_iris(return_X_y=True)
    model = strang.BNNClassifier((), starts=1).partial_fit(x[:100], y[:100], classes=[0, 1, 2])
    assert model.predict_proba(x).shape == (150, 3)
    assert model.partial_fit(x[100:], y[100:]).score(x, y) > 0.7


# Bad input.

X = np.random.default_rng(0).normal(size=(30, 2))
CLASS, NUMBER = (X[:, 0] > 0).astype(int), X[:, 0] + X[:, 1]
STRINGS = np.array([["a", "b"]] * 30)
OURS = {"classes": strang.BNNClassifier((), starts=1), "number": strang.BNNRegressor((), starts=1)}
THEIRS = {"classes": LogisticRegression(), "number": Ridge()}


def with_one(array, value):
    """The array with another value at one place."""
    return np.where(np.arange(array.size).reshape(array.shape) == 3, value, array)


def refusal(call, *arguments) -> str:
    """The first line of what is said, without the estimator's name."""
    with pytest.raises(ValueError) as caught:
        call(*arguments)
    return re.sub("BNNClassifier|BNNRegressor|LogisticRegression|Ridge", "...", str(caught.value).splitlines()[0])


@pytest.mark.parametrize(
    ("kind", "x", "y"),
    [
        ("classes", with_one(X, np.nan), CLASS),
        ("classes", with_one(X, np.inf), CLASS),
        ("classes", with_one(X.astype(object), "a"), CLASS),
        ("classes", X, with_one(CLASS, np.nan)),
        ("classes", X, np.ones(30, int)),  # one class only
        ("classes", X, np.full(30, "a")),
        ("classes", X, NUMBER),
        ("classes", X, None),
        ("classes", X, CLASS[:-1]),
        ("classes", X, STRINGS),
        ("classes", X[:, 0], CLASS),
        ("classes", X[:, :, None], CLASS),
        ("number", with_one(X, np.nan), NUMBER),
        ("number", X, with_one(NUMBER, np.nan)),
        ("number", X, with_one(NUMBER, -np.inf)),
        ("number", X, np.full(30, "a")),
        ("number", X, None),
        ("number", X * 1j, NUMBER),
    ],
)
def test_a_fit_is_refused_in_scikit_learn_s_words(kind, x, y):
    """In those of its logistic and ridge regressions. A constant target is none of these: see `test_fit.py`."""
    fit = clone(OURS[kind]).fit
    assert refusal(fit, x, y) == refusal(clone(THEIRS[kind]).fit, x, y)
    assert refusal(fit, STRINGS, CLASS) == refusal(check_array, STRINGS)


@pytest.mark.parametrize("kind", ["classes", "number"])
def test_a_prediction_is_refused_in_scikit_learn_s_words(quick, kind, tmp_path):
    """Rows in memory and rows of a file alike."""
    target = CLASS if kind == "classes" else NUMBER
    ours, theirs = (clone(each[kind]).fit(X, target) for each in (OURS, THEIRS))
    for k, bad in enumerate((np.ones((4, 3)), with_one(X, np.nan), with_one(X, np.inf), X[:0])):
        np.save(tmp_path / f"{k}.npy", bad)
        words = refusal(theirs.predict, bad)
        assert refusal(ours.predict, bad) == words
        assert refusal(ours.predict, tmp_path / f"{k}.npy") == words
    assert refusal(ours.predict, STRINGS) == refusal(theirs.predict, STRINGS)
    assert refusal(ours.predict, X[0]) == refusal(theirs.predict, X[0])


def test_more_classes_than_were_fitted(quick):
    """A score counts them as missed, as scikit-learn's classifiers do; more rows of them are refused in the words of
    its LabelEncoder."""
    ours, theirs = (clone(each["classes"]).fit(X, CLASS) for each in (OURS, THEIRS))
    more = np.where(CLASS == 1, 2, CLASS)
    assert ours.score(X, np.full(30, 2)) == theirs.score(X, np.full(30, 2)) == 0.0
    assert 0 < ours.score(X, more) < 1
    strings = np.full(30, "a")
    assert refusal(ours.score, X, strings) == refusal(theirs.score, X, strings)
    words = refusal(ours.partial_fit, X, more), refusal(LabelEncoder().fit(CLASS).transform, more)
    assert words[0].replace("[2]", "[np.int64(2)]") == words[1]


def test_bad_files_and_settings(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "nan.npy", with_one(X, np.nan))
    np.save(tmp_path / "one.npy", X[:1])
    fit, there = clone(OURS["number"]).fit, Ridge().fit
    assert refusal(fit, tmp_path / "nan.npy", NUMBER) == refusal(there, with_one(X, np.nan), NUMBER)
    assert refusal(fit, tmp_path / "x.npy", with_one(NUMBER, np.nan)) == refusal(there, X, with_one(NUMBER, np.nan))
    assert refusal(fit, tmp_path / "x.npy", NUMBER[:-1]) == refusal(there, X, NUMBER[:-1])
    assert refusal(fit, tmp_path / "x.npy", None) == refusal(there, X, None)
    assert "minimum of 2" in refusal(fit, tmp_path / "one.npy", NUMBER[:1])
    assert "cannot be read as a .npy file" in refusal(fit, tmp_path / "x.npy", tmp_path / "none.npy")
    for name, value in {
        "activation": "step", "temperature": "hot", "learning_rate": -1.0, "seconds": 0, "store": 3, "starts": 0,
        "hidden_layer_sizes": "many", "prior": "cauchy", "prior_sd": -1.0, "batch_size": 0, "steps": 1,
    }.items():  # fmt: skip
        with pytest.raises(InputError, match=name if name != "hidden_layer_sizes" else "hidden_layer_sizes is many"):
            strang.BNNClassifier(**{name: value}).fit(X, CLASS)
