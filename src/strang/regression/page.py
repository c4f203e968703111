"""The page of a regression, to show a colleague: verdict, coefficients, effects, groups, predictive check, settings."""

from typing import Any

import numpy as np

from strang.regression.predictions import curve
from strang.report.pages import Section, plain_page
from strang.report.panels import Panel, Series, Table
from strang.report.run_page import (
    check_section,
    content_of,
    draw_sections,
    reassurance,
    settings_section,
    table_section,
    temperature_section,
    tuning_sections,
    verdict_section,
)
from strang.util.version import versions

MAX_DRAWN = 40  # coefficients in a panel
MAX_CURVES = 8
MAX_GROUPS = 60  # levels in a panel


def page(result: Any) -> str:
    """The page, as HTML that needs nothing else."""
    run, family = result.run, result.model.family
    content = content_of(run)
    table = table_section(result.summary().to_dict())
    sections: list[Section | None] = [
        verdict_section(result.trusted, result.reasons, reassurance(run)),
        coefficients_section(result),
        Section("Summary", table.text, tables=table.tables),
        curves_section(result),
        *groups_sections(result),
        check_of(result),
        held_out_section(result),
        priors_section(result),
        *draw_sections(run),
        temperature_section(run),
        *(tuning_sections(content["tuning"]["lines"], content["tuning"]["trials"]) if content["tuning"] else []),
        settings_section("Settings", {"formula": result.encoding.formula.text, **content["settings"]}),
        settings_section("Versions", versions()),
    ]
    notes = " ".join(f"{note[:1].upper()}{note[1:]}." for note in result.notes)
    lead = f"{family.name} ({family.link}), {result.rows:,} rows, {result.seconds:.0f} s. {notes}"
    return plain_page(result.encoding.formula.text, lead, [each for each in sections if each is not None])


def coefficients_section(result: Any) -> Section:
    """Coefficients in posterior means and 90 % intervals, for a standard deviation of each column."""
    labels = {label: name for name, label in result.model.labels.items() if name.startswith("coefficient")}
    scale = dict(zip(result.encoding.names, result.encoding.scale, strict=True))
    table = result.summary()
    names: list[str] = []
    intervals = []
    for k, name in enumerate(table.names):
        if name in labels and not name.endswith("Intercept") and len(names) < MAX_DRAWN:
            unit = scale[name.split(": ")[-1] if name not in scale else name]
            low, high = table.columns["q05"][k] * unit, table.columns["q95"][k] * unit
            intervals.append({"x": len(names), "value": float(low + high) / 2, "se": float(high - low) / 2})
            names.append(name)
    if not names:
        return Section("Coefficients", "The formula has an intercept only.")
    zero = [{"x": -0.5, "exact": 0.0}, {"x": len(names) - 0.5, "exact": 0.0}]
    panel = Panel(
        "coefficients", "", "for one sd of the column",
        [Series("90 % interval", intervals), Series("nothing", zero, emphasis=True)],
        log_x=False, log_y=False, whole_bars=True, names=names,
    )  # fmt: skip
    text = "90 % intervals of what one standard deviation of a column changes the linear predictor by."
    return Section("Coefficients", text, panels=[panel])


def curves_section(result: Any) -> Section | None:
    """The mean of the response against each column of numbers."""
    encoding = result.encoding
    panels: list[Panel] = []
    if encoding.family.response != "number" or result.run.samples is None:
        return None
    for name in encoding.predictors:
        grouped = [each for group in encoding.groups for each in group.by]
        found = curve(result, name) if name not in grouped and len(panels) < MAX_CURVES else None
        if found is not None:
            lines = [Series("posterior mean", points(found, "mean"), emphasis=True)]
            lines += [Series("5 %", points(found, "low")), Series("95 %", points(found, "high"))]
            panels.append(
                Panel(f"{name}", name, f"mean of {encoding.formula.response}", lines, log_x=False, log_y=False)
            )
    text = "The mean of the response against each column: others at their medians or first levels, an average group."
    return Section("Effects", text, panels=panels) if panels else None


def points(found: dict[str, np.ndarray], name: str) -> list[dict[str, float]]:
    return [{"x": float(x), "exact": float(y)} for x, y in zip(found["x"], found[name], strict=True)]


def groups_sections(result: Any) -> list[Section]:
    """Effects of groups, in their order; of many, some spread over all."""
    if not result.encoding.groups or result.run.samples is None:
        return []
    frame, panels = result.effects(), []
    for (group, term), own in frame.groupby(["group", "term"], sort=False):
        own = own.sort_values("mean")
        some = own.iloc[np.unique(np.linspace(0, len(own) - 1, min(len(own), MAX_GROUPS)).astype(int))]
        intervals = [
            {"x": k, "value": float(row.q05 + row.q95) / 2, "se": float(row.q95 - row.q05) / 2}
            for k, row in enumerate(some.itertuples())
        ]
        line = [{"x": -0.5, "exact": 0.0}, {"x": len(intervals) - 0.5, "exact": 0.0}]
        panels.append(
            Panel(
                f"{term} by {group}",
                "",
                f"effect on {term}",
                [Series("90 % interval", intervals), Series("average group", line, emphasis=True)],
                log_x=False,
                log_y=False,
                whole_bars=True,
                names=[str(level) for level in some["level"]],
            )
        )
    pooled = frame.groupby(["group", "term"], sort=False)["pooling"].mean()
    rows = [[f"{term} by {group}", float(value)] for (group, term), value in pooled.items()]
    text = (
        "How levels of groups differ from the average, in the table's units. Pooling is the fraction of an effect's "
        "variance that its own rows leave: 1 where they say nothing, 0 where they say all."
    )
    return [Section("Groups", text, panels=panels, tables=[Table("", ["effects", "pooling, on average"], rows)])]


def check_of(result: Any) -> Section | None:
    """The predictive check, of responses that are numbers."""
    if result.run.samples is None or result.encoding.family.name == "categorical":
        return None
    return check_section(result.check())


def held_out_section(result: Any) -> Section | None:
    return None if result.held_out is None else Section("Rows held out", f"{result.held_out}.")


def priors_section(result: Any) -> Section:
    rows: list[list[Any]] = [[name, prior] for name, prior in result.priors.items()]
    text = "In the table's own units; that of the intercept is at the columns' means."
    return Section("Priors", text, tables=[Table("", ["of", "prior"], rows[:200])])
