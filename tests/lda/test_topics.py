"""`strang lda topics` and `score`, the page of a fit, the paper's settings, and bad input on the command line."""

import json
import shutil
from contextlib import chdir
from html.parser import HTMLParser

import numpy as np
import pytest
from typer.testing import CliRunner

from browser import chromium, problems
from strang.cli.app import app
from strang.lda import completion as score
from strang.lda import fitting, open_corpus, topics
from strang.lda import paper_settings as paper
from strang.lda.page import PANELS
from strang.lda.settings import IN_JSON
from strang.lda.text.prepare import prepare
from strang.report.figures import bars_png
from strang.report.pages import learning_curves, lengths
from strang.report.panels import Bar, Bars
from strang.util.errors import InputError
from strang.util.files import read_npz
from strang.util.signatures import renamed

WORDS, TOPICS, DOCUMENTS = 30, 3, 120
SMALL = {
    "topics": TOPICS, "passes": 4.0, "batch_size": 20, "batch_order": "cyclic", "samples": 4, "test_documents": 40,
    "sweeps": 4,
}  # fmt: skip
LETTERS = "abcdefghij"
NAMES = [f"w{LETTERS[i // 10]}{LETTERS[i % 10]}" for i in range(WORDS)]


def prepared(folder, names=NAMES):
    """A corpus of 40-token documents from three topics of ten words each, of unequal sizes."""
    rng = np.random.default_rng(0)
    phi = np.kron(np.eye(TOPICS), np.full(WORDS // TOPICS, TOPICS / WORDS))
    weights = rng.dirichlet([0.3, 0.1, 0.05], DOCUMENTS)
    counts = np.array([rng.multinomial(40, weight @ phi) for weight in weights])[:, : len(names)]
    rows, columns = np.nonzero(counts)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=DOCUMENTS))])
    folder.mkdir()
    np.savez(folder / "bags.npz", indptr=indptr, indices=columns, counts=counts[rows, columns])
    (folder / "words.txt").write_text("\n".join(names) + "\n")
    prepare(folder / "bags.npz", folder / "corpus", vocabulary=folder / "words.txt", progress=False)
    return folder / "corpus"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("topics") / "source")


