"""Learns from one pass over a table how its rows become numbers, and refuses what people do to tables by mistake."""

from typing import Any

import numpy as np

from strang.regression.encoding import INTERCEPT, Encoding, Group, evaluated, leveled
from strang.regression.families import Family
from strang.regression.formula import Formula, categorical_columns, columns_of
from strang.regression.survey import Survey, check_numbers, shown, take_survey
from strang.regression.tables import Table
from strang.util.errors import InputError, need

LEAST_SINGULAR = 1e-6  # of standardised columns, below which they are collinear


def learn(
    formula: Formula,
    family: Family,
    table: Table,
    options: dict[str, Any],
    progress: bool | None = None,
    survey: Survey | None = None,
) -> Encoding:
    """The encoding of a table, after one pass over it.

    Args:
        formula: in its parts.
        family: of the response.
        table: all rows.
        options: `weights` and `trials` are expressions of columns, `missing` says what is done about missing values.
        progress: whether to show a progress bar.
        survey: what an earlier pass found.

    Raises:
        InputError: whatever people do to tables.
    """
    parts = {"fixed": formula.fixed, **{f"group_{k}": term.inner for k, term in enumerate(formula.groups)}}
    parts |= {"offset": "0 + " + " + ".join(formula.offsets)} if formula.offsets else {}
    parts |= {name: f"0 + {options[name]}" for name in ("weights", "trials") if options.get(name)}
    if (family.name == "binomial") != ("trials" in parts):
        raise InputError("the family binomial needs trials=, the column with the numbers of trials, and no other does.")
    classes = family.response != "number"
    if not classes:
        parts["response"] = f"0 + {formula.response}"
    used = {name: None for part in parts.values() for name in columns_of(part)}
    encoded = list(dict.fromkeys(name for part in parts.values() for name in categorical_columns(part)))
    plain = columns_of(formula.response)
    if plain != [formula.response.strip("`")] and classes:
        raise InputError(f"the response {formula.response!r} must be a column, for the family {family.name}.")
    used |= dict.fromkeys([*plain, *(name for term in formula.groups for name in term.by)])
    by = list(dict.fromkeys(term.by for term in formula.groups))
    if survey is None:
        asked = [*encoded, *(plain if classes else [])]
        survey = take_survey(table, list(used), asked, by, options["missing"], progress)
    numbers = [n for part, text in parts.items() for n in columns_of(text) if part != "response"]
    categories = [n for n, c in survey.columns.items() if c.kind == "category"]
    check_numbers(survey, numbers, [*encoded, *(n for n in categories if n in numbers)], "the formula")
    levels = response_levels(formula, family, survey)
    if levels:
        parts.pop("response", None)
    elif survey.columns[plain[0]].kind == "text":
        check_numbers(survey, plain, [], "the formula")
    return build(formula, family, options, survey, parts, levels)


def response_levels(formula: Formula, family: Family, survey: Survey) -> tuple[Any, ...]:
    """The classes of a response in their order; empty where it is a number."""
    name = formula.response.strip("`")
    column = survey.columns.get(name)
    two = family.name == "bernoulli" and column is not None and column.kind in ("text", "category")
    if family.response == "number" and not two:
        return ()
    assert column is not None
    levels, least = survey.levels(name), {"ordinal": 3}.get(family.name, 2)
    if family.name == "ordinal" and (column.kind == "text" or (column.kind == "category" and not column.ordered)):
        raise InputError(
            f"the response {name} has classes without an order ({shown(levels)}); give numbers, or an ordered "
            "pandas.Categorical."
        )
    if len(levels) < least or (two and len(levels) != 2) or len(levels) > 100:
        raise InputError(
            f"the response {name} has {len(levels)} classes ({shown(levels)}); for the family {family.name} it must be "
            f"{family.support[0]}{', and at most 100' if len(levels) > 100 else ''}."
        )
    return tuple(levels)


