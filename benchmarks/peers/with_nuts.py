"""NumPyro's NUTS with a dense mass matrix on one problem: a line of JSON. Chains, draws and warm-up are arguments."""

import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS
from posterior_models import problem

name, chains, warmup, draws = sys.argv[1], *map(int, sys.argv[2:5])
posterior = problem(name)
rows = jax.tree.map(jnp.asarray, posterior.rows)


def potential(q):
    return -posterior.log_prior(q) - jnp.sum(jax.vmap(lambda row: posterior.log_likelihood(q, row))(rows))


started = time.perf_counter()
kernel = NUTS(potential_fn=potential, dense_mass=True)
mcmc = MCMC(
    kernel, num_warmup=warmup, num_samples=draws, num_chains=chains, chain_method="sequential", progress_bar=False
)
start = jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x), (chains, *np.shape(x))), posterior.init)
init = jax.tree.map(lambda x: x[0], start) if chains == 1 else start
mcmc.run(jax.random.key(0), init_params=init, extra_fields=("num_steps", "diverging"))
grouped = mcmc.get_samples(group_by_chain=True)
flat = np.concatenate(
    [np.asarray(leaf, float).reshape(chains, draws, -1) for leaf in jax.tree.leaves(grouped)], axis=-1
)
seconds = time.perf_counter() - started
ess = [float(effective_sample_size(flat[:, :, k])) for k in range(flat.shape[2])]
mean, sd = flat.mean((0, 1)), flat.std((0, 1))
result = {
    "mean": mean.tolist(), "sd": sd.tolist(), "seconds": seconds, "ess": min(ess), "gradients":
    int(mcmc.get_extra_fields()["num_steps"].sum()), "diverging": int(mcmc.get_extra_fields()["diverging"].sum()),
}  # fmt: skip
print(json.dumps(result))
