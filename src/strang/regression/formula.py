"""Formulas such as `y ~ x + C(region) + (1 + x | store) + offset(log(hours))`.

What `formulaic` does not know, group terms and offsets, is taken out here; the rest is its own. A formula may call the
functions that belong in one and nothing else, since it may come with a stored run of somebody else.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from strang.util.errors import InputError, first_line, need

FUNCTIONS = (
    "log", "log10", "log2", "exp", "exp10", "exp2", "bs", "cc", "cr", "cs", "center", "poly", "scale", "standardize",
    "C", "I", "Treatment", "Poly", "Sum", "Helmert", "Diff",
)  # fmt: skip
MODULES = ("np", "contr")
OPENING, CLOSING, QUOTES = "([{", ")]}", "\"'`"
NODES = (
    ast.Expression, ast.Name, ast.Load, ast.Constant, ast.Call, ast.keyword, ast.Attribute, ast.BinOp, ast.UnaryOp,
    ast.Compare, ast.BoolOp, ast.List, ast.Tuple, ast.Dict, ast.operator, ast.unaryop, ast.cmpop, ast.boolop,
)  # fmt: skip


class GroupTerm(NamedTuple):
    """`(inner | by)`: coefficients of the columns of `inner` that vary between the levels of `by`."""

    inner: str
    by: tuple[str, ...]

    @property
    def name(self) -> str:
        return ":".join(self.by)


class Formula(NamedTuple):
    """A formula in its parts, each an expression for `formulaic`."""

    text: str
    response: str
    fixed: str
    groups: tuple[GroupTerm, ...]
    offsets: tuple[str, ...]


def parse(text: Any) -> Formula:
    """Takes a formula apart.

    >>> parse("y ~ x + (1 + x | store) + offset(log(t))")[1:]
    ('y', 'x', (GroupTerm(inner='1 + x', by=('store',)),), ('log(t)',))
    >>> parse("y ~ (1 | a/b)").groups
    (GroupTerm(inner='1', by=('a',)), GroupTerm(inner='1', by=('a', 'b')))
    """
    if not isinstance(text, str):
        raise InputError(f"the formula is a {type(text).__name__}; write text, such as 'y ~ x + (1 | group)'.")
    sides = split(text, "~")
    if len(sides) != 2 or not all(sides):
        raise InputError(f"the formula is {text!r}; write what is explained, ~, and by what, such as 'y ~ x'.")
    response, right = sides
    fixed: list[str] = []
    groups: list[GroupTerm] = []
    offsets: list[str] = []
    for term in split(right, "+"):
        if term.startswith("(") and closes(term) == len(term) - 1 and "|" in term:
            groups += group_terms(term[1:-1])
        elif term.startswith("offset(") and closes(term) == len(term) - 1:
            offsets.append(term[len("offset(") : -1])
        elif term:
            fixed.append(term)
    for term in (*fixed, response):
        if "|" in term or "offset(" in term:
            raise InputError(
                f"{term!r} of the formula cannot be read; group terms and offsets stand between plus signs, such as "
                "'y ~ x + (1 + x | group) + offset(log(hours))'."
            )
    found = Formula(text, response, " + ".join(fixed) or "1", tuple(groups), tuple(offsets))
    for part in (found.fixed, *(term.inner for term in groups), *offsets, response):
        check_calls(part)
    return found


def split(text: str, sign: str) -> list[str]:
    """The parts of a text between signs that stand in no brackets and no quotes.

    >>> split("a + f(b + c) + `d + e`", "+")
    ['a', 'f(b + c)', '`d + e`']
    """
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in QUOTES:
            quote = letter
        else:
            depth += (letter in OPENING) - (letter in CLOSING)
        if depth < 0:
            break
        if letter == sign and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    if depth or quote:
        raise InputError(f"brackets or quotes of the formula do not match in {text!r}.")
    return [part.strip() for part in parts]


def closes(text: str) -> int:
    """Where the first bracket of a text is closed."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter in OPENING) - (letter in CLOSING)
        if letter in CLOSING and not depth:
            return place
    return -1