def build(
    formula: Formula, family: Family, options: dict[str, Any], survey: Survey, parts: dict[str, str], levels: tuple
) -> Encoding:
    """The encoding, from what the survey found."""
    formulaic = need("formulaic", "glm")
    sample, specs, matrices = leveled(survey.sample, survey), {}, {}
    for name, text in parts.items():
        wanted = formulaic.Formula(text)
        matrix = evaluated(wanted, sample, formula.text)
        columns = list(matrix.columns)
        if family.name == "ordinal" and name == "fixed":  # its thresholds are its intercepts
            columns = [column for column in columns if column != INTERCEPT]
        specs[name] = matrix.model_spec, columns, columns_of(text)
        matrices[name] = matrix[columns].to_numpy(float)
        wrong = ~np.isfinite(matrices[name]).all(0)
        if wrong.any():
            which = columns[int(wrong.argmax())]
            raise InputError(f"{which} is not a finite number in every row; mend such rows, or the formula.")
    if "response" in matrices and matrices["response"].shape[1] != 1:
        raise InputError(f"the response {formula.response!r} has {matrices['response'].shape[1]} columns; give one.")
    names, fixed = tuple(specs["fixed"][1]), matrices["fixed"]
    spec = specs["fixed"][0]
    terms = {str(term): tuple(spec.column_names[where]) for term, where in spec.term_slices.items()}
    has_intercept = INTERCEPT in names or family.name == "ordinal"
    centre = fixed.mean(0) if has_intercept else np.zeros(len(names))
    scale = fixed.std(0)
    flat = scale <= 1e-12 * np.maximum(np.abs(fixed).max(0, initial=0.0), 1e-300)
    for k, name in enumerate(names):
        if name == INTERCEPT:
            centre[k], scale[k], flat[k] = 0.0, 1.0, False
    if flat.any():
        name = names[int(flat.argmax())]
        raise InputError(f"{name} is constant in the rows that were looked at; leave it out of the formula.")
    check_collinear(names, (fixed - centre) / scale)
    groups = tuple(encoded_group(formula, k, specs, matrices, survey) for k in range(len(formula.groups)))
    y = matrices.get("response", np.zeros((1, 1)))[:, 0]
    if "trials" in matrices:
        y = y / matrices["trials"].sum(1)
    notes = notes_of(survey, family, levels, formula, options, groups)
    found = Encoding(
        formula, family, options, survey, specs, names, terms, centre, scale, groups, levels,
        float(y.mean()), float(y.std()), notes,
    )  # fmt: skip
    if not levels:
        found.response(survey.sample.head(1000), 0, None)
        if y.std() == 0:
            raise InputError(f"the response {formula.response} is constant, {y[0]:g} in all rows that were looked at.")
    if family.name == "normal" and any(group.smallest == 1 and len(group.levels) == survey.rows for group in groups):
        raise InputError("a group term has a level for every row, which cannot be told from the noise; leave it out.")
    return found


def encoded_group(formula: Formula, k: int, specs: dict, matrices: dict, survey: Survey) -> Group:
    """A group term, from the sample."""
    term, names = formula.groups[k], tuple(specs[f"group_{k}"][1])
    matrix, counts = matrices[f"group_{k}"], survey.groups[term.name]
    if len(counts) < 2:
        raise InputError(f"the group {term.name} has one level only; leave the term out.")
    scale = np.array(
        [
            1.0 if name == INTERCEPT else np.sqrt((column**2).mean())
            for name, column in zip(names, matrix.T, strict=True)
        ]
    )
    check_collinear(names, matrix / scale, f" of the group term ({term.inner} | {term.name})")
    return Group(term.name, term.by, names, scale, tuple(sorted(counts)), min(counts.values()))


def check_collinear(names: tuple[str, ...], matrix: np.ndarray, where: str = "") -> None:
    """Refuses columns of which one is made of others."""
    if not len(names):
        return
    if len(matrix) < len(names):
        raise InputError(f"there are {len(names)} columns{where} and only {len(matrix)} rows; leave some terms out.")
    values, vectors = np.linalg.eigh(matrix.T @ matrix / len(matrix))
    if values[0] < LEAST_SINGULAR**1.5 * max(values[-1], 1e-300):
        parts = np.abs(vectors[:, 0])
        which = [names[k] for k in np.argsort(-parts) if parts[k] > 0.05 * parts.max()]
        listed = ", ".join(which[:6]) + (", ..." if len(which) > 6 else "")
        raise InputError(
            f"the columns {listed}{where} are collinear: only a combination of them matters; leave one out."
        )


def notes_of(
    survey: Survey, family: Family, levels: tuple, formula: Formula, options: dict, groups: tuple
) -> tuple[str, ...]:
    """What people should know of their table."""
    notes = []
    if survey.dropped:
        counts = ", ".join(f"{name} in {c.missing:,}" for name, c in survey.columns.items() if c.missing)
        notes.append(f"{survey.dropped:,} rows with missing values ({counts}) were left out")
    if levels and family.name == "bernoulli":
        notes.append(f"{formula.response} is 1 where it is {levels[1]!r}, and 0 where it is {levels[0]!r}")
    for name, column in survey.columns.items():
        single = [level for level, count in column.levels.items() if count == 1]
        if single and name not in [each for group in groups for each in group.by]:
            more = f" and {len(single) - 1:,} more" if len(single) > 1 else ""
            notes.append(
                f"the level {single[0]!r}{more} of {name} is in one row only: its coefficient rests on that row"
            )
    return tuple(notes)
