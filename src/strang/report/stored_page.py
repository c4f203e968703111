"""The report on a stored run as one page that needs nothing else."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from strang.report.pages import Section, plain_page
from strang.report.panels import Panel, Point, Series, Table
from strang.report.run_page import DRAWN, draw_panels, table_section, tuning_sections, verdict_section
from strang.report.stored import describe, draws_after_burn_in, is_number, is_other
from strang.storage.series import throughput
from strang.tuning.saved import lines as tuning_lines

MAX_POINTS = 100  # of a curve: more are not seen
MAX_AVERAGES = 6  # with a panel of their own


def page(result: dict[str, Any]) -> str:
    """Makes the page of a report."""
    first, second, *_ = describe(result)
    sections = [verdict_section(result["trusted"], result["reasons"])] if result["trusted"] is not None else []
    sections += [table_section(result["summary"])] if result["summary"] else []
    told = tuning_lines(Path(result["folder"]))
    sections += [*traces(result), *curves(result), *(tuning_sections(told, []) if told else []), *tables(result)]
    return plain_page(f"Run {first}", second + ".", sections)


def curves(result: dict[str, Any]) -> list[Section]:
    """What was measured against the number of steps."""
    series = result["series"]
    averages = [
        panel(each["name"], "weighted average so far, with its Monte Carlo error", average_points(series, k))
        for k, each in enumerate(result["averages"][:MAX_AVERAGES])
    ]
    measured = {
        "temperature": ("temperature", "should be 1, larger where gradients are noisy"),
        "gradient_noise": ("gradient noise", "variance V per coordinate, on average"),
        "diverged": ("diverged chains", "chains that diverged"),
        **{name: (name, name) for name in sorted({n for entry in series for n in entry if is_other(n, entry[n])})},
    }
    health = [
        panel(*labels, [{"x": entry["step"], "value": entry[name]} for entry in series if is_number(entry.get(name))])
        for name, labels in measured.items()
    ]
    rates = [{"x": step, "value": rate} for step, _, rate in throughput(series, result["chains"])]
    health.append(panel("throughput", "steps of all chains per second", rates))
    sections = [("Averages", averages), ("Health", health)]
    return [Section(heading, panels=drawn) for heading, panels in sections if (drawn := [p for p in panels if p])]


def traces(result: dict[str, Any]) -> list[Section]:
    """Traces and densities of the coordinates with the fewest effective draws."""
    mixing = result["mixing"]
    if not mixing or not mixing["coordinates"]:
        return []
    worst = sorted(mixing["coordinates"], key=lambda row: np.inf if row["ess_bulk"] is None else row["ess_bulk"])
    draws, steps = draws_after_burn_in(Path(result["folder"]))
    panels = []
    for row in worst[:DRAWN]:
        name, _, index = row["name"].partition("[")
        place: Any = (slice(None), slice(None), *json.loads(f"[{index}" if index else "[]"))
        panels += draw_panels(row["name"], np.asarray(draws[name][place], float).T, steps)
    text = "The parameters with the fewest effective draws: chains over time, and their densities."
    return [Section("Traces and densities", text, panels=panels)]


def average_points(series: list[dict[str, Any]], k: int) -> list[Point]:
    """The k-th average at each save, with its error."""
    points = []
    for entry in series:
        values, errors = (entry.get(key) or [] for key in ("average", "error"))
        if k < len(values) and is_number(values[k]):
            points.append({"x": entry["step"], "value": values[k], "se": errors[k] if k < len(errors) else None})
    return points


def panel(title: str, label: str, points: list[Point]) -> Panel | None:
    """A panel of at most `MAX_POINTS` points, the last among them; None where there are none."""
    few = points[:: -max(1, -(-len(points) // MAX_POINTS))][::-1]
    return Panel(title, "step", label, [Series(title, few)], log_x=False, log_y=False, whole_bars=True) if few else None


def tables(result: dict[str, Any]) -> list[Section]:
    """Averages, mixing, settings and versions as numbers."""
    sections, mixing = [], result["mixing"]
    if result["averages"]:
        rows = [[each["name"], each["value"], each["error"]] for each in result["averages"]]
        table = Table("With Monte Carlo errors", ["name", "average", "error"], rows)
        sections.append(Section("All averages", tables=[table]))
    if mixing and mixing["coordinates"]:
        rows = mixing["coordinates"]
        table = Table("Coordinates", list(rows[0]), [list(row.values()) for row in rows])
        text = f"{mixing['draws']:,} draws of {mixing['chains']} chains after burn-in, by ArviZ."
        sections.append(Section("How well the chains mix", text, tables=[table]))
    about = {key: value for key, value in result["about"].items() if not isinstance(value, dict)}
    settings = {key: value for key, value in {**result["settings"], **about}.items() if key != "averages"}
    for heading, values in (("Settings", settings), ("Versions", result["versions"])):
        table = Table(heading, ["name", "value"], [[name, value] for name, value in values.items()])
        sections.append(Section(heading, tables=[table]))
    return sections
