"""Where a step of a topic model spends its time: the dense part against drawing its normals, which bounds it.

    .venv/bin/python benchmarks/lda_step.py [CORPUS] [--topics 200] [--documents 100] [--rounds 10]

CORPUS is a folder that `strang lda prepare` made; without it documents are drawn. `dense` is a step whose expected
counts are at hand already: prior, gradient, integrator and noise over all words and topics. `handed over` has them
handed over by the host in each step, `whole` has them computed from so many documents. In turns, best of the rounds.
"""

import argparse
import copy
import time
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from strang.lda import TopicModel, from_csr, open_corpus
from strang.lda import fitting as learning
from strang.lda.settings import completed
from strang.sampling.chain import advance_alone as advance
from strang.util import random

STEPS = 20
DYNAMICS = {"sgrld": {}, "sghmc": {"dynamics": "sghmc"}}


def drawn_corpus():
    """Four thousand documents of a hundred words of the paper's vocabulary."""
    rng, words = np.random.default_rng(0), 7702
    indices = np.concatenate([rng.choice(words, 100, replace=False) for _ in range(4000)])
    return from_csr(np.arange(0, 400_001, 100), indices, np.ones(400_000, int), [f"w{k}" for k in range(words)])


class HandedOver(TopicModel):
    def _count(self, phi, rows, weights, key):
        return np.ones(phi.shape, np.float32)


class AtHand(TopicModel):
    def likelihood_gradient(self, position, rows, weights, key):
        phi = self.topics_of(position)
        return self.count_gradient(position, phi, jnp.ones(phi.shape) * weights[0])


def of_kind(job, kind):
    """The job with a model whose counts are found otherwise."""
    model = copy.copy(job.program.model)
    object.__setattr__(model, "__class__", kind)
    return replace(job, program=replace(job.program, model=model))


def measure(corpus, given, settings) -> None:
    settings = {**learning.DEFAULTS, "topics": given.topics, "batch_size": given.documents, "passes": 1e4, **settings}
    job = learning.job_of(completed(settings, corpus), corpus)
    jobs = {"whole": job, "handed over": of_kind(job, HandedOver), "dense": of_kind(job, AtHand)}
    position, key = job.chain.state.position[0], job.chain.keys.noise[0]
    draw = jax.jit(lambda l: random.normals(key, l, position, 1)[0])
    calls = {"normals": lambda: [draw(jnp.uint32(l)) for l in range(STEPS)]}
    for name, job in jobs.items():
        calls[name] = partial(advance, job.program, job.inputs, job.chain, jnp.uint32(STEPS))
    best = dict.fromkeys(calls, (np.inf, np.inf))
    for _ in range(given.rounds + 1):  # the first compiles
        for name, call in calls.items():
            began, cpu = time.perf_counter(), time.process_time()
            jax.block_until_ready(call())
            spent = time.perf_counter() - began, time.process_time() - cpu
            best[name] = tuple(map(min, best[name], spent))
    print(
        f"{settings['dynamics']}, {position.shape[0]} words x {position.shape[1]} topics, {given.documents} documents"
    )
    for name, (seconds, cpu) in best.items():
        print(f"  {name:12}{1e3 * seconds / STEPS:8.2f} ms per step, {1e3 * cpu / STEPS:8.2f} ms of CPU")
    print(f"  the dense part takes {best['dense'][0] / best['normals'][0]:.2f} times as long as drawing its normals")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?")
    parser.add_argument("--topics", type=int, default=200)
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    corpus = open_corpus(given.corpus) if given.corpus else drawn_corpus()
    for settings in DYNAMICS.values():
        measure(corpus, given, settings)


if __name__ == "__main__":
    main()
