"""From any source to shards: the words a reader sees, a true shuffle, the same bytes after any kill, damage told."""

import bz2
import collections
import gzip
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from html import escape
from pathlib import Path

import numpy as np
import pyarrow as arrow
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from strang import files
from strang.cli import main
from strang.errors import InputError
from strang.lda import bzip, passes, pieces, tokens
from strang.lda import prepare as preparing
from strang.lda.corpus import open_corpus
from strang.lda.prepare import prepare
from strang.lda.units import parts
from strang.lda.wikitext import strip


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(files.os, "fsync", lambda handle: None)


# ---------------------------------------------------------------------------------------------------------- wikitext


def words_in(wikitext: str) -> list[str]:
    prose = strip(tokens.join([wikitext.encode()]))
    return re.sub("[^A-Za-z0-9\\s]", "", prose.text.tobytes().decode()).split()


@pytest.mark.parametrize(
    ("wikitext", "words"),
    [
        ("plain {{a|b={{c}}}} text", "plain text"),
        ("x {{{param|default}}} y", "x y"),
        ("[[apple tree|apple]]s and [[pear]]s", "apples and pears"),
        ("[[File:a.jpg|thumb|left|A [[red|rose]] in May]] end", "A rose in May end"),
        ("[[Image:a.jpg|thumb|right]] end", "end"),
        ("[[Media:a.ogg]] end", "end"),
        ("[[Food: A History]] [[India: A Civilization]]", "Food A History India A Civilization"),
        ("a<ref>b</references> c</ref> d", "a d"),
        ("[[Category:Plants|*]][[de:Pflanze]][[zh-min-nan:X]] end", "end"),
        ("[[Star Trek: Voyager]] [[wikt:word|word]]", "Star Trek Voyager word"),
        ("a<!-- b [[c]] -->d", "a d"),
        ('a<ref name="x">b {{c}}</ref> d<ref name="y" /> e', "a d e"),
        ("<math>\\frac{{a}}{b}}</math> f {{t|<math>}}</math>}} g", "f g"),
        ("H<sub>2</sub>O<br/>and a < b > c", "H 2 O and a b c"),
        ("[http://x.org/a-b?c the label] http://y.org/the-book. end", "the label end"),
        ("a\n{| class=x\n| b || {{c|}} [[d]]\n|-\n| {|\n| e\n|}\n|}\nf", "a f"),
        ("{{t|\n{| \n| a\n|}}} b", "b"),
        ("a&nbsp;b &mdash; AT&T &#160;c", "a b ATT c"),
        ("never {{closed [[at all", "never closed at all"),
        ("never opened }} ]] |} end", "never opened end"),
        ("<!-- never closed", "never closed"),
        ("<ref>never closed", "never closed"),
        ("a <REF>b</Ref> <Nowiki>c</nowiki>", "a c"),
        ("[[a|b", "b"),
    ],
)
def test_what_a_reader_sees(wikitext, words):
    assert words_in(wikitext) == words.split()


letters = st.text("abc ", min_size=1, max_size=8)


def wrapped(inner):
    """Pairs (wikitext, what is seen of it) around others."""

    def either(*forms):
        return st.one_of(*(inner.map(form) for form in forms))

    return st.one_of(
        st.lists(inner, max_size=4).map(lambda parts: ("".join(p[0] for p in parts), "".join(p[1] for p in parts))),
        either(
            lambda p: ("{{x|" + p[0] + "}}", " "),
            lambda p: ("\n{|\n| " + p[0] + "\n|}", "\n "),
            lambda p: ("<i>" + p[0] + "</i>", " " + p[1] + " "),
            lambda p: ("[[target|" + p[0] + "]]", p[1]),
            lambda p: ("[[Category:" + p[0] + "]]", ""),
            lambda p: ("[[File:x|thumb|two words " + p[0] + "]]", "two words " + p[1]),
        ),
        letters.map(lambda text: ("<ref>" + text + "{{</ref>", " ")),
        letters.map(lambda text: ("<!--" + text + "]]}}-->", " ")),
    )


trees = st.recursive(letters.map(lambda text: (text, text)), wrapped, max_leaves=12)


