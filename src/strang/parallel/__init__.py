"""Who computes: devices and processes that share chains and minibatches."""

from strang.parallel.processes import start as start
