"""`strang lda prepare`: from a source to a folder of shuffled shards, in bounded memory, going on after a kill.

Units of the source are read, stripped and counted by threads (in compiled code, which lets the others run) and kept as
pieces; shards are cut out of the pieces; the manifest is written last. Every file is a function of the source
and the settings alone, and written atomically, so a run that was killed ends with the bytes of one that was not.
"""

import hashlib
import json
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from strang.lda.corpus import FORMAT, checksum, open_corpus, read_manifest, seal
from strang.lda.text.pipeline import Plan, cut_shards, read_pieces
from strang.lda.text.sorted_chunks import load_json, save_json
from strang.lda.text.sources import Source, open_source
from strang.lda.text.vocabulary import LETTERS, Choice, check_choice, read_words
from strang.util.errors import InputError, whole
from strang.util.files import hold, replace_file, temporaries

UNIT = 16 << 20  # bytes of text


def prepare(
    source: str | Path,
    out: str | Path,
    *,
    vocabulary: str | Path | None = None,
    words: int | None = None,
    min_documents: int | None = None,
    max_share: float | None = None,
    stop_words: str | Path | None = None,
    shard_documents: int = 100_000,
    seed: int = 0,
    workers: int | None = None,
    keep_good_part: bool = False,
    unit_bytes: int = UNIT,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Make a corpus of a source; what came out.

    The vocabulary is that of a file, one word a line, or built: the `words` (10,000) that are in most documents, among
    those in at least `min_documents` (5) and at most a share `max_share` (0.5) of them, without `stop_words` (a file;
    by default short English ones). The same call again goes on where it was killed, or finds its work done; a call that
    differs is refused. What is damaged in the source is an error, unless the good part is asked for.
    """
    began, out = time.perf_counter(), Path(out)
    for name, value in (
        ("shard-documents", shard_documents),
        ("unit-bytes", unit_bytes),
        ("workers", 1 if workers is None else workers),
    ):
        whole(name, value)
    whole("seed", seed, 0, (1 << 64) - 1)
    given = None if vocabulary is None else Path(vocabulary)
    if out.resolve().is_relative_to(Path(source).resolve()):
        raise InputError(f"{out} lies in {source}; write a folder outside of the source.")
    found = open_source(Path(source), given)
    building = (words, min_documents, max_share, stop_words)
    wanted = wanted_words(found, given, building)
    settings = {
        "source": found.identity(),
        "vocabulary": about_words(wanted, given),
        "seed": seed,
        "shard_documents": shard_documents,
        "unit_bytes": unit_bytes,
    }
    manifest = finished(out, settings)
    if manifest is not None:
        return result(manifest, out, 0.0, 0)
    work, lock = begin(out, settings)
    try:
        plan = Plan(found, out, work, seed, shard_documents, unit_bytes, workers or cores(), keep_good_part, progress)
        manifest, fresh = make(plan, wanted, settings)
        clear(work)
    finally:
        os.close(lock)
    return result(manifest, out, time.perf_counter() - began, fresh)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def wanted_words(source: Source, given: Path | None, building: tuple) -> list[str] | Choice:
    """The vocabulary, or how to build it."""
    if (given or source.words) and any(option is not None for option in building):
        raise InputError(
            "the vocabulary is given, so none is built: leave out words, min-documents, max-share and stop-words."
        )
    if source.words:
        return source.words
    if given:
        return read_words(given, lower=True)
    words, least, share, stop = building
    return check_choice(
        10_000 if words is None else words,
        5 if least is None else least,
        0.5 if share is None else share,
        None if stop is None else Path(stop),
    )


def about_words(wanted: list[str] | Choice, given: Path | None) -> dict[str, Any]:
    if isinstance(wanted, Choice):
        stop = hashlib.sha256("\n".join(sorted(wanted.stop_words)).encode()).hexdigest()
        return {"built": True, **wanted._replace(stop_words=stop)._asdict()}  # type: ignore[arg-type]
    return {"built": False, "words": len(wanted), "sha256": hashlib.sha256("\n".join(wanted).encode()).hexdigest()}


def differences(found: dict[str, Any], mine: dict[str, Any]) -> str:
    return " and ".join(name.replace("_", "-") for name in mine if found.get(name) != mine[name])


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
    try:
        found = json.loads((work / "settings.json").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.keys() == settings.keys()


def bare(out: Path) -> bool:
    """Whether a folder holds nothing, or what a run leaves that is killed before it has written its settings."""
    work = out / "work"
    found = {path for folder in (out, work) if folder.is_dir() for path in folder.iterdir()}
    return found <= {*([work] if work.is_dir() else []), work / "lock", *temporaries(work, "settings.json")}


def begin(out: Path, settings: dict[str, Any]) -> tuple[Path, int]:
    """The work folder, fresh or of a run with the same settings that was killed, and the lock that holds it."""
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
            raise InputError(
                f"{out} was begun with other settings: its {different} differ; give the same, or delete the folder."
            )
    except BaseException:
        os.close(lock)
        raise
    return work, lock


def make(plan: Plan, wanted: list[str] | Choice, settings: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """All files of the corpus, the manifest last; and how many documents were not counted in an earlier run."""
    words, pieces, damage = read_pieces(plan, wanted)
    replace_file(plan.out / "vocabulary.txt", "".join(word + "\n" for word in words).encode())
    shards = cut_shards(plan, pieces, len(words))
    files = [plan.out / "vocabulary.txt"]
    files += [plan.out / f"{shard['name']}.{part}.npy" for shard in shards for part in ("offsets", "ids", "counts")]
    left_out: dict[str, int] = {}
    for piece in pieces:
        for name, number in piece["left_out"].items():
            left_out[name] = left_out.get(name, 0) + number
    manifest = {
        "format": FORMAT,
        **{name: sum(shard[name] for shard in shards) for name in ("documents", "tokens", "nonzeros")},
        "vocabulary": len(words),
        "outside_vocabulary": sum(piece["outside_vocabulary"] for piece in pieces),
        "unreachable_words": 0 if plan.source.words else sum(not LETTERS.issuperset(word) for word in words),
        "left_out": left_out,
        "damage": damage,
        "made": settings,
        "shards": shards,
        "files": {file.name: {"bytes": file.stat().st_size, "sha256": checksum(file)} for file in files},
    }
    save_json(plan.out / "manifest.json", manifest | {"seal": seal(manifest)})
    open_corpus(plan.out, verify=True, progress=plan.progress)
    return manifest, sum(piece["documents"] for piece in pieces if "earlier" not in piece)


def result(manifest: dict[str, Any], out: Path, seconds: float, fresh: int) -> dict[str, Any]:
    """What the command prints; `fresh` documents took the seconds, the others were there."""
    names = ("documents", "tokens", "nonzeros", "vocabulary", "outside_vocabulary", "unreachable_words", "damage")
    return {
        "out": str(out),
        **{name: manifest[name] for name in names},
        "dropped": manifest["left_out"],
        "shards": len(manifest["shards"]),
        "already_prepared": not seconds,
        "seconds": seconds,
        "documents_per_second": fresh / seconds if seconds else None,
    }


def describe(found: dict[str, Any]) -> list[str]:
    lines = [
        f"{found['documents']:,} documents, {found['tokens']:,} tokens, {found['nonzeros']:,} entries, "
        f"{found['vocabulary']:,} words, {found['shards']} shard{'s' * (found['shards'] > 1)} in {found['out']}"
    ]
    if found["already_prepared"]:
        lines.append("already prepared with these settings; nothing was done")
    else:
        lines.append(f"{found['seconds']:.1f} s, {found['documents_per_second']:,.0f} documents a second")
    if found["unreachable_words"]:
        lines.append(
            f"{found['unreachable_words']:,} words of the vocabulary have other signs than a-z and are in no text"
        )
    dropped = [f"{number:,} {name.replace('_', ' ')}" for name, number in found["dropped"].items() if number]
    dropped.append(f"{found['outside_vocabulary']:,} tokens outside the vocabulary")
    lines.append(f"left out: {', '.join(dropped)}")
    return [*lines, *(f"damaged and left out: {sentence}" for sentence in found["damage"])]