def group_terms(text: str) -> Iterator[GroupTerm]:
    """The terms that `inner | by` stands for: `||` is without correlations, `a/b` is both `a` and `a:b`."""
    parts = [part.strip() for part in re.split(r"(?<!\|)\|{1,2}(?!\|)", text)]
    if len(parts) != 2 or not all(parts):
        raise InputError(f"the group term ({text}) cannot be read; write one such as (1 + x | group).")
    names = [[name.strip().strip("`") for name in by.split(":")] for by in parts[1].split("/")]
    if not all(name and re.fullmatch(r"[^\s()+*|~]+|.*\S.*", name) for by in names for name in by) or "(" in parts[1]:
        raise InputError(f"({text}) is by {parts[1]!r}; after the bar stand names of columns, such as (1 | a:b).")
    inner = uncorrelated(parts[0]) if "||" in text else [parts[0]]
    for depth in range(len(names)):
        by = tuple(name for each in names[: depth + 1] for name in each)
        for each in inner:
            yield GroupTerm(each, by)


def uncorrelated(inner: str) -> list[str]:
    """`1 + x` as terms of their own."""
    terms = [term for term in split(inner, "+") if term not in ("", "1")]
    none = "0" in terms
    return [*([] if none else ["1"]), *(f"0 + {term}" for term in terms if term != "0")]


def check_calls(expression: str) -> None:
    """Refuses expressions that do more than compute with columns."""
    for factor in factors(expression):
        for node in ast.walk(syntax(factor)):
            private = getattr(node, "attr", getattr(node, "id", "")).startswith("_")
            called = node.func if isinstance(node, ast.Call) else None
            known = called is None or name_of(called) in FUNCTIONS or name_of(called).split(".")[0] in MODULES
            inside = not isinstance(node, ast.Attribute) or name_of(node).split(".")[0] in MODULES
            if private or not known or not inside or not isinstance(node, NODES):
                raise InputError(
                    f"{factor!r} of the formula is not understood; it may hold columns, numbers, np.… and "
                    f"{', '.join(FUNCTIONS)}; give what is computed otherwise as a column."
                )


def name_of(node: ast.AST) -> str:
    """The dotted name of a function, or nothing."""
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def factors(expression: str) -> list[str]:
    """The factors of an expression that are Python, each once."""
    formulaic = need("formulaic", "glm")
    try:
        terms = formulaic.Formula(expression)
        found = [factor for term in terms for factor in term.factors]
    except Exception as error:  # its parser raises much
        said = re.sub(r"\x1b\[[\d;]*m|[⧛⧚]", "", first_line(error))
        raise InputError(f"{expression!r} of the formula cannot be read ({said})") from None
    plain = (str(factor.expr) for factor in found if factor.eval_method.value != "literal")
    return list(dict.fromkeys(plain))


def syntax(factor: str) -> ast.AST:
    """A factor as Python's syntax tree; names that are no Python names stand alone."""
    try:
        return ast.parse(factor, mode="eval")
    except (SyntaxError, ValueError):
        if re.search(r"[()\[\]{}]", factor):
            raise InputError(f"{factor!r} of the formula cannot be read; write one such as np.log(x).") from None
        return ast.Constant(factor)


def columns_of(expression: str) -> list[str]:
    """The columns that an expression uses.

    >>> columns_of("x + bs(w, df=4) + C(k):x")
    ['x', 'w', 'k']
    """
    found: dict[str, None] = {}
    for factor in factors(expression):
        tree = syntax(factor)
        if isinstance(tree, ast.Constant):
            found[factor] = None
        names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
        found |= {node.id: None for node in names if node.id not in (*FUNCTIONS, *MODULES)}
    return list(found)


def categorical_columns(expression: str) -> list[str]:
    """The columns that stand in C(...)."""
    found: dict[str, None] = {}
    for factor in factors(expression):
        calls = (node for node in ast.walk(syntax(factor)) if isinstance(node, ast.Call) and name_of(node.func) == "C")
        found |= {name.id: None for call in calls for name in ast.walk(call.args[0]) if isinstance(name, ast.Name)}
    return list(found)
