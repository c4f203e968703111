"""Regressions from formulas and tables of any size. Needs the extra `glm`; `strang.glm` is the way in."""

from typing import TYPE_CHECKING

from strang.util.lazy import lazy

if TYPE_CHECKING:
    from strang.regression.api import glm
    from strang.regression.model import RegressionModel
    from strang.regression.result import Regression

__all__ = ["Regression", "RegressionModel", "glm"]
_HOMES = {
    "Regression": "strang.regression.result",
    "RegressionModel": "strang.regression.model",
    "glm": "strang.regression.api",
}
__getattr__, __dir__ = lazy(__name__, _HOMES, extra="glm")
