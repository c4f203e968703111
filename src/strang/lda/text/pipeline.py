"""The passes of preparing: units to pieces, words to a vocabulary, pieces to shards. Each goes on after a kill."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from strang.lda.text.bags import Bags, take
from strang.lda.text.sorted_chunks import (
    Merger,
    keys_of,
    load_array,
    load_json,
    load_rough,
    make_piece,
    make_rough,
    save_array,
    save_json,
    settle_rough,
)
from strang.lda.text.sources import Source
from strang.lda.text.tokens import words_of
from strang.lda.text.vocabulary import Choice, choose_words, numbered
from strang.util.errors import InputError
from strang.util.progress import bar


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


def in_order(jobs: Iterator[Callable[[], Any]], workers: int) -> Iterator[Any]:
    """The results of the jobs, done by threads, a few ahead of what is taken."""
    waiting: deque[Future] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for job in jobs:
                waiting.append(pool.submit(job))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for left in waiting:
                left.cancel()


def read_pieces(plan: Plan, wanted: list[str] | Choice) -> tuple[list[str], list[dict[str, Any]], list[str]]:
    """The vocabulary, what is known about each piece, and what was damaged."""
    if not isinstance(wanted, Choice):
        make = partial(make_piece, plan.work, ids=numbered(wanted), seed=plan.seed)
        pieces, damage = read_units(plan, make, "counting")
        return wanted, pieces, damage
    rough, damage = read_units(plan, partial(make_rough, plan.work), "counting all words")
    words = build(plan, wanted, rough)
    ids = numbered(words)
    jobs = (partial(settle_rough, plan.work, number, ids, plan.seed) for number in range(len(rough)))
    pieces = []
    with bar(len(rough), "keeping the vocabulary's", plan.progress) as done:
        for piece in in_order(jobs, plan.workers):
            pieces.append(piece)
            done(len(pieces))
    return words, pieces, damage


def read_units(plan: Plan, make: Callable[..., dict[str, Any]], what: str) -> tuple[list[dict[str, Any]], list[str]]:
    """What is known about each unit, once made; stops where the source is damaged unless its good part is wanted."""
    sizes: deque[int] = deque()

    def jobs() -> Iterator[Callable[[], dict[str, Any]]]:
        for number, unit in enumerate(plan.source.units(plan.unit_bytes)):
            sizes.append(unit.size)
            yield partial(make, number=number, unit=unit)

    found: list[dict[str, Any]] = []
    documents, size, began = 0, 0, time.perf_counter()
    with bar(-(-plan.source.size // 1_000_000), f"{what} (MB)", plan.progress) as done:
        for about in in_order(jobs(), plan.workers):
            found.append(about)
            size += sizes.popleft()
            documents += 0 if "earlier" in about else about["documents"]
            if about["damages"] and not plan.keep_good_part:
                break
            rate = documents / (time.perf_counter() - began)
            done(size // 1_000_000, f"{rate:,.0f} documents a second")
    damage = tell_damage(found)
    if damage and not plan.keep_good_part:
        raise InputError(
            f"{damage[0]}. Get the source anew, or write --keep-good-part to leave that out; what is done is kept."
        )
    return found, damage


def tell_damage(found: list[dict[str, Any]]) -> list[str]:
    """A sentence for each damage, with its place in the file or in the whole text that comes out of it."""
    told: list[str] = []
    lengths: dict[str, int] = {}
    ends: dict[str, bool | None] = {}
    for about in found:
        file = about["file"]
        for what, byte, of in about["damage"]:
            place = byte + (lengths.get(file, 0) if of == "text" else 0)
            told.append(f"{file}: {what} at byte {place:,} of the {of}")
        if about["damages"] > len(about["damage"]):
            told.append(f"{file}: {about['damages'] - len(about['damage']):,} more damages soon after")
        lengths[file] = lengths.get(file, 0) + about["length"]
        ends[file] = None if about["ends"] is None else about["ends"] or ends.get(file, False)
    for file, ended in ends.items():
        if ended is False and not any(sentence.startswith(f"{file}:") for sentence in told):
            told.append(f"{file}: the dump is cut, </mediawiki> is missing, at byte {lengths[file]:,} of the text")
    return told


def build(plan: Plan, choice: Choice, rough: list[dict[str, Any]]) -> list[str]:
    """The vocabulary, from the number of documents that each word of the source is in."""
    path = plan.work / "vocabulary.json"
    if path.exists():
        return load_json(path)
    merger = Merger()
    with bar(len(rough), "choosing the vocabulary", plan.progress) as done:
        for number in range(len(rough)):
            merger.add(*load_rough(plan.work, number))
            done(number + 1)
    total = sum(about["documents"] for about in rough)
    if not total:
        raise InputError(f"{plan.source.path} has no words: no document has a letter from a to z.")
    words = choose_words(choice, words_of(merger.lexicon), merger.documents, total)
    save_json(path, words)
    return words


def cut_shards(plan: Plan, pieces: list[dict[str, Any]], vocabulary: int) -> list[dict[str, Any]]:
    """Shards of equal numbers of documents, each a range of the random keys by which all are sorted."""
    keys = [np.sort(keys_of(plan.seed, number, piece["documents"])) for number, piece in enumerate(pieces)]
    every = np.sort(np.concatenate([np.empty(0, np.uint64), *keys]))
    if not len(every):
        raise InputError(f"no document of {plan.source.path} has a word of the vocabulary ({vocabulary:,} words).")
    shards = max(round(len(every) / plan.shard_documents), 1)
    bounds = [int(every[len(every) * shard // shards]) for shard in range(shards)]
    jobs = (
        partial(cut_shard, plan, keys, f"{shard:05}", low if shard else 0, high)
        for shard, (low, high) in enumerate(zip(bounds, [*bounds[1:], None], strict=True))
    )
    found: list[dict[str, Any]] = []
    with bar(shards, "writing shards", plan.progress) as done:
        for about in in_order(jobs, plan.workers):
            found.append(about)
            done(len(found))
    return [about for about in found if about["documents"]]


def cut_shard(plan: Plan, keys: list[np.ndarray], name: str, low: int, high: int | None) -> dict[str, Any]:
    """The documents with keys from low to below high, in the order of their keys, unless that is done already."""
    path = plan.work / f"shard-{name}.json"
    if path.exists():
        return load_json(path)
    runs, order = [], []
    for number, own in enumerate(keys):
        first = int(np.searchsorted(own, np.uint64(low)))
        last = len(own) if high is None else int(np.searchsorted(own, np.uint64(high)))
        if last > first:
            runs.append(read_run(plan.work, number, first, last))
            order.append(own[first:last])
    bags = Bags(*(np.concatenate(arrays) for arrays in zip(*runs, strict=True)))
    bags = take(bags, np.argsort(np.concatenate(order), kind="stable"))
    save_array(plan.out / f"{name}.offsets.npy", np.append(0, np.cumsum(bags.lengths)))
    save_array(plan.out / f"{name}.ids.npy", bags.ids)
    save_array(plan.out / f"{name}.counts.npy", bags.counts)
    about = {
        "name": name,
        "documents": len(bags.lengths),
        "nonzeros": len(bags.ids),
        "tokens": int(bags.counts.sum(dtype=np.int64)),
    }
    save_json(path, about)
    return about


def read_run(work: Path, number: int, first: int, last: int) -> Bags:
    """Documents first..last of a piece."""
    offsets, ids, counts = (load_array(work / f"{number:06}.{part}.npy") for part in ("offsets", "ids", "counts"))
    begin, end = int(offsets[first]), int(offsets[last])
    return Bags(np.diff(offsets[first : last + 1]), np.array(ids[begin:end]), np.array(counts[begin:end]))
