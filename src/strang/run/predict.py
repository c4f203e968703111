"""Predictions: any function of the position and of new inputs, over the draws of a run.

Rows are taken a block at a time and draws one after the other, so that memory holds one block's values of all draws,
which is what quantiles need, and nothing grows with rows or with the size of the model.
"""

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from strang.models.base import log_likelihoods
from strang.storage.draws import leaf_names
from strang.util.errors import InputError, first_line, whole
from strang.util.files import damaged, replace_file
from strang.util.memory import check_fits
from strang.util.progress import bar
from strang.util.trees import Tree, size

BLOCK = 1 << 23  # numbers that the values of a block of rows may be
TOGETHER = 1 << 20  # of them that are computed in one go
CHUNK = 1 << 24  # numbers of positions that are read together
MANIFEST = "prediction.json"


@dataclass(frozen=True)
class Prediction:
    """What `run.predict` gives: trees like the function's value, with a leading axis of rows.

    Attributes:
        mean: over draws.
        sd: over draws.
        quantiles: by level.
        draws: the values themselves, draws first, where they were kept; else None.
        count: of how many draws.
    """

    mean: Tree
    sd: Tree
    quantiles: dict[float, Tree]
    draws: Tree
    count: int


@dataclass(frozen=True)
class LogDensity:
    """How well a run predicts rows that it has not seen: log of the mean over draws of p(row | position).

    Attributes:
        mean: over rows.
        error: its standard error, as the rows are a sample.
        monte_carlo: its standard error as draws are a sample, from the spread between chains; NaN with one chain.
        each: row by row.
    """

    mean: float
    error: float
    monte_carlo: float
    each: np.ndarray

    def __str__(self) -> str:
        return (
            f"log predictive density {self.mean:.4f} ± {self.error:.4f} per row ({len(self.each):,} rows; Monte Carlo "
            f"error {self.monte_carlo:.4f})"
        )


class Draws(NamedTuple):
    """Positions, along two leading axes, and which of them are used: chain and draw."""

    positions: Tree
    chosen: np.ndarray

    def some(self, start: int, stop: int) -> Tree:
        """Those with these numbers, along one leading axis."""
        chain, draw = self.chosen[start:stop].T
        return jax.tree.map(lambda x: np.asarray(x[chain, draw]), self.positions)

    @property
    def like(self) -> Tree:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), self.positions)


def draws_of(run, most: int | None) -> Draws:
    """The draws of the chains that are alive, or some of them spread over all."""
    if run.samples is None:
        raise InputError("the run kept no positions to predict from; write thin=10, say, to keep every tenth.")
    alive, count = np.flatnonzero(run.alive), jax.tree.leaves(run.samples)[0].shape[1]
    if not len(alive) * count:
        raise InputError("there is no draw after burn-in of a chain that is alive.")
    pairs = np.stack(np.meshgrid(alive, np.arange(count), indexing="ij"), -1).reshape(-1, 2)
    most = len(pairs) if most is None else min(len(pairs), whole("draws", most))
    return Draws(run.samples, pairs[np.linspace(0, len(pairs) - 1, most).round().astype(int)])