@pytest.fixture(scope="module")
def fitted(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit") / "run"
    with chdir(corpus.parent):  # later calls are made from elsewhere
        fitting.fit(folder, corpus.name, progress=False, **SMALL)
    return folder


def run(*arguments):
    result = CliRunner().invoke(app, [str(part) for part in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def test_topics_come_largest_first_with_what_is_known_of_them(fitted, corpus):
    result = json.loads(run("lda", "topics", fitted, "--words", 4, "--json"))
    arrays = read_npz(fitted / "topics.npz", "")
    sizes = [topic["share"] for topic in result["topics"]]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == pytest.approx(1)
    numbers = [topic["topic"] for topic in result["topics"]]
    expected = topics.coherence(topics.top_words(arrays["mean"], 4), open_corpus(corpus))
    np.testing.assert_allclose([topic["coherence"] for topic in result["topics"]], expected[numbers])
    for topic in result["topics"]:
        assert len(topic["words"]) == 4
        for word in topic["words"]:
            place = NAMES.index(word["word"]), topic["topic"]
            assert word["probability"] == pytest.approx(float(arrays["mean"][place]))
            assert word["sd"] == pytest.approx(float(arrays["sd"][place]))
    _, held_out = open_corpus(corpus).split(SMALL["test_documents"])
    test = score.split(held_out.gather(np.arange(held_out.documents)), seed=0)
    weights = score.topic_weights(test.seen, arrays["mean"], alpha=0.1, sweeps=200)
    np.testing.assert_allclose(sizes, weights.mean(0)[numbers], atol=0.02)  # all seen parts have one length
    text = run("lda", "topics", fitted)
    assert result["topics"][0]["words"][0]["word"] in text.splitlines()[2]


def test_without_the_corpus_only_the_coherence_is_missing(fitted, corpus, tmp_path):
    copy, moved = tmp_path / "fit", tmp_path / "moved"
    shutil.copytree(fitted, copy)
    shutil.copytree(corpus, moved)
    away = corpus.rename(corpus.with_name("away"))
    try:
        result = json.loads(run("lda", "topics", copy, "--json"))
        assert {topic["coherence"] for topic in result["topics"]} == {None}
        assert "no prepared corpus" in result["coherence_missing"]
        assert json.loads(run("lda", "topics", copy, "--corpus", moved, "--json"))["coherence_missing"] is None
    finally:
        away.rename(corpus)


def test_a_picture_is_a_png_whatever_its_name(tmp_path):
    for name in ("o.bmp", "o.svg", "plain"):
        bars_png([Bars("", [Bar("a", 0.2, 0.05)])], tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert len(list(tmp_path.iterdir())) == 3


def test_pages_and_pictures(fitted, tmp_path):
    run("lda", "topics", fitted, "--html", tmp_path / "page.html", "--png", tmp_path / "topics.png", "--words", 3)
    assert (tmp_path / "topics.png").read_bytes().startswith(b"\x89PNG")
    for path, count in ((fitted / "index.html", 10), (tmp_path / "page.html", 3)):
        bars: list[str] = []
        reader = HTMLParser()
        reader.handle_starttag = lambda tag, attrs, bars=bars: bars.append(tag) if tag in ("i", "script") else None
        reader.feed(path.read_text())
        assert bars == ["i"] * (TOPICS * count)
    with chromium() as opened:
        assert problems(opened, fitted / "index.html") == []


def test_curves_of_a_page():
    line = {"step": 1, "documents": 10, "perplexity": None, "perplexity_last": 50.0, "temperature": None}

    def panels(*lines):
        return learning_curves([*lines], "documents", PANELS)

    (only,) = panels(line, line | {"documents": 20, "perplexity": 40.0})
    assert [[point["exact"] for point in series.points] for series in only.series] == [[40.0], [50.0, 50.0]]
    assert not only.log_y
    assert panels(line, line | {"perplexity_last": 3e6, "temperature": 2.0})[0].log_y  # an explosion is seen whole
    assert len(panels(line | {"temperature": 2.0})) == 2


def test_a_whisker_stays_on_its_scale():
    group = Bars("", [Bar("a", 0.2, 0.05), Bar("b", 0.01, 0.05), Bar("c", 0.1, float("nan"))])
    assert group.end == pytest.approx(0.25)
    assert lengths(group.bars[1], group.end) == ("4", "0", "24")
    assert Bars("", []).end == Bars("", [Bar("a", 0.0, 0.0)]).end == 1


# Scoring.


def test_a_score_is_that_of_score_topics_and_records_how(fitted, corpus):
    result = json.loads(run("lda", "score", fitted, corpus, "--test-documents", 40, "--json"))
    _, held_out = open_corpus(corpus).split(40)
    test = score.split(held_out.gather(np.arange(40)), seed=0)
    arrays = read_npz(fitted / "topics.npz", "")
    for name, phi in (("perplexity", arrays["mean"]), ("perplexity_last", arrays["last"])):
        assert result[name] == pytest.approx(score.score_topics(test, phi, alpha=0.1), rel=1e-5)
    assert result["held_out"] == test.how
    assert result["documents_trained_on"] == 0
    other = json.loads(run("lda", "score", fitted, corpus, "--test-documents", 60, "--every", 10, "--json"))
    assert other["held_out"]["every"] == 10
    assert other["held_out"]["tokens_scored"] == 60 * 4
    assert other["documents_trained_on"] == 20
    assert "20 of the scored documents were in the training data" in run(
        "lda", "score", fitted, corpus, "--test-documents", 60
    )
    assert topics.score_file(fitted, corpus)["documents"] == DOCUMENTS


def test_topics_of_other_libraries_either_way_round(fitted, corpus, tmp_path):
    phi = read_npz(fitted / "topics.npz", "")["mean"]
    np.save(tmp_path / "a.npy", phi)
    np.savez(tmp_path / "b.npz", topics=1000 * phi.T)  # pseudocounts, as in scikit-learn's components_
    paths = fitted, tmp_path / "a.npy", tmp_path / "b.npz"
    own, *others = (topics.score_file(path, corpus, words=5) for path in paths)
    for other in others:
        assert other["perplexity"] == pytest.approx(own["perplexity"], rel=1e-4)
        assert other["coherence"] == own["coherence"]
        assert other["perplexity_last"] is None
    square = topics.StoredTopics(np.array([[0.9, 0.2], [0.1, 0.8]]))
    np.testing.assert_allclose(topics.over_words(square, ["a", "b"]), square.mean)
    np.testing.assert_allclose(topics.over_words(square._replace(mean=square.mean.T), ["a", "b"]), square.mean)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"phi": np.ones((WORDS, 2))}, "no array 'topics'; it has phi"),
        ({"topics": np.ones(WORDS)}, "no matrix of probabilities"),
        ({"topics": -np.ones((WORDS, 2))}, "no matrix of probabilities"),
        ({"topics": np.full((WORDS, 2), np.nan)}, "no matrix of probabilities"),
        ({"topics": np.full((WORDS, 2), "a")}, "no matrix of probabilities"),
        ({"topics": np.zeros((WORDS, 0))}, "no matrix of probabilities"),
        ({"topics": np.ones((WORDS + 1, 2))}, "do not go with a vocabulary of 30 words"),
        ({"topics": np.eye(WORDS)[:, :2] * [1, 0]}, "topic 1 has no word"),
        ({"topics": np.ones((WORDS, WORDS))}, "as many topics as words"),
        ({"topics": np.ones((WORDS, 2)), "words": np.array(NAMES[::-1])}, "word 0 of the topics is 'wcj'"),
        ({"topics": np.ones((WORDS, 2)), "words": np.array(NAMES[:7])}, "its words does not belong"),
        ({"topics": np.ones((WORDS, 2)), "sd": np.ones((2, 2))}, "its sd does not belong"),
    ],
)
def test_bad_topics_are_refused(arrays, message, corpus, tmp_path):
    np.savez(tmp_path / "topics.npz", **arrays)
    with pytest.raises(InputError, match=message):
        topics.score_file(tmp_path / "topics.npz", corpus)


