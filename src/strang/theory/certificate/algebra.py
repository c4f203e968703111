"""Orders of splitting words by exact rational arithmetic in the free associative algebra of their letters.

A step that applies letter X for time c h turns f into e^{chX} f, so a word is a product of exponentials, the letter
that acts first leftmost, and its weak order is the degree up to which the product agrees with the exponential of the
sum of its letters. Nothing here knows a dynamics or a number format: it is an oracle independent of the certificate.

Paper: operators composed last-first; the proof of the splitting's order prints h²/2 [O,B] and 1/96 (...). We: the first
step leftmost, E f(X_L) = P¹ P² ... P^L f, and h²/4 [O,B], h³/96, because that is what the products here give
(errata A7, A10).
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import partial, reduce
from itertools import product
from math import factorial, prod

from strang.data.orders import BatchOrder, order_class
from strang.util.errors import InputError

Monomial = tuple[str, ...]
Element = dict[Monomial, Fraction]
Time = Fraction | int | float | str
Word = str | Iterable[tuple[str, Time]]
TimedLetters = tuple[tuple[str, Fraction], ...]

# The kick on batch a is K + Δ, on batch b K − Δ.
# Paper: ΔV_l = (∇Ũ_l − ∇U)·∇_p. We: minus that, because the force is −∇Ũ; orders do not see the sign (erratum A5).
DEVIATION = "Δ"
SIGN = {"m": 0, "a": 1, "b": -1}


def periods(batch_order: str | type[BatchOrder]) -> tuple[str, ...]:
    """The minibatches a, b of the steps of one period, one string for each outcome of the order; m is their mean.

    >>> periods("full"), periods("iid"), periods("symmetric")
    (('m',), ('a', 'b'), ('abba', 'baab'))
    """
    kind = order_class(batch_order)
    if kind.full:
        return ("m",)
    if kind.independent:
        return ("a", "b")
    path = kind(2, 1).path()
    return tuple("".join(names[k] for k in path) for names in (("ab", "ba") if kind.permuted else ("ab",)))


def word_order(
    word: Word, batch_order: str = "full", *, kick: str = "", commuting: Iterable[str] = (), highest: int = 4
) -> int:
    """Compute the weak order of a splitting word over exactly solved pieces, in exact fractions.

    Args:
        word: a string, whose letters divide the time of a step equally, or pairs (letter, time). An Euler step (small
            letter) agrees with its flow to first order and beyond that is an operator of its own, so that a word that
            has one is of order 1 at most. If the flow is an Euler step, write the capital.
        batch_order: how minibatches are ordered: full, iid, reshuffled, symmetric or cyclic.
        kick: the letter that uses the gradient; needed unless gradients are full.
        commuting: pairs such as "AD" whose flows commute.
        highest: where the search ends.

    Returns:
        The order, at most `highest`.

    Raises:
        InputError: if `batch_order` or `kick` is unknown, or a time is no simple fraction.

    Example:
        >>> word_order("ABOBA"), word_order("bOA"), word_order([("A", "1/3"), ("B", 1), ("A", "2/3")])
        (2, 1, 1)
        >>> word_order("ABOBA", "iid", kick="O"), word_order("ABOBA", "reshuffled", kick="O")
        (1, 2)
    """
    timed = timed_letters(word)
    highest = 1 if any(letter.islower() for letter, _ in timed) else highest
    differing = defect(timed, batch_order, kick=kick, commuting=commuting, highest=highest)
    return min(map(len, differing), default=highest + 1) - 1


def defect(
    word: Word, batch_order: str = "full", *, kick: str = "", commuting: Iterable[str] = (), highest: int = 4
) -> Element:
    """The product of exponentials of a period less the exponential of the sum, up to degree `highest`.

    >>> {"".join(m): str(c) for m, c in defect("AB", highest=2).items()}  # e^A e^B = e^{A+B} + [A, B]/2 + ...
    {'AB': '1/2', 'BA': '-1/2'}
    """
    outcomes, timed = periods(batch_order), timed_letters(word)
    if highest > 1 and any(letter.islower() for letter, _ in timed):
        raise InputError("an Euler step (small letter) is an operator known to degree 1 only; write highest=1.")
    letters = {letter.upper() for letter, _ in timed}
    if outcomes != ("m",) and kick not in letters:
        raise InputError(
            f"kick={kick!r} is none of {', '.join(sorted(letters))}; name the letter that uses the gradient."
        )
    step = {batch: one_step(timed, kick, SIGN[batch], highest) for batch in set("".join(outcomes))}
    total: Element = {}
    for period in outcomes:
        moved = reduce(partial(multiply, highest=highest), [step[batch] for batch in period])
        accumulate(total, moved, Fraction(1, len(outcomes)))
    exact = exponential({(letter,): Fraction(1) for letter in letters}, Fraction(len(outcomes[0])), highest)
    accumulate(total, exact, Fraction(-1))
    collected: Element = {}
    for monomial, coefficient in total.items():
        accumulate(collected, {canonical(monomial, {frozenset(pair) for pair in commuting}): coefficient})
    return {monomial: coefficient for monomial, coefficient in collected.items() if coefficient}


def timed_letters(word: Word) -> TimedLetters:
    """(letter, fraction of the step) pairs of a string or of pairs."""
    if isinstance(word, str):
        return tuple((letter, Fraction(1, word.upper().count(letter.upper()))) for letter in word)
    return tuple((letter, rational(time)) for letter, time in word)


def rational(time: Time) -> Fraction:
    """`time` as a fraction; a float must be one with a small denominator, to rounding."""
    exact = Fraction(time)
    simple = exact.limit_denominator(1000) if isinstance(time, float) else exact
    if abs(simple - exact) > Fraction(1, 10**15):
        raise InputError(f"time {time!r} is no simple fraction; write Fraction(p, q) or 'p/q'.")
    return simple


def one_step(letters: TimedLetters, kick: str, sign: int, highest: int) -> Element:
    """The product of a word's exponentials with the kick on one batch."""
    result: Element = {(): Fraction(1)}
    for letter, time in letters:
        piece: Element = {(letter.upper(),): Fraction(1)}
        if letter.upper() == kick and sign:
            piece[(DEVIATION,)] = Fraction(sign)
        result = multiply(result, exponential(piece, time, highest), highest)
    return result


