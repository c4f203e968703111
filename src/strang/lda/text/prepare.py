"""`strang lda prepare`: from a source to a folder of shuffled shards, in bounded memory, going on after a kill.

Threads read units of the source, strip their markup and count their words, and keep them as chunks. Shards are cut out
of the chunks, and the manifest is written last. Every file is written atomically and depends only on the source and the
settings, so a run that was killed ends with the bytes of one that was not.
"""

import hashlib
import json
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from strang.lda.corpus import FORMAT, checksum, open_corpus, read_manifest, seal
from strang.lda.text.pipeline import ARRAYS, Plan, cut_shards, load_json, read_chunks, save_json
from strang.lda.text.sources import open_source
from strang.lda.text.vocabulary import Choice, check_choice, read_words
from strang.util.cores import cores
from strang.util.errors import InputError, whole
from strang.util.files import hold, replace_file, temporaries

MAX_WORKERS = 1000
REASONS = {
    "stop_words": "of stop words",
    "rare": "of words in too few documents",
    "common": "of words in too many documents",
    "beyond_words": "of words beyond the number wanted",
}


def prepare(
    source: str | Path,
    out: str | Path,
    *,
    vocabulary: str | Path | None = None,
    words: int | None = None,
    min_documents: int | None = None,
    max_share: float | None = None,
    stop_words: str | Path | None = None,
    token_pattern: str | None = None,
    shard_documents: int = 100_000,
    seed: int = 0,
    workers: int | None = None,
    keep_good_part: bool = False,
    unit_bytes: int = 16 << 20,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Count the words of a source into a folder that `strang.lda.open_corpus` opens.

    The same call again goes on where it was killed, or finds its work done; with other settings it is refused.

    Args:
        source: a MediaWiki dump, Parquet or JSON lines, UCI docword*.txt, .npz of counts, or a folder of text files.
        out: the folder to write, new or empty.
        vocabulary: a file with one word per line; without it a vocabulary is built by the next four arguments.
        words: how many words it has: those in most documents (10,000).
        min_documents: the fewest documents that a word is in (5).
        max_share: the largest fraction of the documents that a word is in (0.5).
        stop_words: a file with words to leave out, one per line; by default short English ones.
        token_pattern: a regular expression for words of another kind, sought in the lowered text; by default words are
            runs of the letters a-z, within which apostrophes are left out (don't is dont).
        shard_documents: documents per shard, about.
        seed: of the random order of the documents.
        workers: threads; by default one per core.
        keep_good_part: leave out what is damaged in the source, which otherwise is an error.
        unit_bytes: bytes of text that a thread reads at a time.
        progress: whether to show progress; None means only on a terminal.

    Returns:
        The result by name: `documents`, `tokens`, `vocabulary`, `dropped`, `damage`, `seconds` and so on.

    Raises:
        InputError: if an argument is out of range, the source is unknown or damaged, or `out` holds other files.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "texts.jsonl").write_text('{"text": "Two cats and a cat"}')
        ...     result = prepare(f"{folder}/texts.jsonl", f"{folder}/corpus", min_documents=1, max_share=1)
        >>> result["documents"], result["tokens"], result["outside_vocabulary"]
        (1, 2, 3)
    """
    began, out = time.perf_counter(), Path(out)
    shard_documents, unit_bytes = whole("shard-documents", shard_documents), whole("unit-bytes", unit_bytes)
    workers = cores() if workers is None else whole("workers", workers, 1, MAX_WORKERS)
    seed = whole("seed", seed, 0, (1 << 64) - 1)
    if out.resolve().is_relative_to(Path(source).resolve()):
        raise InputError(f"{out} lies in {source}; write a folder outside of the source.")
    file = None if vocabulary is None else Path(vocabulary)
    opened = open_source(Path(source), file)
    options = {"words": words, "min_documents": min_documents, "max_share": max_share, "stop_words": stop_words}
    choice: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    pattern = None if token_pattern is None else compiled(token_pattern)
    if opened.words and pattern:
        raise InputError(f"{source} holds counts, not text: leave out token-pattern.")
    if (file or opened.words) and choice:
        unused = "words, min-documents, max-share and stop-words"
        raise InputError(f"the vocabulary is given, so none is built: leave out {unused}.")
    wanted = opened.words or (read_words(file, lower=True) if file else check_choice(**choice))
    settings = {"source": opened.identity(), "vocabulary": vocabulary_settings(wanted), "seed": seed}
    settings |= {"shard_documents": shard_documents, "unit_bytes": unit_bytes}
    settings["tokens"] = None if opened.words else token_pattern or "letters"
    manifest = finished(out, settings)
    if manifest is not None:
        return result(manifest, out, 0.0, 0)
    with work_folder(out, settings) as work:
        plan = Plan(opened, out, work, seed, shard_documents, unit_bytes, workers, keep_good_part, progress, pattern)
        manifest, fresh = make(plan, wanted, settings)
    return result(manifest, out, time.perf_counter() - began, fresh)


def compiled(pattern: str) -> re.Pattern:
    """The pattern of tokens, checked."""
    try:
        found = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise InputError(f"token-pattern {pattern!r} is no regular expression ({error}).") from None
    if found.groups > 1:
        raise InputError(f"token-pattern {pattern!r} has {found.groups} groups; write (?:...) for all but one.")
    return found


def vocabulary_settings(wanted: list[str] | Choice) -> dict[str, Any]:
    words = sorted(wanted.stop_words) if isinstance(wanted, Choice) else wanted
    digest = hashlib.sha256("\n".join(words).encode()).hexdigest()
    if isinstance(wanted, Choice):
        return {"built": True, **wanted._asdict(), "stop_words": digest}
    return {"built": False, "words": len(wanted), "sha256": digest}


def differences(stored: dict[str, Any], settings: dict[str, Any]) -> str:
    return " and ".join(name.replace("_", "-") for name in settings if stored.get(name) != settings[name])


def finished(out: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """The manifest of a folder that is done already with these settings; an error if with others."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; write another folder.")
    if not (out / "manifest.json").exists():
        return None
    manifest = read_manifest(out)
    if different := differences(manifest["made"], settings):
        raise InputError(f"{out} holds another corpus: its {different} differ; write another folder, or delete it.")
    work = out / "work"
    if begun(work, settings):  # it was killed as it cleared away
        lock = hold(work / "lock")
        clear(work)
        os.close(lock)
    return manifest


