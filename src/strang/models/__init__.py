"""What is being sampled."""

from .base import Model as Model
from .base import Posterior as Posterior
from .gaussian import Gaussian as Gaussian
from .logistic import Logistic as Logistic
