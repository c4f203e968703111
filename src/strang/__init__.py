"""Stochastic-gradient MCMC with symmetric splitting integrators."""

__version__ = "0.1.0"

from . import calibration as calibration
from . import certificate as certificate
from . import cluster as cluster
from . import data as data
from . import distributed as distributed
from . import gradient as gradient
from . import images as images
from . import models as models
from . import sbn as sbn
from . import schedule as schedule
from . import theory as theory
from .dynamics import SGHMC as SGHMC
from .dynamics import SGLD as SGLD
from .dynamics import SGNHT as SGNHT
from .dynamics import SGRHMC as SGRHMC
from .dynamics import SGRLD as SGRLD
from .errors import InputError as InputError
from .errors import need as _need
from .integrator import Step as Step
from .integrator import spell as spell
from .models import Model as Model
from .run import DivergenceWarning as DivergenceWarning
from .run import Run as Run
from .run import blocks as blocks
from .run import sample as sample


def __getattr__(name: str):
    """`strang.LDA` is a scikit-learn estimator, which only its users need to have installed."""
    if name == "LDA":
        return _need("strang.lda.estimator", "sklearn").LDA
    raise AttributeError(f"module 'strang' has no attribute {name!r}")