def clear(work: Path) -> None:
    """Remove the work folder, last the settings by which it is known, should this be killed as well."""
    with suppress(OSError):
        for path in work.iterdir():
            if path.name != "settings.json":
                path.unlink()
        shutil.rmtree(work)


def begun(work: Path, settings: dict[str, Any]) -> bool:
    """Whether a folder has the settings of a run, so that it is ours to go on with and to remove."""
    with suppress(OSError, ValueError, AttributeError):  # no file, no JSON, or no dict
        return json.loads((work / "settings.json").read_bytes()).keys() == settings.keys()
    return False


def bare(out: Path) -> bool:
    """Whether a folder holds nothing, or what a run leaves that is killed before it has written its settings."""
    work = out / "work"
    paths = {path for folder in (out, work) if folder.is_dir() for path in folder.iterdir()}
    return paths <= {*([work] if work.is_dir() else []), work / "lock", *temporaries(work, "settings.json")}


@contextmanager
def work_folder(out: Path, settings: dict[str, Any]) -> Iterator[Path]:
    """Hold the work folder, fresh or of a run with the same settings that was killed, and remove it at the end."""
    work = out / "work"
    if not (begun(work, settings) or bare(out)):
        raise InputError(f"{out} holds other files; write an empty or new folder.")
    work.mkdir(parents=True, exist_ok=True)
    lock = hold(work / "lock")
    try:
        for left in temporaries(out, "vocabulary.txt", "manifest.json", "[0-9]*.npy"):
            left.unlink()  # half written when the run was killed
        path = work / "settings.json"
        if not any(work.glob("[0-9]*.json")):  # nothing is done yet
            save_json(path, settings)
        elif different := differences(load_json(path), settings):
            advice = "give the same, or delete the folder"
            raise InputError(f"{out} was begun with other settings: its {different} differ; {advice}.")
        yield work
        clear(work)
    finally:
        os.close(lock)