# The paper's settings.


def test_options_override_the_paper_s_settings(monkeypatch, tmp_path):
    calls = []

    def fit(store, corpus, **settings):
        calls.append(settings)
        nothing = dict.fromkeys(("perplexity", "temperature", "page", "seconds"))
        chosen = renamed(fitting.DEFAULTS | {"step_size": 0.01} | settings, IN_JSON)
        return {**chosen, **nothing, "diverged": 0, "documents": 0, "steps": 0}

    monkeypatch.setattr(fitting, "fit", fit)
    plain, options = ["lda", "fit", "corpus", "--store", tmp_path], ["--topics", 500, "--step-size", 8e-4]
    run(*plain)
    text = run(*plain, "--paper")
    mixed = json.loads(run(*plain, "--paper", *options, "--json"))
    assert calls[0] == {}
    assert calls[1] == paper.STATED | paper.CHOSEN
    assert calls[2] == paper.STATED | paper.CHOSEN | {"topics": 500, "step_size": 8e-4}
    assert set(calls[1]) <= set(fitting.DEFAULTS)
    assert calls[1]["step_size"] in paper.STEP_SIZES
    assert calls[1]["friction"] in paper.FRICTIONS
    assert "does not state alpha 0.1, beta 0.01" in text
    assert mixed["paper"]["given"] == {"topics": 500, "step_size": 8e-4}
    assert "topics" not in mixed["paper"]["stated"]
    other = paper.settings({"dynamics": "sgld"})
    assert set(calls[1]) - set(other) == set(paper.SGHMC_ONLY)
    assert paper.comparison({"dynamics": "sgld"}, renamed(fitting.DEFAULTS, IN_JSON))["of_its_grid"] == {}
    short = paper.comparison({}, renamed(fitting.DEFAULTS, IN_JSON) | {"samples": 40})
    assert "of these samples 40 were taken" in "".join(paper.describe(short))


# Bad input gives an error message, and no file is changed.


def test_bad_requests_are_refused(fitted, corpus, tmp_path):
    cut = tmp_path / "cut"
    shutil.copytree(corpus, cut)
    (cut / "00000.counts.npy").write_bytes((cut / "00000.counts.npy").read_bytes()[:-2])
    turned = shutil.copytree(corpus, tmp_path / "turned")
    counts = np.load(turned / "00000.counts.npy")
    counts[7] += 1
    np.save(turned / "00000.counts.npy", counts)
    other = prepared(tmp_path / "other", NAMES[:-1])
    before = {path.name: path.read_bytes() for path in fitted.iterdir()}
    new = tmp_path / "new"
    wrong_calls = [
        (["topics", tmp_path / "nothing"], "no folder of a fit"),
        (["topics", corpus], "no spec.json"),
        (["topics", fitted, "--words", 1], "from 2 to 30"),
        (["topics", fitted, "--words", 31], "from 2 to 30"),
        (["topics", fitted, "--documents", 0], "documents is 0"),
        (["topics", fitted, "--corpus", other], "30 words, the corpus has 29"),
        (["score", fitted, other], "30 words, the corpus has 29"),
        (["score", fitted, cut], "does not have its"),
        (["score", fitted, turned], "counts.npy does not have its checksum"),
        (["topics", fitted, "--corpus", turned], "counts.npy does not have its checksum"),
        (["score", fitted, corpus, "--test-documents", 0], "test-documents is 0"),
        (["score", fitted, corpus, "--test-documents", 121], "the corpus has 120"),
        (["score", fitted, corpus, "--seen", 1.0], "seen is 1.0"),
        (["score", fitted, corpus, "--every", 1], "every is 1"),
        (["score", fitted, corpus, "--alpha", 0.0], "alpha is 0"),
        (["score", fitted, corpus, "--sweeps", 0], "sweeps is 0"),
        (["score", fitted, corpus, "--seed", -1], "seed is -1"),
        (["score", tmp_path / "none.npz", corpus], "there is no"),
        (["score", corpus / "vocabulary.txt", corpus], "give a whole .npz"),
        (["fit", cut, "--store", new], "does not have its"),
        (["fit", turned, "--store", new], "counts.npy does not have its checksum"),
        (["fit", corpus, "--store", new, "--topics", 0, "--test-documents", 40], "topics is 0"),
    ]
    for arguments, message in wrong_calls:
        with pytest.raises(InputError, match=message):
            run("lda", *arguments)
    assert {path.name: path.read_bytes() for path in fitted.iterdir()} == before
    assert not (new / "chain.npz").exists()
