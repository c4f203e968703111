"""Run one command as several processes of this machine that share its work and end together."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from typing import IO, Any

from strang.util.cores import cores
from strang.util.errors import InputError
from strang.util.launched import COORDINATOR, LAUNCHER_PIPE, PROCESSES, RANK

REPORT_SECONDS = 5.0  # that the first process has to report an error which another one ended with
# The Python that launches; without -P it would import what lies in the current directory.
STRANG = [sys.executable, "-P", "-c", "from strang.cli import main; main()"]


def launch(command: list[str], processes: int) -> int:
    """Run the command so many times over, until all are done or one fails, and return the status to end with.

    When one fails, the others are ended. The first process has the terminal; the output of another is printed if it is
    the one that failed.
    """
    if not command:
        raise InputError("there is nothing to launch; write strang launch -n 4 -- strang lda fit ...")
    if not 1 <= processes <= 1000:
        raise InputError(f"{processes} processes cannot be launched; write a number from 1, about the {cores()} cores.")
    read_end, write_end = os.pipe()  # the write end closes with this process, however it ends
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    threads = str(max(1, cores() // processes))
    environment = {**dict.fromkeys(("NPROC", "NUMBA_NUM_THREADS", "OMP_NUM_THREADS"), threads), **os.environ}
    environment |= {COORDINATOR: address, PROCESSES: str(processes), LAUNCHER_PIPE: str(read_end)}
    command = STRANG + command[1:] if command[0] == "strang" else command
    with tempfile.TemporaryDirectory() as folder:
        outputs: list[IO[bytes]] = [open(f"{folder}/{rank}", "w+b") for rank in range(processes)]  # noqa: SIM115
        started: list[subprocess.Popen] = []
        with forward_signals(started):
            try:
                for rank in range(processes):
                    started.append(start(command, {**environment, RANK: str(rank)}, read_end, rank, outputs[rank]))
                return wait(started, outputs)
            finally:
                for process in started:
                    process.kill()
                    process.wait()
                for file in outputs:
                    file.close()
                os.close(read_end)
                os.close(write_end)


def start(command: list[str], environment: dict[str, str], pipe: int, rank: int, output: IO[bytes]) -> subprocess.Popen:
    """Start a process in a session of its own, since Ctrl-C must not reach all of them at different steps."""
    quiet: dict[str, Any] = {} if rank == 0 else {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
    try:
        return subprocess.Popen(command, env=environment, pass_fds=(pipe,), start_new_session=True, **quiet)
    except OSError as error:
        raise InputError(f"{command[0]} cannot be started ({error.strerror}); write strang, or a program.") from None


@contextmanager
def forward_signals(started: list[subprocess.Popen]):
    """Send Ctrl-C to the first process, which stops all at the same step; the second Ctrl-C, and SIGTERM, end them."""
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


def wait(started: list[subprocess.Popen], outputs: list[IO[bytes]]) -> int:
    """Wait for all processes, or for the first that fails; say what happened to it and return its status."""
    while True:
        codes = [process.poll() for process in started]
        if all(code == 0 for code in codes):
            return 0
        if any(codes):
            break
        time.sleep(0.01)
    failed = min((k for k, code in enumerate(codes) if code), key=lambda k: cause_rank(codes[k]))
    code = codes[failed] or 0
    deadline = time.monotonic() + REPORT_SECONDS
    while code == 2 and started[0].poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    if started[0].poll() == code and code > 0:
        return code  # the first process has reported it
    if failed:
        outputs[failed].seek(0)
        for line in outputs[failed].read().decode(errors="replace").splitlines():
            print(f"[{failed}] {line}", file=sys.stderr)
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    rest = ", and the others were ended with it" if len(started) > 1 else ""
    print(
        f"strang: process {failed} of {len(started)} {how}{rest}. A stored run goes on from its last save with the "
        "same command, also with fewer processes.",
        file=sys.stderr,
    )
    return code if code > 0 else 128 - code


def cause_rank(code: int | None) -> int:
    """The lower, the likelier this exit code is the cause: a kill, then bad input, then what lost its peers."""
    if code is not None and code < 0 and code != -signal.SIGABRT:
        return 0
    return 1 if code == 2 else 3 if code == -signal.SIGABRT else 2
