"""`strang sample FILE.py:model FILE.py:data` and `strang tune`: models that are written in a file of one's own."""

import runpy
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer

from strang.util.command_line import Json, emit
from strang.util.errors import InputError, first_line
from strang.util.numbers import finite

Model = Annotated[
    str, typer.Argument(metavar="FILE.py:model", help="A model in a Python file, or a NumPyro model; or gaussian.")
]
Rows = Annotated[str | None, typer.Argument(metavar="FILE.py:data", help="Its data: arrays, or of strang.data.")]
Error = Annotated[float | None, typer.Option(help="Both errors, in posterior standard deviations; by default 0.01.")]
Seed = Annotated[int, typer.Option(help="Of everything random.")]
Chains = Annotated[int | None, typer.Option(help="How many chains; by default 16.")]


def named(place: str, files: dict[Path, dict[str, Any]]) -> Any:
    """What a file calls by a name, as in `model.py:data`; a function without arguments is called, and one with some is
    a NumPyro model. A file is run once, and not as the main program."""
    file, colon, name = place.rpartition(":")
    path = Path(file).resolve()
    if not colon or not name:
        raise InputError(f"{place!r} names nothing; write a file and a name in it, such as model.py:model.")
    if not path.is_file():
        raise InputError(f"there is no file {file}; write a file and a name in it, such as model.py:model.")
    if path not in files:
        try:
            files[path] = runpy.run_path(str(path))
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{file} fails ({type(error).__name__}: {first_line(error)}).") from error
    if name not in files[path]:
        known = [each for each in files[path] if not each.startswith("_")]
        raise InputError(f"{file} has no {name!r}; it has: {', '.join(known)}.")
    value = files[path][name]
    if not callable(value) or hasattr(value, "log_prior"):
        return value
    wanted = [p for p in signature(value).parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if not wanted:
        return value()
    from strang.models import from_numpyro  # a function of rows

    return from_numpyro(value)


def model_and_data(model: str, data: str | None) -> tuple[Any, Any]:
    """The objects that are meant."""
    if model == "gaussian":
        from strang.models import Gaussian
        from strang.paper.gaussian import standardised

        return Gaussian(), standardised(1000, 0.5, 0)
    if data is None:
        file = model.rpartition(":")[0] or "model.py"
        raise InputError(f"data is missing; write where it is too, such as {file}:data.")
    files: dict[Path, dict[str, Any]] = {}
    return named(model, files), named(data, files)


def tune(
    model: Model, data: Rows = None, error: Error = None, chains: Chains = None, seed: Seed = 0, json: Json = False
) -> None:
    """Choose mode, coordinates, gradient, batches and step size for a model, and say why."""
    from strang.tuning import saved
    from strang.tuning import tune as choose

    given: dict[str, Any] = {"error": error, "chains": chains}
    given = {name: value for name, value in given.items() if value is not None}
    tuning = choose(*model_and_data(model, data), seed=seed, **given)
    emit(finite(saved.content(tuning)), json, str(tuning).splitlines())


def sample(
    model: Model,
    data: Rows = None,
    error: Error = None,
    seconds: Annotated[float | None, typer.Option(help="End after so many, whatever is reached.")] = None,
    steps: Annotated[int | None, typer.Option(help="At most so many steps of each chain.")] = None,
    chains: Chains = None,
    seed: Seed = 0,
    store: Annotated[Path | None, typer.Option(help="A folder to save the run in; the same call goes on.")] = None,
    html: Annotated[Path | None, typer.Option(help="A file to write the page of the run to.")] = None,
    json: Json = False,
) -> None:
    """Sample a model of your own: nothing but the model and its data is needed."""
    from strang.report.pages import need_pages
    from strang.report.run_page import content_of, page
    from strang.run import sample as run_it
    from strang.util.files import replace_file

    if html is not None:
        need_pages()
    about = {"model": model, "data": data}
    run = run_it(
        *model_and_data(model, data), error=error, seconds=seconds, steps=steps, chains=chains, seed=seed, store=store,
        about=about,
    )  # fmt: skip
    if html is not None:
        replace_file(html, page(run).encode())
    written = [f"the page is {html}"] if html else []
    emit(finite(content_of(run)), json, [*str(run).splitlines(), *written])
