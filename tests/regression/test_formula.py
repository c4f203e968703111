"""Formulas in their parts, and what is no formula."""

import pytest

from strang.regression.formula import GroupTerm, categorical_columns, columns_of, parse
from strang.util.errors import InputError


def test_terms_of_a_formula():
    found = parse("y ~ x*C(r) + (1 + x | a) + (z || b:c) + offset(log(t)) + bs(w, df=4)")
    assert found.fixed == "x*C(r) + bs(w, df=4)"
    assert found.groups == (
        GroupTerm("1 + x", ("a",)), GroupTerm("1", ("b", "c")), GroupTerm("0 + z", ("b", "c")),
    )  # fmt: skip
    assert found.offsets == ("log(t)",)
    assert columns_of(found.fixed) == ["x", "r", "w"]
    assert categorical_columns(found.fixed) == ["r"]
    assert parse("y ~ (1 | g)").fixed == "1"


@pytest.mark.parametrize("text", [
    "y", "y ~", "~ x", "y ~ x ~ z", "y ~ x + (1 | g", "y ~ x | g", "y ~ (1 | g) * x", "y ~ (1 | )", "y ~ (1 | f(g))",
    "y ~ x +* z", 3, "y ~ ( | g)", "y ~ x + (1 | g) - 1",
])  # fmt: skip
def test_what_is_no_formula_is_refused(text):
    with pytest.raises(InputError, match=r"formula|group term|brackets|by"):
        parse(text)


@pytest.mark.parametrize("text", [
    "y ~ {__import__('os').getcwd()}", "y ~ open('x')", "y ~ x.__class__", "y ~ np.log(x).__class__", "y ~ eval('1')",
    "y ~ lag(x)", "y ~ {(lambda: 1)()}", "y ~ {[a for a in x]}",
])  # fmt: skip
def test_formulas_compute_with_columns_and_do_nothing_else(text):
    with pytest.raises(InputError, match=r"not understood|cannot be read"):
        parse(text)
