"""Compiled code is kept for the next process, in a folder that stays small, unless it is not to be."""

import os
import subprocess
import sys
import time

import jax

from strang.util import compiled

CODE = """
import jax, strang, numpy as np
data = strang.data.arrays(np.arange(3.0), batch_size=1)
strang.sample(strang.models.Gaussian(), data, strang.SGLD(), step_size=0.01, steps=3, average=None)
print(jax.config.jax_compilation_cache_dir)
"""


FOLDER = """
import jax
from strang.util.compiled import keep_on_disk
keep_on_disk()
print(jax.config.jax_compilation_cache_dir)
"""


def run(code=CODE, **environment) -> str:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("STRANG_", "JAX_COMP"))}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, env={**own, **environment}, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_the_next_process_finds_what_was_compiled(tmp_path):
    folder = run(XDG_CACHE_HOME=str(tmp_path))
    assert folder == str(tmp_path / "strang" / "compiled" / compiled.machine())
    first = {path.name: path.stat().st_mtime_ns for path in tmp_path.rglob("*-cache")}
    assert any("begin" in name for name in first)
    run(XDG_CACHE_HOME=str(tmp_path))
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.rglob("*-cache")} == first


def test_it_can_be_elsewhere_or_off_and_leaves_jaxs_own(tmp_path):
    assert run(FOLDER, STRANG_COMPILED="off", XDG_CACHE_HOME=str(tmp_path)) == "None"
    assert run(FOLDER, STRANG_COMPILED=str(tmp_path / "here")).startswith(str(tmp_path / "here"))
    assert run(FOLDER, JAX_COMPILATION_CACHE_DIR=str(tmp_path / "own")) == str(tmp_path / "own")
    (tmp_path / "file").write_text("")
    assert run(STRANG_COMPILED=str(tmp_path / "file")) == "None"  # where nothing can be kept, and yet a run ends


def test_what_was_used_longest_ago_is_deleted(tmp_path, monkeypatch):
    for k in range(4):
        (tmp_path / f"{k}").write_bytes(bytes(10))
        os.utime(tmp_path / f"{k}", (k, k))
    monkeypatch.setattr(compiled, "MOST", 25)
    compiled.trim(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "3"]


def test_a_folder_is_trimmed_once_per_hour(tmp_path):
    stamp = tmp_path / "trimmed"
    assert compiled.is_due(stamp)
    assert not compiled.is_due(stamp)
    os.utime(stamp, (0, 0))
    assert compiled.is_due(stamp)
    assert not compiled.is_due(stamp)


def test_compiled_code_is_forgotten_before_a_process_has_no_room_for_more(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "MAPPED", tmp_path / "maps")
    monkeypatch.setattr(compiled, "LIMIT", tmp_path / "most")
    monkeypatch.setattr(compiled, "LOOK_SECONDS", 0.0)
    assert not compiled.nearly_full()  # where the system does not tell
    (tmp_path / "most").write_text("10\n")
    twice = jax.jit(lambda x: 2 * x)
    for pieces, kept in ((6, 1), (7, 0)):
        twice(1.0)
        (tmp_path / "maps").write_text("piece\n" * pieces)
        compiled.keep_compiled_code()
        assert twice._cache_size() == kept


def test_looking_for_room_is_seldom(tmp_path, monkeypatch):
    (tmp_path / "maps").write_text("piece\n" * 7)
    (tmp_path / "most").write_text("10\n")
    monkeypatch.setattr(compiled, "LIMIT", tmp_path / "most")
    monkeypatch.setattr(compiled, "MAPPED", tmp_path / "maps")
    monkeypatch.setattr(compiled, "LOOK_SECONDS", 1e6)
    monkeypatch.setattr(compiled, "_looked", time.monotonic())
    twice = jax.jit(lambda x: 2 * x)
    twice(1.0)
    compiled.keep_compiled_code()
    assert twice._cache_size() == 1
    monkeypatch.setattr(compiled, "LOOK_SECONDS", 0.0)
    compiled.keep_compiled_code()
    assert twice._cache_size() == 0
