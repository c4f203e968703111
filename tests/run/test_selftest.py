"""The device's own test: passes here, and fails where products lose digits or noise has the wrong scale."""

import json

import jax
import jax.numpy as jnp
import pytest

from command_line import call
from strang.models.logistic import Logistic
from strang.run import selftest
from strang.util import random

pytestmark = pytest.mark.usefixtures("optimised_file")  # long runs


@pytest.fixture
def fresh():
    """Nothing compiled before the change, nor after it."""
    jax.clear_caches()
    yield
    jax.clear_caches()


def test_the_command_passes_on_this_device(capsys):
    status, out, err = call(capsys, "selftest", "--json")
    assert status == 0, err
    result = json.loads(out)
    assert result["passed"]
    assert [check["passed"] for check in result["checks"]] == [True] * 7


def test_a_failure_ends_with_status_1(capsys, monkeypatch):
    monkeypatch.setattr(selftest, "CHECKS", [lambda: selftest.Check("sums", 1.0, 0.5, "use another device")])
    status, out, _ = call(capsys, "selftest")
    assert status == 1
    assert "WRONG sums 1 (at most 0.5): use another device" in out


def test_products_in_half_precision_fail(fresh, monkeypatch):
    def rounded(self, position, datum):
        x, y = datum
        logit = (x.astype(jnp.bfloat16) @ position.astype(jnp.bfloat16)).astype(jnp.float32)
        return y * logit - jax.nn.softplus(logit)

    monkeypatch.setattr(Logistic, "log_likelihood", rounded)
    assert not selftest.check_products().passed


def test_noise_of_the_wrong_scale_fails(fresh, monkeypatch):
    draw = random.normals
    monkeypatch.setattr(random, "normals", lambda *given: jax.tree.map(lambda x: 1.02 * x, draw(*given)))
    assert not selftest.check_normals().passed
    assert not selftest.check_law().passed
