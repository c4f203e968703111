"""A regression by NumPyro's NUTS, written down independently: a line of JSON.

Arguments: an .npz with the raw columns x, the response y and what else rows have, and priors, family and names as JSON;
warm-up and draws of each of four chains. Coefficients are in the table's units; the intercept's prior is at the
columns' means. Group effects are non-centred, with a Cholesky factor of LKJ's correlations.
"""

import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS

jax.config.update("jax_enable_x64", True)
KINDS = {
    "normal": dist.Normal, "student_t": dist.StudentT, "half_normal": dist.HalfNormal, "gamma": dist.Gamma,
    "half_student_t": lambda df, scale: dist.FoldedDistribution(dist.StudentT(df, 0.0, scale)),
    "half_cauchy": dist.HalfCauchy,
}  # fmt: skip
file = np.load(sys.argv[1])
about = json.loads(str(file["about"]))
warmup, draws = map(int, sys.argv[2:4])
rows = {name: jnp.asarray(file[name]) for name in file.files if name != "about"}
names, family, priors = about["names"], about["family"], about["priors"]
scale, centre = np.asarray(file["scale"]), np.asarray(file["centre"])


def prior(name: str):
    kind, numbers = priors[name]
    return KINDS[kind](*numbers)


def coefficients(label: str = ""):
    """Standardised for the sampler's sake: β = b / scale; the intercept is at the columns' means."""
    b = []
    for name, unit in zip(names, scale, strict=True):
        kind, numbers = priors[name]
        assert kind == "normal"
        b.append(numpyro.sample(f"b {label}{name}", dist.Normal(numbers[0] * unit, numbers[1] * unit)))
    b = jnp.stack(b)
    natural = b / scale
    if "Intercept" in names:
        natural = natural.at[names.index("Intercept")].add(-jnp.sum(b * centre / scale))
    for k, name in enumerate(names):
        numpyro.deterministic(label + name, natural[k])
    return b


def model():
    x = (rows["x"] - centre) / scale
    if family == "categorical":
        eta = jnp.stack([x @ coefficients(f"{level}: ") for level in about["levels"][1:]], axis=1)
        logits = jnp.concatenate([jnp.zeros((len(eta), 1)), eta], axis=1)
        numpyro.sample("y", dist.Categorical(logits=logits), obs=rows["y"].astype(int))
        return
    b = coefficients()
    eta = x @ b
    for k, group in enumerate(about["groups"]):
        width, label = len(group["names"]), group["name"]
        sd = jnp.stack(
            [numpyro.sample(f"sd({name} | {label})", prior(f"sd({name} | {label})")) for name in group["names"]]
        )
        v = numpyro.sample(f"v {k}", dist.Normal(0, 1).expand([group["levels"], width]))
        if width > 1:
            factor = numpyro.sample(f"factor {k}", dist.LKJCholesky(width, priors[f"cor({label})"][1][0]))
            numpyro.deterministic(f"cor({group['names'][0]}, {group['names'][1]} | {label})", (factor @ factor.T)[1, 0])
            v = v @ factor.T
        u = v * sd
        numpyro.deterministic(f"effect {k}", u)
        eta = eta + jnp.sum(u[rows[f"group_{k}"]] * rows[f"z_{k}"], axis=1)
    positive = {name: numpyro.sample(name, prior(name)) for name in about["positive"]}
    y = rows["y"]
    if family == "normal":
        numpyro.sample("y", dist.Normal(eta, positive["sigma"]), obs=y)
    elif family == "student":
        numpyro.sample("y", dist.StudentT(positive["nu"], eta, positive["sigma"]), obs=y)
    elif family == "bernoulli":
        numpyro.sample("y", dist.Bernoulli(logits=eta), obs=y)
    elif family == "binomial":
        numpyro.sample("y", dist.Binomial(rows["trials"].astype(int), logits=eta), obs=y)
    elif family == "poisson":
        numpyro.sample("y", dist.Poisson(jnp.exp(eta)), obs=y)
    elif family == "negative_binomial":
        numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(eta), positive["alpha"]), obs=y)
    elif family == "gamma":
        numpyro.sample("y", dist.Gamma(positive["alpha"], positive["alpha"] / jnp.exp(eta)), obs=y)
    elif family == "ordinal":
        count, shift = len(about["levels"]) - 1, jnp.sum(b * centre / scale)
        # the cut points in order, with independent Student priors: a density of ordered numbers
        cuts = numpyro.sample("cuts", dist.ImproperUniform(dist.constraints.ordered_vector, (), (count,)))
        numpyro.factor("prior of cuts", prior("cuts").log_prob(cuts).sum())
        for c in range(count):
            numpyro.deterministic(f"{about['levels'][c]} | {about['levels'][c + 1]}", cuts[c] + shift)
        numpyro.sample("y", dist.OrderedLogistic(eta, cuts), obs=y.astype(int))


started = time.perf_counter()
kernel = NUTS(model, dense_mass=not about["groups"], target_accept_prob=0.95 if about["groups"] else 0.8,
              init_strategy=numpyro.infer.init_to_median)  # fmt: skip
mcmc = MCMC(kernel, num_warmup=warmup, num_samples=draws, num_chains=4, chain_method="sequential", progress_bar=False)
mcmc.warmup(jax.random.key(0), extra_fields=("num_steps",), collect_warmup=True)
tuning = int(mcmc.get_extra_fields()["num_steps"].sum())
mcmc.run(mcmc.post_warmup_state.rng_key, extra_fields=("num_steps", "diverging"))
seconds = time.perf_counter() - started
found = mcmc.get_samples(group_by_chain=True)
summary = {}
for name, values in found.items():
    flat = np.asarray(values, float).reshape(*values.shape[:2], -1)
    for k in range(flat.shape[2]):
        own = flat[:, :, k]
        label = name if values.ndim == 2 else f"{name}[{k}]"
        ess = float(effective_sample_size(own)) if own.std() > 0 else float("nan")
        summary[label] = {"mean": own.mean(), "sd": own.std(), "ess": ess}
fields = mcmc.get_extra_fields()
print(json.dumps({
    "summary": summary, "seconds": seconds, "gradients": int(fields["num_steps"].sum()),
    "tuning_gradients": tuning,
    "diverging": int(fields["diverging"].sum()),
}))  # fmt: skip
