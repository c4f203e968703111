"""`strang selftest`: whether this machine's device computes what it should."""

import time

import typer

from strang.util.command_line import Json, emit


def selftest(json: Json = False) -> None:
    """Check random numbers, products, sums, resumed runs and the law of a run on this machine's own device.

    Ends with status 1 where something is wrong. It runs with the settings of JAX that are in force.
    """
    from strang.run.selftest import CHECKS, report
    from strang.util.progress import track

    started = time.perf_counter()
    found = [check() for check in track(CHECKS, "checking", None)]
    result = report(found, started)
    lines = [
        f"{'ok' if check.passed else 'WRONG':6}{check.name} {check.error:.2g} (at most {check.tolerance:g})"
        + ("" if check.passed else f": {check.advice}")
        for check in found
    ]
    verdict = "all is as it should be" if result["passed"] else "do not trust runs on this device with these settings"
    lines.append(
        f"{result['device']} ({result['platform']}), JAX {result['jax']}, {result['seconds']:.0f} s: {verdict}"
    )
    emit(result, json, lines)
    if not result["passed"]:
        raise typer.Exit(1)
