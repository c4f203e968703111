"""The command line, as a user would call it."""

import sys

import pytest

from strang.cli.app import main


def call(capsys, *arguments):
    """Exit status, standard output and standard error of the command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["strang", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
    told = capsys.readouterr()
    return end.value.code or 0, told.out, told.err
