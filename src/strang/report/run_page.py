"""The page of a run, to show a colleague: the verdict first, then the table, traces and densities, running averages,
temperatures, what was chosen, and settings."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from strang.report.pages import Section, plain_page
from strang.report.panels import Panel, Series, Table
from strang.run import summary, verdict
from strang.run.check import PredictiveCheck
from strang.run.result import Run
from strang.run.table import HEADINGS, flat_draws
from strang.sampling import averages
from strang.sampling.estimates import flat
from strang.storage.manifest import settings_of
from strang.tuning import saved
from strang.util.numbers import finite
from strang.util.version import versions

MAX_ROWS = 500  # of the table
DRAWN = 4  # parameters with traces and densities
EARLY = 0.05  # of a run, before which a running average is not drawn
CHECKED = 5000  # rows of a predictive check
CHAINS, POINTS = 4, 250  # of a trace


def content_of(run: Run) -> dict[str, Any]:
    """A run as JSON can hold it: the verdict, the table, and how it was made."""
    judged = run.job.program.average is not None
    rows = run.summary().to_dict() if judged and not run.own_settings and run.alive.any() else None
    return finite(
        {
            "title": summary.title(run),
            "trusted": run.trusted if judged else None,
            "reasons": run.reasons if judged else [],
            "summary": rows,
            "rows": run.job.inputs.data.size,
            "steps": run.steps,
            "chains": run.job.program.chains,
            "diverged": run.diverged,
            "temperature": run.temperature,
            "seconds": run.seconds,
            "ended": None if run.goal is None else run.goal.why,
            "tuning": None if run.tuning is None else saved.content(run.tuning),
            "settings": settings_of(run.job),
        }
    )


def page(run: Run, checks: Sequence[PredictiveCheck] = ()) -> str:
    """The page of a run, as HTML that needs nothing else.

    Args:
        run: what `strang.sample` returned.
        checks: what `run.predictive_check` returned; by default, of a NumPyro model whose rows are in memory, one for
            each observed site.
    """
    content = content_of(run)
    sections: list[Section | None] = [verdict_section(content["trusted"], content["reasons"], reassurance(run))]
    if content["summary"]:
        sections.append(table_section(content["summary"]))
        sections += [*draw_sections(run), running_section(run), temperature_section(run)]
    sections += [check_section(check) for check in checks or own_checks(run)]
    if run.own_settings:
        sections.append(Section("By setting", tables=[setting_table(run)]))
    if content["tuning"]:
        sections += tuning_sections(content["tuning"]["lines"], content["tuning"]["trials"])
    sections += [settings_section("Settings", content["settings"]), settings_section("Versions", versions())]
    return plain_page("What came out", content["title"] + ".", [each for each in sections if each is not None])


def reassurance(run: Run) -> str:
    """What was measured, where a run is trusted."""
    return verdict.reassurance(run) if run.job.program.average is not None and run.trusted else ""


def verdict_section(trusted: bool | None, reasons: list[str], measured: str = "") -> Section:
    """The verdict, with its reasons."""
    if trusted is None:
        return Section("Verdict", "Nothing was averaged, so there is nothing to judge.")
    if trusted:
        return Section("Trusted", (measured[:1].upper() + measured[1:] + ".") if measured else "Every check passed.")
    first, *others = reasons or ["no reason is known"]
    tables = [Table("Also", ["reason"], [[reason] for reason in others])] if others else []
    return Section("Not to be trusted", first[:1].upper() + first[1:] + ".", tables=tables)


def table_section(rows: dict[str, dict[str, Any]]) -> Section:
    """The table of what was averaged."""
    shown = [[name, *(row.get(column) for column in HEADINGS)] for name, row in list(rows.items())[:MAX_ROWS]]
    left = len(rows) - len(shown)
    text = "± Monte Carlo is one standard error of the mean; ± bias is what the bias of the mean is below, at 90 %."
    more = f" The first {MAX_ROWS:,} of {len(rows):,} rows." if left > 0 else ""
    return Section("Averages", text + more, tables=[Table("", ["name", *HEADINGS.values()], shown)])


def draw_sections(run: Run) -> list[Section]:
    """Traces and densities of the parameters that mix worst, and of the first."""
    if run.samples is None:
        return []
    draws = flat_draws(run.samples, run.job.average, run.alive)
    if draws.shape[1] < 4:
        return []
    columns, names = run.summary().columns, run.estimates.names
    worst = [int(k) for k in np.argsort(np.nan_to_num(columns["ess"], nan=np.inf), kind="stable")]
    chosen = list(dict.fromkeys([*worst[: DRAWN - 1], 0, *worst]))[:DRAWN]
    first = (run.first_draw + 1) * (run.job.thin or 1)
    steps = first + (run.job.thin or 1) * np.arange(draws.shape[1])
    panels = [panel for k in chosen for panel in draw_panels(names[k], draws[:, :, k], steps)]
    text = "The parameters with the fewest effective draws, and the first: chains over time, and their densities."
    return [Section("Traces and densities", text, panels=panels)]


def draw_panels(name: str, draws: np.ndarray, steps: np.ndarray) -> list[Panel]:
    """A trace of some chains, and the density of each against that of all."""
    every = max(1, draws.shape[1] // POINTS)
    some = draws[:: max(1, len(draws) // CHAINS)][:CHAINS]

    def curve(x: np.ndarray, y: np.ndarray) -> list[dict[str, Any]]:
        return [{"x": float(a), "exact": float(b)} for a, b in zip(x, y, strict=True)]

    traces = [Series(f"chain {k}", curve(steps[::every], own[::every])) for k, own in enumerate(some)]
    edges = np.histogram_bin_edges(draws, bins=min(60, max(8, int(np.sqrt(draws.size) / 2))))
    middles = (edges[1:] + edges[:-1]) / 2

    def density(values: np.ndarray) -> list[dict[str, Any]]:
        return curve(middles, np.histogram(values, bins=edges, density=True)[0])

    curves = [Series("all chains", density(draws), emphasis=True)]
    curves += [Series(f"chain {k}", density(own)) for k, own in enumerate(some)]
    return [
        Panel(f"{name}: trace", "step", name, traces, log_x=False, log_y=False),
        Panel(f"{name}: density", name, "density", curves, log_x=False, log_y=False),
    ]


def own_checks(run: Run) -> list[PredictiveCheck]:
    """Of a NumPyro model, each observed site of single numbers at some of the rows."""
    model, data = run.job.program.model, run.job.inputs.data
    if not hasattr(model, "predictive") or run.samples is None or data.source is not None or not run.alive.any():
        return []
    some = np.unique(np.linspace(0, data.size - 1, min(data.size, CHECKED)).round().astype(int))
    rows = jax.tree.map(lambda x: x[some], data.rows)
    found = []
    for name, seen in model.observed(rows).items():
        if seen.shape == some.shape and np.isfinite(seen).all():
            found.append(run.predictive_check(name, rows, seen, name=name, progress=False))
    return found


def check_section(check: PredictiveCheck) -> Section:
    """Data that the model would have made, beside those that were seen."""
    edges = np.histogram_bin_edges(np.concatenate([check.seen, check.replicated[:20].ravel()]), bins=40)
    middles = (edges[1:] + edges[:-1]) / 2
    made = np.stack([np.histogram(each, bins=edges, density=True)[0] for each in check.replicated])
    low, high = np.quantile(made, [0.05, 0.95], axis=0)

    def curve(y: np.ndarray) -> list[dict[str, Any]]:
        return [{"x": float(a), "exact": float(b)} for a, b in zip(middles, y, strict=True)]

    seen = np.histogram(check.seen, bins=edges, density=True)[0]
    curves = [Series("seen", curve(seen), emphasis=True), Series("replicated, 5 %", curve(low))]
    curves += [Series("replicated, median", curve(np.median(made, axis=0))), Series("replicated, 95 %", curve(high))]
    ranks = np.linspace(0, 1, 21)
    share = np.histogram(check.pit, bins=ranks)[0] * 20 / len(check.pit)
    points = [{"x": float(x), "exact": float(y)} for x, y in zip((ranks[1:] + ranks[:-1]) / 2, share, strict=True)]
    flat_line = [{"x": 0.0, "exact": 1.0}, {"x": 1.0, "exact": 1.0}]
    panels = [
        Panel(f"{check.name}: seen and replicated", check.name, "density", curves, log_x=False, log_y=False),
        Panel(
            f"{check.name}: where rows lie in their predictions", "PIT", "density",
            [Series("rows", points), Series("calibrated", flat_line, emphasis=True)], log_x=False, log_y=False,
        ),
    ]  # fmt: skip
    rows: list[list[Any]] = [list(each) for each in check.statistics]
    columns = ["statistic", "seen", "replicated", "5 %", "95 %", "p-value"]
    text = "What the model would have made of the rows that it was fitted to. " + "; ".join(
        f"{100 * each.level:g} % intervals hold {100 * each.coverage:.1f} % of them" for each in check.score.intervals
    )
    return Section(f"Predictive check of {check.name}", text + ".", panels=panels, tables=[Table("", columns, rows)])


def running_section(run: Run) -> Section | None:
    """The averages as they came to be, with errors that fall as the root of the time."""
    pieces = averages.pieces_of(run.chain.average, run.alive, shared=False)
    weights, rows = pieces["weight"].sum(0), flat(pieces)["average"].sum(0)
    filled = (weights > 1e-6 * weights.sum()) & (np.cumsum(weights) > EARLY * weights.sum())
    if filled.sum() < 3:
        return None
    part = np.cumsum(weights)[filled] / weights.sum()
    running = np.cumsum(rows, axis=0)[filled] / np.cumsum(weights)[filled, None]
    found, burn_in = run.estimates, int(run.job.inputs.burn_in)
    steps = burn_in + part * (run.steps - burn_in)
    order = np.argsort(-np.nan_to_num(found.farthest()[0], nan=0.0), kind="stable")[:DRAWN]
    panels = [
        Panel(
            f"{found.names[k]}: average so far", "step", found.names[k],
            [Series("average ± Monte Carlo error", [
                {"x": float(x), "value": float(y), "se": float(found.mean.error[k] / np.sqrt(p))}
                for x, y, p in zip(steps, running[:, k], part, strict=True)
            ])],
            log_x=False, log_y=False, whole_bars=True,
        )
        for k in order
    ]  # fmt: skip
    return Section("Running averages", "The numbers with the largest errors.", panels=panels)


def temperature_section(run: Run) -> Section | None:
    """Temperatures by coordinate, with a line at 1."""
    heat = averages.means(run.chain.average).get("heat")
    if heat is None:
        return None
    values = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(run.over_chains(heat))])
    error = averages.error_over_chains(run.chain.average, run.alive, shared=False)["heat"]
    errors = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(error)])
    every = max(1, len(values) // POINTS)
    points = [{"x": k, "value": float(values[k]), "se": float(errors[k])} for k in range(0, len(values), every)]
    line = [{"x": k, "exact": 1.0} for k in (0, max(len(values) - 1, 1))]
    value, own_error = run.configurational_temperature
    other = f" The configurational temperature is {value:.4g} ± {own_error:.2g}." if np.isfinite(value) else ""
    panel = Panel(
        "kinetic temperature by coordinate", "coordinate", "temperature",
        [Series("measured", points), Series("should be 1", line, emphasis=True)], log_x=False, log_y=False,
    )  # fmt: skip
    return Section("Temperature", f"Above 1 where gradients are noisy.{other}", panels=[panel])


def tuning_sections(lines: list[str], trials: list[dict[str, Any]]) -> list[Section]:
    """What was chosen before the run, and the step sizes of its pilot runs."""
    first, *others = [line for line in lines if not line.startswith("  ")]
    panels = []
    if len(trials) > 1:  # one is told in the table
        points = [{"x": k + 1, "exact": trial["step_size"]} for k, trial in enumerate(trials)]
        biases = [
            {"x": k + 1, "value": trial["bias"], "se": trial["bias_error"]}
            for k, trial in enumerate(trials)
            if trial["bias"] is not None and np.isfinite(trial["bias"])
        ]
        sizes, found = [Series("step size", points)], [Series("bias", biases)]
        panels.append(Panel("step sizes of the warm-up", "pilot run", "step size", sizes, log_x=False))
        if biases:
            panels.append(Panel("bias in pilot runs", "pilot run", "posterior sd", found, log_x=False))
    table = Table("", ["what was found on the way"], [[line] for line in others if not line.startswith("chosen from")])
    return [Section("What was chosen", first + ".", panels=panels, tables=[table])]


def settings_section(heading: str, values: dict[str, Any]) -> Section:
    """Names and values as a table."""
    rows = [[k, v if isinstance(v, int | float | str | None) else shortened(str(v))] for k, v in values.items()]
    return Section(heading, tables=[Table("", ["name", "value"], rows)])


def shortened(text: str, most: int = 400) -> str:
    """The text, cut where it is a list of thousands."""
    return text if len(text) <= most else f"{text[:most]} ... ({len(text):,} characters)"


def setting_table(run: Run) -> Table:
    """The settings of a grid."""
    first, *rows = [[c.strip() for c in line.split("  ") if c.strip()] for line in summary.by_setting(run)]
    return Table("", first, rows)
