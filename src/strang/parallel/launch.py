"""One command as several processes of this machine that share its work, and end together."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from typing import IO, Any

from strang.parallel.processes import COORDINATOR, LEASH, PROCESSES, RANK
from strang.util.errors import InputError

PATIENCE = 5.0  # seconds for the first process to say itself what another one has ended with
# The very one that launches; without -P it would import what lies in the current directory.
STRANG = [sys.executable, "-P", "-c", "from strang.cli import main; main()"]


def launch(command: list[str], processes: int) -> int:
    """Run the command so many times over, until all are done or one fails; then the others are ended. The first one
    has the terminal; what another has to say is told if it is the one that failed. The status to end with."""
    if not command:
        raise InputError("there is nothing to launch; write strang launch -n 4 -- strang lda fit ...")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not 1 <= processes <= 1000:
        raise InputError(f"{processes} processes cannot be launched; write a number from 1, about the {cores} cores.")
    leash, held = os.pipe()  # the end that is held closes with this process, however it ends
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{found.getsockname()[1]}"
    threads = str(max(1, cores // processes))
    names = {**dict.fromkeys(("NPROC", "NUMBA_NUM_THREADS", "OMP_NUM_THREADS"), threads), **os.environ}
    names |= {COORDINATOR: address, PROCESSES: str(processes), LEASH: str(leash)}
    command = STRANG + command[1:] if command[0] == "strang" else command
    with tempfile.TemporaryDirectory() as folder:
        said: list[IO[bytes]] = [open(f"{folder}/{rank}", "w+b") for rank in range(processes)]  # noqa: SIM115
        started: list[subprocess.Popen] = []
        with passing_signals(started):
            try:
                for rank in range(processes):
                    started.append(begin(command, {**names, RANK: str(rank)}, leash, rank, said[rank]))
                return watch(started, said)
            finally:
                for process in started:
                    process.kill()
                    process.wait()
                for file in said:
                    file.close()
                os.close(leash)
                os.close(held)


def begin(command: list[str], names: dict[str, str], leash: int, rank: int, said: IO[bytes]) -> subprocess.Popen:
    """A process in a session of its own, since Ctrl-C must not reach all of them at different steps."""
    quiet: dict[str, Any] = {} if rank == 0 else {"stdin": subprocess.DEVNULL, "stdout": said, "stderr": said}
    try:
        return subprocess.Popen(command, env=names, pass_fds=(leash,), start_new_session=True, **quiet)
    except OSError as error:
        raise InputError(f"{command[0]} cannot be started ({error.strerror}); write strang, or a program.") from None


@contextmanager
def passing_signals(started: list[subprocess.Popen]):
    """Ctrl-C goes to the first process, which stops all at the same step; the second one, and SIGTERM, end them."""
    pressed: list[int] = []

    def interrupt(number, frame):
        pressed.append(number)
        for process in started[:1] if len(pressed) == 1 else started:
            process.send_signal(signal.SIGINT if len(pressed) == 1 else signal.SIGKILL)

    def terminate(number, frame):
        raise SystemExit(128 + number)

    before = [signal.signal(signal.SIGINT, interrupt), signal.signal(signal.SIGTERM, terminate)]
    try:
        yield
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)


def watch(started: list[subprocess.Popen], said: list[IO[bytes]]) -> int:
    """Wait for all, or for the first that fails, and say what happened to it."""
    while True:
        codes = [process.poll() for process in started]
        if all(code == 0 for code in codes):
            return 0
        if any(codes):
            break
        time.sleep(0.01)
    failed = min((k for k, code in enumerate(codes) if code), key=lambda k: blame(codes[k]))
    code = codes[failed] or 0
    deadline = time.monotonic() + PATIENCE
    while code == 2 and started[0].poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    if started[0].poll() == code and code > 0:
        return code  # the first process has said it
    if failed:
        said[failed].seek(0)
        for line in said[failed].read().decode(errors="replace").splitlines():
            print(f"[{failed}] {line}", file=sys.stderr)
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    rest = ", and the others were ended with it" if len(started) > 1 else ""
    print(
        f"strang: process {failed} of {len(started)} {how}{rest}. A stored run goes on from its last save with the "
        "same command, also with fewer processes.",
        file=sys.stderr,
    )
    return code if code > 0 else 128 - code


def blame(code: int | None) -> int:
    """The less, the likelier to be the cause: a kill, then a mistake, then what lost its peers."""
    if code is not None and code < 0 and code != -signal.SIGABRT:
        return 0
    return 1 if code == 2 else 3 if code == -signal.SIGABRT else 2
