"""Bounds on what is asked for, by the memory of this machine."""

import os

from strang.util.errors import InputError


def machine_bytes() -> int:
    """The memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_fits(what: str, size: float, advice: str = "write fewer") -> None:
    """Refuses what would take more bytes than this machine has, before it is tried.

    >>> check_fits("chains is 10^18: they", 8e18)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    strang.util.errors.InputError: chains is 10^18: they would take about 7,450,580,597 GiB, and this machine has ...
    """
    if size > machine_bytes():
        has = f"{machine_bytes() / 2**30:,.0f}"
        raise InputError(f"{what} would take about {size / 2**30:,.0f} GiB, and this machine has {has}; {advice}.")
