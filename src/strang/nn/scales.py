"""A prior whose scale is learnt, layer by layer: it is part of the posterior, so that there is none to choose.

An array of a layer is exp(s) u, where u has the network's own prior and s, one number per layer, a normal one. Chains
move u and s: so the scale of a layer moves as a whole, and not only as fast as its many numbers diffuse.
"""

from dataclasses import dataclass, replace
from math import log
from typing import Any

import jax
import jax.numpy as jnp

from strang.models.base import log_likelihoods
from strang.nn.network import Net, layer_name, prior_scales
from strang.util.trees import Tree

MEDIAN, SPREAD = 2.0, 1.0  # of a layer's scale, which is log-normal, and of its logarithm


@dataclass(frozen=True)
class LearntScales:
    """The posterior of a network and of its layers' scales: positions are {"network": u, "log_scale": s by layer}."""

    model: Any
    rows: int  # of the data

    def init(self, key) -> Tree:
        start = self.model.init
        return self.lifted(start(key) if callable(start) else start)

    def lifted(self, network: Tree) -> Tree:
        """The position at the median of scales that gives these arrays. Its u are then rather too small for their prior
        than too large: chains begin cold, and no energy is set free."""
        scales = {name: jnp.full((), log(MEDIAN), jnp.float32) for name in layers(network)}
        return {"network": scaled_by(network, scales, -1), "log_scale": scales}

    def network(self, position: Tree) -> Tree:
        """The arrays of the network itself."""
        return scaled_by(position["network"], position["log_scale"], 1)

    def log_prior(self, position: Tree):
        scales = sum((s - log(MEDIAN)) ** 2 for s in position["log_scale"].values())
        return self.model.log_prior(position["network"]) - scales / (2 * SPREAD**2)

    def prior_scales(self, position: Tree) -> Tree:
        """The scale of each number's prior. For a log scale, the width at which chains see it: where all rows are
        fitted the likelihood is flat along it, and a little further on it is as steep as many rows make it."""
        widths = jax.tree.map(lambda s: jnp.full_like(s, self.rows**-0.5), position["log_scale"])
        return {"network": prior_scales(self.model, position["network"]), "log_scale": widths}

    def log_likelihood(self, position: Tree, datum: Tree):
        return self.model.log_likelihood(self.network(position), datum)

    def batch_log_likelihood(self, position: Tree, rows: Tree):
        return log_likelihoods(self.model, self.network(position), rows)


@dataclass(frozen=True)
class ScaledOutputs:
    """The outputs of a network at such a position; equal ones share a compilation."""

    outputs: Any
    model: LearntScales

    def __call__(self, position: Tree, x):
        return self.outputs(self.model.network(position), x)


def with_learnt_scales(net: Net, rows: int) -> Net:
    """The same network with scales that are learnt from so many rows; starts are still those of the network itself."""
    model = LearntScales(net.model, rows)
    return replace(net, model=model, outputs=ScaledOutputs(net.outputs, model), bare=net)


def layers(network: Tree) -> list[str]:
    """The layers that have a scale: those with weights, that is, an array of two or more axes."""
    found = (layer_name(path) for path, x in jax.tree_util.tree_leaves_with_path(network) if x.ndim > 1)
    return list(dict.fromkeys(found))


def scaled_by(network: Tree, scales: dict[str, Any], power: int) -> Tree:
    """Every array of a layer times its scale, or divided by it; layers without weights, such as those that normalise,
    stay as they are."""

    def scaled(path, x):
        name = layer_name(path)
        return x * jnp.exp(power * scales[name]) if name in scales else x

    return jax.tree_util.tree_map_with_path(scaled, network)