def make(plan: Plan, wanted: list[str] | Choice, settings: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """All files of the corpus, the manifest last; and how many documents were not counted in an earlier run."""
    words, outside, chunks, damage = read_chunks(plan, wanted)
    pattern = plan.pattern or re.compile("[a-z]+")
    replace_file(plan.out / "vocabulary.txt", "".join(word + "\n" for word in words).encode())
    shards = cut_shards(plan, chunks, len(words))
    files = [plan.out / "vocabulary.txt"]
    files += [plan.out / f"{shard['name']}.{part}.npy" for shard in shards for part in ARRAYS]
    left_out: Counter[str] = Counter()
    for chunk in chunks:
        left_out.update(chunk["left_out"])
    manifest = {
        "format": FORMAT,
        **{name: sum(shard[name] for shard in shards) for name in ("documents", "tokens", "nonzeros")},
        "vocabulary": len(words),
        "outside_vocabulary": sum(chunk["outside_vocabulary"] for chunk in chunks),
        "outside_by_reason": outside,
        "unreachable_words": 0 if plan.source.words else sum(not pattern.fullmatch(word) for word in words),
        "left_out": dict(left_out),
        "damage": damage,
        "made": settings,
        "shards": shards,
        "files": {file.name: {"bytes": file.stat().st_size, "sha256": checksum(file)} for file in files},
    }
    save_json(plan.out / "manifest.json", manifest | {"seal": seal(manifest)})
    open_corpus(plan.out, verify=True, progress=plan.progress)
    return manifest, sum(chunk["documents"] for chunk in chunks if "earlier" not in chunk)


def result(manifest: dict[str, Any], out: Path, seconds: float, fresh: int) -> dict[str, Any]:
    """The result of `prepare`; `fresh` documents took the seconds, the others were there."""
    names = ("documents", "tokens", "nonzeros", "vocabulary", "outside_vocabulary", "unreachable_words", "damage")
    corpus = {name: manifest[name] for name in names} | {"dropped": manifest["left_out"]}
    corpus["outside_by_reason"] = manifest.get("outside_by_reason", {})  # counts prepared by 0.1 have none
    speed = {"seconds": seconds, "documents_per_second": fresh / seconds if seconds else None}
    return {"out": str(out), **corpus, "shards": len(manifest["shards"]), "already_prepared": not seconds, **speed}


def describe(result: dict[str, Any]) -> list[str]:
    """The result as lines to print."""
    lines = [
        f"{result['documents']:,} documents, {result['tokens']:,} tokens, {result['nonzeros']:,} entries, "
        f"{result['vocabulary']:,} words, {result['shards']} shard{'s' * (result['shards'] > 1)} in {result['out']}",
        "already prepared with these settings; nothing was done"
        if result["already_prepared"]
        else f"{result['seconds']:.1f} s, {result['documents_per_second']:,.0f} documents per second",
    ]
    if unreachable := result["unreachable_words"]:
        lines.append(f"{unreachable:,} words of the vocabulary are no tokens (by default letters a-z) and in no text")
    dropped = [f"{number:,} {name.replace('_', ' ')}" for name, number in result["dropped"].items() if number]
    reasons = [f"{number:,} {REASONS[name]}" for name, number in result["outside_by_reason"].items() if number]
    why = f" ({', '.join(reasons)})" if reasons else ""
    dropped.append(f"{result['outside_vocabulary']:,} tokens outside the vocabulary{why}")
    lines.append(f"left out: {', '.join(dropped)}")
    return [*lines, *(f"damaged and left out: {sentence}" for sentence in result["damage"])]
