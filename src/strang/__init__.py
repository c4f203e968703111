"""Stochastic-gradient MCMC with symmetric splitting integrators."""

__version__ = "0.1.0"

from .dynamics import SGHMC as SGHMC
from .dynamics import SGLD as SGLD
from .dynamics import SGNHT as SGNHT
from .dynamics import SGRHMC as SGRHMC
from .errors import InputError as InputError
from .integrator import Step as Step
from .integrator import spell as spell
