"""The report as one page that needs nothing else."""

from typing import Any

from strang.report.pages import Section, plain_page
from strang.report.panels import Panel, Series, Table
from strang.report.stored import KNOWN, describe, is_number, throughput

POINTS = 100  # of a curve: more are not seen
AVERAGES = 6  # with a panel of their own


def page(found: dict[str, Any]) -> str:
    """The page of what `report` found."""
    first, *others = describe(found)
    return plain_page(f"Run {first}", ". ".join(others) + ".", [*curves(found), *tables(found)])


def curves(found: dict[str, Any]) -> list[Section]:
    """What was measured against the number of steps."""
    series = found["series"]
    averages = [
        trace(each["name"], "weighted average so far, with its Monte Carlo error", series, "average", place)
        for place, each in enumerate(found["averages"][:AVERAGES])
    ]
    extra = sorted(
        {name for entry in series for name, value in entry.items() if name not in KNOWN and is_number(value)}
    )
    health = [
        trace("kinetic temperature", "1 where the law is right, more where noisy", series, "temperature"),
        trace("gradient noise", "variance V a coordinate, on average", series, "gradient_noise"),
        trace("diverged chains", "chains that left the finite numbers", series, "diverged"),
        *(trace(name, name, series, name) for name in extra),
        panel("throughput", "steps of all chains a second", [
            {"x": step, "value": rate, "se": None} for step, _, rate in throughput(series, found["chains"])
        ]),
    ]  # fmt: skip
    shown = [("Averages", averages), ("Health", health)]
    return [
        Section(heading, panels=[panel for panel in panels if panel is not None])
        for heading, panels in shown
        if any(panel is not None for panel in panels)
    ]


def trace(title: str, label: str, series: list[dict[str, Any]], key: str, place: int | None = None) -> Panel | None:
    """One number of the series, or one of a list of numbers, with the error beside it."""
    points = []
    for entry in series:
        value, error = entry.get(key), None
        if place is not None:
            values, errors = value or [], entry.get("error") or []
            value = values[place] if place < len(values) else None
            error = errors[place] if place < len(errors) else None
        if is_number(value):
            points.append({"x": entry["step"], "value": value, "se": error})
    return panel(title, label, points)


def panel(title: str, label: str, points: list[dict[str, Any]]) -> Panel | None:
    """A panel of few enough points, the last among them; None where there are none."""
    few = points[:: -max(1, -(-len(points) // POINTS))][::-1]
    return Panel(title, "step", label, [Series(title, few)], log_x=False, log_y=False) if few else None


def tables(found: dict[str, Any]) -> list[Section]:
    """Averages, mixing, settings and versions as numbers."""
    kept = []
    if found["averages"]:
        rows = [[each["name"], each["value"], each["error"]] for each in found["averages"]]
        kept.append(
            Section("All averages", tables=[Table("With Monte Carlo errors", ["name", "average", "error"], rows)])
        )
    if found["mixing"] and found["mixing"]["coordinates"]:
        columns = list(found["mixing"]["coordinates"][0])
        rows = [[row[column] for column in columns] for row in found["mixing"]["coordinates"]]
        text = f"{found['mixing']['draws']:,} draws of {found['mixing']['chains']} chains after burn-in, by ArviZ."
        kept.append(Section("How well the chains mix", text, tables=[Table("Coordinates", columns, rows)]))
    about = {key: value for key, value in found["about"].items() if not isinstance(value, dict)}
    settings = {key: value for key, value in {**found["settings"], **about}.items() if key != "averages"}
    for heading, numbers in (("Settings", settings), ("Versions", found["versions"])):
        rows = [[name, value] for name, value in numbers.items()]
        kept.append(Section(heading, tables=[Table(heading, ["name", "value"], rows)]))
    return kept
