"""Advance chains by one minibatch at a time, for loops of one's own: streams, curricula, `partial_fit`."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from strang.data.batches import Batch
from strang.dynamics.base import Dynamics
from strang.dynamics.fields import at_step
from strang.gradients.full import batch_gradient
from strang.integrators.words import Step, spell
from strang.models.base import Posterior
from strang.sampling.checks import check_model_and_dynamics
from strang.sampling.record import Chain
from strang.sampling.request import MAX_STEPS, spread_over_chains
from strang.sampling.starts import first_positions
from strang.schedule import as_schedule
from strang.util import random
from strang.util.errors import InputError, whole
from strang.util.front_door import front_door
from strang.util.trees import Tree, dot


@dataclass(frozen=True)
class Code:
    """What is compiled; equal ones share a compilation."""

    model: Any
    step: Step
    grid: bool  # whether the dynamics' numbers differ between chains


class Stepper:
    """Chains that are advanced by the batches they are given.

    Everything random at step l is a function of (seed, chain, l), as in `strang.sample`; averages are left to the
    caller. Batches of one shape share a compilation: fill up a shorter one, and give its surplus rows the weight 0.

    Example:
        >>> import numpy as np, strang
        >>> stepper = strang.Stepper(strang.models.Gaussian(), strang.SGHMC(friction=2.0), step_size=0.1, chains=4)
        >>> chain = stepper.start()
        >>> for rows in np.split(np.arange(6.0), 3):
        ...     chain = stepper.step(chain, rows, size=6)
        >>> int(chain.step), chain.state.position.shape
        (3, (4,))
    """

    @front_door
    def __init__(
        self,
        model: Posterior,
        dynamics: Dynamics,
        *,
        step_size: Any,
        integrator: Any = None,
        chains: int = 1,
        seed: int = 0,
        init: Any = None,
    ):
        """The arguments are those of `strang.sample`."""
        if hasattr(model, "unconstrained") and not isinstance(model, type):
            model = model.unconstrained(no_rows, None)
        check_model_and_dynamics(model, dynamics)
        self.chains, self.seed, self.init = whole("chains", chains), whole("seed", seed, 0, 2**64 - 1), init
        step = spell(dynamics, dynamics.default_integrator if integrator is None else integrator)
        self.schedule = as_schedule(step_size, MAX_STEPS, self.chains)
        self.dynamics, grid = spread_over_chains(dynamics, self.chains)
        self.code = Code(model, step, grid)

    def start(self) -> Chain:
        """The chains at step 0; where a model has constraints, their positions are numbers without."""
        keys = random.chain_keys(self.seed, self.chains)
        return begin(self.code, self.dynamics, keys, first_positions(self.code.model, self.init, keys))

    def step(self, chain: Chain, rows: Tree, *, size: float, weights: Any = None) -> Chain:
        """All chains after one step with this batch.

        Args:
            chain: where they are.
            rows: a pytree of arrays with a leading axis of rows, the same batch for all chains.
            size: the number of rows of all data, which the batch stands for.
            weights: one per row, 0 for those that do not count; by default 1.

        Raises:
            InputError: no row counts.
        """
        counted = jnp.asarray(weights).sum() if weights is not None else jax.tree.leaves(rows)[0].shape[0]
        if not counted > 0:
            raise InputError("the batch has no rows that count; give at least one.")
        batch = Batch(rows, weights, jnp.asarray(size / counted, float))  # type: ignore[arg-type]
        return advance(self.code, self.dynamics, self.schedule, chain, batch)


def no_rows() -> Tree:
    raise InputError("a NumPyro model must see rows before it is sampled; use strang.sample or strang.blocks.")


@partial(jax.jit, static_argnums=0)
def begin(code: Code, dynamics, keys, positions: Tree) -> Chain:
    """Chains at step 0, their positions along the leading axis."""

    dynamics = at_step(dynamics, jnp.asarray(1.0))

    def one(dynamics, key, position):
        return dynamics.init(position, random.normals(key, jnp.uint32(0), position, 1)[0])

    state = jax.vmap(one, (0 if code.grid else None, 0, 0))(dynamics, keys.start, positions)
    none = jnp.zeros(len(keys.start), jnp.uint32)
    return Chain(jnp.uint32(0), keys, state, (), None, None, None, None, none == 0, none)  # type: ignore[arg-type]


@partial(jax.jit, static_argnums=0)
def advance(code: Code, dynamics, schedule, chain: Chain, batch: Batch) -> Chain:
    """One step of all chains with one batch."""
    h = schedule((chain.step + 1).astype(float))
    dynamics = at_step(dynamics, (chain.step + 1).astype(float))

    def one(dynamics, state, h, noise_key, model_key):
        normals = random.normals(noise_key, chain.step, state.position, code.step.noises)
        key = random.fold(model_key, chain.step)
        return code.step(dynamics, state, h, lambda theta: batch_gradient(code.model, theta, batch, key), normals)

    axes = (0 if code.grid else None, 0, 0 if h.ndim else None, 0, 0)
    state = jax.vmap(one, axes)(dynamics, chain.state, h, chain.keys.noise, chain.keys.model)
    finite = jax.vmap(lambda position: jnp.isfinite(dot(position, position)))(state.position)
    died = chain.alive & ~finite
    return chain._replace(
        step=chain.step + 1,
        state=state,
        alive=chain.alive & finite,
        diverged_at=jnp.where(died, chain.step + 1, chain.diverged_at),
    )
