"""Shared data: the paper's Gaussian model, small."""

import gc
import os
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import pytest

# XLA's older kernels take half as long to compile, and a program in one part a quarter less than cut in many. Examples
# of CONTRIBUTING and whatever else runs with an environment of its own use the kernels that users get. Newer JAX, which
# Python 3.12 and later get, does not know the first flag any more, and ends a process that is given it.
if version("jaxlib").startswith("0.10."):
    flags = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    os.environ.setdefault("XLA_FLAGS", flags)
# LLVM would take half of what is left, to make programs fast that run for a moment; operations are the same without.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
from strang.util.compiled import keep_compiled_code, user_folder

# Processes of the tests share what they compile, and the next time begins with it, also in another checkout: that takes
# a quarter less time. What a user keeps is left alone.
os.environ.setdefault("STRANG_COMPILED", str(user_folder() / "compiled-by-tests"))

import jax
import numpy as np

keep_compiled_code()  # also for tests that do not come in by the front door

MOST_MEMORY = 2 << 30  # bytes of a worker beyond which it forgets compiled programs

# Files that take longest, which begin first: two workers then end at about the same time.
LONGEST = (
    "tests/test_docs.py",
    "tests/nn/test_fit.py",
    "tests/paper/test_reproduce.py",
    "tests/parallel/test_mesh.py",
    "tests/theory/test_certificate.py",
    "tests/sampling/test_companion.py",
    "tests/storage/test_store.py",
    "tests/test_coordinates.py",
    "src/strang/nn/estimator.py",
    "tests/models/test_numpyro.py",
    "tests/tuning/test_tuning.py",
    "tests/run/test_run.py",
    "tests/run/test_cluster.py",
    "tests/nn/test_checks.py",
    "tests/regression/test_glm.py",
)


# Tracing makes objects by the million, and hardly any of them in circles: to look for these so rarely, and never among
# what was imported, takes an eighth less time.
gc.set_threshold(100_000, 20, 20)


def pytest_collection_finish():
    gc.freeze()


def pytest_collection_modifyitems(items):
    """The files that take longest first, each whole and in its own order."""
    place = {name: k for k, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.nodeid.split("::")[0], len(LONGEST)))


def standardised(size: int, mean: float = 0.5, seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=size)
    return (x - x.mean()) / x.std() + mean


@pytest.fixture(autouse=True, scope="module")
def forgotten_programs():
    """Compiled programs of all files would be gigabytes. Forgetting them takes time, and so does tracing again what
    files have in common, so that they stay as long as there is room."""
    yield
    if memory() > MOST_MEMORY:
        jax.clear_caches()


def memory() -> int:
    """The bytes of memory of this process; where the system does not tell, more than it may have."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return MOST_MEMORY + 1


@contextmanager
def optimising():
    """LLVM makes programs fast, here and in processes that are started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "0")
        jax.clear_caches()
        jax.config.update("jax_disable_most_optimizations", False)
        yield
    jax.config.update("jax_disable_most_optimizations", os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "1")
    jax.clear_caches()


@pytest.fixture
def optimised():
    """For a test that compares the bits of two programs, or runs for long."""
    with optimising():
        yield


@pytest.fixture(scope="module")
def optimised_file():
    """For a file of them."""
    with optimising():
        yield


@pytest.fixture
def numbers() -> np.ndarray:
    """Ragged in batches of 7; from 64 rows on a permutation has fewer rounds, and compiles in half the time."""
    return standardised(66).astype(np.float32)
