"""The steps of preparing: units to chunks, words to a vocabulary, chunks to shards. Each goes on after a kill."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from strang.lda.text import sorted_chunks
from strang.lda.text.bags import Bags, take
from strang.lda.text.sources import Source
from strang.lda.text.vocabulary import Choice, choose_words
from strang.util.errors import InputError
from strang.util.progress import bar

Summary = dict[str, Any]


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


def read_chunks(plan: Plan, wanted: list[str] | Choice) -> tuple[list[str], list[Summary], list[str]]:
    """The vocabulary, a summary of each chunk, and what was damaged."""

    def chunk_maker(words: list[str]) -> Callable[..., Summary]:
        ids = {word.encode(): number for number, word in enumerate(words)}
        return partial(sorted_chunks.make_chunk, plan.work, ids=ids, seed=plan.seed)

    if not isinstance(wanted, Choice):
        return wanted, *read_units(plan, chunk_maker(wanted), "counting")
    units, damage = read_units(plan, partial(sorted_chunks.save_counts, plan.work), "counting all words")
    words = choose_vocabulary(plan, wanted, units)
    make = chunk_maker(words)
    loads = (partial(sorted_chunks.load_counts, plan.work, number) for number in range(len(units)))
    jobs = ((1, partial(make, number, load)) for number, load in enumerate(loads))
    return words, list(run(plan, jobs, len(units), "keeping the vocabulary")), damage


def read_units(plan: Plan, make: Callable[..., Summary], what: str) -> tuple[list[Summary], list[str]]:
    """A summary of each unit, and what was damaged; an error at the first damage unless the good part is wanted."""
    units = enumerate(plan.source.units(plan.unit_bytes))
    jobs = ((unit.size, partial(make, number, partial(sorted_chunks.count_unit, unit))) for number, unit in units)
    summaries: list[Summary] = []
    for summary in run(plan, jobs, plan.source.size, f"{what} (MB)", 1_000_000):
        summaries.append(summary)
        if summary["damages"] and not plan.keep_good_part:
            break
    damage = describe_damage(summaries)
    if damage and not plan.keep_good_part:
        raise InputError(
            f"{damage[0]}. Get the source anew, or write --keep-good-part to leave that out; what is done is kept."
        )
    return summaries, damage


def describe_damage(summaries: list[Summary]) -> list[str]:
    """A sentence for each damage, with its place in the file or in the whole text that comes out of it."""
    sentences: list[str] = []
    lengths: dict[str, int] = {}
    ends: dict[str, bool | None] = {}
    for summary in summaries:
        file = summary["file"]
        for what, byte, of in summary["damage"]:
            place = byte + (lengths.get(file, 0) if of == "text" else 0)
            sentences.append(f"{file}: {what} at byte {place:,} of the {of}")
        if summary["damages"] > len(summary["damage"]):
            sentences.append(f"{file}: {summary['damages'] - len(summary['damage']):,} more damages soon after")
        lengths[file] = lengths.get(file, 0) + summary["length"]
        ends[file] = None if summary["ends"] is None else summary["ends"] or ends.get(file, False)
    for file, ended in ends.items():
        if ended is False and not any(sentence.startswith(f"{file}:") for sentence in sentences):
            sentences.append(f"{file}: the dump is cut, </mediawiki> is missing, at byte {lengths[file]:,} of the text")
    return sentences


def choose_vocabulary(plan: Plan, choice: Choice, units: list[Summary]) -> list[str]:
    """The vocabulary, unless it is chosen already."""
    path = plan.work / "vocabulary.json"
    if path.exists():
        return sorted_chunks.load_json(path)
    words, frequencies = sorted_chunks.document_frequencies(plan.work, len(units), plan.progress)
    total = sum(unit["documents"] for unit in units)
    if not total:
        raise InputError(f"{plan.source.path} has no words: no document has a letter from a to z.")
    vocabulary = choose_words(choice, words, frequencies, total)
    sorted_chunks.save_json(path, vocabulary)
    return vocabulary


def cut_shards(plan: Plan, chunks: list[Summary], vocabulary: int) -> list[Summary]:
    """Shards of equal numbers of documents, each a range of the random keys by which all are sorted."""
    sizes = [chunk["documents"] for chunk in chunks]
    keys = [np.sort(sorted_chunks.shuffle_keys(plan.seed, number, size)) for number, size in enumerate(sizes)]
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
        return sorted_chunks.load_json(path)
    used = [(number, first, last) for number, (first, last) in enumerate(ranges.tolist()) if last > first]
    runs = [sorted_chunks.load_run(plan.work, *run) for run in used]
    order = np.argsort(np.concatenate([keys[number][first:last] for number, first, last in used]), kind="stable")
    bags = take(Bags(*(np.concatenate(arrays) for arrays in zip(*runs, strict=True))), order)
    sorted_chunks.save_bags(plan.out, name, bags)
    tokens = int(bags.counts.sum(dtype=np.int64))
    summary = {"name": name, "documents": len(bags.lengths), "nonzeros": len(bags.ids), "tokens": tokens}
    sorted_chunks.save_json(path, summary)
    return summary
