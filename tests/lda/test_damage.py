"""Sources that are damaged, cut short or no sources: reported with their place, and the good part taken on demand."""

import bz2
import collections
import gzip
import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as arrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from corpora import (
    EXPECTED,
    HEAD,
    TEXTS,
    WORDS,
    Killed,
    as_set,
    content,
    documents_of,
    dump,
    make_texts,
    page,
    refuse,
    write,
    write_source,
    write_words,
)
from strang.lda.corpus import open_corpus
from strang.lda.text import bzip, matrices, mediawiki, sources
from strang.lda.text import prepare as preparing
from strang.lda.text.prepare import prepare
from strang.util import files
from strang.util.errors import InputError


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(files.os, "fsync", lambda handle: None)


# -------------------------------------------------------------------------------------------------------------- damage


def good_part(source: Path, tmp_path: Path, message: str, **options) -> list[dict[str, int]]:
    """Refused with a place; without what is damaged on request."""
    options = {"vocabulary": tmp_path / "words.txt", **options}
    with pytest.raises(InputError, match=message):
        prepare(source, tmp_path / "out", **options)
    result = prepare(source, tmp_path / "out", keep_good_part=True, **options)
    assert result["damage"]
    return documents_of(tmp_path / "out")


@pytest.mark.parametrize("kind", ["pages.xml", "pages.xml.gz", "pages.xml-p1p9.bz2"])
def test_a_cut_dump(kind, tmp_path):
    write_words(tmp_path)
    text = dump(TEXTS)
    at = text.index("Page 41<") + 60
    begin = text.rindex("<page>", 0, at)
    pack = {".xml": bytes, ".gz": gzip.compress}.get(Path(kind).suffix, bz2.compress)
    (tmp_path / kind).write_bytes(pack(text[:at].encode()))
    documents = good_part(
        tmp_path / kind, tmp_path, f"the dump ends inside the page that begins at byte {begin:,} of the text"
    )
    assert as_set(documents) == as_set(collections.Counter(t.split()) for t in TEXTS[:41])
    (tmp_path / kind).write_bytes(pack(text[: begin - 2].encode()))
    shutil.rmtree(tmp_path / "out")
    documents = good_part(tmp_path / kind, tmp_path, "</mediawiki> is missing")
    assert as_set(documents) == as_set(collections.Counter(t.split()) for t in TEXTS[:41])


def test_a_broken_page_costs_only_itself(tmp_path):
    write_words(tmp_path)
    text = dump(TEXTS)
    for broken, message in (
        (text.replace("</text></revision></page>", "", 1), "a page begins inside another"),
        (text.replace("</text>", "", 1), "a page has no title or text"),
        (text.replace("<title>Talk</title>", "", 1), "a page has no title or text"),
        (text.replace("<title>Talk<", "<title>T\0lk<", 1), "a byte 0"),
    ):
        (tmp_path / "x.xml").write_text(broken)
        documents = good_part(tmp_path / "x.xml", tmp_path, f"{message}.* at byte {len(HEAD) + 2:,}")
        assert as_set(documents) == as_set(collections.Counter(t.split()) for t in TEXTS[1:])
        shutil.rmtree(tmp_path / "out")