def predict(
    run,
    function: Callable | str,
    x: Tree = None,
    *,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    draws: int | None = None,
    keep: bool = False,
    seed: int = 0,
    store: str | Path | None = None,
    progress: bool | None = None,
) -> Prediction:
    """See `Run.predict`."""
    levels = [float(level) for level in quantiles]
    if not all(0 <= level <= 1 for level in levels):
        raise InputError(f"quantiles are {tuple(quantiles)}; write levels from 0 to 1.")
    values = Values(of_position(run, function), draws_of(run, draws), x, whole("seed", seed, 0, 2**63 - 1))
    names = ["mean", "sd", *(f"quantile {level:g}" for level in levels)]
    rows, count = values.rows, len(values.draws.chosen)
    lead: tuple[int, ...] = () if rows is None else (rows,)
    shapes = dict.fromkeys(names, lead) | ({"draws": (count, *lead)} if keep else {})
    place = Place(values, shapes, store)
    with bar(values.blocks, "predicting", progress) as show:
        show(place.done)
        for number in range(place.done, values.blocks):
            where, block = values.block(number)
            found: dict[str, Tree] = {
                "mean": jax.tree.map(lambda v: v.mean(0, dtype=float), block),
                "sd": jax.tree.map(lambda v: v.std(0, dtype=float), block),
            }
            for name, tree in zip(names[2:], across(block, levels), strict=True):
                found[name] = tree
            place.put(where, found | ({"draws": block} if keep else {}), number + 1)
            show(number + 1)
    trees = place.trees()
    by_level = {level: trees[name] for level, name in zip(levels, names[2:], strict=True)}
    return Prediction(trees["mean"], trees["sd"], by_level, trees.get("draws"), count)


def across(block: Tree, levels: list[float]) -> list[Tree]:
    """Quantiles over draws, one tree for each level."""
    if not levels:
        return []
    leaves, structure = jax.tree.flatten(block)
    found = [np.quantile(leaf, levels, axis=0) for leaf in leaves]
    return [jax.tree.unflatten(structure, [leaf[k] for leaf in found]) for k in range(len(levels))]


def of_position(run, function: Callable | str) -> Callable:
    """A function of (position, x, key)."""
    model = run.job.program.model
    if isinstance(function, str):
        if not hasattr(model, "predictive"):
            raise InputError(f"function is {function!r}, but only NumPyro's models have sites; give a function.")
        return model.predictive(function)
    if not callable(function):
        raise InputError(f"function is {function!r}; give a function of (position, x).")
    try:
        places = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
        wanted = len([p for p in places if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)])
    except (TypeError, ValueError):
        wanted = 2
    given: Callable = function
    if wanted >= 3:
        return given
    return (lambda position, x, key: given(position)) if wanted == 1 else (lambda position, x, key: given(position, x))


