"""The two forms of a predictive distribution of numbers, draws and mixtures of normals; checked and cut into blocks of
rows, so that forecasts in memory maps need not fit into memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from strang.calibration.normals import Normals
from strang.calibration.sorted_draws import SortedDraws
from strang.util.errors import InputError

BLOCK_SIZE = 2**20  # numbers of a forecast that are scored together, 8 MB; scoring takes about ten times that


@dataclass(frozen=True, eq=False)
class NormalMixture:
    """A forecast that is a mixture of normals with equal weights: what draws of a regression's parameters predict.

    Attributes:
        means: the mean of each draw at each row, of shape (draws, rows). A single normal may be of shape (rows,).
        sds: the standard deviations: of the same shape, or (draws, 1) for one per draw, (1, rows) for one per row, or
            one number.

    Example:
        >>> from strang.calibration import pit
        >>> means = np.array([[0.0, 1.0], [0.0, 3.0]])  # two draws, two rows
        >>> noise = np.array([0.5, 2.0])  # of each draw
        >>> pit(NormalMixture(means, noise[:, None]), [0.0, 2.0])
        array([0.5      , 0.6428937])
    """

    means: Any
    sds: Any


@dataclass(frozen=True, eq=False)
class Forecast:
    """A checked forecast: its arrays by name, each of shape (draws, rows), and the class that scores blocks of rows."""

    arrays: dict[str, np.ndarray]
    law: type[SortedDraws] | type[Normals]

    @staticmethod
    def checked(forecast, responses) -> tuple["Forecast", np.ndarray]:
        """Checks types and shapes, and the responses; the numbers of the forecast are checked as they are read."""
        responses = numbers("responses", responses).astype(float)
        if responses.ndim != 1 or not responses.size:
            raise InputError(f"responses have shape {responses.shape}; give one number per row, of shape (rows,).")
        check_finite("responses", responses[:, None], 0)
        if isinstance(forecast, NormalMixture):
            means, sds = numbers("means", forecast.means), numbers("sds", forecast.sds)
            single = means.ndim == 1
            means = means[None] if single else means
            check_shape("means", means, responses)
            sds = broadcast(sds, means.shape, single)
            return Forecast({"means": means, "sds": sds}, Normals), responses
        draws = numbers("draws", forecast)
        check_shape("draws", draws, responses)
        if len(draws) < 2:
            raise InputError("there is 1 draw; give 2 or more, or write NormalMixture(means, sds) for a normal.")
        return Forecast({"draws": draws}, SortedDraws), responses

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of draws and rows."""
        return next(iter(self.arrays.values())).shape

    def blocks(self) -> Iterator[slice]:
        """Cuts the rows into blocks."""
        draws, rows = self.shape
        size = max(BLOCK_SIZE // draws, 1)
        return (slice(start, min(start + size, rows)) for start in range(0, rows, size))

    def by_rows(self, score: Callable[..., np.ndarray], *columns: np.ndarray) -> np.ndarray:
        """Applies a score, which gets a block and its part of the columns, to all blocks and joins its last axis."""
        with np.errstate(over="ignore", under="ignore"):
            parts = [score(self.block(rows), *(column[rows] for column in columns)) for rows in self.blocks()]
        return np.concatenate(parts, axis=-1)

    def block(self, rows: slice) -> Any:
        """Reads and checks some rows. Rows lead in a block: sums over draws round alike wherever a block begins."""
        read = {name: np.ascontiguousarray(array[:, rows].T, float) for name, array in self.arrays.items()}
        for name, values in read.items():
            check_finite(name, values, rows.start)
        if "sds" in read and not (read["sds"] > 0).all():
            row = rows.start + int(np.flatnonzero((read["sds"] <= 0).any(1))[0])
            raise InputError(f"sds hold {read['sds'].min():g} in row {row}; standard deviations must be above 0.")
        return self.law(**read)


def numbers(name: str, values) -> np.ndarray:
    """Converts to an array of real numbers, without a copy of memory maps."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise InputError(f"{name} have rows of unequal length; give an array of numbers.") from None
    if not np.can_cast(array.dtype, np.float64, "same_kind"):
        raise InputError(f"{name} have dtype {array.dtype}; give an array of real numbers.")
    return array


def check_shape(name: str, array: np.ndarray, responses: np.ndarray) -> None:
    """Refuses what is not of shape (draws, rows)."""
    rows = len(responses)
    if array.ndim == 2 and array.shape[1] == rows and len(array):
        return
    if array.ndim == 2 and len(array) == rows:
        hint = f"write {name}.T"
    elif array.ndim > 2 and array.shape[-1] == rows:
        hint = f"join chains and draws: write {name}.reshape(-1, {rows})"
    elif array.ndim == 1 and len(array) == rows:
        hint = "one number per row is no distribution: write NormalMixture(means, sds) with its standard deviation"
    else:
        hint = f"give shape (draws, {rows})"
    raise InputError(f"{name} have shape {array.shape} and there are {rows} responses; {hint}.")


def broadcast(sds: np.ndarray, shape: tuple[int, ...], single: bool) -> np.ndarray:
    """Repeats standard deviations over draws or rows, without a copy; which of the two must be written."""
    allowed = {(), (1, 1), (shape[0], 1), (1, shape[1]), shape} | ({shape[1:]} if single else set())
    if sds.shape not in allowed:
        hint = "sds[:, None] for one per draw, sds[None] for one per row" if sds.ndim == 1 else "one per mean"
        raise InputError(f"sds have shape {sds.shape}, means {shape}; write {hint}, or one number.")
    return np.broadcast_to(sds, shape)


def check_finite(name: str, values: np.ndarray, first_row: int) -> None:
    """Refuses NaN and infinity in values whose rows lead."""
    finite = np.isfinite(values)
    if not finite.all():
        row = int(np.flatnonzero(~finite.all(1))[0])
        wrong = values[row][~finite[row]][0]
        raise InputError(f"{name} hold {wrong} in row {first_row + row}; leave out that row everywhere, or repair it.")
