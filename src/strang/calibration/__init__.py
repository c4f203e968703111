"""How good predictions are, and whether they know how wrong they may be: of classes, and of numbers (regression)."""

from strang.calibration.classes import Bin as Bin
from strang.calibration.classes import Score as Score
from strang.calibration.classes import reliability as reliability
from strang.calibration.classes import score as score
from strang.calibration.forecasts import NormalMixture as NormalMixture
from strang.calibration.regression import RegressionScore as RegressionScore
from strang.calibration.regression import score_regression as score_regression
from strang.calibration.scores import Interval as Interval
from strang.calibration.scores import Uniformity as Uniformity
from strang.calibration.scores import coverage as coverage
from strang.calibration.scores import crps as crps
from strang.calibration.scores import nll as nll
from strang.calibration.scores import pit as pit
from strang.calibration.scores import uniformity as uniformity
