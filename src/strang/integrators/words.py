"""Splitting integrators as data: a word over the exactly solvable pieces of a dynamics becomes a step.

A step is any function `step(dynamics, state, h, gradient, noise) -> state` that moves the state by time h, where
`gradient` maps a position to the gradient of U on this step's minibatch and `noise` is a tuple of standard normal
trees shaped like the position. A word is one way to make such a function; nothing downstream asks what the word was.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from strang.util.errors import InputError
from strang.util.trees import Tree

Share = tuple[str, float]


class Substep(NamedTuple):
    """What one letter gets: its time, the gradient at the current position, its normals, and the whole step size."""

    time: Any
    gradient: Tree
    noise: tuple[Tree, ...]
    step_size: Any


@dataclass(frozen=True)
class Piece:
    """One exactly solvable part of a generator.

    `flow` and `euler` are functions (dynamics, state, substep) -> state; without `euler`, one Euler step of this piece
    already is its flow. `noises` counts the normal trees it uses; `kicks` says that it needs the gradient; `moves` that
    it changes the position, after which a gradient has to be computed anew.
    """

    meaning: str
    flow: Callable
    euler: Callable | None = None
    noises: int = 0
    kicks: bool = False
    moves: bool = False


@dataclass(frozen=True)
class Step:
    """A step function with what is known of it.

    Attributes:
        name: as users write it.
        function: `(dynamics, state, h, gradient, noise) -> state`.
        order: its weak order.
        gradients: gradients per step.
        noises: trees of standard normals per step.
        smooth: whether the step is an analytic function of h and the state, as the certificate needs it.
    """

    name: str
    function: Callable
    order: int
    gradients: int
    noises: int
    smooth: bool = True

    def __call__(self, dynamics, state, h, gradient, noise):
        return self.function(dynamics, state, h, gradient, noise)


def spell(dynamics, word) -> Step:
    """The step that `word` spells for `dynamics` (a class or an instance).

    A word is 'alphabet:LETTERS', where a letter that occurs m times gets time h/m each time, a capital is the exact
    flow of its piece and a small letter its Euler step; or ('alphabet', ((letter, share), ...)) with unequal shares;
    or the name of a step that is not a word. Its weak order is 2 if it is a palindrome of exact flows, else 1.

    >>> import strang
    >>> step = strang.spell(strang.SGHMC, "leimkuhler:BAOAB")
    >>> step.order, step.gradients, step.noises
    (2, 2, 1)
    """
    if isinstance(word, Step):
        return word
    kind: Any = dynamics if isinstance(dynamics, type) else type(dynamics)
    if isinstance(word, str) and word in kind.steps:
        return kind.steps[word]
    if not isinstance(word, str):
        word = pairs(word)
    return _spell(kind, word)


@cache  # equal words are equal steps, so that they share a compilation
def _spell(kind, word) -> Step:
    alphabet, shares, name = parse(kind, word)
    check(name, alphabet, shares)
    return compose(name, alphabet, shares)


def pairs(word) -> tuple[str, tuple[Share, ...]]:
    """A word with unequal shares, checked for its form."""
    try:
        prefix, shares = word
        return str(prefix), tuple((str(letter), float(share)) for letter, share in shares)
    except (TypeError, ValueError):
        raise InputError(
            f"{word!r} is no integrator; write 'alphabet:LETTERS' such as 'chen:ABOBA', "
            "or ('alphabet', (('A', 0.5), ...)) for unequal shares of the time."
        ) from None


def parse(kind, word) -> tuple[Mapping[str, Piece], tuple[Share, ...], str]:
    """Alphabet, (letter, share of the time) pairs, and the word's full name."""
    if isinstance(word, str):
        prefix, colon, letters = word.partition(":")
        if not colon:
            raise unqualified(kind, word)
        counts = {letter: sum(other.upper() == letter.upper() for other in letters) for letter in letters}
        shares: tuple[Share, ...] = tuple((letter, 1 / counts[letter]) for letter in letters)
        name = word
    else:
        prefix, shares = word
        name = f"{prefix}:" + " ".join(f"{letter}({share:g})" for letter, share in shares)
    if not kind.alphabets:
        raise InputError(f"{kind.__name__} has no words; choose one of: {', '.join(kind.steps)}.")
    if prefix not in kind.alphabets:
        raise InputError(
            f"{kind.__name__} has no alphabet {prefix!r} (in {name!r}); choose one of: {', '.join(kind.alphabets)}."
        )
    return kind.alphabets[prefix], shares, name