class Values:
    """The values of a function of (position, x, key) at all draws, for one block of rows after the other."""

    def __init__(self, function: Callable, draws: Draws, x: Tree, seed: int):
        self.function, self.draws, self.x, self.seed = function, draws, x, seed
        leaves = jax.tree.leaves(x)
        self.rows: int | None = None if not leaves else int(np.shape(leaves[0])[0]) if np.ndim(leaves[0]) else 0
        if leaves and (not self.rows or any(np.shape(leaf)[:1] != (self.rows,) for leaf in leaves)):
            raise InputError("x must be arrays with a common leading axis of rows, such as (X, y).")
        self.like = self.shape_of(self.rows)
        each = size(self.like) / (self.rows or 1)
        self.length = max(1, min(self.rows or 1, int(BLOCK / max(each * len(draws.chosen), 1))))
        self.blocks = -(-(self.rows or 1) // self.length)
        self.chunk = max(1, min(len(draws.chosen), CHUNK // max(1, size(draws.like))))
        width = max(1, min(self.chunk, int(TOGETHER / max(1.0, each * self.length))))

        @jax.jit
        def many(positions, x, numbers):
            base = jax.random.key(seed)

            def one(given):
                position, number = given
                return jax.tree.map(jnp.asarray, self.function(position, x, jax.random.fold_in(base, number)))

            return jax.lax.map(one, (positions, numbers), batch_size=width)

        self.many = many

    def shape_of(self, rows: int | None) -> Tree:
        """The shapes of the function's value, for so many rows."""
        x = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((rows, *np.shape(leaf)[1:]), as_jax(leaf).dtype), self.x)
        position = self.draws.like
        try:
            like = jax.eval_shape(
                lambda *given: jax.tree.map(jnp.asarray, self.function(*given)), position, x, jax.random.key(0)
            )
        except InputError:
            raise
        except Exception as error:
            given = jax.tree.map(lambda leaf: leaf.shape, (position, x))
            raise InputError(
                f"the function fails on shapes {given} ({type(error).__name__}: {first_line(error)}); it is called "
                "with a position and all rows of a block."
            ) from error
        if rows is not None and any(leaf.shape[:1] != (rows,) for leaf in jax.tree.leaves(like)):
            shapes = jax.tree.map(lambda leaf: leaf.shape, like)
            raise InputError(f"the function gives {shapes} for {rows} rows; its values must lead with the rows.")
        return like

    def block(self, number: int) -> tuple[slice, Tree]:
        """Which rows are in a block, and the values there: draws first, then rows."""
        if self.rows is None:
            return slice(None), self.at(None, 0)
        where = slice(number * self.length, min(self.rows, (number + 1) * self.length))
        left = self.length - (where.stop - where.start)  # filled up: one compilation serves all

        def part(leaf):
            own = as_jax(leaf[where])
            return np.concatenate([own, np.repeat(own[-1:], left, 0)]) if left else own

        found = self.at(jax.tree.map(part, self.x), number)
        return where, jax.tree.map(lambda v: v[:, : where.stop - where.start], found)

    def at(self, x: Tree, block: int) -> Tree:
        """The values for these rows."""
        parts, total = [], len(self.draws.chosen)
        for start in range(0, total, self.chunk):
            stop = min(total, start + self.chunk)
            numbers = np.arange(start, stop, dtype=np.uint32) + np.uint32(block * total % 2**32)
            parts.append(jax.tree.map(np.asarray, self.many(self.draws.some(start, stop), x, numbers)))
        return parts[0] if len(parts) == 1 else jax.tree.map(lambda *each: np.concatenate(each), *parts)

    def mark(self) -> str:
        """A hash of all that decides the values."""
        total = hashlib.sha256(f"{len(self.draws.chosen)} {self.seed} {self.length}".encode())
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), (self.draws.like))
        x = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((self.length, *np.shape(leaf)[1:]), as_jax(leaf[:1]).dtype), self.x
        )
        traced = jax.make_jaxpr(self.function)(shapes, x, jax.random.key(0))
        total.update(str(traced).encode())
        arrays: list[Any] = [*traced.consts, self.draws.chosen]
        for array in (*arrays, *jax.tree.leaves(self.draws.positions), *jax.tree.leaves(self.x)):
            for start in range(0, max(1, np.shape(array)[0] if np.ndim(array) else 1), 4096):
                part = array[start : start + 4096] if np.ndim(array) else array
                total.update(np.ascontiguousarray(part).tobytes())
        return total.hexdigest()


def as_jax(leaf: Any) -> np.ndarray:
    """An array as compiled code takes it: in single precision, unless double is on."""
    array = np.asarray(leaf)
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)


