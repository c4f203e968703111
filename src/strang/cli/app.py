"""The command line. Results go to standard output (one JSON object with --json), progress and errors to standard error.

It ends with 0, or with 2 and one sentence for bad input.
"""

import sys
from typing import Annotated, Any

import typer

from strang.applications import APPLICATIONS
from strang.cli.launch import join, launch, leave
from strang.cli.models import sample, tune
from strang.cli.runs import report, resume, watch
from strang.cli.schemes import integrators, order, rates
from strang.cli.selftest import selftest
from strang.paper.commands import sample_app
from strang.util.errors import InputError
from strang.util.version import __version__

app = typer.Typer(
    help="Stochastic-gradient MCMC with symmetric splitting integrators.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (order, integrators, rates, resume, report, watch, launch, selftest):
    app.command()(command)
for application in APPLICATIONS:
    application.register(app)
app.command()(tune)
sample_app.command("model")(sample)

UsageError: Any = typer.BadParameter.__bases__[0]  # what every mistake on the command line is


def main() -> None:
    """The entry point: bad input ends with one sentence and status 2."""
    try:
        if join(sys.argv[1:]):
            leave(app(standalone_mode=False) or 0)
        return
    except InputError as error:
        sentence = str(error)
    except UsageError as error:
        if not error.format_message():  # nothing was asked, and the help has been shown
            leave(2)
        sentence = f"{error.format_message().rstrip('.')}. Try --help."
        if "No such command" in sentence:
            known = ", ".join(sorted(error.ctx.command.commands))
            sentence = f"{error.format_message()} Choose one of: {known}."
    except OSError as error:
        sentence = f"cannot write or read {error.filename}: {error.strerror}."
    except MemoryError as error:
        sentence = f"this takes more memory than there is ({error}); write smaller numbers."
    except typer.Abort:
        sentence = "stopped."
    print(f"strang: {' '.join(sentence.split())}", file=sys.stderr)  # one line, also where another library wrote it
    leave(2)


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False) -> None:
    if show:
        print(__version__)
        raise typer.Exit
