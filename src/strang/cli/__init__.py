"""The command line: parsing only. Each application registers its own commands."""

from strang.cli.app import main as main
