"""Tasks on processes of this machine."""

import os

import pytest

from strang.parallel import pool
from strang.util.errors import InputError


def test_each_item_is_computed_once():
    assert sorted(pool.spread(2, abs, [-3, 5, -7], "numbers", False)) == [(0, 3), (1, 5), (2, 7)]


def test_a_process_that_is_killed_ends_it_with_a_sentence():
    with pytest.raises(InputError, match="was killed"):
        list(pool.spread(1, os._exit, [1, 1], "exits", False))