def unqualified(kind, word: str) -> InputError:
    """What to write instead of a word without its alphabet."""
    fitting = {prefix: alphabet for prefix, alphabet in kind.alphabets.items() if set(word.upper()) == set(alphabet)}
    if not fitting:
        known = [*kind.steps, *(f"{prefix}:{''.join(alphabet)}..." for prefix, alphabet in kind.alphabets.items())]
        return InputError(f"{word!r} is no integrator of {kind.__name__}; choose one of: {', '.join(known)}.")
    meanings = [{letter: alphabet[letter.upper()].meaning for letter in word} for alphabet in fitting.values()]
    telling = [letter for letter in dict.fromkeys(word) if len({meaning[letter] for meaning in meanings}) > 1]
    written = [
        f"'{prefix}:{word}'"
        + (f" ({', '.join(f'{x} {alphabet[x.upper()].meaning}' for x in telling)})" if telling else "")
        for prefix, alphabet in fitting.items()
    ]
    what = "is ambiguous" if len(fitting) > 1 else "needs its alphabet"
    return InputError(f"{word!r} {what} for {kind.__name__}: write {' or '.join(written)}.")


def check(name: str, alphabet: Mapping[str, Piece], shares: tuple[Share, ...]) -> None:
    """Every letter known, every piece of the generator covered, each for the total time h."""
    for letter, _ in shares:
        if letter.upper() not in alphabet:
            raise InputError(f"{name!r} uses {letter!r}, which is not among {', '.join(alphabet)}.")
    for letter, piece in alphabet.items():
        total = sum(share for other, share in shares if other.upper() == letter)
        if total == 0:
            raise InputError(f"{name!r} never applies {letter} ({piece.meaning}): it would not sample.")
        if not abs(total - 1) <= 1e-12:  # also where a share is not a number
            raise InputError(f"{name!r} applies {letter} ({piece.meaning}) for {total:g} h; the shares must add to 1.")
        if piece.noises and any(share < 0 for other, share in shares if other.upper() == letter):
            raise InputError(f"{name!r} runs {letter} ({piece.meaning}) backwards; noise has no negative time.")


def compose(name: str, alphabet: Mapping[str, Piece], shares: tuple[Share, ...]) -> Step:
    """Chain the flows. One gradient serves all letters until the position moves."""
    letters = []
    gradients = noises = 0
    fresh = False
    for letter, share in shares:
        piece = alphabet[letter.upper()]
        exact = letter.isupper() or piece.euler is None
        move: Any = piece.flow if exact else piece.euler
        computes = piece.kicks and not fresh
        letters.append((piece, move, share, computes, exact))
        gradients += computes
        noises += piece.noises
        fresh = (fresh or piece.kicks) and not piece.moves

    def step(dynamics, state, h, gradient, noise):
        current = None
        used = 0
        for piece, move, share, computes, _ in letters:
            if computes:
                current = gradient(state.position)
            normals = noise[used : used + piece.noises]
            used += piece.noises
            state = move(dynamics, state, Substep(share * h, current, normals, h))
        return state

    marks = [(id(piece), share) for piece, _, share, _, _ in letters]
    symmetric = marks == marks[::-1] and all(exact for *_, exact in letters)
    return Step(name, step, 2 if symmetric else 1, gradients, noises)
