"""Models: what is sampled."""

from strang.models.base import Model as Model
from strang.models.base import Posterior as Posterior
from strang.models.bnn import BNN as BNN
from strang.models.gaussian import Gaussian as Gaussian
from strang.models.logistic import Logistic as Logistic