def exponential(element: Element, time: Fraction, highest: int) -> Element:
    """e^{time · element} up to degree `highest`, for an element of degree 1."""
    result: Element = {}
    for degree in range(highest + 1):
        for factors in product(element.items(), repeat=degree):
            coefficient = prod((factor for _, factor in factors), start=time**degree / factorial(degree))
            result[tuple(letter for (letter,), _ in factors)] = coefficient
    return result


def multiply(x: Element, y: Element, highest: int) -> Element:
    """x y up to degree `highest`."""
    result: Element = {}
    for left, a in x.items():
        for right, b in y.items():
            if len(left) + len(right) <= highest:
                result[left + right] = result.get(left + right, Fraction(0)) + a * b
    return result


def accumulate(total: Element, element: Mapping[Monomial, Fraction], factor: Fraction | int = 1) -> None:
    """total += factor element."""
    for monomial, coefficient in element.items():
        total[monomial] = total.get(monomial, Fraction(0)) + factor * coefficient


def canonical(monomial: Monomial, commuting: set[frozenset[str]]) -> Monomial:
    """The first in the alphabet of all monomials equal to this one: take the smallest letter that can come first."""
    rest, result = list(monomial), []
    while rest:
        movable = [i for i, x in enumerate(rest) if all(frozenset((x, y)) in commuting for y in rest[:i])]
        result.append(rest.pop(min(movable, key=lambda i: rest[i])))
    return tuple(result)
