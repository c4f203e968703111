"""Bags of words: counted as a slow reader counts them, kept in normal form, read back as they were, damage detected."""

import collections
import itertools
import json
import re
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from strang.lda import corpus as corpora
from strang.lda.corpus import from_csr, from_matrix, open_corpus
from strang.lda.text import tokens
from strang.lda.text.bags import MAX_STORED_COUNT, Bags, check, split_large, take, tidy
from strang.lda.text.prepare import prepare
from strang.util.errors import InputError

LEFT_OUT = re.compile("['\u2019\u00ad\u00aa\u00b5\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u1fff]")


def slow_count(text: bytes) -> collections.Counter:
    """What `count_words` promises, character by character."""
    return collections.Counter(re.findall("[a-z]+", LEFT_OUT.sub("", text.decode()).lower().replace("\u212a", " ")))


def as_counters(bags: Bags, words: list[bytes]) -> list[dict]:
    ends = np.append(0, np.cumsum(bags.lengths))
    pairs = [(words[word].decode(), int(count)) for word, count in zip(bags.ids, bags.counts, strict=True)]
    return [dict(pairs[begin:end]) for begin, end in itertools.pairwise(ends)]


signs = st.sampled_from([*"abcXYZ  -'./_\n\t9éª×ж", "\u00a0", "\u00ad", "\u2013", "\u2019", "\u2028", "中", "😀"])
documents = st.lists(st.text(signs, max_size=60).map(str.encode), max_size=6)


@settings(max_examples=80, deadline=None)
@given(documents, st.integers(1, 5))
def test_words_are_counted_as_by_a_slow_reader(texts, room):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "MIN_FREE", room)  # arrays grow all the time
        bags, lexicon = tokens.count_words(tokens.join(texts))
    words = tokens.words_of(lexicon)
    assert len(set(words)) == len(words)
    assert as_counters(bags, words) == [slow_count(text) for text in texts]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("foo/bar np.array", "foo bar np array"),
        ("don't, don\u2019t", "dont dont"),
        ("e-mail snake_case b2b", "e mail snake case b b"),
        ("na\u00efve 3\u00d74m caf\u00e9.", "nave m caf"),
        ("\u201cyes\u201d\u2014no\u2026ok", "yes no ok"),
        ("zh\u4e2den", "zh en"),
    ],
)
def test_what_is_no_letter_ends_a_word(text, words):
    bags, lexicon = tokens.count_words(tokens.join([text.encode()]))
    assert as_counters(bags, tokens.words_of(lexicon)) == [collections.Counter(words.split())]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=5))
def test_any_bytes_can_be_counted(texts):
    bags, lexicon = tokens.count_words(tokens.join(texts))
    assert bags.counts.sum() == sum(sum(counts.values()) for counts in as_counters(bags, tokens.words_of(lexicon)))
    assert b"".join(tokens.words_of(lexicon)).decode().isalpha() or not lexicon.size


def test_a_lexicon_goes_on():
    first, lexicon = tokens.count_words(tokens.join([b"one two"]))
    second, lexicon = tokens.count_words(tokens.join([b"two three two"]), lexicon)
    assert tokens.words_of(lexicon) == [b"one", b"two", b"three"]
    assert (first.ids.tolist(), second.ids.tolist(), second.counts.tolist()) == ([0, 1], [1, 2], [2, 1])


bags_strategy = st.lists(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=6), max_size=5)


def as_bags(rows) -> Bags:
    entries = [entry for row in rows for entry in row]
    return Bags(
        np.array([len(row) for row in rows], np.int64),
        np.array([word for word, _ in entries], np.int32),
        np.array([count for _, count in entries], np.int32),
    )


def as_rows(bags: Bags) -> list[list[tuple[int, int]]]:
    ends = np.append(0, np.cumsum(bags.lengths))
    pairs = list(zip(bags.ids.tolist(), bags.counts.tolist(), strict=True))
    return [pairs[begin:end] for begin, end in itertools.pairwise(ends)]


@settings(max_examples=100, deadline=None)
@given(bags_strategy, st.randoms())
def test_normal_form(rows, rng):
    expected = []
    for row in rows:
        total = collections.Counter()
        for word, count in row:
            total[word] += count
        expected.append(sorted((word, count) for word, count in total.items() if count))
    tidied = tidy(as_bags(rows))
    assert as_rows(tidied) == expected
    order = list(range(len(rows)))
    rng.shuffle(order)
    assert as_rows(take(tidied, np.array(order, np.int64))) == [expected[number] for number in order]


@pytest.mark.parametrize("count", [1, *(MAX_STORED_COUNT + extra for extra in (-1, 0, 1)), 131_070, 327_682])
def test_large_counts_are_split_and_nothing_is_lost(count):
    bags = split_large(Bags(np.array([2, 1]), np.array([4, 9, 4]), np.array([3, count, count])))
    assert bags.counts.max() <= MAX_STORED_COUNT
    totals = [collections.Counter(), collections.Counter()]
    for total, row in zip(totals, as_rows(bags), strict=True):
        for word, number in row:
            total[word] += number
    assert totals == [{4: 3, 9: count}, {4: count}]


