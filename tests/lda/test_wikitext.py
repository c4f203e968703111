"""The words a reader sees of marked-up text, in time that grows with its length, and the blocks of packed files."""

import bz2
import collections
import random
import re
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strang.lda.text import bzip, tokens
from strang.lda.text.wikitext import strip

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
    rng = random.Random(0)
    texts = [rng.randbytes(size // 4) + bytes(size - size // 4) for size, _ in streams]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.bz2"
        path.write_bytes(b"".join(bz2.compress(t, level) for t, (_, level) in zip(texts, streams, strict=True)))
        size = path.stat().st_size
        blocks = [block for at in range(0, size, step) for block in bzip.blocks(path, at, min(at + step, size))]
    assert b"".join(block.text for block in blocks) == b"".join(texts)
    assert len({block.begin for block in blocks}) == len(blocks)


def test_small_streams_may_be_cut_anywhere(tmp_path):
    texts = [bytes([byte]) * 20 for byte in range(60)]
    path = tmp_path / "x.bz2"
    path.write_bytes(b"".join(map(bz2.compress, texts)))
    size = path.stat().st_size
    for cut in range(1, size):
        blocks = [*bzip.blocks(path, 0, cut), *bzip.blocks(path, cut, size)]
        assert [block.text for block in blocks] == texts
