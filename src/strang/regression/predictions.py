"""Predictions of a regression for new rows, contrasts of coefficients, and average marginal effects."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.regression import covariance
from strang.regression.encoding import Encoding, Rows
from strang.regression.model import Position, RegressionModel
from strang.regression.survey import check_columns
from strang.regression.tables import Table, open_table
from strang.run.table import Table as Summary
from strang.util.errors import InputError, choose, need

KINDS = ("mean", "response", "linear")
MARGINAL_ROWS = 2_000  # over which marginal effects are averaged
STEP = 0.05  # of a column, in its standard deviations, over which a slope is taken


@dataclass(frozen=True)
class Predicted:
    """What is predicted for each row of a table.

    Attributes:
        mean, sd: over draws.
        low, high: the ends of the interval.
        interval: how much of the probability is between them.
        classes: of a response that is a class, what the last axis of `mean` stands for.
    """

    mean: np.ndarray
    sd: np.ndarray
    low: np.ndarray
    high: np.ndarray
    interval: float
    classes: tuple[Any, ...] = ()

    def to_frame(self) -> Any:
        """As a pandas frame, a column for each; of classes, one for the probability of each."""
        pandas = need("pandas", "glm")
        columns = {"mean": self.mean, "sd": self.sd, "low": self.low, "high": self.high}
        if self.mean.ndim == 1:
            return pandas.DataFrame(columns)
        each = {f"{name} {c}": x[:, k] for k, c in enumerate(self.classes) for name, x in columns.items()}
        return pandas.DataFrame(each)


def predict(
    result: Any, data: Any, kind: str, interval: float, draws: int | None, seed: int, progress: Any
) -> Predicted:
    """See `Regression.predict`."""
    if kind not in KINDS:
        raise choose("kind", kind, KINDS)
    if not 0 < interval < 1:
        raise InputError(f"interval is {interval}; write a probability, such as 0.9.")
    table, model, found = open_table(data), result.model, []
    encoding = model.encoding
    check_columns(table, encoding.predictors)
    levels = ((1 - interval) / 2, (1 + interval) / 2)
    for rows, fresh in new_rows(encoding, table):
        function = response_function(model, kind, fresh)
        part = result.run.predict(function, rows, quantiles=levels, draws=draws, seed=seed, progress=progress)
        found.append([part.mean, part.sd, *(part.quantiles[level] for level in levels)])
    mean, sd, low, high = (np.concatenate(each) for each in zip(*found, strict=True))
    return Predicted(mean, sd, low, high, interval, encoding.levels if mean.ndim > 1 and kind == "mean" else ())


def new_rows(encoding: Encoding, table: Table):
    """The rows of a new table as the model sees them, part by part, and how many levels of each group are new."""
    first = 0
    for frame in table.frames(encoding.predictors):
        missing = frame.isna().sum()
        if missing.any():
            name = missing.idxmax()
            raise InputError(f"values are missing: {name} in {int(missing.max()):,} rows; fill them to predict there.")
        fresh: dict[int, list[str]] = {}
        yield encoding.rows(frame, first, response=False, fresh=fresh), fresh
        first += len(frame)


def response_function(model: RegressionModel, kind: str, fresh: dict[int, list[str]]) -> Callable:
    """A function of (position, rows, key); effects of levels that are new are drawn from their distribution."""
    counts = {k: len(labels) for k, labels in fresh.items()}

    def of_rows(position: Position, rows: Rows, key):
        free = model.unconstrain(position)
        for k, count in counts.items():
            own = jax.random.normal(jax.random.fold_in(key, k), (count, len(model.encoding.groups[k].names)))
            a = covariance.root(free[f"sd_{k}"], free.get(f"cor_{k}"))
            drawn = jnp.stack([sum(a[j][i] * own[:, i] for i in range(j + 1)) for j in range(len(a))], axis=1)
            free = {**free, f"effect_{k}": jnp.concatenate([free[f"effect_{k}"], drawn])}
        return of_free(model, free, rows, kind, jax.random.fold_in(key, 99))

    return of_rows


def of_free(model: RegressionModel, free: Position, rows: Rows, kind: str, key=None):
    """The linear predictor, the mean of the response, or a draw of it."""
    eta, q, trials = model.predictor(free, rows), model.parameters(free), rows.get("trials")
    if kind == "linear":
        return eta
    if kind == "response":
        return model.family.draw(key, eta, q, trials)
    mean = model.family.mean(eta, q)
    return mean * trials if trials is not None else mean


def described(result: Any, function: Callable, names: list[str]) -> Summary:
    """A table of some numbers that are functions of the position, with Monte Carlo errors from the spread between
    chains. Their bias is not measured."""
    found = result.run.predict(function, quantiles=(0.05, 0.5, 0.95), keep=True, progress=False)
    draws = np.asarray(found.draws, float)
    alive = int(result.run.alive.sum())
    chains = draws.reshape(alive, -1, draws.shape[1])
    error = chains.mean(1).std(0, ddof=1) / np.sqrt(alive) if alive > 1 else np.full(draws.shape[1], np.nan)
    nothing = np.full(draws.shape[1], np.nan)
    sd = draws.std(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ess = np.minimum((sd / error) ** 2, float(len(draws)))
    columns = {"mean": draws.mean(0), "sd": sd}
    columns |= {name: np.quantile(draws, level, axis=0) for name, level in (("q05", 0.05), ("q50", 0.5), ("q95", 0.95))}
    return Summary(names, {**columns, "mc_error": error, "bias": nothing, "ess": ess, "rhat": nothing})


def contrast(result: Any, weights: dict[str, float]) -> Summary:
    """See `Regression.contrast`."""
    labels = {label: name for name, label in result.model.labels.items() if name.startswith("coefficient")}
    if not isinstance(weights, dict) or not weights:
        raise InputError(
            "a contrast is a dict from coefficients to weights, such as {'C(g)[T.b]': 1, 'C(g)[T.a]': -1}."
        )
    for name in weights:
        if name not in labels:
            raise InputError(f"there is no coefficient {name!r}; there are: {', '.join(labels)}.")
    shape = (len(result.encoding.names), *result.model.outputs)
    matrix = np.zeros(shape)
    for name, weight in weights.items():
        place = tuple(int(k) for k in labels[name].removeprefix("coefficient[").rstrip("]").split(","))
        matrix[place] += float(weight)
    text = " ".join(f"{'+' if w >= 0 else '−'} {'' if abs(w) == 1 else f'{abs(w):g} '}{n}" for n, w in weights.items())

    def function(position):
        return jnp.sum(position["coefficient"] * matrix.astype(np.float32)).reshape(1)

    return described(result, function, [text.removeprefix("+ ")])


def marginal_effects(result: Any, variables: list[str] | None) -> Summary:
    """See `Regression.marginal_effects`."""
    model, encoding = result.model, result.encoding
    if encoding.family.response != "number":
        raise InputError(
            "average marginal effects are of a mean, which a class has not; use predict for probabilities."
        )
    known = [name for name in encoding.predictors if name in columns_with_effect(encoding)]
    for name in variables or []:
        if name not in known:
            raise InputError(f"{name!r} is no column that the mean depends on; choose from: {', '.join(known)}.")
    frame = encoding.survey.sample
    frame = frame.iloc[np.unique(np.linspace(0, len(frame) - 1, min(len(frame), MARGINAL_ROWS)).astype(int))]
    names, pairs, widths = [], [], []
    for name in variables or known:
        for label, low, high, width in changes(encoding, frame, name):
            names.append(label)
            pairs.append(tuple(encoding.rows(each, response=False, fresh={}) for each in (low, high)))
            widths.append(width)

    def function(position):
        free = model.unconstrain(position)
        means = [[jnp.mean(of_free(model, free, rows, "mean")) for rows in pair] for pair in pairs]
        return jnp.stack([(high - low) / width for (low, high), width in zip(means, widths, strict=True)])

    return described(result, function, names)


def columns_with_effect(encoding: Encoding) -> set[str]:
    """Columns of the fixed part of the formula and of group terms' slopes."""
    from strang.regression.formula import columns_of

    return {
        name
        for part in (encoding.formula.fixed, *(t.inner for t in encoding.formula.groups))
        for name in columns_of(part)
    }


