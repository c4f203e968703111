"""scikit-learn's own checks of both estimators.

They fit some hundred times, on data of ever other shapes, and look at conventions: so the sampler, which has tests of
its own, is replaced here by a network without hidden layers that least squares finds. Nothing else is changed.
"""

import jax
import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import strang
from strang.nn import estimator as module
from strang.nn.fitting import Fitted
from strang.nn.health import Health

HEALTH = Health({}, 1.0, 1.0, [0.0], 0.0, 0.0, 0)
NOISE = 0.1


def least_squares(net, rows, settings, before=None) -> Fitted:
    """One draw: the weights of a linear fit to the targets, or to large logits of the classes."""
    x, y = np.asarray(rows[0], float), np.asarray(rows[1])
    classes = net.model.widths[-1]
    outputs = np.column_stack([y, np.full(len(y), np.log(np.expm1(NOISE)))]) if net.output == "number" else None
    outputs = 20 * np.eye(classes)[y.astype(int)] if outputs is None else outputs
    design = np.column_stack([x, np.ones(len(x))])
    found = np.linalg.lstsq(design.T @ design + 1e-3 * np.eye(design.shape[1]), design.T @ outputs, rcond=None)[0]
    position = ({"weights": found[:-1].astype(np.float32), "biases": found[-1].astype(np.float32)},)
    draws = jax.tree.map(lambda leaf: leaf[None, None], position)
    first = jax.tree.map(lambda leaf: leaf[0], draws)
    return Fitted(draws, first, first, HEALTH, np.zeros(1), 1, 0.1, 1.0)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(module, "fit_network", least_squares)
    monkeypatch.setattr(module, "continued", lambda before: least_squares)


@parametrize_with_checks([strang.BNNClassifier((), starts=1), strang.BNNRegressor((), starts=1)])
def test_scikit_learn_s_own_checks(quick, estimator, check):
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
