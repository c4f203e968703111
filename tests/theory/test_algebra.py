"""Word orders by exact fractions: known expansions, the table of schemes, and refusals."""

from fractions import Fraction

import pytest

from schemes import KICK, WORDS, label
from strang.data.orders import ORDERS
from strang.theory.certificate.algebra import defect, exponential, multiply, word_order
from strang.util.errors import InputError

RUTH = (
    ("A", Fraction(7, 24)),
    ("B", Fraction(2, 3)),
    ("A", Fraction(3, 4)),
    ("B", Fraction(-2, 3)),
    ("A", Fraction(-1, 24)),
    ("B", 1),
)


def commutator(x, y):
    """x y − y x of elements."""
    result = {}
    for left, right, sign in ((x, y, 1), (y, x, -1)):
        for a, p in left.items():
            for b, q in right.items():
                result[a + b] = result.get(a + b, 0) + sign * p * q
    return result


def combined(*terms):
    """Σ coefficient element, without zeros."""
    result = {}
    for coefficient, element in terms:
        for monomial, value in element.items():
            result[monomial] = result.get(monomial, 0) + coefficient * value
    return {monomial: value for monomial, value in result.items() if value}


def exact_letters(scheme) -> str:
    """The word with small letters made capital where the Euler step is the flow."""
    pieces = scheme.dynamics.alphabets[scheme.alphabet]
    return "".join(x.upper() if pieces[x.upper()].euler is None else x for x in scheme.letters)


def test_the_error_of_strang_splitting_is_the_textbook_one():
    a, b = {("A",): Fraction(1)}, {("B",): Fraction(1)}
    inner = commutator(a, b)
    expected = combined((Fraction(-1, 24), commutator(a, inner)), (Fraction(-1, 12), commutator(b, inner)))
    assert defect("ABA", highest=3) == expected


def test_the_error_of_chens_proof_has_a_quarter_where_the_paper_prints_a_half():
    # Erratum A10: log(e^O e^{B/2}) = O + B/2 + [O, B]/4 + ...
    o, b, half = {("O",): Fraction(1)}, {("B",): Fraction(1)}, Fraction(1, 2)
    product = multiply(exponential(o, Fraction(1), 2), exponential(b, half, 2), 2)
    joint = exponential({("O",): Fraction(1), ("B",): half}, Fraction(1), 2)
    assert combined((1, product), (-1, joint)) == combined((Fraction(1, 4), commutator(o, b)))


@pytest.mark.parametrize(
    ("word", "order"),
    [
        ("A", 4),
        ("AB", 1),
        ("ABA", 2),
        ("BAOAB", 2),
        ("BADODAB", 2),
        ("ABAB", 1),
        (RUTH, 3),
        ([("A", "1/2"), ("B", 1)], 0),
    ],
)
def test_known_orders(word, order):
    assert word_order(word) == order


@pytest.mark.parametrize("scheme", WORDS, ids=label)
def test_the_table_has_the_orders_that_the_steps_claim(scheme):
    assert word_order(exact_letters(scheme)) == scheme.step.order


@pytest.mark.parametrize("scheme", [s for s in WORDS if s.step.order == 2], ids=label)
def test_every_symmetric_word_keeps_order_two_when_reshuffled_but_not_with_independent_batches(scheme):
    kick = KICK[scheme.alphabet]
    orders = {batches: word_order(scheme.letters, batches, kick=kick, highest=3) for batches in ORDERS}
    assert orders == {"full": 2, "iid": 1, "reshuffled": 2, "symmetric": 2, "cyclic": 1}


def test_reshuffling_does_not_mend_the_word():
    assert [word_order("ABO", batches, kick="O") for batches in ORDERS] == [1] * 5


def test_letters_that_commute_may_change_places():
    assert word_order("BADOADB") == 1
    assert word_order("BADOADB", commuting=["AD"]) == 2
    assert word_order("AB", commuting=["AB"]) == 4
    assert word_order("ABC", commuting=["AC"]) == 1


def test_independent_batches_add_half_the_square_of_the_deviation():
    extra = combined((1, defect("ABOBA", "iid", kick="O", highest=2)))
    assert extra == {("Δ", "Δ"): Fraction(1, 2)}


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: word_order("ABOBA", "random"), "batch_order 'random' is unknown; choose one of: full, iid"),
        (lambda: word_order("ABOBA", "iid"), "name the letter that uses the gradient"),
        (lambda: word_order([("A", 1.3512071919596578)]), "no simple fraction; write Fraction"),
        (lambda: defect("bOA", highest=2), "an Euler step .small letter. is an operator known to degree 1 only"),
    ],
)
def test_refusals(call, text):
    with pytest.raises(InputError, match=text):
        call()


def test_floats_that_are_simple_fractions_are_welcome():
    assert word_order([("A", 1 / 3), ("B", 0.5), ("A", 1 / 3), ("B", 0.5), ("A", 1 / 3)]) == 2