class Place:
    """Where what comes out is written: memory, or a folder in which a prediction that was stopped goes on."""

    def __init__(self, values: Values, shapes: dict[str, tuple[int, ...]], store: str | Path | None):
        leaves, self.structure = jax.tree.flatten(values.like)
        inner = [leaf.shape[0 if values.rows is None else 1 :] for leaf in leaves]
        self.names, self.done, self.folder = leaf_names(values.like), 0, None if store is None else Path(store)
        self.lead, self.values = {name: len(shape) for name, shape in shapes.items()}, values
        full = {name: [(*shape, *own) for own in inner] for name, shape in shapes.items()}
        if self.folder is None:
            total = sum(4 * int(np.prod(shape)) for each in full.values() for shape in each)
            check_fits("the prediction", total, "write keep=False, or store=FOLDER")
            self.arrays = {name: [np.zeros(shape, np.float32) for shape in each] for name, each in full.items()}
            return
        self.mark = values.mark()
        self.done = self.begin()
        mode: Any = "r+" if self.done else "w+"
        self.arrays = {
            name: [
                np.lib.format.open_memmap(self.path(name, leaf), mode, np.float32, shape)
                for leaf, shape in zip(self.names, each, strict=True)
            ]
            for name, each in full.items()
        }

    def path(self, name: str, leaf: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{name.replace(' ', '_')}{'' if leaf == 'position' else '.' + leaf}.npy"

    def begin(self) -> int:
        """How many blocks are done in the folder."""
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / MANIFEST
        if not path.exists():
            return 0
        try:
            found = json.loads(path.read_text())
            mark, done = found["mark"], int(found["done"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise damaged(path, error, "delete it to begin anew.") from None
        if mark != self.mark:
            raise InputError(f"{self.folder} holds another prediction; write another folder, or delete it.")
        return done

    def put(self, where: slice, found: dict[str, Tree], done: int) -> None:
        """What came out for a block of rows."""
        for name, tree in found.items():
            for array, leaf in zip(self.arrays[name], jax.tree.leaves(tree), strict=True):
                place: Any = (slice(None), where) if name == "draws" else where
                array[place if array.ndim > (name == "draws") else ...] = leaf
        if self.folder is not None:
            for array in (array for each in self.arrays.values() for array in each):
                array.flush()  # type: ignore[attr-defined]
            replace_file(self.folder / MANIFEST, json.dumps({"mark": self.mark, "done": done}).encode())

    def trees(self) -> dict[str, Tree]:
        """All of it, by name."""
        return {name: jax.tree.unflatten(self.structure, arrays) for name, arrays in self.arrays.items()}


def log_predictive_density(run, rows: Tree, *, draws: int | None = None, progress: bool | None = None) -> LogDensity:
    """See `Run.log_predictive_density`."""
    values = Values(log_likelihood_of(run), draws_of(run, draws), rows, 0)
    each, chains = [], values.draws.chosen[:, 0]
    alone: dict[int, float] = dict.fromkeys(np.unique(chains).tolist(), 0.0)
    for _, block in track_blocks(values, "scoring", progress):
        terms = np.asarray(block, float)
        each.append(log_mean(terms))
        for chain in alone:
            alone[chain] += float(log_mean(terms[chains == chain]).sum())
    found = np.concatenate(each)
    spread = np.std([total / len(found) for total in alone.values()], ddof=1) if len(alone) > 1 else np.nan
    error = found.std(ddof=1) / np.sqrt(len(found)) if len(found) > 1 else np.nan
    return LogDensity(float(found.mean()), float(error), float(spread / np.sqrt(len(alone))), found)


def track_blocks(values: Values, what: str, progress: bool | None) -> Iterator[tuple[slice, Tree]]:
    """All blocks of rows, with a progress bar."""
    with bar(values.blocks, what, progress) as show:
        for number in range(values.blocks):
            yield values.block(number)
            show(number + 1)


def log_mean(terms: np.ndarray) -> np.ndarray:
    """log of the mean of exp over the leading axis."""
    largest = np.max(terms, axis=0, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.mean(np.exp(terms - largest), axis=0)) + largest[0]


def log_likelihood_of(run) -> Callable:
    """The log likelihood of each row, as a function of a position as users see it."""
    model = run.job.program.model
    if hasattr(model, "likelihood_gradient"):
        raise InputError(f"{type(model).__name__} has a gradient of its own, and no likelihood to score with.")
    own = getattr(model, "natural_log_likelihoods", None)
    return lambda position, rows, key: log_likelihoods(model, position, rows) if own is None else own(position, rows)


def log_likelihood_draws(run, rows: Tree, progress: bool | None = None) -> np.ndarray:
    """The log likelihood of each row at each draw of the chains that are alive: chain, draw, row."""
    draws = draws_of(run, None)
    chains, count = len(np.unique(draws.chosen[:, 0])), jax.tree.leaves(rows)[0].shape[0]
    check_fits("the log likelihood of every row at every draw", 4 * len(draws.chosen) * count, "keep fewer draws")
    found = np.zeros((len(draws.chosen), count), np.float32)
    for where, block in track_blocks(Values(log_likelihood_of(run), draws, rows, 0), "log likelihood", progress):
        found[:, where] = block
    return found.reshape(chains, -1, count)
