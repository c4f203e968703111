"""The sigmoid belief network: binary causes h_j ~ Bernoulli(s(b_j)), binary effects v_m ~ Bernoulli(s((W h + c)_m)).

The gradient is Fisher's identity: with h drawn from p(h | v, θ), ∇ log p(v, h | θ) is unbiased for ∇ log p(v | θ). The
draw is made by Gibbs sweeps over each datum's units: a compiled loop on CPUs, array code elsewhere.
"""

import importlib.util
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from strang.util.errors import InputError, choose, whole
from strang.util.host import compute_on_host
from strang.util.memory import check_fits
from strang.util.trees import Tree

UPDATES = ("gibbs", "polya-gamma")
MAX_LOG_ODDS = 6.0  # of c at the start
MAX_SWEEPS = 1_000_000
RANKS = (2, 1, 1, 2, 1, 2)  # axes of weights, prior, bias, rows, key and start of one chain


@dataclass(frozen=True)
class SBN:
    """A sigmoid belief network, to be sampled by `strang.sample`; a datum is a vector of zeros and ones.

    With `gradient=strang.gradients.latent()`, sweeps start from the datum's causes at its last visit instead.

    Args:
        hidden: the number of causes, J.
        visible: the number of effects, M.
        sweeps: Gibbs sweeps that draw the causes, starting from a draw of their prior.
        update: `gibbs`, which draws the causes one by one and nothing else, or `polya-gamma`, which draws auxiliary
            variables and needs many more sweeps.
        prior_var: the variance of the normal prior of W, b and c.
        start_scale: the standard deviation of W at the start.
        log_odds: where c starts, M numbers; see `started_at`. By default 0.

    Raises:
        InputError: an argument is invalid, or `polya-gamma` is chosen and Numba is not installed.

    Example:
        >>> SBN(hidden=2, visible=3).init(jax.random.key(0))["W"].shape
        (3, 2)
    """

    hidden: int
    visible: int = 784
    sweeps: int = 5
    update: str = "gibbs"
    prior_var: float = 1.0
    start_scale: float = 0.1
    log_odds: tuple[float, ...] | None = None

    def __post_init__(self):
        for name in ("hidden", "visible"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        object.__setattr__(self, "sweeps", whole("sweeps", self.sweeps, 1, MAX_SWEEPS))
        check_fits(f"hidden is {self.hidden}: {self.visible} x {self.hidden} weights", 4 * self.visible * self.hidden)
        if self.update not in UPDATES:
            raise choose("update", self.update, UPDATES)
        if self.update == "polya-gamma" and not compiled():
            raise InputError("update='polya-gamma' needs Numba: pip install 'strang[numba]'.")
        if not self.prior_var > 0:
            raise InputError(f"prior_var is {self.prior_var}; it must be a positive number.")
        if self.log_odds is not None and len(self.log_odds) != self.visible:
            raise InputError(f"log_odds has {len(self.log_odds)} numbers; write as many as visible={self.visible}.")

    def started_at(self, rows) -> "SBN":
        """Returns the same model with c starting at the log odds of the data's means, within ±6.

        Args:
            rows: the data, a matrix of zeros and ones.

        Example:
            >>> SBN(hidden=2, visible=3).started_at([[0, 0, 1], [1, 0, 1]]).log_odds
            (0.0, -6.0, 6.0)
        """
        rows = np.asarray(rows)
        self.check_rows(rows)
        mean = np.clip(rows.mean(0, dtype=float), 1e-9, 1 - 1e-9)
        odds = np.clip(np.log(mean / (1 - mean)), -MAX_LOG_ODDS, MAX_LOG_ODDS)
        return replace(self, log_odds=tuple(odds.tolist()))

    def check_rows(self, rows) -> None:
        """Raises unless rows are vectors of `visible` zeros and ones. Of rows on disk or traced, only shapes count."""
        shape = getattr(rows, "shape", None)
        if shape is None or shape[1:] != (self.visible,):
            what = "are no single array" if shape is None else f"have shape {shape}"
            raise InputError(f"data {what}; SBN with visible={self.visible} expects rows of that many zeros and ones.")
        if isinstance(rows, np.ndarray | jax.Array) and not isinstance(rows, jax.core.Tracer):
            values = np.asarray(rows)
            wrong = values[(values != 0) & (values != 1)]
            if wrong.size:
                raise InputError(f"the data hold {wrong[0]}, not zeros and ones; see strang.data.images.binarise.")

    def init(self, key) -> Tree:
        bias = jnp.zeros(self.visible) if self.log_odds is None else jnp.asarray(self.log_odds, float)
        weights = self.start_scale * jax.random.normal(key, (self.visible, self.hidden))
        return {"W": weights, "b": jnp.zeros(self.hidden), "c": bias}

    def log_prior(self, position: Tree):
        return -sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(position)) / (2 * self.prior_var)

    def log_joint(self, position: Tree, visible, hidden):
        """log p(v, h | θ) of one datum and its causes."""
        x = position["W"] @ hidden + position["c"]
        effects = jnp.sum(visible * x - jax.nn.softplus(x))
        return effects + jnp.sum(hidden * position["b"] - jax.nn.softplus(position["b"]))

    def log_likelihood(self, position: Tree, datum):
        raise InputError("log p(v) of a belief network has no closed form: score it with strang.sbn.score.")

    def first_hidden(self, position: Tree, count: int, key):
        """Draws the causes of `count` data from their prior."""
        return jax.random.bernoulli(key, jax.nn.sigmoid(position["b"]), (count, self.hidden))

    def draw_hidden(self, position: Tree, rows, key, start=None):
        """Draws the causes (n, J) of the rows by `sweeps` sweeps from `start`, or from a draw of their prior."""
        self.check_rows(rows)
        arguments = (position, rows.astype(bool), jax.random.key_data(key), start)
        if not compiled():
            return self._array_sweeps(*arguments)
        if self.update == "polya-gamma":
            return self._compiled_sweeps(*arguments)
        return jax.lax.platform_dependent(*arguments, cpu=self._compiled_sweeps, default=self._array_sweeps)

    def likelihood_gradient(self, position: Tree, rows, weights, key):
        """Estimates the gradient of Σ_i weights_i log p(row_i | position) by Fisher's identity."""
        return self.joint_gradient(position, rows, self.draw_hidden(position, rows, key), weights)

    def joint_gradient(self, position: Tree, rows, hidden, weights):
        """The gradient of Σ_i weights_i log p(row_i, h_i | position)."""
        hidden, weights = hidden.astype(position["W"].dtype), weights[:, None]
        rows = jnp.where((rows == 0) | (rows == 1), rows, jnp.nan)  # grey values from disk end the chain
        effects = weights * (rows - jax.nn.sigmoid(hidden @ position["W"].T + position["c"]))
        causes = weights * (hidden - jax.nn.sigmoid(position["b"]))
        return {"W": effects.T @ hidden, "b": causes.sum(0), "c": effects.sum(0)}

    def _compiled_sweeps(self, position, rows, key, start):
        from strang.sbn.kernels import gibbs, polya_gamma
        from strang.util.host_random import streams

        loop = gibbs.gibbs if self.update == "gibbs" else polya_gamma.gibbs

        def sweep(weights, prior, bias, *others):
            """All chains at once: leading axes of the arrays, if any, are chains."""
            arrays = [*(np.asarray(x, np.float32) for x in (weights, prior, bias)), *others]
            chains = [x.reshape(-1, *x.shape[x.ndim - rank :]) for x, rank in zip(arrays, RANKS, strict=False)]
            drawn = [
                loop(v, h[0] if h else None, w, b, c, streams(k, len(v)), self.sweeps)
                for w, b, c, v, k, *h in zip(*chains, strict=True)
            ]
            return np.stack(drawn).reshape(*others[0].shape[:-1], self.hidden)

        shape = jax.ShapeDtypeStruct((rows.shape[0], self.hidden), bool)
        optional = () if start is None else (start,)
        return compute_on_host(sweep, shape, position["W"], position["b"], position["c"], rows, key, *optional)

    def _array_sweeps(self, position, rows, key, start):
        """The same conditionals as array code over all rows, one unit after the other."""
        first, rest = jax.random.split(jax.random.wrap_key_data(key))
        if start is None:
            start = self.first_hidden(position, rows.shape[0], first)
        growth = jnp.exp(jnp.clip(position["W"].T, -80, 80))
        evidence = rows.astype(growth.dtype) @ position["W"]

        def unit(j, carry):
            hidden, on, off, uniforms = carry
            g = jnp.where(hidden[:, j, None], 1 / growth[j], growth[j])
            ratio = off + on * g
            total = jnp.log(ratio).sum(1)
            change = evidence[:, j] + jnp.where(hidden[:, j], total, -total)
            chosen = uniforms[:, j] < jax.nn.sigmoid(position["b"][j] + change)
            flipped = (chosen != hidden[:, j])[:, None]
            on, off = jnp.where(flipped, on * g / ratio, on), jnp.where(flipped, off / ratio, off)
            return hidden.at[:, j].set(chosen), on, off, uniforms

        def sweep(k, hidden):
            uniforms = jax.random.uniform(jax.random.fold_in(rest, k), (rows.shape[0], self.hidden))
            x = hidden.astype(growth.dtype) @ position["W"].T + position["c"]
            carry = (hidden, jax.nn.sigmoid(x), jax.nn.sigmoid(-x), uniforms)
            return jax.lax.fori_loop(0, self.hidden, unit, carry)[0]

        return jax.lax.fori_loop(0, self.sweeps, sweep, start)


def compiled() -> bool:
    """Whether Numba is installed."""
    return importlib.util.find_spec("numba") is not None
