"""The steps of preparing: units to chunks, words to a vocabulary, chunks to shards. Each goes on after a kill.

Chunks are the counted documents of each unit, kept between the source and the shards. The corpus is shuffled by sorting
all documents by a random 64-bit key. Each chunk is sorted, so a shard, which is a range of keys, takes one run of
documents from every chunk: a true shuffle of any size in the memory of one shard.
"""

import io
import json
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from strang.lda.corpus import ids_type
from strang.lda.text.bags import Bags, split_large, take, tidy
from strang.lda.text.sources import Source
from strang.lda.text.tokens import EMPTY, Texts, count_words, find_tokens, join, words_of
from strang.lda.text.units import Unit
from strang.lda.text.vocabulary import Choice, choose_words
from strang.util.errors import InputError
from strang.util.files import damaged, read_npz, replace_file, write_npz
from strang.util.progress import bar, track

MAX_LISTED_DAMAGES = 10  # of a unit; more are only counted
ADVICE = "delete the folder of the corpus and prepare it again."
ARRAYS = ("offsets", "ids", "counts")
Summary: TypeAlias = dict[str, Any]  # of a unit, a chunk or a shard
Counted: TypeAlias = tuple[Bags, list[bytes] | None, Summary]  # words are what ids number; None for the vocabulary


class Plan(NamedTuple):
    source: Source
    out: Path
    work: Path
    seed: int
    shard_documents: int
    unit_bytes: int
    workers: int
    keep_good_part: bool
    progress: bool | None
    pattern: re.Pattern | None  # of tokens