@pytest.mark.parametrize(
    ("ids", "counts", "message"),
    [
        ([0, 3, 1], [1, 1, 1], "document 11 has the word id 3; .* 3 words"),
        ([0, 1, -1], [1, 1, 1], "document 12 has the word id -1"),
        ([0, 1, 2], [1, 1, -4], "document 12 has the count -4"),
        ([0, 1, 2], [1.0, 0.5, 1.0], "document 11 has the count 0.5"),
        ([0, 1, 2], [1.0, 1.0, np.nan], "document 12 has the count nan"),
        ([0, 1, 2], [1.0, 1.0, np.inf], "document 12 has the count inf"),
        ([0, 1, 2], [1, 1, 2**31], "document 12 has the count"),
        ([0.0, 1.0, 2.0], [1, 1, 1], "word ids have dtype"),
        ([0, 1, 2], ["1", "1", "1"], "counts have dtype"),
    ],
)
def test_what_is_no_count_is_an_error_with_its_place(ids, counts, message):
    with pytest.raises(InputError, match=message):
        check(Bags(np.array([1, 1, 1]), np.array(ids), np.array(counts)), 3, first=10)


def test_whole_floats_are_counts():
    assert check(Bags(np.array([2]), np.array([0, 1]), np.array([2.0, 3.0])), 2).counts.tolist() == [2, 3]


MATRIX = np.array([[1, 0, 2], [0, 0, 0], [0, 5, 0], [3, 0, 1], [0, 1, 1]])
WORDS = ["ant", "bee", "cat"]


def dense(corpus, numbers) -> np.ndarray:
    indptr, ids, counts = corpus.gather(numbers)
    assert (indptr.dtype, ids.dtype, counts.dtype) == (np.int64, np.int32, np.int32)
    return sparse.csr_array((counts, ids, indptr), shape=(len(numbers), len(corpus.words))).toarray()


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, sparse.coo_array, sparse.csc_matrix])
def test_a_matrix_is_a_corpus(form):
    corpus = from_matrix(form(MATRIX.astype(float)), WORDS)
    assert (corpus.documents, corpus.tokens, corpus.nonzeros, corpus.words) == (5, MATRIX.sum(), 7, WORDS)
    numbers = np.array([4, 0, 0, 1, 3])
    np.testing.assert_array_equal(dense(corpus, numbers), MATRIX[numbers])
    assert corpus.fingerprint == from_matrix(MATRIX, WORDS).fingerprint
    for other in (from_matrix(MATRIX[::-1], WORDS), from_matrix(MATRIX, ["ant", "bee", "dog"]), corpus.split(1)[0]):
        assert other.fingerprint != corpus.fingerprint


