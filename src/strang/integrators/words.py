"""Splitting integrators as data: a word over the exactly solvable pieces of a dynamics becomes a step.

A step is any function `step(dynamics, state, h, gradient, noise) -> state` that moves the state by time h, where
`gradient` maps a position to the gradient of U on this step's minibatch and `noise` is a tuple of standard normal
trees shaped like the position. A word is one way to make such a function; nothing downstream asks what the word was.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import groupby
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from strang.util.errors import InputError
from strang.util.trees import Tree, scale, size

MAX_RECOMPUTED = 1 << 16  # numbers of a state up to which it is cheaper to compute some twice than to keep them
Letters = tuple[tuple[str, float], ...]  # each letter of a word with its fraction of the step's time


def fading(dynamics, left, time):
    """The noise of a momentum that friction damps: what comes `left` before the end counts less by e^(−D left)."""
    return (jnp.exp(-getattr(dynamics, "friction", 0.0) * left),)


class Path(NamedTuple):
    """Which piece of a step's Brownian path a letter's normals are made of, as fractions of the step: each is
    ∫ k(s) dW for orthonormal functions k, by Gram and Schmidt those that `kernels(dynamics, left, time)` gives, where
    `left` is the time to the letter's end and `time` its length."""

    begin: float
    end: float
    kernels: Callable


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
    already is its flow. `noises` counts the normal trees it uses, and `kernels` says of which path, see `Path`; `kicks`
    says that it needs the gradient; `moves` that it changes the position, after which a gradient has to be computed
    anew.
    """

    meaning: str
    flow: Callable
    euler: Callable | None = None
    noises: int = 0
    kicks: bool = False
    moves: bool = False
    kernels: Callable = fading


@dataclass(frozen=True)
class Scaled(Sequence):
    """Normals of this variance, each made where it is used: so that it takes no pass over memory of its own."""

    normals: Sequence
    variance: Any

    def __len__(self) -> int:
        return len(self.normals)

    def __getitem__(self, k):
        return scale(jnp.sqrt(self.variance), self.normals[k])


@dataclass(frozen=True)
class Step:
    """An integrator: a step function with what is known of it.

    Args:
        name: as users write it.
        function: `(dynamics, state, h, gradient, noise) -> state`.
        order: its weak order.
        position_order: the order of averages of functions of the position, where it is known to be higher.
        gradients: gradients per step.
        noises: trees of standard normals per step.
        smooth: whether the step is an analytic function of h and the state, as the certificate needs it.
        paths: which pieces of a Brownian path the normals are made of; by default equal ones, one after the other. Of
            interest only to chains that are to follow each other closely: the law of a step does not depend on it.
        own_temperature: whether the function sees to the temperature of a dynamics itself. By default the normals that
            it gets have the variance T, which is all there is to it where noise enters linearly. A function that is
            made of other steps calls their `function`, since a step that is called gives its normals this variance.

    Example:
        >>> def drift(dynamics, state, h, gradient, noise):
        ...     return state._replace(position=state.position + h * state.momentum)
        >>> Step("drift", drift, order=0, gradients=0, noises=0).name
        'drift'
    """

    name: str
    function: Callable
    order: int
    gradients: int
    noises: int
    smooth: bool = True
    paths: tuple[Path, ...] = ()
    position_order: int = 0
    own_temperature: bool = False

    def __post_init__(self):
        object.__setattr__(self, "position_order", max(self.order, self.position_order))

    def __call__(self, dynamics, state, h, gradient, noise):
        temperature = getattr(dynamics, "temperature", None)
        if temperature is not None and not self.own_temperature:
            noise = Scaled(noise, temperature)
        return self.function(dynamics, state, h, gradient, noise)


def spell(dynamics, word) -> Step:
    """Makes the integrator that a word spells for a dynamics.

    Args:
        dynamics: a dynamics or its class.
        word: 'alphabet:LETTERS', where a letter that occurs m times gets time h/m each time, a capital is the exact
            flow of its piece and a small letter its Euler step; or ('alphabet', ((letter, fraction), ...)) with unequal
            fractions of the time; or the name of a step that is not a word; or a `Step`, which is returned as it is.

    Returns:
        The integrator. Its weak order is 2 if the word is a palindrome of exact flows, else 1; less if the dynamics
        solves a piece less accurately, as SGRHMC with one iteration does.

    Raises:
        InputError: the word does not fit the dynamics, or leaves out a piece of it.

    Example:
        >>> import strang
        >>> step = strang.spell(strang.SGHMC, "leimkuhler:BAOAB")
        >>> step.order, step.gradients, step.noises
        (2, 2, 1)
    """
    if isinstance(word, Step):
        return word
    kind: Any = dynamics if isinstance(dynamics, type) else type(dynamics)
    if isinstance(word, str):
        return limited(dynamics, kind.steps[word] if word in kind.steps else _spell(kind, word))
    try:
        prefix, letters = word
        word = str(prefix), tuple((str(letter), float(fraction)) for letter, fraction in letters)
    except (TypeError, ValueError):
        raise InputError(
            f"{word!r} is no integrator; write 'alphabet:LETTERS' such as 'chen:ABOBA', "
            "or ('alphabet', (('A', 0.5), ...)) for unequal fractions of the time."
        ) from None
    return limited(dynamics, _spell(kind, word))


def limited(dynamics, step: Step) -> Step:
    """The step with its order lowered to the accuracy of the dynamics' pieces, where these are not solved exactly."""
    accuracy = None if isinstance(dynamics, type) else getattr(dynamics, "accuracy", None)
    return (
        step if accuracy is None or step.order <= accuracy else replace(step, order=accuracy, position_order=accuracy)
    )