@settings(max_examples=150, deadline=None)
@given(trees)
def test_nested_markup(tree):
    assert words_in(tree[0]) == tree[1].split()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "{{",
                "}}",
                "[[",
                "]]",
                "{|",
                "|}",
                "|",
                "<ref>",
                "</ref>",
                "<!--",
                "-->",
                "<",
                ">",
                "&",
                ";",
                "://",
                "File:",
                "Category:",
                "de:",
                "a",
                " ",
                "\n",
                "é",
            ]
        ),
        max_size=40,
    )
)
@example(["{{"] * 100 + ["}}"] * 100)
def test_any_brackets_only_ever_take_away(parts):
    text = "".join(parts).encode()
    prose = strip(tokens.join([text, b"next"])).text.tobytes()
    assert prose.endswith(b"next")
    assert len(prose) <= len(text) + 4
    left = collections.Counter(prose[:-4].replace(b" ", b""))
    assert not left - collections.Counter(text)


def test_time_is_linear():
    seconds = []
    for size in (30_000, 300_000):
        texts = [part * size for part in (b"{{", b"[[", b"}}[[", b"<ref>", b"<!--", b"<a", b"&", b"[[File:a|")]
        best = []
        for _ in range(3):
            began = time.process_time()
            strip(tokens.join(texts))
            best.append(time.process_time() - began)
        seconds.append(min(best))
    assert seconds[1] < 40 * seconds[0] + 0.5  # quadratic would be 100 times