def run(plan: Plan, jobs: Iterable[tuple[int, Callable]], total: int, what: str, step: int = 1) -> Iterator[Summary]:
    """Yield the results of jobs, each with its size, in their order; threads work a few jobs ahead. The progress bar
    counts the sizes, `total` in all, in multiples of `step`."""
    waiting: deque[tuple[int, Future]] = deque()
    size, documents, began = 0, 0, time.perf_counter()
    with bar(-(-total // step), what, plan.progress) as done, ThreadPoolExecutor(plan.workers) as pool:
        futures = ((job_size, pool.submit(job)) for job_size, job in jobs)
        try:
            waiting.extend(islice(futures, 2 * plan.workers))
            while waiting:
                job_size, future = waiting.popleft()
                summary = future.result()
                waiting.extend(islice(futures, 1))
                size += job_size
                documents += 0 if "earlier" in summary else summary["documents"]
                done(size // step, f"{documents / (time.perf_counter() - began):,.0f} documents per second")
                yield summary
        finally:
            for _, future in waiting:
                future.cancel()


def read_chunks(plan: Plan, wanted: list[str] | Choice) -> tuple[list[str], dict, list[Summary], list[str]]:
    """The vocabulary, the numbers of tokens outside of it by reasons, a summary of each chunk, and what was damaged."""

    def chunk_maker(words: list[str]) -> Callable[..., Summary]:
        ids = {word.encode(): number for number, word in enumerate(words)}
        return partial(make_chunk, plan.work, ids=ids, seed=plan.seed)

    if not isinstance(wanted, Choice):
        return wanted, {}, *read_units(plan, chunk_maker(wanted), "counting")
    units, damage = read_units(plan, partial(save_counts, plan.work), "counting all words")
    words, outside = choose_vocabulary(plan, wanted, units)
    make, numbers = chunk_maker(words), range(len(units))
    jobs = ((1, partial(make, number, partial(load_counts, plan.work, number))) for number in numbers)
    return words, outside, list(run(plan, jobs, len(units), "keeping the vocabulary")), damage


def read_units(plan: Plan, make: Callable[..., Summary], what: str) -> tuple[list[Summary], list[str]]:
    """A summary of each unit, and what was damaged; an error at the first damage unless the good part is wanted."""
    units = enumerate(plan.source.units(plan.unit_bytes))
    jobs = ((unit.size, partial(make, number, partial(count_unit, unit, plan.pattern))) for number, unit in units)
    summaries: list[Summary] = []
    for summary in run(plan, jobs, plan.source.size, f"{what} (MB)", 1_000_000):
        summaries.append(summary)
        if summary["damages"] and not plan.keep_good_part:
            break
    damage = describe_damage(summaries)
    if damage and not plan.keep_good_part:
        advice = "Get the source anew, or write --keep-good-part to leave that out; what is done is kept."
        raise InputError(f"{damage[0]}. {advice}")
    return summaries, damage


def describe_damage(summaries: list[Summary]) -> list[str]:
    """A sentence for each damage, with its place in the file or in the whole text that comes out of it."""
    sentences: list[str] = []
    lengths: Counter[str] = Counter()
    ends: dict[str, bool | None] = {}
    for summary in summaries:
        file = summary["file"]
        for what, byte, of in summary["damage"]:
            place = byte + (lengths[file] if of == "text" else 0)
            sentences.append(f"{file}: {what} at byte {place:,} of the {of}")
        if summary["damages"] > len(summary["damage"]):
            sentences.append(f"{file}: {summary['damages'] - len(summary['damage']):,} more damages soon after")
        lengths[file] += summary["length"]
        ends[file] = None if summary["ends"] is None else summary["ends"] or ends.get(file, False)
    for file, ended in ends.items():
        if ended is False and not any(sentence.startswith(f"{file}:") for sentence in sentences):
            sentences.append(f"{file}: the dump is cut, </mediawiki> is missing, at byte {lengths[file]:,} of the text")
    return sentences


def choose_vocabulary(plan: Plan, choice: Choice, units: list[Summary]) -> tuple[list[str], dict[str, int]]:
    """What `choose_words` does, unless that is done already."""
    path = plan.work / "vocabulary.json"
    if path.exists():
        return load_json(path)
    if not (total := sum(unit["documents"] for unit in units)):
        raise InputError(f"{plan.source.path} has no words: no document has a letter from a to z.")
    lexicon, frequencies, tokens = EMPTY, np.zeros(0, np.int64), np.zeros(0, np.int64)  # documents and tokens of a word
    for number in track(range(len(units)), "choosing the vocabulary", plan.progress):
        bags, words, _ = load_counts(plan.work, number)
        # the words of a unit are distinct, so reading them as one document gives their numbers in order
        numbers, lexicon = count_words(join([b"\n".join(words or [])]), lexicon, lines=True)
        frequencies, tokens = (np.pad(each, (0, lexicon.size - len(each))) for each in (frequencies, tokens))
        frequencies[numbers.ids] += np.bincount(bags.ids, minlength=len(numbers.ids))
        tokens[numbers.ids] += np.bincount(bags.ids, bags.counts, len(numbers.ids)).astype(np.int64)
    return save_json(path, choose_words(choice, words_of(lexicon), frequencies, tokens, total))


def cut_shards(plan: Plan, chunks: list[Summary], vocabulary: int) -> list[Summary]:
    """Shards of equal numbers of documents, each a range of the random keys by which all are sorted."""
    sizes = [chunk["documents"] for chunk in chunks]
    keys = [np.sort(shuffle_keys(plan.seed, number, size)) for number, size in enumerate(sizes)]
    every = np.sort(np.concatenate([np.empty(0, np.uint64), *keys]))
    if not len(every):
        raise InputError(f"no document of {plan.source.path} has a word of the vocabulary ({vocabulary:,} words).")
    shards = max(round(len(every) / plan.shard_documents), 1)
    first_keys = every[len(every) * np.arange(shards) // shards]
    cuts = np.array([[*np.searchsorted(own, first_keys), len(own)] for own in keys])  # chunk, shard
    jobs = ((1, partial(cut_shard, plan, keys, f"{s:05}", cuts[:, s : s + 2])) for s in range(shards))
    return list(run(plan, jobs, shards, "writing shards"))


def cut_shard(plan: Plan, keys: list[np.ndarray], name: str, ranges: np.ndarray) -> Summary:
    """Write a shard: these ranges of the chunks' documents, in the order of their keys, unless that is done."""
    path = plan.work / f"shard-{name}.json"
    if path.exists():
        return load_json(path)
    used = [(number, first, last) for number, (first, last) in enumerate(ranges.tolist()) if last > first]
    runs = [load_run(plan.work, *run) for run in used]
    order = np.argsort(np.concatenate([keys[number][first:last] for number, first, last in used]), kind="stable")
    bags = take(Bags(*(np.concatenate(arrays) for arrays in zip(*runs, strict=True))), order)
    save_bags(plan.out, name, bags)
    tokens = int(bags.counts.sum(dtype=np.int64))
    summary = {"name": name, "documents": len(bags.lengths), "nonzeros": len(bags.ids), "tokens": tokens}
    return save_json(path, summary)


def save_json(path: Path, value: Any) -> Any:
    """Write a value, and return it."""
    replace_file(path, json.dumps(value, indent=1).encode())
    return value


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


def earlier_summary(path: Path) -> Summary | None:
    """What an earlier run wrote about a unit. A damaged one may be mended by now: what was made of it is deleted."""
    summary = load_json(path) | {"earlier": True} if path.exists() else None
    if summary is None or not summary["damages"]:
        return summary
    later = ["shard-*.json", *(["vocabulary.json", "[0-9]" * 6 + ".json"] if ".rough" in path.name else [])]
    for file in (file for pattern in later for file in path.parent.glob(pattern)):
        file.unlink(missing_ok=True)
    return None


def count_unit(unit: Unit, pattern: re.Pattern | None) -> Counted:
    """Read a unit and count its words, or what a pattern finds."""
    content = unit.read()
    listed = [list(damage) for damage in content.damage[:MAX_LISTED_DAMAGES]]
    summary = {"file": unit.file, "length": content.length, "damage": listed, "damages": len(content.damage)}
    summary |= {"left_out": dict(content.left_out), "ends": content.ends}
    if isinstance(content.documents, Bags):
        return content.documents, None, summary
    texts: Texts = content.documents if pattern is None else find_tokens(content.documents, pattern)
    bags, lexicon = count_words(texts, lines=pattern is not None)
    return bags, words_of(lexicon), summary


def save_counts(folder: Path, number: int, load: Callable[[], Counted]) -> Summary:
    """Count all words of a unit, before the vocabulary is known, unless that is done already; a summary."""
    path = folder / f"{number:06}.rough.json"
    if summary := earlier_summary(path):
        return summary
    bags, words, summary = load()
    letters = np.frombuffer(b"".join(word + b"\n" for word in words or []), np.uint8)
    write_npz(path.with_suffix(".npz"), {"words": letters, **bags._asdict()})
    return save_json(path, summary | {"documents": int(np.count_nonzero(bags.lengths))})


def load_counts(folder: Path, number: int) -> Counted:
    """What `save_counts` has written."""
    path = folder / f"{number:06}.rough.npz"
    arrays = read_npz(path, ADVICE)
    words = arrays.pop("words").tobytes().split(b"\n")[:-1]
    return Bags(**arrays), words, load_json(path.with_suffix(".json"))


def make_chunk(folder: Path, number: int, load: Callable[[], Counted], ids: dict[bytes, int], seed: int) -> Summary:
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
    empty = summary["left_out"].get("empty_documents", 0) + len(bags.lengths) - len(filled)
    summary["left_out"]["empty_documents"] = empty
    return save_json(path, summary | {"documents": len(filled), "outside_vocabulary": outside})