@cache  # equal words are equal steps, so that they share a compilation
def _spell(kind, word: str | tuple[str, Letters]) -> Step:
    if isinstance(word, str):
        prefix, colon, text = word.partition(":")
        if not colon:
            raise unqualified(kind, word)
        letters: Letters = tuple((letter, 1 / text.upper().count(letter.upper())) for letter in text)
        name = word
    else:
        prefix, letters = word
        name = f"{prefix}:" + " ".join(f"{letter}({fraction:g})" for letter, fraction in letters)
    if not kind.alphabets:
        raise InputError(f"{kind.__name__} has no words; choose one of: {', '.join(kind.steps)}.")
    if prefix not in kind.alphabets:
        raise InputError(
            f"{kind.__name__} has no alphabet {prefix!r} (in {name!r}); choose one of: {', '.join(kind.alphabets)}."
        )
    check(name, kind.alphabets[prefix], letters)
    return compose(name, kind.alphabets[prefix], letters)


def unqualified(kind, word: str) -> InputError:
    """The error for a word without its alphabet."""
    meanings = {
        prefix: {letter: alphabet[letter.upper()].meaning for letter in word}
        for prefix, alphabet in kind.alphabets.items()
        if set(word.upper()) == set(alphabet)
    }
    if not meanings:
        known = [*kind.steps, *(f"{prefix}:{''.join(alphabet)}..." for prefix, alphabet in kind.alphabets.items())]
        return InputError(f"{word!r} is no integrator of {kind.__name__}; choose one of: {', '.join(known)}.")
    differing = [letter for letter in dict.fromkeys(word) if len({each[letter] for each in meanings.values()}) > 1]
    written = [
        f"'{prefix}:{word}'" + (f" ({', '.join(f'{x} {each[x]}' for x in differing)})" if differing else "")
        for prefix, each in meanings.items()
    ]
    what = "is ambiguous" if len(meanings) > 1 else "needs its alphabet"
    return InputError(f"{word!r} {what} for {kind.__name__}: write {' or '.join(written)}.")


