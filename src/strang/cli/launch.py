"""`strang launch`: many processes, and what they share."""

import os
import sys
from typing import Annotated

import typer

from strang.util.launched import is_launched, rank

SHARED = (["sample"], ["resume"], ["sbn", "fit"], ["lda", "fit"])  # commands whose work several processes share


def launch(
    command: Annotated[list[str], typer.Argument(help="After --, the command as it would be written alone.")],
    processes: Annotated[int, typer.Option("--processes", "-n", help="How many.")] = 2,
) -> None:
    """Run a command as several processes of this machine that share each minibatch.

    Example: strang launch -n 4 -- strang lda fit CORPUS --store DIR. If one is killed the others end at once, and the
    same command goes on from the last save, bit for bit, with as many processes or fewer.
    """
    from strang.parallel.launch import launch as run

    raise typer.Exit(run(command, processes))


def join(arguments: list[str]) -> bool:
    """Join the processes that this one was launched with. Whether there is anything for it to do: what is not shared is
    done by the first alone."""
    words = [word for word in arguments if not word.startswith("-")]
    if any(words[: len(name)] == name for name in SHARED) and not {"--help", "--version"} & set(arguments):
        if is_launched():
            from strang.parallel import processes

            processes.start()
        if rank():  # the first one prints for all
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return True
    return rank() == 0


def leave(status: int) -> None:
    """End this process; where others wait for it, without waiting for them."""
    if status and is_launched():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
