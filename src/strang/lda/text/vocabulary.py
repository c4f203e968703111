"""The words that count: read from a file, or chosen from a corpus by the number of documents they are in."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from strang.util.errors import InputError, whole

LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")
STOP_WORDS = """
about above after again against all also am an and any are arent as at be because been before being below between
both but by can cannot cant could couldnt did didnt do does doesnt doing dont down during each few for from
further had hadnt has hasnt have havent having he her here hers herself him himself his how however if in into is
isnt it its itself just may me might more most must my myself no nor not of off on once one only or other our ours
ourselves out over own same shall she should shouldnt since so some such than that the their theirs them
themselves then there these they this those through to too two under until up upon us use used very was wasnt we
were werent what when where which while who whom whose why will with within without would wouldnt you your yours
yourself yourselves
"""
ENGLISH = frozenset(STOP_WORDS.split()) | LETTERS

MAX_LIST_BYTES = 64 << 20  # of a file of words


class Choice(NamedTuple):
    words: int  # how many, those in most documents
    min_documents: int  # that a word is in
    max_share: float  # of the documents that a word is in
    stop_words: frozenset[str]


def check_choice(
    words: int = 10_000, min_documents: int = 5, max_share: float = 0.5, stop_words: str | Path | None = None
) -> Choice:
    words, min_documents = whole("words", words), whole("min-documents", min_documents)
    if not 0 < max_share <= 1:
        raise InputError(f"max-share is {max_share}; write a fraction of the documents above 0 and at most 1.")
    stop = ENGLISH if stop_words is None else frozenset(line.strip().lower() for line in read_lines(Path(stop_words)))
    return Choice(words, min_documents, max_share, stop)


def choose_words(
    choice: Choice, words: list[bytes], frequencies: np.ndarray, tokens: np.ndarray, total: int
) -> tuple[list[str], dict[str, int]]:
    """The words of a choice, the most frequent first, from the number of documents that each is in; and why the tokens
    of the others are left out."""
    stop_words = {word.encode() for word in choice.stop_words}
    stop = np.fromiter((word in stop_words for word in words), bool, len(words))
    rare, common = frequencies < choice.min_documents, frequencies > choice.max_share * total
    candidates = np.flatnonzero(~(stop | rare | common)).tolist()
    chosen = sorted(candidates, key=lambda word: (-frequencies[word], words[word]))[: choice.words]
    if not chosen:
        bounds = f"in at least {choice.min_documents} and at most {choice.max_share:.0%} of the {total:,} documents"
        advice = "write a smaller min-documents or a larger max-share"
        raise InputError(f"none of the {len(words):,} words is {bounds}; {advice}.")
    reasons = {"stop_words": stop, "rare": rare & ~stop, "common": common & ~stop & ~rare}
    left_out = {reason: int(tokens[which].sum()) for reason, which in reasons.items()}
    left_out["beyond_words"] = int(tokens[candidates].sum() - tokens[chosen].sum())
    return [words[word].decode() for word in chosen], left_out


def read_words(path: Path, *, lower: bool) -> list[str]:
    """A vocabulary, one word per line; `lower` for text, whose words are lower case too."""
    words = [line.strip().lower() if lower else line.strip() for line in read_lines(path)]
    while words and not words[-1]:
        words.pop()
    if not words:
        raise InputError(f"{path} is empty; a vocabulary has one word per line.")
    lines: dict[str, int] = {}
    for number, word in enumerate(words, start=1):
        if not word:
            raise InputError(f"line {number} of {path} is empty; a vocabulary has one word per line.")
        if (first := lines.setdefault(word, number)) != number:
            raise InputError(f"{path} has the word {word!r} twice, in lines {first} and {number}; keep one.")
    return words


def read_lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_LIST_BYTES + 1)
        if len(content) > MAX_LIST_BYTES:
            raise InputError(f"{path} has more than {MAX_LIST_BYTES >> 20} MB; a list of words has one per line.")
        return content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: see byte {error.start:,}.") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from None
