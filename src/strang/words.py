"""The named schemes of each dynamics: its steps by name, and the words that people use."""

from itertools import permutations

from .dynamics import SGHMC, SGLD, SGNHT, SGRHMC, SGRLD
from .errors import InputError, choose


def palindromes(letters: str) -> list[str]:
    """All symmetric words with one letter in the middle and each other letter twice.

    >>> palindromes("AB")
    ['ABA', 'BAB']
    """
    return ["".join(order) + "".join(order[-2::-1]) for order in permutations(letters)]


def named(kind) -> list[str]:
    """Every named scheme of a dynamics: the words of each alphabet, then the steps that are not words."""
    words = [
        f"{prefix}:{word}" for prefix, alphabet in kind.alphabets.items() for word in palindromes("".join(alphabet))
    ]
    if "leimkuhler" in kind.alphabets and len(kind.alphabets["leimkuhler"]) == 3:
        words.append("leimkuhler:BAOA")
    return [*words, *kind.steps]


def dynamics_class(name: str):
    """The dynamics by its lower-case name."""
    known = {kind.__name__.lower(): kind for kind in (SGLD, SGHMC, SGNHT, SGRHMC, SGRLD)}
    if name.lower() not in known:
        raise choose("dynamics", name, known)
    return known[name.lower()]


def with_friction(kind, friction):
    """The dynamics with this friction, or where it is None with what they have by themselves."""
    if friction is None:
        return kind()
    if not hasattr(kind, "friction"):
        raise InputError(f"{kind.__name__.lower()} has no friction; leave it out.")
    return kind(friction=friction)
