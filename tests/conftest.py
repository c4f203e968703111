"""Shared data: the paper's Gaussian model, small."""

import os
from importlib.metadata import version
from pathlib import Path

import pytest

# XLA's older kernels take half as long to compile. Documentation, examples of CONTRIBUTING and whatever else runs with
# an environment of its own use the kernels that users get. Newer JAX, which Python 3.12 and later get,
# does not know the flag any more, and ends a process that is given it.
if version("jaxlib").startswith("0.10."):
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
# Processes of the tests share what they compile, and the next time begins with it; a user's own folder is left alone.
os.environ.setdefault("STRANG_COMPILED", str(Path(__file__).resolve().parent.parent / ".compiled"))

import jax
import numpy as np


def standardised(size: int, mean: float = 0.5, seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=size)
    return (x - x.mean()) / x.std() + mean


@pytest.fixture(autouse=True, scope="module")
def forgotten_programs():
    """Compiled programs of a file are not kept in memory: those of all files would be gigabytes."""
    yield
    jax.clear_caches()


@pytest.fixture
def numbers() -> np.ndarray:
    """Ragged in batches of 7; from 64 rows on a permutation has fewer rounds, and compiles in half the time."""
    return standardised(66).astype(np.float32)
