"""Kill a command as soon as it has saved something."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def kill_after_first_save(arguments: list[str], folder: Path) -> None:
    """Start `strang` with these arguments and end it with SIGKILL once its folder has a chain."""
    command = [sys.executable, "-c", "from strang.cli import main; main()", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline and not (folder / "chain.npz").exists():
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL  # it was not at its end