def test_repeat_and_split():
    corpus = from_matrix(MATRIX, WORDS)
    many = corpora.Corpus(corpus.shards, corpus.words, corpus.mark, repeat=3)
    assert (many.documents, many.tokens, many.nonzeros) == (15, 3 * MATRIX.sum(), 21)
    np.testing.assert_array_equal(dense(many, np.arange(15)), np.tile(MATRIX, (3, 1)))
    train, test = many.split(2)
    assert (train.documents, test.documents) == (9, 2)
    np.testing.assert_array_equal(dense(train, np.arange(9)), np.tile(MATRIX[:3], (3, 1)))
    np.testing.assert_array_equal(dense(test, np.arange(2)), MATRIX[3:])
    assert (train.tokens, test.tokens) == (3 * MATRIX[:3].sum(), MATRIX[3:].sum())
    assert len({many.fingerprint, train.fingerprint, test.fingerprint, corpus.fingerprint}) == 4
    shuffled = from_matrix(MATRIX, WORDS, seed=1)
    assert sorted(map(tuple, dense(shuffled, np.arange(5)))) == sorted(map(tuple, MATRIX))
    assert not (dense(shuffled, np.arange(5)) == MATRIX).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.gather([5]), "there are 5"),
        (lambda c: c.gather([-1]), "there are 5"),
        (lambda c: c.gather([0.5]), "dtype float64"),
        (lambda c: c.gather([[0]]), "shape"),
        (lambda c: c.split(5), "fewer than all 5"),
        (lambda c: c.split(-1), "at least 0"),
        (lambda c: corpora.Corpus(c.shards, c.words, c.mark, repeat=0), "repeat is 0"),
        (lambda c: from_matrix(MATRIX, WORDS[:2]), "3 columns, the vocabulary 2"),
        (lambda c: from_matrix(MATRIX, ["ant", "ant", "bee"]), "3 words, 2 of them different"),
        (lambda c: from_matrix(-MATRIX, WORDS), "document 0 has the count -1"),
        (lambda c: from_matrix(MATRIX / 2, WORDS), "document 0 has the count 0.5"),
        (lambda c: from_matrix("words", WORDS), "cannot be read"),
        (lambda c: from_matrix(MATRIX, WORDS, seed=-1), "seed is -1"),
        (lambda c: from_csr([0, 2], [0], [1], WORDS), "ends with 2, indices has 1"),
        (lambda c: from_csr([0, 2, 1], [0, 1], [1, 1], WORDS), "never fall"),
        (lambda c: from_csr([], [], [], WORDS), "indptr has shape"),
        (lambda c: from_csr([0, 2], [0, 0], [2**31 - 1, 1], WORDS), "2\\^31 times"),
    ],
)
def test_bad_requests(call, message):
    with pytest.raises(InputError, match=message):
        call(from_matrix(MATRIX, WORDS))
    assert len(from_matrix(MATRIX, WORDS).gather([])[1]) == 0


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A prepared folder of three shards, and the matrix it came from."""
    folder = tmp_path_factory.mktemp("prepared")
    rng = np.random.default_rng(3)
    matrix = rng.poisson(0.4, size=(30, 12))
    matrix[:, 0] += 1
    rows = sparse.csr_array(matrix)
    np.savez(folder / "counts.npz", indptr=rows.indptr, indices=rows.indices, counts=rows.data)
    (folder / "words.txt").write_text("".join(f"word{n}\n" for n in range(12)))
    prepare(folder / "counts.npz", folder / "out", vocabulary=folder / "words.txt", shard_documents=10, unit_bytes=400)
    return folder / "out", matrix


def test_a_prepared_folder_holds_the_same_documents_in_another_order(prepared):
    folder, matrix = prepared
    corpus = open_corpus(folder, verify=True)
    assert [len(shard.offsets) - 1 for shard in corpus.shards] == [10, 10, 10]
    assert (corpus.documents, corpus.tokens, corpus.words[3]) == (30, matrix.sum(), "word3")
    gathered = dense(corpus, np.arange(30))
    assert sorted(map(tuple, gathered)) == sorted(map(tuple, matrix))
    assert not (gathered == matrix).all()
    train, test = corpus.split(14)  # the cut is inside a shard
    assert train.tokens + test.tokens == corpus.tokens
    np.testing.assert_array_equal(dense(test, np.arange(14)), gathered[16:])
    twice = open_corpus(folder, repeat=2)
    np.testing.assert_array_equal(dense(twice, np.arange(25, 35)), np.concatenate([gathered[25:], gathered[:5]]))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damage_is_detected(prepared, data):
    folder, _ = prepared
    name = data.draw(st.sampled_from(sorted(path.name for path in folder.iterdir())))
    with tempfile.TemporaryDirectory() as place:
        copy = shutil.copytree(folder, Path(place) / "copy")
        content = bytearray((folder / name).read_bytes())
        at = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            content = content[:at]
        else:
            content[at] ^= 1 << data.draw(st.integers(0, 7))
        (copy / name).write_bytes(content)
        with pytest.raises(InputError, match=r"damaged|no prepared corpus"):
            open_corpus(copy, verify=True)
        try:
            corpus = open_corpus(copy)
        except InputError:
            return
        indptr, ids, counts = corpus.gather(np.arange(corpus.documents))  # unverified, but safe to compute with
        assert indptr[-1] == len(ids) == len(counts) == corpus.nonzeros
        assert ids.max() < 12


def resealed(folder, change):
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    manifest["seal"] = corpora.seal(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def rewritten(name, change):
    """A change of an array that the manifest knows of."""

    def apply(folder):
        np.save(folder / name, change(np.load(folder / name)))
        resealed(folder, lambda m: m["files"][name].update(bytes=(folder / name).stat().st_size))

    return apply


def swapped(offsets):
    offsets[[2, 3]] = offsets[[3, 2]]
    return offsets


def beyond(ids):
    ids[3] = 12
    return ids


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "manifest.json").unlink(), "no manifest.json"),
        (lambda f: (f / "manifest.json").write_text("[]"), "manifest.json is damaged"),
        (lambda f: (f / "manifest.json").write_text("{" * 100_000), "manifest.json is damaged"),
        (lambda f: (f / "00001.ids.npy").unlink(), "00001.ids.npy"),
        (lambda f: resealed(f, lambda m: m.update(format="strang corpus 9")), "another format"),
        (lambda f: resealed(f, lambda m: m.update(vocabulary=13)), "13 words"),
        (lambda f: resealed(f, lambda m: m["shards"][1].update(documents=9)), "00001.offsets.npy has"),
        (lambda f: resealed(f, lambda m: m["shards"][1].pop("tokens")), "tokens"),
        (lambda f: resealed(f, lambda m: m.update(shards=None)), "damaged"),
        (rewritten("00001.counts.npy", lambda a: a.astype(np.int64)), "dtype int64"),
        (rewritten("00001.ids.npy", lambda a: a[:-1]), "shape"),
        (rewritten("00001.offsets.npy", swapped), "does not rise"),
        (rewritten("00001.offsets.npy", lambda a: a + 1), "does not rise"),
        (rewritten("00001.ids.npy", beyond), "outside the vocabulary"),
    ],
)
def test_a_changed_folder_is_refused(prepared, tmp_path, change, message):
    copy = shutil.copytree(prepared[0], tmp_path / "copy")
    change(copy)
    with pytest.raises(InputError, match=message):
        open_corpus(copy)
