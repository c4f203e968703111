"""A killed neural network goes on to the same bytes; kills of the other kinds are tested with them."""

import json
import random
import sys
import time
from pathlib import Path

from strang.storage.series import read_series

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import faults


def test_kills_of_a_neural_network_do_not_show(tmp_path, capsys):
    faults.sample_bnn(tmp_path / "whole")
    expected = faults.outcome(tmp_path / "whole", capsys.readouterr().out)
    command, folder = faults.bnn(tmp_path), tmp_path / "killed"
    process = faults.start(command, folder)
    while process.poll() is None and len(read_series(folder)) < 3:
        time.sleep(0.01)
    faults.kill(process, random.Random(0))
    process.communicate()
    assert process.returncode < 0
    assert faults.where(folder) in ("in", "between")
    assert 3 <= len(read_series(folder)) < len(expected["steps"])
    faults.sample_bnn(folder)
    assert faults.outcome(folder, capsys.readouterr().out) == expected


def test_a_run_that_differs_is_seen(tmp_path, capsys):
    """Negative control: one bit of one file."""
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "chain.npz").write_bytes(b"\0" + name.encode())
    printed = json.dumps({"sum": 1.0, "seconds": 2.0})
    one, other = (faults.outcome(tmp_path / name, printed) for name in "ab")
    assert one["told"] == other["told"] == {"sum": 1.0}
    assert one != other
