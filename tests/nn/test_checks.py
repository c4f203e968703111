"""scikit-learn's own checks of both estimators, with the smallest fits that learn something."""

from sklearn.utils.estimator_checks import parametrize_with_checks

import strang

SMALL = {"hidden_layer_sizes": (8,), "starts": 1, "draws": 10, "steps": 40, "random_state": 0}


@parametrize_with_checks([strang.BNNClassifier(**SMALL), strang.BNNRegressor(**SMALL)])
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)
