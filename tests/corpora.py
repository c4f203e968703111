"""Texts of known words as sources of every kind, and what comes of them."""

import bz2
import collections
import gzip
import itertools
import json
import random
import shutil
from html import escape
from pathlib import Path

import numpy as np
import pyarrow as arrow
from pyarrow import parquet

from strang.lda.corpus import open_corpus

WORDS = [a + b + c for a, b, c in itertools.product("bdfklm", "aeiou", "nrst")]  # 120
HEAD = '<mediawiki xml:lang="en"><siteinfo><namespaces><namespace key="0" /><namespace key="1">Talk</namespace>'
HEAD += '<namespace key="10">Template</namespace></namespaces></siteinfo>\n'


def make_texts(number: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, weights=range(1, 121), k=rng.randint(3, 30))) for _ in range(number)]


TEXTS = make_texts(60)


def page(title: str, text: str, number: int | None = 0, extra: str = "") -> str:
    number = "" if number is None else f"<ns>{number}</ns>"
    return (
        f"  <page><title>{escape(title)}</title>{number}<id>1</id>{extra}<revision><id>2</id><comment>no</comment>"
        f'<text bytes="9" xml:space="preserve">{escape(text)}</text></revision></page>\n'
    )


def dump(texts: list[str]) -> str:
    pages = []
    for number, text in enumerate(texts):
        pages.append(
            page(f"Page {number}", f"{{{{Box|hidden}}}}'''{text}'''<ref>hidden & gone</ref>", number % 2 or None)
        )
    pages = [each.replace("<ns>1</ns>", "<ns>0</ns>") for each in pages]
    pages.insert(3, page("Old", "#redirect [[New]]"))
    pages.insert(5, page("Older", "moved", extra='<redirect title="New" />'))
    pages.insert(9, page("Template:Box", "hidden", 10))
    pages.insert(11, page("Talk:Page", "hidden", None))
    pages[0] = pages[0].replace("Page 0", "Talk")  # an article, though a namespace has its name
    return HEAD + "".join(pages) + "</mediawiki>\n"


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


class Killed(BaseException):
    pass


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def refuse(*_):
    raise Killed


def write(folder: Path, name: str, data) -> Path:
    path = folder / name
    if isinstance(data, dict):
        np.savez(path, **data)
    elif isinstance(data, bytes):
        path.write_bytes(data)
    else:
        path.write_text(data)
    return path