def changes(encoding: Encoding, frame: Any, name: str) -> list[tuple[str, Any, Any, float]]:
    """The frames between which a mean is compared, and by what the difference is divided: a small step of a number, or
    each class against the first."""
    column = encoding.survey.columns[name]
    classes = column.kind in ("text", "category") or bool(column.levels)
    if classes:
        first, *others = encoding.survey.levels(name)
        return [
            (f"{name}: {level} − {first}", frame.assign(**{name: first}), frame.assign(**{name: level}), 1.0)
            for level in others
        ]
    values = frame[name].to_numpy(float)
    if set(np.unique(values)) <= {0.0, 1.0}:
        return [(f"{name}: 1 − 0", frame.assign(**{name: 0.0}), frame.assign(**{name: 1.0}), 1.0)]
    step = STEP * values.std()
    inside = np.clip(values, column.low + step, column.high - step)  # splines end where the data do
    return [(name, frame.assign(**{name: inside - step}), frame.assign(**{name: inside + step}), 2 * float(step))]


def effects(result: Any) -> Any:
    """See `Regression.effects`."""
    pandas, run = need("pandas", "glm"), result.run
    frames = []
    for k, group in enumerate(result.encoding.groups):
        draws = np.asarray(run.samples[f"effect_{k}"])[run.alive]
        spread = np.asarray(run.samples[f"sd_{k}"], float)[run.alive]
        for j, name in enumerate(group.names):
            own = draws[..., j].reshape(-1, len(group.levels))
            low, high = np.quantile(own, [0.05, 0.95], axis=0)
            mean, sd = own.mean(0, dtype=float), own.std(0, dtype=float)
            error = (
                draws[..., j].mean(1, dtype=float).std(0, ddof=1) / np.sqrt(len(draws)) if len(draws) > 1 else np.nan
            )
            pooling = np.minimum(sd**2 / (spread[..., j] ** 2).mean(), 1.0)
            columns = {"mean": mean, "sd": sd, "q05": low, "q95": high, "mc_error": error, "pooling": pooling}
            frames.append(pandas.DataFrame({"group": group.name, "level": group.levels, "term": name, **columns}))
    if not frames:
        raise InputError("the formula has no group term, such as (1 | store).")
    return pandas.concat(frames, ignore_index=True)


