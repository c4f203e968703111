"""Chunks: the counted documents of each unit, kept between the source and the shards, sorted by random keys.

The corpus is shuffled by sorting all documents by a random 64-bit key. Each chunk is sorted, so a shard, which is a
range of keys, takes one run of documents from every chunk: a true shuffle of any size in the memory of one shard.
"""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from strang.lda.corpus import ids_type
from strang.lda.text.bags import Bags, split_large, take, tidy
from strang.lda.text.tokens import EMPTY, count_words, join, words_of
from strang.lda.text.units import Unit
from strang.util.files import damaged, read_npz, replace_file, write_npz
from strang.util.progress import track

MAX_LISTED_DAMAGES = 10  # of a unit; more are only counted
ADVICE = "delete the folder of the corpus and prepare it again."
ARRAYS = ("offsets", "ids", "counts")
# bags, the words that their ids number (None for those of the vocabulary), and a summary of the unit
Counted: TypeAlias = tuple[Bags, list[bytes] | None, dict[str, Any]]


def save_json(path: Path, value: Any) -> None:
    replace_file(path, json.dumps(value, indent=1).encode())


def load_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise damaged(path, error, ADVICE) from None


def save_bags(folder: Path, name: str, bags: Bags) -> None:
    for part, array in zip(ARRAYS, (bags.offsets, bags.ids, bags.counts), strict=True):
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        replace_file(folder / f"{name}.{part}.npy", buffer.getvalue())


def load_run(folder: Path, number: int, first: int, last: int) -> Bags:
    """Documents first..last of a chunk."""
    arrays = []
    for path in (folder / f"{number:06}.{part}.npy" for part in ARRAYS):
        try:
            arrays.append(np.load(path, mmap_mode="r", allow_pickle=False))
        except (ValueError, EOFError) as error:
            raise damaged(path, error, ADVICE) from None
    offsets, ids, counts = arrays
    begin, end = int(offsets[first]), int(offsets[last])
    return Bags(np.diff(offsets[first : last + 1]), np.array(ids[begin:end]), np.array(counts[begin:end]))


def shuffle_keys(seed: int, number: int, documents: int) -> np.ndarray:
    """The random keys of a chunk's documents; the bits of Philox are the same in every NumPy."""
    return np.random.Philox(key=np.array([seed, number], np.uint64)).random_raw(documents)


def earlier_summary(path: Path) -> dict[str, Any] | None:
    """What an earlier run wrote about a unit. A damaged one may be mended by now: what was made of it is deleted."""
    summary = load_json(path) | {"earlier": True} if path.exists() else None
    if summary is None or not summary["damages"]:
        return summary
    later = ["shard-*.json", *(["vocabulary.json", "[0-9]" * 6 + ".json"] if ".rough" in path.name else [])]
    for file in (file for pattern in later for file in path.parent.glob(pattern)):
        file.unlink(missing_ok=True)
    return None


def count_unit(unit: Unit) -> Counted:
    """Read a unit and count its words."""
    content = unit.read()
    listed = [list(damage) for damage in content.damage[:MAX_LISTED_DAMAGES]]
    summary = {"file": unit.file, "length": content.length, "damage": listed, "damages": len(content.damage)}
    summary |= {"left_out": dict(content.left_out), "ends": content.ends}
    if isinstance(content.documents, Bags):
        return content.documents, None, summary
    bags, lexicon = count_words(content.documents)
    return bags, words_of(lexicon), summary


def save_counts(folder: Path, number: int, load: Callable[[], Counted]) -> dict[str, Any]:
    """Count all words of a unit, before the vocabulary is known, unless that is done already; a summary."""
    path = folder / f"{number:06}.rough.json"
    if summary := earlier_summary(path):
        return summary
    bags, words, summary = load()
    letters = np.frombuffer(b" ".join(words or []), np.uint8)
    write_npz(path.with_suffix(".npz"), {"words": letters, **bags._asdict()})
    summary["documents"] = int(np.count_nonzero(bags.lengths))
    save_json(path, summary)
    return summary


def load_counts(folder: Path, number: int) -> Counted:
    """What `save_counts` has written."""
    path = folder / f"{number:06}.rough.npz"
    arrays = read_npz(path, ADVICE)
    words = arrays.pop("words").tobytes().split()
    return Bags(**arrays), words, load_json(path.with_suffix(".json"))


def make_chunk(
    folder: Path, number: int, load: Callable[[], Counted], ids: dict[bytes, int], seed: int
) -> dict[str, Any]:
    """Write a unit's documents that have words of the vocabulary, unless that is done; a summary, written last."""
    path = folder / f"{number:06}.json"
    if summary := earlier_summary(path):
        return summary
    bags, words, summary = load()
    outside = 0
    if words is not None:
        bags = bags._replace(ids=np.array([ids.get(word, -1) for word in words], np.int32)[bags.ids])
        outside = int(bags.counts[bags.ids < 0].sum())
        bags = bags.select(bags.ids >= 0)
    bags = split_large(tidy(bags))
    filled = np.flatnonzero(bags.lengths)
    lengths, new_ids, counts = take(bags, filled[np.argsort(shuffle_keys(seed, number, len(filled)), kind="stable")])
    save_bags(folder, path.stem, Bags(lengths, new_ids.astype(ids_type(len(ids))), counts.astype(np.uint16)))
    left_out = summary["left_out"]
    left_out["empty_documents"] = left_out.get("empty_documents", 0) + len(bags.lengths) - len(filled)
    summary |= {"documents": len(filled), "outside_vocabulary": outside}
    save_json(path, summary)
    return summary


def document_frequencies(folder: Path, units: int, progress: bool | None) -> tuple[list[bytes], np.ndarray]:
    """All words of the source, and the number of documents that each is in."""
    lexicon, frequencies = EMPTY, np.zeros(0, np.int64)
    for number in track(range(units), "choosing the vocabulary", progress):
        bags, words, _ = load_counts(folder, number)
        # the words of a unit are distinct, so reading them as one document gives their numbers in order
        numbers, lexicon = count_words(join([b" ".join(words or [])]), lexicon)
        frequencies = np.pad(frequencies, (0, lexicon.size - len(frequencies)))
        frequencies[numbers.ids] += np.bincount(bags.ids, minlength=len(numbers.ids))
    return words_of(lexicon), frequencies
