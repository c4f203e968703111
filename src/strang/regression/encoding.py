"""From rows of a table to the numbers that the model sees: `formulaic`'s matrix, standardised, the response, groups."""

import re
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from strang.regression.families import Family
from strang.regression.formula import Formula, columns_of
from strang.regression.survey import Survey, group_labels, shown
from strang.util.errors import InputError, first_line, need

INTERCEPT = "Intercept"
Rows = dict[str, Any]


@dataclass(frozen=True)
class Group:
    """A group term as it is encoded: the names of its columns, their scales, and the levels."""

    name: str
    by: tuple[str, ...]
    names: tuple[str, ...]
    scale: np.ndarray
    levels: tuple[str, ...]
    smallest: int  # rows of the smallest level

    @property
    def intercept_only(self) -> bool:
        return self.names == (INTERCEPT,)


@dataclass(frozen=True, eq=False)
class Encoding:
    """How rows of a table become numbers, learnt from one pass over it.

    Attributes:
        formula, family: what is fitted.
        names: of the columns of the matrix.
        terms: which columns each term of the formula has.
        centre, scale: by which columns are standardised.
        groups: the group terms.
        levels: of a response that is a class.
        y_mean, y_sd: of a response that is a number.
        notes: what is worth knowing.
    """

    formula: Formula
    family: Family
    options: dict[str, Any]
    survey: Survey
    specs: dict[str, Any]
    names: tuple[str, ...]
    terms: dict[str, tuple[str, ...]]
    centre: np.ndarray
    scale: np.ndarray
    groups: tuple[Group, ...]
    levels: tuple[Any, ...]
    y_mean: float
    y_sd: float
    notes: tuple[str, ...]

    @property
    def intercept(self) -> int | None:
        """The place of the intercept among the columns."""
        return self.names.index(INTERCEPT) if INTERCEPT in self.names else None

    @property
    def columns(self) -> list[str]:
        """Of the table, all that are used."""
        return list(self.survey.columns)

    @property
    def predictors(self) -> list[str]:
        """The columns of the table from which the response is predicted."""
        parts = [self.formula.fixed, *(term.inner for term in self.formula.groups), *self.formula.offsets]
        parts += [f"0 + {self.options['trials']}"] if self.options.get("trials") else []
        used = [name for part in parts for name in columns_of(part)]
        return list(dict.fromkeys([*used, *(name for group in self.groups for name in group.by)]))

    def rows(
        self, frame: Any, first: int = 0, *, response: bool = True, fresh: dict[int, list[str]] | None = None
    ) -> Rows:
        """The numbers of complete rows; `first` is the number of the first. Levels of groups that are not known are an
        error, or where there is `fresh`, are numbered on and noted there."""
        found: Rows = {"x": self.standardised(self.matrix("fixed", frame, first))}
        for name in ("offset", "trials", *(("weights",) if response else ())):
            if name in self.specs:
                found[name] = self.number(name, frame, first)
        for k, group in enumerate(self.groups):
            labels = group_labels(frame, group.by)
            numbers = need("pandas", "glm").Index(group.levels).get_indexer(labels)
            if (numbers < 0).any():
                if fresh is None:
                    raise InputError(f"{group.name} has the level {labels[numbers < 0].iloc[0]!r}, which is not known.")
                known = fresh.setdefault(k, [])
                known += [label for label in dict.fromkeys(labels[numbers < 0]) if label not in known]
                new = need("pandas", "glm").Index(known).get_indexer(labels)
                numbers = np.where(numbers < 0, len(group.levels) + new, numbers)
            found[f"group_{k}"] = numbers.astype(np.int32)
            if not group.intercept_only:
                found[f"z_{k}"] = (self.matrix(f"group_{k}", frame, first) / group.scale).astype(np.float32)
        if response:
            found["y"] = self.response(frame, first, found.get("trials"))
        return found

    def standardised(self, matrix: np.ndarray) -> np.ndarray:
        return ((matrix - self.centre) / self.scale).astype(np.float32)

    def matrix(self, name: str, frame: Any, first: int) -> np.ndarray:
        """The columns of a part of the formula."""
        spec, columns, used = self.specs[name]
        found = evaluated(spec, leveled(frame[used] if used else frame, self.survey), self.formula.text)
        found = found[columns].to_numpy(float) if columns else found.to_numpy(float)
        wrong = ~np.isfinite(found)
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            which = (columns or list(spec.column_names))[column]
            raise InputError(f"{which} is not a finite number in row {first + row:,}; mend such rows, or the formula.")
        return found

    def number(self, name: str, frame: Any, first: int) -> np.ndarray:
        """Offset, trials or weights."""
        found = self.matrix(name, frame, first).sum(1).astype(np.float32)
        if name != "offset" and (found <= 0).any():
            raise InputError(f"{name} is {found.min():g} in row {first + int(found.argmin()):,}; it must be positive.")
        return found

    def response(self, frame: Any, first: int, trials: np.ndarray | None) -> np.ndarray:
        """y as a number, or as the number of its class."""
        if self.levels:
            name = self.formula.response.strip("`")
            series = leveled(frame[[name]], self.survey)[name]
            numbers = need("pandas", "glm").Index(self.levels).get_indexer(series)
            if (numbers < 0).any():
                raise InputError(f"the response has the level {series[numbers < 0].iloc[0]!r}, which is not known.")
            return numbers.astype(np.float32)
        y = self.matrix("response", frame, first)[:, 0]
        wanted, right = self.family.support
        wrong = ~right(y) if trials is None else ~right(y) | (y > trials)
        if wrong.any():
            row = int(wrong.argmax())
            raise InputError(
                f"the response {self.formula.response} is {y[row]:g} in row {first + row:,}; for the family "
                f"{self.family.name} it must be {wanted}."
            )
        return y.astype(np.float32)


def leveled(frame: Any, survey: Survey) -> Any:
    """The frame with text as categories of all levels, numbers as floating-point or whole ones."""
    pandas, found = need("pandas", "glm"), {}
    for name in frame.columns:
        column, values = survey.columns.get(name), frame[name]
        if column is not None and column.kind in ("text", "category"):
            levels = survey.levels(name)
            fresh = set(values.unique()) - set(levels)
            if fresh:
                raise InputError(f"column {name} has levels that the fit has not seen: {shown(sorted(fresh))}.")
            found[name] = pandas.Categorical(values, categories=levels)
        else:
            whole = values.dtype.kind in "iub" if hasattr(values.dtype, "kind") else False
            found[name] = values.to_numpy() if whole else values.to_numpy(float)
    return pandas.DataFrame(found)


def evaluated(spec: Any, frame: Any, text: str) -> Any:
    """formulaic's matrix of a frame, with its errors as sentences."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", "Data has categories outside")
            return spec.get_model_matrix(frame, context={}, na_action="ignore")
    except Warning as error:
        said = re.sub(r"np\.\w+\(([^()]*)\)", r"\1", str(error).partition("): ")[2].partition(". They")[0])
        raise InputError(f"there are levels that the fit has not seen: {said or first_line(error)}.") from None
    except InputError:
        raise
    except Exception as error:  # of a transform it may be anything
        raise InputError(
            f"the formula {text!r} fails on the table ({type(error).__name__}: {first_line(error)})"
        ) from None
