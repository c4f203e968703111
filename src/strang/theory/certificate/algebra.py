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
from itertools import product
from math import factorial

from strang.data.orders import BatchOrder, order_class
from strang.util.errors import InputError

Monomial = tuple[str, ...]
Element = dict[Monomial, Fraction]
Time = Fraction | int | float | str
Word = str | Iterable[tuple[str, Time]]
Shares = tuple[tuple[str, Fraction], ...]

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
    """The weak order of a word over exactly solved pieces, up to `highest`.

    `word` is a string, whose letters share the time of a step equally, or pairs (letter, share). Under a minibatch
    policy `kick` is the letter that uses the gradient. `commuting` lists pairs such as "AD" whose flows commute.
    An Euler step (small letter) agrees with its flow to first order and beyond that is an operator of its own, free of
    all others; so a word that has one is of order 1 at most. If the flow is an Euler step, write the capital.

    >>> word_order("ABOBA"), word_order("bOA"), word_order([("A", "1/3"), ("B", 1), ("A", "2/3")])
    (2, 1, 1)
    >>> word_order("ABOBA", "iid", kick="O"), word_order("ABOBA", "reshuffled", kick="O")
    (1, 2)
    """
    word = shares_of(word)
    if has_euler(word):
        highest = 1
    for degree in range(1, highest + 1):
        if defect(word, batch_order, kick=kick, commuting=commuting, highest=degree):
            return degree - 1
    return highest


def defect(
    word: Word, batch_order: str = "full", *, kick: str = "", commuting: Iterable[str] = (), highest: int = 4
) -> Element:
    """The product of exponentials of a period less the exponential of the sum, up to degree `highest`.

    >>> {"".join(m): str(c) for m, c in defect("AB", highest=2).items()}  # e^A e^B = e^{A+B} + [A, B]/2 + ...
    {'AB': '1/2', 'BA': '-1/2'}
    """
    outcomes, shares = periods(batch_order), shares_of(word)
    if highest > 1 and has_euler(shares):
        raise InputError("an Euler step (small letter) is an operator known to degree 1 only; write highest=1.")
    letters = {letter.upper() for letter, _ in shares}
    if outcomes != ("m",) and kick not in letters:
        raise InputError(
            f"kick={kick!r} is none of {', '.join(sorted(letters))}; name the letter that uses the gradient."
        )
    step = {batch: one_step(shares, kick, SIGN[batch], highest) for batch in set("".join(outcomes))}
    total: Element = {}
    for period in outcomes:
        moved: Element = {(): Fraction(1)}
        for batch in period:
            moved = multiply(moved, step[batch], highest)
        accumulate(total, moved, Fraction(1, len(outcomes)))
    exact = exponential({(letter,): Fraction(1) for letter in letters}, Fraction(len(outcomes[0])), highest)
    accumulate(total, exact, Fraction(-1))
    return reduced(total, {frozenset(pair) for pair in commuting})


def has_euler(shares: Shares) -> bool:
    """Whether any letter is small."""
    return any(letter.islower() for letter, _ in shares)


def shares_of(word: Word) -> Shares:
    """(letter, share of the time) pairs of a string or of pairs."""
    if isinstance(word, str):
        counts = {letter: word.upper().count(letter.upper()) for letter in word}
        return tuple((letter, Fraction(1, counts[letter])) for letter in word)
    return tuple((letter, rational(share)) for letter, share in word)


def rational(share: Time) -> Fraction:
    """`share` as a fraction; a float must be one with a small denominator, to rounding."""
    exact = Fraction(share)
    simple = exact.limit_denominator(1000) if isinstance(share, float) else exact
    if abs(simple - exact) > Fraction(1, 10**15):
        raise InputError(f"share {share!r} is no simple fraction; write Fraction(p, q) or 'p/q'.")
    return simple


def one_step(shares: Shares, kick: str, sign: int, highest: int) -> Element:
    """The product of a word's exponentials with the kick on one batch."""
    result: Element = {(): Fraction(1)}
    for letter, share in shares:
        piece: Element = {(letter.upper(),): Fraction(1)}
        if letter.upper() == kick and sign:
            piece[(DEVIATION,)] = Fraction(sign)
        result = multiply(result, exponential(piece, share, highest), highest)
    return result


def exponential(element: Element, time: Fraction, highest: int) -> Element:
    """e^{time · element} up to degree `highest`, for an element of degree 1."""
    result: Element = {}
    for degree in range(highest + 1):
        for factors in product(element.items(), repeat=degree):
            coefficient = time**degree / factorial(degree)
            for _, factor in factors:
                coefficient *= factor
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


def accumulate(total: Element, element: Mapping[Monomial, Fraction], factor: Fraction) -> None:
    """total += factor element."""
    for monomial, coefficient in element.items():
        total[monomial] = total.get(monomial, Fraction(0)) + factor * coefficient


def reduced(element: Element, commuting: set[frozenset[str]]) -> Element:
    """The element with monomials that are equal by commutation collected, without zeros."""
    result: Element = {}
    for monomial, coefficient in element.items():
        accumulate(result, {canonical(monomial, commuting): coefficient}, Fraction(1))
    return {monomial: coefficient for monomial, coefficient in result.items() if coefficient}


def canonical(monomial: Monomial, commuting: set[frozenset[str]]) -> Monomial:
    """The first in the alphabet of all monomials equal to this one: take the smallest letter that can come first."""
    rest, result = list(monomial), []
    while rest:
        movable = [i for i, x in enumerate(rest) if all(frozenset((x, y)) in commuting for y in rest[:i])]
        result.append(rest.pop(min(movable, key=lambda i: rest[i])))
    return tuple(result)
