"""The front door: `sample` and its relatives, and the `Run` that comes out."""

from strang.run import cluster as cluster
from strang.run.api import blocks as blocks
from strang.run.api import sample as sample
from strang.run.result import DisagreementWarning as DisagreementWarning
from strang.run.result import DivergenceWarning as DivergenceWarning
from strang.run.result import Run as Run
from strang.run.result import RunWarning as RunWarning
from strang.run.result import TrustWarning as TrustWarning
from strang.run.stepper import Stepper as Stepper
