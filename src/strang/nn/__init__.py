"""Bayesian neural networks as scikit-learn estimators: optimised starts, local sampling about each, one forecast."""

from typing import TYPE_CHECKING

from strang.util.lazy import lazy

if TYPE_CHECKING:
    from strang.nn.estimator import BNNClassifier, BNNRegressor

__all__ = ["BNNClassifier", "BNNRegressor"]
__getattr__, __dir__ = lazy(__name__, dict.fromkeys(__all__, "strang.nn.estimator"), extra="sklearn")
