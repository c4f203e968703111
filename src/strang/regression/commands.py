"""`strang glm`: a regression from a formula and a table."""

from pathlib import Path
from typing import Annotated, Any

import typer

from strang.util.command_line import Json, emit
from strang.util.errors import InputError
from strang.util.signatures import without


def glm(
    table: Annotated[Path, typer.Argument(help="A CSV, Parquet or Arrow file, or a folder of Parquet files.")],
    formula: Annotated[str, typer.Argument(help="Such as 'y ~ x + C(region) + (1 + x | store)'.")],
    family: Annotated[
        str,
        typer.Option(
            help="normal, student, bernoulli, binomial, poisson, negative_binomial, gamma, categorical or ordinal; a "
            "link in brackets, as in bernoulli(probit)."
        ),
    ] = "normal",
    prior: Annotated[
        list[str] | None, typer.Option(help="Of a term, such as 'x=normal(0, 1)'; may be given again.")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="A column by which rows count.")] = None,
    trials: Annotated[str | None, typer.Option(help="Of a binomial response, the column of trials.")] = None,
    missing: Annotated[str, typer.Option(help="error, or drop to leave rows with missing values out.")] = "error",
    holdout: Annotated[float, typer.Option(help="The fraction of rows to hold out, to score predictions by.")] = 0.0,
    error: Annotated[float | None, typer.Option(help="Both errors, in posterior sds; by default 0.05.")] = None,
    seconds: Annotated[float | None, typer.Option(help="End after so many, whatever is reached.")] = None,
    chains: Annotated[int | None, typer.Option(help="How many chains; by default 16.")] = None,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    store: Annotated[Path | None, typer.Option(help="A folder to save the run in; the same call goes on.")] = None,
    cache: Annotated[Path | None, typer.Option(help="A folder for the matrix of a table larger than memory.")] = None,
    html: Annotated[Path | None, typer.Option(help="A file to write the page of the regression to.")] = None,
    json: Json = False,
) -> None:
    """Fit a Bayesian regression to a table of any size: coefficients with both errors, and whether to trust them."""
    settings = without(locals(), "table", "formula", "prior", "html", "json")
    from strang.regression.api import glm as fit
    from strang.report.pages import need_pages

    if html is not None:
        need_pages()
    result = fit(formula, table, priors=parsed(prior), **settings)
    emit(*told(result, html, json))


def parsed(priors: list[str] | None) -> dict[str, str] | None:
    """Priors as they are written on the command line.

    >>> parsed(["x=normal(0, 1)"])
    {'x': 'normal(0, 1)'}
    """
    found = {}
    for each in priors or []:
        name, sign, text = each.rpartition("=")
        if not sign or not name.strip():
            raise InputError(f"--prior is {each!r}; write a term and its prior, such as 'x=normal(0, 1)'.")
        found[name.strip()] = text.strip()
    return found or None


def told(result: Any, html: Path | None, as_json: bool) -> tuple[dict[str, Any], bool, list[str]]:
    """The result for machines and for people; the page is written on the way."""
    if html is not None:
        from strang.util.files import replace_file

        replace_file(html, result.page().encode())
    written = [f"the page is {html}"] if html else []
    return result.to_dict(), as_json, [*str(result).splitlines(), *written]


def resume(folder: Path, spec: dict[str, Any], steps: int | None) -> tuple[dict[str, Any], list[str]]:
    """Goes on with a stored regression whose table is a file."""
    from strang.regression.api import glm as fit

    settings = spec["about"].get("settings")
    if settings is None:
        raise InputError(
            f"{folder} was begun from Python with a table in memory: make the same call of strang.glm again."
        )
    if steps is not None:
        raise InputError("a regression goes on until its error is reached; leave out --steps.")
    data, formula = settings.pop("data"), settings.pop("formula")
    content, _, lines = told(fit(formula, data, store=folder, **settings), None, False)
    return content, lines


def register(app: typer.Typer) -> None:
    app.command()(glm)


STORED = {"glm": resume}