# ------------------------------------------------------------------------------------------------------------- bzip2


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 250_000), st.integers(1, 9)), min_size=1, max_size=4),
    st.integers(3000, 200_000),
)
def test_blocks_are_the_file(streams, step):
    dice = random.Random(0)
    texts = [dice.randbytes(size // 4) + bytes(size - size // 4) for size, _ in streams]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.bz2"
        path.write_bytes(b"".join(bz2.compress(t, level) for t, (_, level) in zip(texts, streams, strict=True)))
        size = path.stat().st_size
        found = [block for at in range(0, size, step) for block in bzip.blocks(path, at, min(at + step, size))]
    assert b"".join(block.text for block in found) == b"".join(texts)
    assert len({block.begin for block in found}) == len(found)


def test_small_streams_may_be_cut_anywhere(tmp_path):
    texts = [bytes([byte]) * 20 for byte in range(60)]
    path = tmp_path / "x.bz2"
    path.write_bytes(b"".join(map(bz2.compress, texts)))
    size = path.stat().st_size
    for cut in range(1, size):
        found = [*bzip.blocks(path, 0, cut), *bzip.blocks(path, cut, size)]
        assert [block.text for block in found] == texts


# ----------------------------------------------------------------------------------------------------------- sources

WORDS = [a + b + c for a, b, c in itertools.product("bdfklm", "aeiou", "nrst")]  # 120
HEAD = '<mediawiki xml:lang="en"><siteinfo><namespaces><namespace key="0" /><namespace key="1">Talk</namespace>'
HEAD += '<namespace key="10">Template</namespace></namespaces></siteinfo>\n'


def make_texts(number: int, seed: int = 0) -> list[str]:
    dice = random.Random(seed)
    return [" ".join(dice.choices(WORDS, weights=range(1, 121), k=dice.randint(3, 30))) for _ in range(number)]


TEXTS = make_texts(60)


def page(title: str, text: str, number: int | None = 0, extra: str = "") -> str:
    number = "" if number is None else f"<ns>{number}</ns>"
    return (
        f"  <page><title>{escape(title)}</title>{number}<id>1</id>{extra}<revision><id>2</id><comment>no</comment>"
        f'<text bytes="9" xml:space="preserve">{escape(text)}</text></revision></page>\n'
    )


def dump(texts: list[str]) -> str:
    found = []
    for number, text in enumerate(texts):
        found.append(
            page(f"Page {number}", f"{{{{Box|hidden}}}}'''{text}'''<ref>hidden & gone</ref>", number % 2 or None)
        )
    found = [part.replace("<ns>1</ns>", "<ns>0</ns>") for part in found]
    found.insert(3, page("Old", "#redirect [[New]]"))
    found.insert(5, page("Older", "moved", extra='<redirect title="New" />'))
    found.insert(9, page("Template:Box", "hidden", 10))
    found.insert(11, page("Talk:Page", "hidden", None))
    found[0] = found[0].replace("Page 0", "Talk")  # an article, though a namespace has its name
    return HEAD + "".join(found) + "</mediawiki>\n"


def write_words(folder: Path) -> Path:
    path = folder / "words.txt"
    path.write_text("\n".join(WORDS) + "\n")
    return path


def uci(texts: list[str]) -> str:
    lines = []
    for number, text in enumerate(texts, start=1):
        counts = collections.Counter(text.split())
        lines += [f"{number} {WORDS.index(word) + 1} {count}" for word, count in counts.items()]
    return "\n".join([str(len(texts)), str(len(WORDS)), str(len(lines)), *lines]) + "\n"


def write_source(kind: str, folder: Path, texts: list[str] = TEXTS) -> Path:
    """The texts as a source of some kind."""
    path = folder / kind
    data = dump(texts).encode()
    records = "".join(json.dumps({"id": n, "title": "t", "text": text}) + "\n" for n, text in enumerate(texts)).encode()
    counted = uci(texts).encode()
    if kind == "pages.xml-p1p9.bz2":
        path.write_bytes(bz2.compress(data[:5000], 1) + bz2.compress(data[5000:], 1))  # two streams, inside a page
    elif kind == "pages.xml.gz":
        path.write_bytes(gzip.compress(data[:5000]) + gzip.compress(data[5000:]))
    elif kind in ("pages.xml", "unnamed"):
        path.write_bytes(data)
    elif kind == "rows.jsonl.gz":
        path.write_bytes(gzip.compress(records))
    elif kind == "rows.jsonl":
        path.write_bytes(records)
    elif kind == "rows.parquet":
        parquet.write_table(arrow.table({"title": texts, "text": texts}), path, row_group_size=7)
    elif kind == "parts":
        path.mkdir()
        for number in range(3):
            part = arrow.table({"text": arrow.array(texts[number::3], arrow.large_string())})
            parquet.write_table(part, path / f"{number}.parquet")
        (path / ".hidden").write_text("no")
    elif kind == "files":
        path.mkdir()
        for number, text in enumerate(texts):
            (path / f"{number}").write_text(text)
    elif kind == "docword.x.txt.gz":
        path.write_bytes(gzip.compress(counted))
        shutil.copy(write_words(folder), folder / "vocab.x.txt")
    elif kind == "counts.npz":
        rows = np.array([[int(part) for part in line.split()] for line in counted.decode().splitlines()[3:]])
        indptr = np.append(0, np.cumsum(np.bincount(rows[:, 0] - 1)))
        np.savez_compressed(
            path, indptr=indptr, indices=(rows[:, 1] - 1).astype(np.uint16), counts=rows[:, 2].astype(float)
        )
    return path


KINDS = [
    "pages.xml",
    "pages.xml.gz",
    "pages.xml-p1p9.bz2",
    "unnamed",
    "rows.jsonl",
    "rows.jsonl.gz",
    "rows.parquet",
    "parts",
    "files",
    "docword.x.txt.gz",
    "counts.npz",
]


def documents_of(folder: Path) -> list[dict[str, int]]:
    corpus = open_corpus(folder, verify=True)
    indptr, ids, counts = corpus.gather(np.arange(corpus.documents))
    pairs = [(corpus.words[word], count) for word, count in zip(ids.tolist(), counts.tolist(), strict=True)]
    return [dict(pairs[begin:end]) for begin, end in itertools.pairwise(indptr)]


def as_set(documents) -> collections.Counter:
    return collections.Counter(frozenset(document.items()) for document in documents)


EXPECTED = as_set(collections.Counter(text.split()) for text in TEXTS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unit", [700, 16 << 20])
def test_every_source_gives_the_same_documents(kind, unit, tmp_path):
    source = write_source(kind, tmp_path)
    vocabulary = None if kind.startswith("docword") else write_words(tmp_path)
    found = prepare(source, tmp_path / "out", vocabulary=vocabulary, unit_bytes=unit, shard_documents=25, workers=2)
    assert (found["documents"], found["shards"], found["vocabulary"]) == (60, 2, 120)
    assert found["tokens"] == sum(len(text.split()) for text in TEXTS)
    assert found["outside_vocabulary"] == 0
    assert as_set(documents_of(tmp_path / "out")) == EXPECTED
    if "xml" in kind:
        assert found["dropped"] == {"redirects": 2, "other_namespaces": 2, "empty_documents": 0}
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
    keys = np.concatenate([pieces.keys_of(7, number, size) for number, size in enumerate(sizes)])
    assert lengths == (1 + np.argsort(keys)).tolist()

    def statistic(orders):
        seen = np.array(list(collections.Counter(map(tuple, orders)).values()))
        return (((seen - 100) ** 2).sum() + (24 - len(seen)) * 100**2) / 100

    draws = [np.concatenate([pieces.keys_of(seed, 0, 2), pieces.keys_of(seed, 1, 2)]) for seed in range(2400)]
    assert statistic([np.argsort(draw).tolist() for draw in draws]) < 71
    assert statistic([[*np.argsort(draw[:2]), *(2 + np.argsort(draw[2:]))] for draw in draws]) > 71  # only within units


def test_a_vocabulary_is_built(tmp_path):
    source = write_source("pages.xml", tmp_path)
    inside = collections.Counter(word for text in TEXTS for word in set(text.split()))
    options = {"words": 40, "min_documents": 4, "max_share": 0.2, "unit_bytes": 900}
    (tmp_path / "stop.txt").write_text(f"{WORDS[-1].upper()}\n{WORDS[60]}\n")
    found = prepare(source, tmp_path / "out", stop_words=tmp_path / "stop.txt", **options)
    fit = [(-n, word) for word, n in inside.items() if 4 <= n <= 12 and word not in (WORDS[-1], WORDS[60])]
    expected = [word for _, word in sorted(fit)[:40]]
    assert open_corpus(tmp_path / "out").words == expected
    kept = [{w: n for w, n in collections.Counter(text.split()).items() if w in expected} for text in TEXTS]
    assert as_set(documents_of(tmp_path / "out")) == as_set(document for document in kept if document)
    assert found["dropped"]["empty_documents"] == sum(not document for document in kept)
    assert found["tokens"] + found["outside_vocabulary"] == sum(len(text.split()) for text in TEXTS)
    with pytest.raises(InputError, match="none of the 116 words is in at least 61"):
        prepare(source, tmp_path / "none", min_documents=61)
    assert (
        found["documents"]
        == prepare(source, tmp_path / "out", stop_words=tmp_path / "stop.txt", **options)["documents"]
    )


def test_stop_words_are_english_by_default(tmp_path):
    (tmp_path / "texts").mkdir()
    for number in range(6):
        (tmp_path / "texts" / f"{number}.txt").write_text("The whale and the sea" + " calm" * (number % 2))
    prepare(tmp_path / "texts", tmp_path / "out", max_share=1.0, min_documents=3)
    assert open_corpus(tmp_path / "out").words == ["sea", "whale", "calm"]


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


class Killed(BaseException):
    pass


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


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
        files.replace_file(path, data)

    for module in (preparing, pieces):
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
        found = prepare(source, tmp_path / "out", **options)
        assert content(tmp_path / "out") == whole
        assert not found["already_prepared"] or not writes
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
        patch.setattr(passes, "cut_shard", killed)
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


# -------------------------------------------------------------------------------------------------------------- damage


def good_part(source: Path, tmp_path: Path, message: str, **options) -> list[dict[str, int]]:
    """Refused with a place; without what is damaged on request."""
    options = {"vocabulary": tmp_path / "words.txt", **options}
    with pytest.raises(InputError, match=message):
        prepare(source, tmp_path / "out", **options)
    found = prepare(source, tmp_path / "out", keep_good_part=True, **options)
    assert found["damage"]
    return documents_of(tmp_path / "out")


@pytest.mark.parametrize("kind", ["pages.xml", "pages.xml.gz", "pages.xml-p1p9.bz2"])
def test_a_cut_dump(kind, tmp_path):
    write_words(tmp_path)
    text = dump(TEXTS)
    at = text.index("Page 41<") + 60
    begin = text.rindex("<page>", 0, at)
    pack = {".xml": bytes, ".gz": gzip.compress}.get(Path(kind).suffix, bz2.compress)
    (tmp_path / kind).write_bytes(pack(text[:at].encode()))
    found = good_part(
        tmp_path / kind, tmp_path, f"the dump ends inside the page that begins at byte {begin:,} of the text"
    )
    assert as_set(found) == as_set(collections.Counter(t.split()) for t in TEXTS[:41])
    (tmp_path / kind).write_bytes(pack(text[: begin - 2].encode()))
    shutil.rmtree(tmp_path / "out")
    found = good_part(tmp_path / kind, tmp_path, "</mediawiki> is missing")
    assert as_set(found) == as_set(collections.Counter(t.split()) for t in TEXTS[:41])


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
        found = good_part(tmp_path / "x.xml", tmp_path, f"{message}.* at byte {len(HEAD) + 2:,}")
        assert as_set(found) == as_set(collections.Counter(t.split()) for t in TEXTS[1:])
        shutil.rmtree(tmp_path / "out")


def test_packed_dumps_that_are_cut_or_damaged(tmp_path):
    write_words(tmp_path)
    texts = make_texts(3000)
    packed = bz2.compress(dump(texts).encode(), 1)
    begins = [bit // 8 for bit, is_block in bzip.marks(packed) if is_block]
    assert len(begins) > 5
    (tmp_path / "x.xml.bz2").write_bytes(packed[: begins[3] + 50])
    found = good_part(
        tmp_path / "x.xml.bz2", tmp_path, f"bzip2 block is damaged or cut at byte {begins[3]:,} of the file"
    )
    assert 0 < len(found) < 3000
    assert not as_set(found) - as_set(collections.Counter(t.split()) for t in texts)
    shutil.rmtree(tmp_path / "out")
    hole = bytearray(packed)
    hole[begins[2] + 999] ^= 16
    (tmp_path / "x.xml.bz2").write_bytes(hole)
    more = good_part(tmp_path / "x.xml.bz2", tmp_path, f"at byte {begins[2]:,} of the file", unit_bytes=100_000)
    assert len(found) < len(more) < 3000  # what is behind the hole is read again
    assert not as_set(more) - as_set(collections.Counter(t.split()) for t in texts)
    shutil.rmtree(tmp_path / "out")
    squeezed = gzip.compress(dump(texts).encode())
    (tmp_path / "x.xml.gz").write_bytes(squeezed[: len(squeezed) // 2])
    found = good_part(
        tmp_path / "x.xml.gz", tmp_path, f"cut inside its gzip data at byte {len(squeezed) // 2:,} of the file"
    )
    assert 1000 < len(found) < 2000


@pytest.mark.parametrize(
    "line",
    ["{", "[1]", '{"title": "x"}', '{"text": 3}', "nonsense", '{"text": "\udcff"}', "[" * 99_999, '{"text": ["a"]}'],
)
def test_a_line_that_is_no_record(line, tmp_path):
    write_words(tmp_path)
    lines = write_source("rows.jsonl", tmp_path).read_bytes().splitlines(keepends=True)
    lines.insert(7, line.encode(errors="surrogateescape") + b"\n")
    (tmp_path / "rows.jsonl").write_bytes(b"".join(lines))
    found = good_part(
        tmp_path / "rows.jsonl", tmp_path, f"no JSON object with a field text at byte {sum(map(len, lines[:7])):,}"
    )
    assert as_set(found) == EXPECTED


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
    found = prepare(source, tmp_path / "out", **options)
    assert found["documents"] == len(TEXTS) * 20
    assert not found["damage"]
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def refuse(*_):
    raise Killed


def test_rows_without_text_are_empty_documents(tmp_path):
    parquet.write_table(arrow.table({"text": [TEXTS[0], None, "", "!", TEXTS[1]]}), tmp_path / "x.parquet")
    found = prepare(tmp_path / "x.parquet", tmp_path / "out", vocabulary=write_words(tmp_path))
    assert (found["documents"], found["dropped"]["empty_documents"]) == (2, 3)


def test_a_picture_among_the_texts(tmp_path):
    write_words(tmp_path)
    source = write_source("files", tmp_path)
    (source / "30a.png").write_bytes(b"PNG\0\0")
    assert as_set(good_part(source, tmp_path, "30a.png is no text: it has a zero at byte 3")) == EXPECTED


# ----------------------------------------------------------------------------------------------------------- bad input


def write(folder: Path, name: str, data) -> Path:
    path = folder / name
    if isinstance(data, dict):
        np.savez(path, **data)
    elif isinstance(data, bytes):
        path.write_bytes(data)
    else:
        path.write_text(data)
    return path


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


def test_a_vocabulary_is_lowered_and_strange_words_are_told(tmp_path):
    (tmp_path / "words.txt").write_bytes("\ufeffNone\r\nx-ray\r\ncafé\r\n\r\n".encode())
    (tmp_path / "rows.jsonl").write_text(json.dumps({"text": "NONE of the x-ray café"}))
    found = prepare(tmp_path / "rows.jsonl", tmp_path / "out", vocabulary=tmp_path / "words.txt")
    assert (found["vocabulary"], found["tokens"], found["unreachable_words"], found["outside_vocabulary"]) == (
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
            found = prepare(
                source,
                tmp_path / "out",
                vocabulary=write_words(tmp_path),
                unit_bytes=900,
                keep_good_part=True,
                workers=1,
            )
        except InputError:
            return
        assert found["documents"] <= 20
        assert len(documents_of(tmp_path / "out")) == found["documents"]


# -------------------------------------------------------------------------------------------------------- command line


def call(capsys, *arguments):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["strang", "lda", "prepare", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
    told = capsys.readouterr()
    return end.value.code or 0, told.out, told.err


def test_the_command(capsys, tmp_path):
    source = write_source("pages.xml", tmp_path)
    status, out, _ = call(capsys, source, tmp_path / "out", "--vocabulary", write_words(tmp_path), "--json")
    found = json.loads(out)
    assert status == 0
    keys = "documents tokens nonzeros vocabulary shards seconds documents_per_second dropped damage already_prepared"
    assert set(keys.split()) <= set(found)
    assert found["documents_per_second"] == pytest.approx(60 / found["seconds"])
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