def check(name: str, alphabet: Mapping[str, Piece], letters: Letters) -> None:
    """Raises unless every letter is known and every piece of the generator is applied for the total time h."""
    for letter, _ in letters:
        if letter.upper() not in alphabet:
            raise InputError(f"{name!r} uses {letter!r}, which is not among {', '.join(alphabet)}.")
    for letter, piece in alphabet.items():
        fractions = [fraction for other, fraction in letters if other.upper() == letter]
        total = sum(fractions)
        if total == 0:
            raise InputError(f"{name!r} never applies {letter} ({piece.meaning}): it would not sample.")
        if not abs(total - 1) <= 1e-12:  # also where a fraction is not a number
            raise InputError(
                f"{name!r} applies {letter} ({piece.meaning}) for {total:g} h; the fractions must add to 1."
            )
        if piece.noises and min(fractions) < 0:
            raise InputError(f"{name!r} runs {letter} ({piece.meaning}) backwards; noise has no negative time.")


def borrows(part) -> bool:
    """Whether a letter uses a gradient that was computed for an earlier one."""
    piece, *_, computes = part
    return piece.kicks and not computes


def move_along(dynamics, h, gradient, stretch, noise, first, current, state):
    """The state after some letters of a word, and the gradient where it was computed last; the letters' normals begin
    with this one."""
    for piece, move, fraction, computes in stretch:
        current = gradient(state.position) if computes else current
        own = tuple(noise[k] for k in range(first, first + piece.noises))
        state = move(dynamics, state, Substep(fraction * h, current, own, h))
        first += piece.noises
    return state, current


def compose(name: str, alphabet: Mapping[str, Piece], letters: Letters) -> Step:
    """Chains the flows. One gradient serves all letters until the position moves."""
    parts: list[tuple[Piece, Callable, float, bool]] = []  # with whether the gradient is computed for it
    fresh = False
    for letter, fraction in letters:
        piece = alphabet[letter.upper()]
        move = piece.flow if letter.isupper() or piece.euler is None else piece.euler
        parts.append((piece, move, fraction, piece.kicks and not fresh))
        fresh = (fresh or piece.kicks) and not piece.moves

    # Letters in a row that leave the position alone share a gradient, and are gone through together; so are those that
    # move it with a gradient that is there already.
    stretches = [list(stretch) for _, stretch in groupby(parts, key=lambda part: part[0].moves and not borrows(part))]

    def step(dynamics, state, h, gradient, noise):
        current, first = None, 0
        for stretch in stretches:
            move = partial(move_along, dynamics, h, gradient, stretch, noise, first, current)
            first += sum(piece.noises for piece, *_ in stretch)
            if size(state) > MAX_RECOMPUTED and any(computes and not piece.moves for piece, *_, computes in stretch):
                # A branch whose results are kept: XLA would otherwise compute the kick twice, once for the momentum and
                # once for the position that it moves. With h = 0 there is nothing to do.
                state = lax.cond(h != 0, lambda state, move=move: move(state)[0], lambda state: state, state)
            else:
                state, current = move(state)
        return state

    flows = [(piece.flow, fraction) for piece, _, fraction, _ in parts]
    exact = all(move is piece.flow for piece, move, _, _ in parts)
    symmetric = exact and flows == flows[::-1]
    # Half of a first letter that leaves the position alone may as well be put last: positions do not notice.
    (first, fraction), *rest = flows
    turned = [(first, fraction / 2), *rest, (first, fraction / 2)]
    conjugate = exact and not parts[0][0].moves and turned == turned[::-1]
    gradients, noises = sum(computes for *_, computes in parts), sum(piece.noises for piece, *_ in parts)
    paths, at = [], 0.0
    for piece, _, fraction, _ in parts:
        if piece.noises:
            paths.append(Path(at, at + fraction, piece.kernels))
            at += fraction
    order, position_order = 2 if symmetric else 1, 2 if symmetric or conjugate else 1
    return Step(name, step, order, gradients, noises, paths=tuple(paths), position_order=position_order)