def test_packed_dumps_that_are_cut_or_damaged(tmp_path):
    write_words(tmp_path)
    texts = make_texts(3000)
    packed = bz2.compress(dump(texts).encode(), 1)
    begins = [bit // 8 for bit, is_block in bzip.marks(packed) if is_block]
    assert len(begins) > 5
    (tmp_path / "x.xml.bz2").write_bytes(packed[: begins[3] + 50])
    documents = good_part(
        tmp_path / "x.xml.bz2", tmp_path, f"bzip2 block is damaged or cut at byte {begins[3]:,} of the file"
    )
    assert 0 < len(documents) < 3000
    assert not as_set(documents) - as_set(collections.Counter(t.split()) for t in texts)
    shutil.rmtree(tmp_path / "out")
    hole = bytearray(packed)
    hole[begins[2] + 999] ^= 16
    (tmp_path / "x.xml.bz2").write_bytes(hole)
    more = good_part(tmp_path / "x.xml.bz2", tmp_path, f"at byte {begins[2]:,} of the file", unit_bytes=100_000)
    assert len(documents) < len(more) < 3000  # what is behind the hole is read again
    assert not as_set(more) - as_set(collections.Counter(t.split()) for t in texts)
    shutil.rmtree(tmp_path / "out")
    squeezed = gzip.compress(dump(texts).encode())
    (tmp_path / "x.xml.gz").write_bytes(squeezed[: len(squeezed) // 2])
    documents = good_part(
        tmp_path / "x.xml.gz", tmp_path, f"cut inside its gzip data at byte {len(squeezed) // 2:,} of the file"
    )
    assert 1000 < len(documents) < 2000


@pytest.mark.parametrize(
    "line",
    ["{", "[1]", '{"title": "x"}', '{"text": 3}', "nonsense", '{"text": "\udcff"}', "[" * 99_999, '{"text": ["a"]}'],
)
def test_a_line_that_is_no_record(line, tmp_path):
    write_words(tmp_path)
    lines = write_source("rows.jsonl", tmp_path).read_bytes().splitlines(keepends=True)
    lines.insert(7, line.encode(errors="surrogateescape") + b"\n")
    (tmp_path / "rows.jsonl").write_bytes(b"".join(lines))
    documents = good_part(
        tmp_path / "rows.jsonl", tmp_path, f"no JSON object with a field text at byte {sum(map(len, lines[:7])):,}"
    )
    assert as_set(documents) == EXPECTED


@pytest.mark.parametrize("options", [{"words": 50}, {"vocabulary": "words.txt"}])
@pytest.mark.parametrize("keep", [False, True])
def test_what_is_mended_is_read_again(options, keep, tmp_path, monkeypatch):
    write_words(tmp_path)
    options = {name: tmp_path / value if name == "vocabulary" else value for name, value in options.items()}
    options |= {"unit_bytes": 1000, "shard_documents": 20, "workers": 1}
    source = write(tmp_path, "x.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in TEXTS * 20))
    good = source.read_bytes()
    prepare(source, tmp_path / "whole", **options)
    bad = bytearray(good)
    bad[good.find(b"text", len(good) // 2)] = ord("n")
    source.write_bytes(bad)
    with monkeypatch.context() as patch:
        patch.setattr(preparing, "checksum", refuse)  # all but the manifest is there
        with pytest.raises((InputError, Killed)):
            prepare(source, tmp_path / "out", keep_good_part=keep, **options)
    source.write_bytes(good)
    result = prepare(source, tmp_path / "out", **options)
    assert result["documents"] == len(TEXTS) * 20
    assert not result["damage"]
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_rows_without_text_are_empty_documents(tmp_path):
    parquet.write_table(arrow.table({"text": [TEXTS[0], None, "", "!", TEXTS[1]]}), tmp_path / "x.parquet")
    result = prepare(tmp_path / "x.parquet", tmp_path / "out", vocabulary=write_words(tmp_path))
    assert (result["documents"], result["dropped"]["empty_documents"]) == (2, 3)


def test_a_picture_among_the_texts(tmp_path):
    write_words(tmp_path)
    source = write_source("files", tmp_path)
    (source / "30a.png").write_bytes(b"PNG\0\0")
    assert as_set(good_part(source, tmp_path, "30a.png is no text: it has a zero at byte 3")) == EXPECTED


# ----------------------------------------------------------------------------------------------------------- bad input


HEADER = f"2\n{len(WORDS)}\n"
BAD = [
    ("x.npz", {"indptr": [0, 1], "indices": [0], "counts": [-1]}, "document 0 has the count -1"),
    ("x.npz", {"indptr": [0, 1], "indices": [0], "counts": [0.5]}, "document 0 has the count 0.5"),
    ("x.npz", {"indptr": [0, 1], "indices": [120], "counts": [1]}, "document 0 has the word id 120"),
    ("x.npz", {"indptr": [0, 1], "indices": [0]}, "no array 'data'"),
    ("x.npz", {"indptr": [0, 2], "indices": [0], "counts": [1]}, "ends with 2"),
    ("x.npz", {"indptr": [1, 0], "indices": [0], "counts": [1]}, "never fall"),
    ("x.npz", {"indptr": [0], "indices": [], "counts": []}, "no document of"),
    ("x.npz", {"indptr": [0, 0], "indices": [], "counts": []}, "no document of"),
    ("x.npz", {"indptr": [[0, 1]], "indices": [0], "counts": [1]}, "damaged or no .npz"),
    ("x.npz", {"indptr": [0, 1], "indices": [0], "data": [1], "shape": [1, 99]}, "99.* columns"),
    ("x.npz", {"indptr": [0, 1], "indices": [0], "data": [1], "format": b"csc"}, "no CSR matrix"),
    ("x.npz", b"PK nonsense", "damaged or no .npz"),
    ("docword.txt", HEADER + "1\n1 1 -1\n", "line 4 of .* is '1 1 -1'"),
    ("docword.txt", HEADER + "2\n1 1 1\n1 2 0.5\n", "line 5 of .* is '1 2 0.5'"),
    ("docword.txt", HEADER + "1\n1 121 1\n", "line 4 of .* has the word 121"),
    ("docword.txt", HEADER + "1\n1 0 1\n", "line 4 of .* has the word 0"),
    ("docword.txt", HEADER + "2\n2 1 1\n1 1 1\n", "not numbered from 1 to 2"),
    ("docword.txt", HEADER + "1\n3 1 1\n", "not numbered from 1 to 2"),
    ("docword.txt", HEADER + "3\n1 1 1\n1 2 1\n", "ends after 2 of 3 counts"),
    ("docword.txt", HEADER + "3\n1 1 1\n1 2 1\n2 ", "ends after 2 of 3 counts"),
    ("docword.txt", HEADER + "1\n1 1 1\n1 2 1\n", "2 lines of counts, its head says 1"),
    ("docword.txt", HEADER + "1\n1 1 99999999999999999999\n", "three whole numbers"),
    ("docword.txt", "2\n7\n1\n1 1 1\n", "about 7 words, its vocabulary has 120"),
    ("docword.txt", "", "does not begin with three numbers"),
    ("x.xml", "<html>", "no MediaWiki dump"),
    ("x.xml", "", "no MediaWiki dump"),
    ("x.xml", HEAD + "</mediawiki>", "no document of"),
    ("x.xml.bz2", b"BZh nonsense", "no bzip2 file"),
    ("x.xml.gz", b"nonsense", "no gzip file"),
    ("x.jsonl", "", "no document of"),
    ("x.jsonl", '{"text": "!?"}\n', "no document of"),
    ("x.parquet", b"PAR1 nonsense", "damaged or no Parquet"),
    ("x.txt", "just words", "none of what is known"),
    ("nothing", None, "there is no"),
]


@pytest.mark.parametrize(("name", "data", "message"), BAD)
def test_bad_sources(name, data, message, tmp_path):
    source = tmp_path / name if data is None else write(tmp_path, name, data)
    with pytest.raises(InputError, match=message):
        prepare(source, tmp_path / "out", vocabulary=write_words(tmp_path))
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    source = write(tmp_path, "x.parquet", b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"needs pyarrow.*strang\[lda\]"):
        prepare(source, tmp_path / "out")


def test_parquet_of_another_shape(tmp_path):
    for table, message in (({"body": ["a"]}, "no column text; it has body"), ({"text": [1]}, "holds int64")):
        parquet.write_table(arrow.table(table), tmp_path / "x.parquet")
        with pytest.raises(InputError, match=message):
            prepare(tmp_path / "x.parquet", tmp_path / "out")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (b"", "is empty"),
        (b"a\n\nb\n", "line 2 of .* is empty"),
        (b"a\nb\na\n", "the word 'a' twice, in lines 1 and 3"),
        (b"Apple\napple\n", "twice"),
        (b"a\n\xff\n", "not UTF-8 text: see byte 2"),
        (None, "cannot read"),
    ],
)
def test_bad_vocabularies(words, message, tmp_path):
    source = write_source("rows.jsonl", tmp_path)
    if words is not None:
        (tmp_path / "bad.txt").write_bytes(words)
    with pytest.raises(InputError, match=message):
        prepare(source, tmp_path / "out", vocabulary=tmp_path / "bad.txt")


def test_a_vocabulary_is_lowered_and_unreachable_words_are_counted(tmp_path):
    (tmp_path / "words.txt").write_bytes("\ufeffNone\r\nx-ray\r\ncafé\r\n\r\n".encode())
    (tmp_path / "rows.jsonl").write_text(json.dumps({"text": "NONE of the x-ray café"}))
    result = prepare(tmp_path / "rows.jsonl", tmp_path / "out", vocabulary=tmp_path / "words.txt")
    assert (result["vocabulary"], result["tokens"], result["unreachable_words"], result["outside_vocabulary"]) == (
        3,
        1,
        2,
        5,
    )
    assert open_corpus(tmp_path / "out").words == ["none", "x-ray", "café"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed is -1"),
        ({"words": 0}, "words is 0"),
        ({"min_documents": 0}, "min-documents is 0"),
        ({"max_share": 0.0}, "max-share is 0"),
        ({"max_share": float("nan")}, "max-share is nan"),
        ({"shard_documents": 0}, "shard-documents is 0"),
        ({"workers": 0}, "workers is 0"),
        ({"vocabulary": "words.txt", "words": 5}, "the vocabulary is given"),
        ({"stop_words": "missing.txt"}, "cannot read"),
        ({"out": "rows.jsonl"}, "is a file|lies in"),
        ({"out": "full"}, "holds other files"),
        ({"source": "mixed"}, "json and parquet files"),
        ({"source": "full", "out": "full/out"}, "lies in"),
        ({"source": "empty"}, "empty folder"),
        ({"source": "counts.npz"}, "write --vocabulary FILE"),
    ],
)
def test_bad_requests(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_words(tmp_path)
    write_source("counts.npz", tmp_path)
    for folder, names in (("full", ["a"]), ("mixed", ["a.jsonl", "b.parquet"]), ("empty", [".hidden"])):
        Path(folder).mkdir()
        for name in names:
            Path(folder, name).write_text("x")
    arguments = {"source": write_source("rows.jsonl", tmp_path).name, "out": "out", **options}
    with pytest.raises(InputError, match=message):
        prepare(**arguments)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(
        [
            "pages.xml.gz",
            "pages.xml-p1p9.bz2",
            "pages.xml",
            "rows.jsonl",
            "rows.parquet",
            "docword.x.txt.gz",
            "counts.npz",
        ]
    ),
    st.floats(0, 1),
    st.booleans(),
    st.binary(max_size=3),
)
def test_damaged_sources_are_errors_or_lose_only_what_is_damaged(kind, place, cut, extra):
    with tempfile.TemporaryDirectory() as folder:
        tmp_path = Path(folder)
        source = write_source(kind, tmp_path, TEXTS[:20])
        data = source.read_bytes()
        at = int(place * (len(data) - 1))
        source.write_bytes(data[:at] if cut else data[:at] + extra + data[at + 1 :])
        try:
            result = prepare(
                source,
                tmp_path / "out",
                vocabulary=write_words(tmp_path),
                unit_bytes=900,
                keep_good_part=True,
                workers=1,
            )
        except InputError:
            return
        assert result["documents"] <= 20
        assert len(documents_of(tmp_path / "out")) == result["documents"]


# -------------------------------------------------------------------------------------------------------------- memory


def test_a_few_blocks_that_are_much_text_are_damage(tmp_path, monkeypatch):
    """Packed repetitions: 1,000 bytes of them are gigabytes, of which no more than a page is unpacked."""
    monkeypatch.setattr(mediawiki, "MAX_PAGE_BYTES", 1 << 20)
    source, bomb = tmp_path / "pages.xml.bz2", page("Bomb", "a" * 5_000_000) + "</mediawiki>\n"
    source.write_bytes(bz2.compress(dump(TEXTS).replace("</mediawiki>\n", "").encode()) + bz2.compress(bomb.encode()))
    with pytest.raises(InputError, match="more than 1 MB of text come out of a few blocks at byte"):
        prepare(source, tmp_path / "out", vocabulary=write_words(tmp_path))
    result = prepare(source, tmp_path / "good", vocabulary=write_words(tmp_path), keep_good_part=True)
    assert result["documents"] == len(TEXTS)


def test_a_text_file_has_the_size_of_a_document(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MAX_PAGE_BYTES", 100)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a").write_text("ban bar")
    (tmp_path / "texts" / "b").write_text("ban " * 30)
    with pytest.raises(InputError, match="b is larger than a document may be, and goes on at byte 100 of the file"):
        prepare(tmp_path / "texts", tmp_path / "out", vocabulary=write_words(tmp_path))
    result = prepare(tmp_path / "texts", tmp_path / "good", vocabulary=write_words(tmp_path), keep_good_part=True)
    assert result["tokens"] == 2


def test_lists_of_words_do_not_go_on_for_ever(tmp_path):
    with pytest.raises(InputError, match=r"/dev/zero has more than 64 MB; a list of words has one per line\."):
        prepare(write_source("rows.jsonl", tmp_path), tmp_path / "out", vocabulary="/dev/zero")


@pytest.mark.parametrize("name", ["indptr", "indices"])
def test_arrays_that_would_fill_the_memory_are_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr(matrices, "MAX_ARRAY_BYTES", 1000)
    arrays = {"indptr": np.zeros(500, int)} if name == "indptr" else {"indptr": [0, 500]}
    arrays |= {"indices": np.zeros(arrays["indptr"][-1], int), "counts": np.ones(arrays["indptr"][-1], int)}
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    with pytest.raises(InputError, match="of an array would be read at once"):
        prepare(tmp_path / "x.npz", tmp_path / "out", vocabulary=write_words(tmp_path))


def test_row_groups_and_documents_that_would_fill_the_memory_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MAX_ARRAY_BYTES", 100)
    with pytest.raises(InputError, match=r"row group 0 of .* unpacks to"):
        prepare(write_source("rows.parquet", tmp_path), tmp_path / "out", vocabulary=write_words(tmp_path))
    monkeypatch.setattr(matrices, "MAX_ARRAY_BYTES", 100)
    write(tmp_path, "docword.txt", "1\n120\n9\n" + "1 1 1\n" * 9)
    with pytest.raises(InputError, match=r"a document of .* has more than 9 lines"):
        prepare(tmp_path / "docword.txt", tmp_path / "out", vocabulary=write_words(tmp_path))
