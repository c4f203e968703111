"""What is kept between the source and the shards: each unit's documents, counted, in the order of random keys.

The corpus is shuffled by sorting all documents by a random 64-bit key. A piece holds its own sorted, so that a shard,
which is a range of keys, takes one run from every piece: a true shuffle of any size in the memory of one shard.
"""

import io
import json
import zipfile
from pathlib import Path
from typing import Any, cast

import numpy as np

from strang.lda.corpus import ids_type
from strang.lda.text.bags import Bags, split_large, take, tidy
from strang.lda.text.chunks import Content, Unit
from strang.lda.text.tokens import EMPTY, Texts, count_words, words_of
from strang.util.errors import InputError
from strang.util.files import replace_file

TOLD = 10  # damages of a unit that are told one by one


def save_array(path: Path, array: np.ndarray) -> None:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    replace_file(path, buffer.getvalue())


def save_json(path: Path, value: Any) -> None:
    replace_file(path, json.dumps(value, indent=1).encode())


def load_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError:
        raise damaged(path) from None


def load_array(path: Path) -> Any:
    """An array or archive of an earlier pass, mapped or to be read."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile):
        raise damaged(path) from None


def damaged(path: Path) -> InputError:
    return InputError(f"{path} is damaged; delete {path.parent.parent} and prepare it again.")


def keys_of(seed: int, number: int, documents: int) -> np.ndarray:
    """The random keys of a unit's documents; the bits of Philox are the same in every NumPy."""
    return np.random.Philox(key=np.array([seed, number], np.uint64)).random_raw(documents)


def known_about(path: Path) -> dict[str, Any] | None:
    """What an earlier run wrote last about a unit, marked so. A damaged one is read again, and what was made with it is
    forgotten: it may have been mended since."""
    known = load_json(path) | {"earlier": True} if path.exists() else None
    if known is None or not known["damages"]:
        return known
    made = ["shard-*.json", *(["vocabulary.json", "[0-9]" * 6 + ".json"] if ".rough" in path.name else [])]
    for later in (file for pattern in made for file in path.parent.glob(pattern)):
        later.unlink(missing_ok=True)
    return None


def about_unit(unit: Unit, content: Content) -> dict[str, Any]:
    return {
        "file": unit.file,
        "length": content.length,
        "damage": [list(damage) for damage in content.damage[:TOLD]],
        "damages": len(content.damage),
        "left_out": dict(content.left_out),
        "ends": content.ends,
    }


def make_piece(folder: Path, number: int, unit: Unit, ids: dict[bytes, int], seed: int) -> dict[str, Any]:
    """Read and count a unit, unless that is done already; what is known about it."""
    if known := known_about(folder / f"{number:06}.json"):
        return known
    content = unit.read()
    outside, bags = 0, content.documents
    if not isinstance(bags, Bags):
        bags, lexicon = count_words(bags)
        bags, outside = in_vocabulary(bags, words_of(lexicon), ids)
    return save_piece(folder, number, bags, about_unit(unit, content), len(ids), outside, seed)


def in_vocabulary(bags: Bags, words: list[bytes], ids: dict[bytes, int]) -> tuple[Bags, int]:
    """The bags with the ids of their words, without words that have none, and how many tokens these were."""
    new = np.array([ids.get(word, -1) for word in words], np.int32)[bags.ids]
    kept = new >= 0
    document = np.repeat(np.arange(len(bags.lengths)), bags.lengths)
    inside = Bags(np.bincount(document[kept], minlength=len(bags.lengths)), new[kept], bags.counts[kept])
    return inside, int(bags.counts[~kept].sum())


def save_piece(
    folder: Path, number: int, bags: Bags, about: dict[str, Any], vocabulary: int, outside: int, seed: int
) -> dict[str, Any]:
    """The documents that have a word, sorted by their keys; what is known about them is written last."""
    bags = split_large(tidy(bags))
    filled = np.flatnonzero(bags.lengths)
    order = np.argsort(keys_of(seed, number, len(filled)), kind="stable")
    kept = take(bags, filled[order])
    save_array(folder / f"{number:06}.offsets.npy", np.append(0, np.cumsum(kept.lengths)))
    save_array(folder / f"{number:06}.ids.npy", kept.ids.astype(ids_type(vocabulary)))
    save_array(folder / f"{number:06}.counts.npy", kept.counts.astype(np.uint16))
    left_out = about["left_out"]
    empty = left_out.get("empty_documents", 0) + len(bags.lengths) - len(filled)
    about |= {
        "documents": len(filled),
        "outside_vocabulary": outside,
        "left_out": {**left_out, "empty_documents": empty},
    }
    save_json(folder / f"{number:06}.json", about)
    return about


def make_rough(folder: Path, number: int, unit: Unit) -> dict[str, Any]:
    """Count all words of a unit before the vocabulary is known, unless that is done already."""
    path = folder / f"{number:06}.rough.json"
    if known := known_about(path):
        return known
    content = unit.read()
    bags, lexicon = count_words(cast(Texts, content.documents))
    buffer = io.BytesIO()
    letters = b" ".join(words_of(lexicon))
    np.savez(buffer, allow_pickle=False, words=np.frombuffer(letters, np.uint8), **bags._asdict())
    replace_file(folder / f"{number:06}.rough.npz", buffer.getvalue())
    about = about_unit(unit, content) | {"documents": int(np.count_nonzero(bags.lengths))}
    save_json(path, about)
    return about


def load_rough(folder: Path, number: int) -> tuple[Bags, np.ndarray]:
    """The bags of a unit, and its words with spaces between them."""
    with load_array(folder / f"{number:06}.rough.npz") as file:
        return Bags(file["lengths"], file["ids"], file["counts"]), file["words"]


def settle_rough(folder: Path, number: int, ids: dict[bytes, int], seed: int) -> dict[str, Any]:
    """A piece from what was counted before the vocabulary was known."""
    if known := known_about(folder / f"{number:06}.json"):
        return known
    bags, letters = load_rough(folder, number)
    about = load_json(folder / f"{number:06}.rough.json")
    bags, outside = in_vocabulary(bags, letters.tobytes().split(), ids)
    return save_piece(folder, number, bags, about, len(ids), outside, seed)


class Merger:
    """In how many documents each word is, over the units so far."""

    def __init__(self) -> None:
        self.lexicon = EMPTY
        self.documents = np.zeros(0, np.int64)

    def add(self, bags: Bags, letters: np.ndarray) -> None:
        """A unit's words are different ones, so reading them as one document gives their numbers in order."""
        whole = Texts(letters.copy(), np.array([0, len(letters)]))
        numbers, self.lexicon = count_words(whole, self.lexicon)
        grown = np.zeros(self.lexicon.size, np.int64)
        grown[: len(self.documents)] = self.documents
        grown[numbers.ids] += np.bincount(bags.ids, minlength=len(numbers.ids))
        self.documents = grown
