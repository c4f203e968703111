"""What is being sampled."""

from .base import Model as Model
from .base import Posterior as Posterior
from .bnn import BNN as BNN
from .gaussian import Gaussian as Gaussian
from .lda import LDA as LDA
from .logistic import Logistic as Logistic
from .sbn import SBN as SBN
