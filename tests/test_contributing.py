"""A dynamics, a minibatch order and an estimator, added by the text of CONTRIBUTING.md alone: a file and a line."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
FILES = dict(re.findall(r"```python\n# (src/strang/\S+)\n(.*?)```", TEXT, re.DOTALL))
LINES = dict(re.findall(r"^In `(src/strang/\S+)`: `(.*)`$", TEXT, re.MULTILINE))

DYNAMICS = """
import itertools, numpy as np, strang
from strang.dynamics import DYNAMICS, Scaled
from strang.theory import linear

assert DYNAMICS["scaled"] is Scaled
assert strang.certificate.weak_order("euler", Scaled).order == 1
assert strang.certificate.invariant_order("euler", Scaled) == 1
step, h, K = strang.spell(Scaled, "euler"), 0.1, 2.0
np.testing.assert_allclose(linear.variance_ratio(step, Scaled(rate=3.0), K, h), 1 / (1 - 3.0 * h * K / 2))
data = strang.data.arrays(np.arange(4.0), batch_order="full")
grid = Scaled(rate=np.array([1.0, 2.0]))
run = strang.sample(strang.models.Gaussian(), data, grid, step_size=0.01, steps=50, chains=2)
assert run.diverged == 0
try:
    strang.sample(strang.models.Gaussian(), data, Scaled(rate=-1.0), step_size=0.01, steps=50)
except strang.InputError as error:
    assert "rate is -1.0; it must be a positive number" in str(error)
else:
    raise AssertionError
"""
ORDER = """
import jax, jax.numpy as jnp, numpy as np, strang
from strang.theory import galerkin
from strang.theory.certificate.algebra import periods
from strang.util import random

assert periods("twice") == ("abab", "baba")
data = strang.data.arrays(np.arange(7.0), batch_size=3, batch_order="twice")
order, key = data.batch_order, random.chain_keys(0, 1).batch
get = jax.jit(lambda l: order.indices(order.salt(key, l), l)[:, 0])
rows = np.concatenate([np.asarray(get(jnp.uint32(l))) for l in range(6)])
assert sorted(rows[rows < 7]) == sorted([*range(7)] * 2)
word = strang.certificate.word_order("ABOBA", "twice", kick="O")
assert strang.certificate.weak_order("chen:ABOBA", strang.SGHMC, "twice").order == word
settings = {"batch_size": 1, "batch_order": "twice", "step_size": 0.05, "steps": 5000, "burn_in": 4000}
step = strang.spell(strang.SGHMC, "chen:ABOBA")
exact = strang.theory.finite_time(step, strang.SGHMC(1.0), data=[0.0, 1.0], **settings)
pull = [lambda q: q + 2 * q, lambda q: q + 2 * (q - 1)]
long = galerkin.invariant_average(
    "chen:ABOBA", strang.SGHMC(1.0), pull, step_size=0.05, batch_order="twice", degree=4
)
np.testing.assert_allclose(exact.mean, long, rtol=1e-6)
run = strang.sample(strang.models.Gaussian(), data, strang.SGHMC(1.0), step_size=0.01, steps=50)
assert "twice batches" in str(run)
"""
ESTIMATOR = """
import itertools, jax, jax.numpy as jnp, numpy as np, strang
from strang.data.batches import Batch
from strang.gradients.full import full_gradient

rows = np.array([0.3, -1.0, 2.0, 0.7], np.float32)
model = strang.Model(lambda q: -(q**2) / 2, lambda q, x: -jnp.cosh(q - x), init=jnp.float32(0))
data = strang.data.arrays(rows, batch_size=2, batch_order="reshuffled")
saga, position = strang.gradients.saga(), jnp.float32(0.4)
carried = saga.start(model, data, position)
for numbers in ([0, 1], [2, 3], [1, 3]):
    numbers = np.array(numbers, np.uint32)
    carried = saga.visit(model, carried, position - 0.1, Batch(rows[numbers], None, data.scale, numbers), None)
estimates = [
    saga(model, data, (), carried, position, Batch(rows[list(pair)], None, data.scale, np.array(pair)), None)
    for pair in itertools.permutations(range(4), 2)
]
np.testing.assert_allclose(np.mean(estimates), full_gradient(model, data, position, None), rtol=1e-5)
plain = [
    strang.gradients.minibatch()(model, data, (), (), position, Batch(rows[list(p)], None, data.scale, None), None)
    for p in itertools.permutations(range(4), 2)
]
assert np.std(estimates) < np.std(plain) / 3, (np.std(estimates), np.std(plain))
runs = [
    strang.sample(model, data, strang.SGHMC(2.0), step_size=0.02, steps=600, chains=3, gradient=estimator, burn_in=300)
    for estimator in (saga, None)
]
assert runs[0].diverged == 0
assert float(runs[0].gradient_noise) < float(runs[1].gradient_noise) / 2, [run.gradient_noise for run in runs]
"""


@pytest.mark.parametrize(
    ("file", "check"),
    [
        ("src/strang/dynamics/scaled.py", DYNAMICS),
        ("src/strang/data/twice.py", ORDER),
        ("src/strang/gradients/saga.py", ESTIMATOR),
    ],
)
def test_one_file_and_one_line_are_enough(file, check, tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / file).write_text(FILES[file])
    home = str(Path(file).parent / "__init__.py")
    path = tmp_path / home
    first = next(line for line in path.read_text().splitlines() if line.startswith("from strang"))
    path.write_text(path.read_text().replace(first, f"{LINES[home]}\n{first}", 1))
    shared = {name: os.environ[name] for name in ("STRANG_COMPILED", "JAX_DISABLE_MOST_OPTIMIZATIONS")}
    environment = {"PYTHONPATH": str(tmp_path / "src"), **shared}
    done = subprocess.run([sys.executable, "-c", check], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_skeleton_has_its_line():
    assert {str(Path(file).parent / "__init__.py") for file in FILES} == set(LINES)
