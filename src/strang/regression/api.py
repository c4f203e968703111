"""`strang.glm`: a regression from a formula and a table."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from strang.data.batches import Data
from strang.data.orders import make_order
from strang.models.base import natural_now
from strang.regression.defaults import all_priors
from strang.regression.families import family_of
from strang.regression.fit import fitted_coordinates
from strang.regression.formula import parse
from strang.regression.gradient import Quadratic
from strang.regression.learning import learn
from strang.regression.model import RegressionModel, labels_of
from strang.regression.result import Regression
from strang.regression.rows import Request, build
from strang.regression.several import reparametrised
from strang.regression.tables import open_table
from strang.run import sample
from strang.tuning.choice import measure_noise, options
from strang.util.errors import InputError, choose, whole
from strang.util.front_door import front_door

MANY_ROWS = 20_000  # from which on the mode is sought by sums over rows that only a regression has


@front_door
def glm(
    formula: str,
    data: Any,
    *,
    family: str = "normal",
    priors: dict[str, str] | str | None = None,
    weights: str | None = None,
    trials: str | None = None,
    missing: str = "error",
    holdout: float = 0.0,
    error: float | None = None,
    seconds: float | None = None,
    chains: int | None = None,
    seed: int = 0,
    store: str | Path | None = None,
    cache: str | Path | None = None,
    progress: bool | None = None,
) -> Regression:
    """Fit a Bayesian regression to a table of any size, with both errors of every number and a verdict.

    Args:
        formula: such as `"y ~ x + C(region) + bs(age, df=4) + (1 + x | store) + offset(log(hours))"`: what is explained
            and by what, as `formulaic` reads it, with group terms and offsets.
        data: a pandas or Polars frame, an Arrow table, a dict of columns, or the path of a CSV or Parquet file or of a
            folder of Parquet files, which may be larger than memory.
        family: `normal`, `student`, `bernoulli`, `binomial`, `poisson`, `negative_binomial`, `gamma`, `categorical` or
            `ordinal`; a link in brackets, as in `bernoulli(probit)`, where there are several.
        priors: by term, such as `{"x": "normal(0, 1)", "sigma": "exponential(1)"}`; `"coefficients"` is all but the
            intercept. By default weakly informative ones, scaled by the data: `result.priors` has them.
        weights: a column, or an expression of columns, by which each row's log likelihood is multiplied.
        trials: of a binomial response, the column with the numbers of trials.
        missing: `error`, or `drop` to leave rows with missing values out.
        holdout: the fraction of rows that are not fitted, to score predictions by.
        error: go on until both errors of every number are below so many posterior standard deviations; by default 0.05.
        seconds: end after so many, whatever is reached.
        chains: by default 16.
        seed: of everything random.
        store: a folder to save the run in; the same call goes on from the last save.
        cache: a folder for the matrix of a table that is larger than memory; by default beside the table.
        progress: whether to show progress; None: on a terminal.

    Returns:
        A `Regression`: `print` it; `summary()`, `effects()`, `predict(table)`, `contrast(...)`, `marginal_effects()`,
        `check()`, `page()`; `trusted` and `reasons`; `run` is the run of `strang.sample` below it.

    Raises:
        InputError: the formula, the table or the settings are not what is expected; the sentence says what to write.
        OSError: a stored run could not be written.

    Example:
        >>> import numpy as np, strang
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=300)
        >>> table = {"dose": x, "ill": rng.random(300) < 1 / (1 + np.exp(1 - 2 * x))}
        >>> fitted = strang.glm("ill ~ dose", table, family="bernoulli", error=0.1)
        >>> list(fitted.summary().names), fitted.trusted
        (['Intercept', 'dose'], True)
    """
    started = time.perf_counter()
    if missing not in ("error", "drop"):
        raise choose("missing", missing, ("error", "drop"))
    if not (isinstance(holdout, int | float) and 0 <= holdout < 1):
        raise InputError(f"holdout is {holdout!r}; write the fraction of rows to hold out, such as 0.1.")
    seed, error = whole("seed", seed, 0, 2**63 - 1), 0.05 if error is None else error
    parsed, kind, table = parse(formula), family_of(family), open_table(data)
    if kind.name == "categorical" and parsed.groups:
        raise InputError("group terms are not there for the family categorical; write C(...) for few levels.")
    options = {"weights": weights, "trials": trials, "missing": missing}
    encoding = learn(parsed, kind, table, options, progress)
    known = all_priors(encoding, priors)
    model = RegressionModel(encoding, known, labels_of(encoding))
    built = build(Request(encoding, table, float(holdout), seed), None if cache is None else Path(cache), progress)
    prepared = time.perf_counter() - started
    left = None if seconds is None else max(float(seconds) - prepared, 1.0)
    settings: dict[str, Any] = {"error": error, "seconds": left, "chains": chains, "seed": seed, "store": store}
    about: dict[str, Any] = {"command": "glm", "settings": None}
    if store is not None and table.marks:
        given: dict[str, Any] = {
            "formula": formula,
            "data": str(Path(data).resolve()),
            "family": family,
            "priors": priors,
        }
        given |= {**options, "holdout": holdout, "error": error, "seconds": seconds, "chains": chains, "seed": seed}
        about["settings"] = {**given, "cache": None if cache is None else str(Path(cache).resolve())}
    settings |= {"about": about} if store is not None else {}
    sampled, ready, chosen = prepared_for(model, built.data, error, progress)
    run = sample(sampled, ready, progress=progress, **settings, **chosen)
    return Regression(run, model, built.held, built.folder, time.perf_counter() - started, prepared)


def prepared_for(
    model: RegressionModel, data: Data, error: float, progress: bool | None
) -> tuple[Any, Data, dict[str, Any]]:
    """The model, data and settings for `strang.sample`. Coordinates and gradient are made here where that is better
    than by `strang.tune`, which knows nothing of group effects, nor that a row's likelihood is a function of one
    number."""
    family, many = model.family, data.size >= MANY_ROWS
    if not model.encoding.groups and (not many or family.name in ("categorical", "student")):
        return model, data, {}
    if len(model.encoding.groups) > 1:
        return reparametrised(model, data, progress), data, {}
    change = fitted_coordinates(model, data, progress)
    settings: dict[str, Any] = {"coordinates": change}
    mode = change(jax.tree.map(jnp.zeros_like, model.unconstrain(model.init())))
    gradient = Quadratic(natural_now(model, mode))
    noise = measure_noise(model, data, change, mode, 0, gradient)
    if options(noise, data.size, error / 4)[0].gradient == "full":
        return model, replace(data, batch_order=make_order(data.size, None, "full")), settings
    return model, data, {**settings, "gradient": gradient}
