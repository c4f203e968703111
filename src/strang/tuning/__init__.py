"""What a model and its data leave open, chosen before a run: mode, coordinates, gradient, batches, step size."""

from strang.tuning.tuning import Tuning as Tuning
from strang.tuning.tuning import tune as tune
