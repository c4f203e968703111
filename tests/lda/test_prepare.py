"""From any source to shards: the same documents, a true shuffle, the same bytes after any kill."""

import bz2
import collections
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from corpora import (
    EXPECTED,
    KINDS,
    TEXTS,
    WORDS,
    Killed,
    as_set,
    content,
    documents_of,
    dump,
    make_texts,
    refuse,
    write_source,
    write_words,
)
from strang.cli.app import main
from strang.lda.corpus import open_corpus
from strang.lda.text import pipeline
from strang.lda.text import prepare as preparing
from strang.lda.text.prepare import prepare
from strang.lda.text.units import parts
from strang.util import files
from strang.util.errors import InputError


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(files.os, "fsync", lambda handle: None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unit", [700, 16 << 20])
def test_every_source_gives_the_same_documents(kind, unit, tmp_path):
    source = write_source(kind, tmp_path)
    vocabulary = None if kind.startswith("docword") else write_words(tmp_path)
    result = prepare(source, tmp_path / "out", vocabulary=vocabulary, unit_bytes=unit, shard_documents=25, workers=2)
    assert (result["documents"], result["shards"], result["vocabulary"]) == (60, 2, 120)
    assert result["tokens"] == sum(len(text.split()) for text in TEXTS)
    assert result["outside_vocabulary"] == 0
    assert as_set(documents_of(tmp_path / "out")) == EXPECTED
    if "xml" in kind:
        assert result["dropped"] == {"redirects": 2, "other_namespaces": 2, "empty_documents": 0}
    assert not (tmp_path / "out" / "work").exists()


def test_the_order_is_that_of_the_keys_and_uniform(tmp_path):
    """Each seed's order is a sort by independent keys, so all orders are alike: chi-squared with 23 degrees of freedom
    over the 24 orders of two documents in each of two units, false alarm 1e-6."""
    texts = [" ".join(WORDS[: n + 1]) for n in range(8)]
    source = write_source("rows.jsonl", tmp_path, texts)
    prepare(source, tmp_path / "out", vocabulary=write_words(tmp_path), seed=7, unit_bytes=120, shard_documents=3)
    lengths = [len(document) for document in documents_of(tmp_path / "out")]
    sizes = [len(part.text.splitlines()) for part in parts(source, b"\n", 120)]
    assert len(sizes) > 2
    keys = np.concatenate([pipeline.shuffle_keys(7, number, size) for number, size in enumerate(sizes)])
    assert lengths == (1 + np.argsort(keys)).tolist()

    def statistic(orders):
        seen = np.array(list(collections.Counter(map(tuple, orders)).values()))
        return (((seen - 100) ** 2).sum() + (24 - len(seen)) * 100**2) / 100

    draws = [
        np.concatenate([pipeline.shuffle_keys(seed, 0, 2), pipeline.shuffle_keys(seed, 1, 2)]) for seed in range(2400)
    ]
    assert statistic([np.argsort(draw).tolist() for draw in draws]) < 71
    assert statistic([[*np.argsort(draw[:2]), *(2 + np.argsort(draw[2:]))] for draw in draws]) > 71  # only within units


def test_a_vocabulary_is_built(tmp_path):
    source = write_source("pages.xml", tmp_path)
    inside = collections.Counter(word for text in TEXTS for word in set(text.split()))
    options = {"words": 40, "min_documents": 4, "max_share": 0.2, "unit_bytes": 900}
    (tmp_path / "stop.txt").write_text(f"{WORDS[-1].upper()}\n{WORDS[60]}\n")
    result = prepare(source, tmp_path / "out", stop_words=tmp_path / "stop.txt", **options)
    fit = [(-n, word) for word, n in inside.items() if 4 <= n <= 12 and word not in (WORDS[-1], WORDS[60])]
    expected = [word for _, word in sorted(fit)[:40]]
    assert open_corpus(tmp_path / "out").words == expected
    kept = [{w: n for w, n in collections.Counter(text.split()).items() if w in expected} for text in TEXTS]
    assert as_set(documents_of(tmp_path / "out")) == as_set(document for document in kept if document)
    assert result["dropped"]["empty_documents"] == sum(not document for document in kept)
    assert result["tokens"] + result["outside_vocabulary"] == sum(len(text.split()) for text in TEXTS)
    with pytest.raises(InputError, match="none of the 116 words is in at least 61"):
        prepare(source, tmp_path / "none", min_documents=61)
    assert (
        result["documents"]
        == prepare(source, tmp_path / "out", stop_words=tmp_path / "stop.txt", **options)["documents"]
    )


def test_stop_words_are_english_by_default(tmp_path):
    (tmp_path / "texts").mkdir()
    for number in range(6):
        (tmp_path / "texts" / f"{number}.txt").write_text("The whale and the sea" + " calm" * (number % 2))
    prepare(tmp_path / "texts", tmp_path / "out", max_share=1.0, min_documents=3)
    assert open_corpus(tmp_path / "out").words == ["sea", "whale", "calm"]


def test_whole_floats_are_numbers(tmp_path):
    source, words = write_source("rows.jsonl", tmp_path), write_words(tmp_path)
    options = {"vocabulary": words, "seed": 3.0, "shard_documents": 25.0, "unit_bytes": 7e2, "workers": 1.0}
    assert prepare(source, tmp_path / "floats", **options)["shards"] == 2
    prepare(source, tmp_path / "ints", vocabulary=words, seed=3, shard_documents=25, unit_bytes=700)
    assert content(tmp_path / "floats") == content(tmp_path / "ints")


def test_many_words_need_wide_ids(tmp_path):
    (tmp_path / "words.txt").write_text("".join(f"w{n}\n" for n in range(70_000)))
    np.savez(tmp_path / "x.npz", indptr=[0, 2], indices=[69_999, 5], counts=[200_000, 1])
    prepare(tmp_path / "x.npz", tmp_path / "out", vocabulary=tmp_path / "words.txt")
    corpus = open_corpus(tmp_path / "out")
    assert corpus.shards[0].ids.dtype == np.uint32
    _, ids, counts = corpus.gather([0])
    assert ids.tolist() == [5, 69_999, 69_999, 69_999, 69_999]
    assert counts.sum() == corpus.tokens == 200_001


# ------------------------------------------------------------------------------------------------------------ restart


@pytest.mark.parametrize("options", [{"words": 50}, {"vocabulary": "words.txt"}])
def test_killed_at_any_write_it_ends_with_the_same_bytes(tmp_path, monkeypatch, options):
    source = write_source("pages.xml", tmp_path)
    write_words(tmp_path)
    options = {name: tmp_path / value if name == "vocabulary" else value for name, value in options.items()}
    options |= {"unit_bytes": 6000, "shard_documents": 20, "workers": 1}
    writes = []

    def counted(path, data):
        if len(writes) == limit:
            path.with_name(f".{path.name}.123").write_bytes(data[: len(data) // 2])  # half written
            raise Killed
        writes.append(path)
        replace_file(path, data)

    replace_file = files.replace_file
    for module in (preparing, pipeline, files):
        monkeypatch.setattr(module, "replace_file", counted)
    limit = None
    prepare(source, tmp_path / "whole", **options)
    whole, total = content(tmp_path / "whole"), len(writes)
    assert total > 25
    for limit in range(0, total, 3):
        writes.clear()
        with pytest.raises(Killed):
            prepare(source, tmp_path / "out", **options)
        if limit % 2:  # and once more, later
            limit, _ = limit + 7, writes.clear()
            try:
                prepare(source, tmp_path / "out", **options)
            except Killed:
                assert not (tmp_path / "out" / "manifest.json").exists()
        limit = None
        writes.clear()
        result = prepare(source, tmp_path / "out", **options)
        assert content(tmp_path / "out") == whole
        assert not result["already_prepared"] or not writes
        shutil.rmtree(tmp_path / "out")


COMMAND = [sys.executable, "-c", "from strang.cli import main; main()", "lda", "prepare"]


def test_kill_9_does_not_show(tmp_path):
    texts = make_texts(20_000)
    (tmp_path / "pages.xml.bz2").write_bytes(bz2.compress(dump(texts).encode(), 1))
    arguments = ["--vocabulary", str(write_words(tmp_path)), "--shard-documents", "4000", "--json"]
    command = [*COMMAND, str(tmp_path / "pages.xml.bz2"), str(tmp_path / "out"), *arguments]
    kills = 0
    prepare(tmp_path / "pages.xml.bz2", tmp_path / "whole", vocabulary=tmp_path / "words.txt", shard_documents=4000)
    while kills < 1:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        while process.poll() is None and not (tmp_path / "out" / "work").exists():
            time.sleep(0.01)
        time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout)["documents"] == 20_000
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_the_bytes_do_not_depend_on_the_threads(tmp_path):
    source, words = write_source("pages.xml-p1p9.bz2", tmp_path), write_words(tmp_path)
    for workers in (1, 3):
        prepare(source, tmp_path / f"{workers}", vocabulary=words, unit_bytes=500, shard_documents=20, workers=workers)
    assert content(tmp_path / "1") == content(tmp_path / "3")


def test_other_settings_are_refused_and_the_same_are_done(tmp_path, monkeypatch):
    source, words = write_source("rows.jsonl", tmp_path), write_words(tmp_path)
    prepare(source, tmp_path / "out", vocabulary=words)
    before = content(tmp_path / "out")
    assert prepare(source, tmp_path / "out", vocabulary=words)["already_prepared"]
    for changes, reason in (
        ({"seed": 1}, "seed"),
        ({"shard_documents": 5}, "shard-documents"),
        ({"vocabulary": None}, "vocabulary"),
        ({"source": write_source("pages.xml", tmp_path)}, "source"),
    ):
        arguments = {"source": source, "vocabulary": words, **changes}
        with pytest.raises(InputError, match=f"holds another corpus: its {reason} differ"):
            prepare(out=tmp_path / "out", **arguments)
    assert content(tmp_path / "out") == before

    def killed(*arguments):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "cut_shard", killed)
        with pytest.raises(Killed):
            prepare(source, tmp_path / "half", vocabulary=words)
    with pytest.raises(InputError, match="begun with other settings: its seed differ"):
        prepare(source, tmp_path / "half", vocabulary=words, seed=2)
    held = files.hold(tmp_path / "half" / "work" / "lock")
    with pytest.raises(InputError, match="another process"):
        prepare(source, tmp_path / "half", vocabulary=words)
    os.close(held)
    source.write_bytes(source.read_bytes()[:-20])
    with pytest.raises(InputError, match="its source differ"):
        prepare(source, tmp_path / "half", vocabulary=words)


@pytest.mark.parametrize(
    ("theirs", "refused"),
    [
        (["work/thesis.tex"], True),
        (["work/settings.json", "work/.vimrc.1"], True),
        (["work/lock", "notes.txt"], True),
        (["work"], True),
        (["work/lock", "work/.settings.json.123"], False),  # killed before its settings were written
    ],
)
def test_a_work_folder_of_others_is_left_alone(theirs, refused, tmp_path):
    source, words, out = write_source("rows.jsonl", tmp_path), write_words(tmp_path), tmp_path / "out"
    for name in theirs:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text('{"colour": "red"}')
    if refused:
        with pytest.raises(InputError, match="holds other files"):
            prepare(source, out, vocabulary=words)
        assert {path for path in out.rglob("*") if path.is_file()} == {out / name for name in theirs}
        assert all((out / name).read_text() == '{"colour": "red"}' for name in theirs)
    else:
        prepare(source, out, vocabulary=words)
        assert not (out / "work").exists()


def test_in_a_finished_corpus_only_ours_is_cleared_away(tmp_path, monkeypatch):
    source, words, out = write_source("rows.jsonl", tmp_path), write_words(tmp_path), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(preparing, "clear", refuse)
        with pytest.raises(Killed):
            prepare(source, out, vocabulary=words)
    (out / ".notes.2024").touch()
    held = files.hold(out / "work" / "lock")
    with pytest.raises(InputError, match="another process"):
        prepare(source, out, vocabulary=words)
    os.close(held)
    assert prepare(source, out, vocabulary=words)["already_prepared"]
    assert not (out / "work").exists()
    (out / "work").mkdir()
    (out / "work" / "thesis.tex").touch()
    assert prepare(source, out, vocabulary=words)["already_prepared"]
    assert (out / "work" / "thesis.tex").exists()
    assert (out / ".notes.2024").exists()


# -------------------------------------------------------------------------------------------------------- command line


def call(capsys, *arguments):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["strang", "lda", "prepare", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
    captured = capsys.readouterr()
    return end.value.code or 0, captured.out, captured.err


def test_the_command(capsys, tmp_path):
    source = write_source("pages.xml", tmp_path)
    status, out, _ = call(capsys, source, tmp_path / "out", "--vocabulary", write_words(tmp_path), "--json")
    result = json.loads(out)
    assert status == 0
    keys = "documents tokens nonzeros vocabulary shards seconds documents_per_second dropped damage already_prepared"
    assert set(keys.split()) <= set(result)
    assert result["documents_per_second"] == pytest.approx(60 / result["seconds"])
    status, out, _ = call(capsys, source, tmp_path / "out", "--vocabulary", tmp_path / "words.txt")
    assert "already prepared" in out
    assert "60 documents" in out
    source.write_text(dump(TEXTS)[:2000])
    status, out, err = call(capsys, source, tmp_path / "cut", "--vocabulary", tmp_path / "words.txt")
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert "--keep-good-part" in err
    status, out, _ = call(capsys, source, tmp_path / "cut", "--vocabulary", tmp_path / "words.txt", "--keep-good-part")
    assert status == 0
    assert "damaged and left out" in out


# ------------------------------------------------------------------------------------------------------------- tokens


def write_texts(folder, texts):
    path = folder / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def test_a_pattern_finds_tokens_of_another_kind(tmp_path, capsys, monkeypatch):
    source = write_texts(tmp_path, ["Use np.array, or Ünïcode\nrows", "np.array np.array C++ c++", "rows; c++ c"])
    options = {"min_documents": 1, "max_share": 1, "token_pattern": r"[\w.+]*\w[\w.+]*", "unit_bytes": 60}
    result = prepare(source, tmp_path / "out", **options)
    assert open_corpus(tmp_path / "out").words == ["c++", "np.array", "rows", "ünïcode"]  # use, or, c are stop words
    expected = [{"np.array": 1, "ünïcode": 1, "rows": 1}, {"np.array": 2, "c++": 2}, {"rows": 1, "c++": 1}]
    assert as_set(documents_of(tmp_path / "out")) == as_set(expected)
    assert result["outside_by_reason"] == {"stop_words": 3, "rare": 0, "common": 0, "beyond_words": 0}
    (tmp_path / "words.txt").write_text("np.array\nC++\nno!\n")
    given = prepare(source, tmp_path / "given", vocabulary=tmp_path / "words.txt", token_pattern=r"[\w.+]*\w[\w.+]*")
    assert (given["tokens"], given["unreachable_words"], given["outside_by_reason"]) == (6, 1, {})
    monkeypatch.setattr(sys, "argv", ["strang", "lda", "prepare", str(source), str(tmp_path / "out")])
    with pytest.raises(SystemExit):
        main()
    assert "its vocabulary and unit-bytes and tokens differ" in capsys.readouterr().err


@pytest.mark.parametrize(("pattern", "text"), [("(", "no regular expression"), ("(a)(b)", "2 groups")])
def test_bad_patterns_are_refused(pattern, text, tmp_path):
    with pytest.raises(InputError, match=text):
        prepare(write_texts(tmp_path, ["a"]), tmp_path / "out", token_pattern=pattern)


def test_it_says_why_tokens_are_outside_the_vocabulary(tmp_path):
    texts = ["the sea the whale", "sea sea whale rope", "whale sea mast sun", "sea sun the"]
    source = write_texts(tmp_path, texts)
    result = prepare(source, tmp_path / "out", min_documents=2, max_share=0.8, words=1)
    assert open_corpus(tmp_path / "out").words == ["whale"]
    assert result["outside_by_reason"] == {"stop_words": 3, "rare": 2, "common": 5, "beyond_words": 2}
    assert result["outside_vocabulary"] == 12
    line = preparing.describe(result)[-1]
    assert "12 tokens outside the vocabulary (3 of stop words, 2 of words in too few documents, 5" in line
