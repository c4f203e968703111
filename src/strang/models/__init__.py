"""Models: what is sampled."""

from strang.models.base import Model as Model
from strang.models.base import Posterior as Posterior
from strang.models.bnn import BNN as BNN
from strang.models.gaussian import Gaussian as Gaussian
from strang.models.logistic import Logistic as Logistic
from strang.models.networks import from_equinox as from_equinox
from strang.models.networks import from_nnx as from_nnx
from strang.models.numpyro_models import from_numpyro as from_numpyro
