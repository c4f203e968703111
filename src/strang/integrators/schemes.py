"""Lists of schemes: symmetric words, and all named schemes of a dynamics."""

from itertools import permutations


def palindromes(letters: str) -> list[str]:
    """All symmetric words with one letter in the middle and each other letter twice.

    >>> palindromes("AB")
    ['ABA', 'BAB']
    """
    return ["".join(order) + "".join(order[-2::-1]) for order in permutations(letters)]


def named(kind) -> list[str]:
    """Every named scheme of a dynamics: the words of each alphabet, then the steps that are not words."""
    schemes = [
        f"{prefix}:{word}" for prefix, alphabet in kind.alphabets.items() for word in palindromes("".join(alphabet))
    ]
    if "leimkuhler" in kind.alphabets:  # one kick for the two of BAOAB and BADODAB that meet at a step's end
        schemes.append(f"leimkuhler:{'BAOA' if len(kind.alphabets['leimkuhler']) == 3 else 'BADODA'}")
    return [*schemes, *kind.steps]
