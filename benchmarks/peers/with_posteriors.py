"""posteriors' SGHMC (PyTorch), all chains in one tensor: the log posterior is summed over chains, which are apart."""

import numpy as np
import torch
from problem import chosen, report, timed

import posteriors

problem = chosen()
x = torch.as_tensor(problem.x)
size, n, chains = len(x), problem.batch, problem.chains
if problem.y is None:
    shape = (chains, 1)

    def log_posterior(theta, batch):
        likelihood = -((batch[0] - theta) ** 2).sum() / 2
        return size / n * likelihood - (theta**2).sum() / 2, torch.tensor([])

else:
    y = torch.as_tensor(problem.y)
    shape = (chains, x.shape[1])

    def log_posterior(theta, batch):
        logit = torch.einsum("cnd,cd->cn", batch[0], theta)
        likelihood = (batch[1] * logit - torch.nn.functional.softplus(logit)).sum()
        return size / n * likelihood - (theta**2).sum() / 2, torch.tensor([])


STEPS = 2000
kernel = posteriors.sgmcmc.sghmc.build(log_posterior, lr=problem.step_size, alpha=problem.friction, temperature=1.0)


def run():
    torch.manual_seed(0)
    state = kernel.init(torch.zeros(shape))
    mean, second, counted = torch.zeros(shape), torch.zeros(shape), STEPS - STEPS // 2
    for l in range(STEPS):
        rows = torch.randint(size, (chains, n))
        batch = (x[rows],) if problem.y is None else (x[rows], y[rows])
        state, _ = kernel.update(state, batch)
        if l >= STEPS // 2:
            mean += state.params.detach() / counted
            second += state.params.detach() ** 2 / counted
    return mean, second


(mean, second), seconds = timed(run)
report(problem, "posteriors sghmc", STEPS, seconds, np.asarray(mean), np.asarray(second))