def curve(result: Any, name: str, points: int = 25) -> dict[str, np.ndarray] | None:
    """How the mean of the response goes with a column of numbers, all others at their medians or first levels; None
    for a column of classes."""
    encoding, survey = result.encoding, result.encoding.survey
    if survey.columns[name].kind != "number" or survey.columns[name].levels:
        return None
    typical = {}
    for each in encoding.predictors:
        column = survey.columns[each]
        classes = column.kind in ("text", "category") or column.levels
        typical[each] = survey.levels(each)[0] if classes else float(np.median(survey.sample[each].to_numpy(float)))
    for group in encoding.groups:  # an average level: its effects are set to 0 below
        for each in group.by:
            typical[each] = survey.sample[each].iloc[0]
    low, high = np.quantile(survey.sample[name].to_numpy(float), [0.01, 0.99])
    x = np.linspace(low, high, points)
    frame = (
        need("pandas", "glm").DataFrame({each: [value] * points for each, value in typical.items()}).assign(**{name: x})
    )
    rows = encoding.rows(frame, response=False, fresh={})
    model = result.model

    def mean(position, rows):
        free = model.unconstrain(position)
        free |= {f"effect_{k}": jnp.zeros_like(free[f"effect_{k}"]) for k, _ in enumerate(encoding.groups)}
        return of_free(model, free, {k: v for k, v in rows.items() if k != "trials"}, "mean")

    found = result.run.predict(mean, rows, quantiles=(0.05, 0.95), draws=400, progress=False)
    return {"x": x, "mean": found.mean, "low": found.quantiles[0.05], "high": found.quantiles[0.95]}
