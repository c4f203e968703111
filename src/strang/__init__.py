"""Stochastic-gradient MCMC with symmetric splitting integrators, and an honest account of how wrong each answer is.

`help(strang.sample)` tells how to run it; `strang.data` wraps the data, `strang.Model` the model.
"""

from typing import TYPE_CHECKING

from strang.util.lazy import lazy
from strang.util.version import __version__ as __version__

if TYPE_CHECKING:
    from strang import calibration as calibration
    from strang import coordinates as coordinates
    from strang import data as data
    from strang import gradients as gradients
    from strang import lda as lda
    from strang import models as models
    from strang import parallel as parallel
    from strang import regression as regression
    from strang import report as report
    from strang import sbn as sbn
    from strang import schedule as schedule
    from strang import theory as theory
    from strang.applications import resume as resume
    from strang.dynamics import SGHMC as SGHMC
    from strang.dynamics import SGLD as SGLD
    from strang.dynamics import SGNHT as SGNHT
    from strang.dynamics import SGRHMC as SGRHMC
    from strang.dynamics import SGRLD as SGRLD
    from strang.integrators.words import Step as Step
    from strang.integrators.words import spell as spell
    from strang.lda.estimator import LDA as LDA
    from strang.models import Model as Model
    from strang.nn.estimator import BNNClassifier as BNNClassifier
    from strang.nn.estimator import BNNRegressor as BNNRegressor
    from strang.regression.api import glm as glm
    from strang.run import DisagreementWarning as DisagreementWarning
    from strang.run import DivergenceWarning as DivergenceWarning
    from strang.run import Run as Run
    from strang.run import Stepper as Stepper
    from strang.run import TrustWarning as TrustWarning
    from strang.run import blocks as blocks
    from strang.run import cluster as cluster
    from strang.run import sample as sample
    from strang.theory import certificate as certificate
    from strang.tuning import Tuning as Tuning
    from strang.tuning import tune as tune
    from strang.util.errors import InputError as InputError

_MODULES = (
    "calibration",
    "coordinates",
    "data",
    "gradients",
    "lda",
    "models",
    "parallel",
    "regression",
    "report",
    "sbn",
    "schedule",
    "theory",
)
_HOMES = {
    **{name: f"strang.{name}" for name in _MODULES},
    **dict.fromkeys(("SGHMC", "SGLD", "SGNHT", "SGRHMC", "SGRLD"), "strang.dynamics"),
    **dict.fromkeys(("Step", "spell"), "strang.integrators.words"),
    **dict.fromkeys(("DisagreementWarning", "DivergenceWarning", "Run", "Stepper", "TrustWarning"), "strang.run"),
    **dict.fromkeys(("blocks", "cluster", "sample"), "strang.run"),
    **dict.fromkeys(("Tuning", "tune"), "strang.tuning"),
    **dict.fromkeys(("BNNClassifier", "BNNRegressor"), "strang.nn.estimator"),
    "InputError": "strang.util.errors",
    "LDA": "strang.lda.estimator",
    "Model": "strang.models",
    "certificate": "strang.theory.certificate",
    "glm": "strang.regression.api",
    "resume": "strang.applications",
}
__all__ = ["__version__", *_HOMES]
__getattr__, __dir__ = lazy(__name__, _HOMES, extra="sklearn")
