"""Estimates of the gradient of U from one minibatch, and the variance of their noise."""

from strang.gradients.estimators import control_variate as control_variate
from strang.gradients.estimators import latent as latent
from strang.gradients.estimators import minibatch as minibatch
from strang.gradients.estimators import svrg as svrg
