"""Learning topics: planted ones are found, a killed fit resumes to the same bytes, bad input is refused."""

import json
import resource
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

from killing import kill_after_first_save
from strang.cli.app import app
from strang.lda import fitting, open_corpus
from strang.lda.commands import describe_topics
from strang.lda.completion import score_topics, split
from strang.lda.corpus import Corpus
from strang.lda.page import list_topics
from strang.lda.settings import completed, is_scored, scoring_interval, step_sizes
from strang.lda.text.prepare import prepare
from strang.run import driver
from strang.run.driver import run_blocks
from strang.storage import store
from strang.storage.series import read_series
from strang.util.errors import InputError

WORDS, TOPICS = 30, 3
SMALL = {"topics": TOPICS, "passes": 6.0, "batch_size": 20, "samples": 5, "test_documents": 40, "sweeps": 4}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Documents of 40 tokens from three topics of ten words each, mostly of one topic."""
    folder = tmp_path_factory.mktemp("corpus")
    rng = np.random.default_rng(0)
    phi = np.kron(np.eye(TOPICS), np.full(WORDS // TOPICS, TOPICS / WORDS))
    weights = rng.dirichlet([0.1] * TOPICS, 300)
    counts = np.array([rng.multinomial(40, weight @ phi) for weight in weights])
    rows, columns = np.nonzero(counts)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=300))])
    np.savez(folder / "bags.npz", indptr=indptr, indices=columns, counts=counts[rows, columns])
    letters = "abcdefghij"
    (folder / "words.txt").write_text("\n".join(f"w{letters[i // 10]}{letters[i % 10]}" for i in range(WORDS)) + "\n")
    prepare(folder / "bags.npz", folder / "prepared", vocabulary=folder / "words.txt", progress=False)
    return folder / "prepared"


@pytest.fixture(scope="module")
def fitted(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit") / "run"
    return folder, fitting.fit(folder, corpus, progress=False, **SMALL)


def test_planted_topics_are_found(fitted, corpus):
    folder, result = fitted
    assert result["finished"]
    assert result["diverged"] == 0
    assert result["perplexity"] < 14  # ten words per topic, some documents of more than one; a unigram model has 30
    arrays = np.load(folder / "topics.npz")
    assert int(arrays["samples"]) == result["samples"] == SMALL["samples"]
    blocks = arrays["mean"].T.reshape(TOPICS, TOPICS, -1).sum(2)  # weight of each planted topic in each learnt one
    assert sorted(blocks.argmax(1)) == [0, 1, 2]
    assert blocks.max(1).min() > 0.9
    assert (arrays["sd"] >= 0).all()
    assert list(arrays["words"]) == open_corpus(corpus).words


@pytest.mark.parametrize("steps", range(2, 60, 7))
def test_as_many_samples_as_asked_for_are_averaged(steps):
    for samples in range(1, 40):
        scored = [step for step in range(1, steps + 1) if is_scored(step, steps, samples)]
        late = [step for step in scored if step > steps // 2]
        assert len(late) == min(samples, steps - steps // 2)
        assert late[-1] == steps
        assert max(np.diff([steps // 2, *late])) <= 2 * scoring_interval(steps, samples)  # spread over the latter half


def test_one_sample_has_no_standard_deviation(corpus, tmp_path):
    result = fitting.fit(tmp_path, corpus, progress=False, **SMALL | {"passes": 1.0, "samples": 1})
    assert result["samples"] == 1
    assert np.isnan(np.load(tmp_path / "topics.npz")["sd"]).all()
    assert "±" not in "".join(describe_topics(list_topics(tmp_path, words=3)))


def test_perplexity_is_that_of_score_topics(fitted, corpus):
    """The last sample's perplexity agrees with that of topic weights inferred from scratch."""
    folder, result = fitted
    _, held_out = open_corpus(corpus).split(SMALL["test_documents"])
    test = split(held_out.gather(np.arange(held_out.documents)), seed=0)
    fresh = score_topics(test, np.load(folder / "topics.npz")["last"], alpha=0.1, sweeps=50)
    assert fresh == pytest.approx(result["perplexity_last"], rel=0.1)


def test_a_killed_fit_resumes_to_the_same_bytes(fitted, corpus, tmp_path):
    folder = tmp_path / "run"
    options = [part for name, value in SMALL.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    kill_after_first_save(["lda", "fit", str(corpus), "--store", str(folder), *options], folder)
    result = json.loads(CliRunner().invoke(app, ["resume", str(folder), "--json"]).stdout)
    whole, expected = fitted
    for name in ("perplexity", "perplexity_last", "documents", "finished"):
        assert result[name] == expected[name]
    for name in ("chain.npz", "topics.npz", "spec.json"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name


@pytest.mark.parametrize("during_scoring", [False, True])
def test_ctrl_c_loses_nothing_and_saves_change_nothing(fitted, corpus, tmp_path, monkeypatch, during_scoring):
    """Stopped between two scorings or during one, it resumes to the same bytes, however often it saved."""
    folder, add_sample, write_page = tmp_path / "run", fitting.add_sample, fitting.write_page

    def interrupted(job, every, runner, bound):
        for chain, trace in run_blocks(job, 5, bound=bound):  # scoring is at multiples of 7
            yield chain, trace
            if int(chain.step) == 61:
                raise KeyboardInterrupt

    def stopped(*args, key, **kwargs):
        if key[1] == 56:
            raise KeyboardInterrupt
        return add_sample(*args, key=key, **kwargs)

    def write_page_while_locked(folder, *args):
        assert store.is_held(folder)  # or another process could begin and have its files overwritten
        return write_page(folder, *args)

    with monkeypatch.context() as patch:
        patch.setattr(fitting, "write_page", write_page_while_locked)
        if during_scoring:
            patch.setattr(fitting, "add_sample", stopped)
        else:
            patch.setattr(driver, "run_blocks", interrupted)
            patch.setattr(store, "SAVE_SECONDS", -1.0)
        result = fitting.fit(folder, corpus, progress=False, **SMALL)
    lines = read_series(folder)
    assert not result["finished"]
    assert result["steps"] == lines[-1]["step"]
    if not during_scoring:
        assert [line["step"] for line in lines[-4:]] == [49, 54, 56, 61]
        assert "perplexity" not in lines[-1]
        assert result["perplexity"] == lines[-2]["perplexity"] > 0  # of the last scoring
    fitting.fit(folder, corpus, progress=False, **SMALL)
    for name in ("chain.npz", "topics.npz"):
        assert (folder / name).read_bytes() == (fitted[0] / name).read_bytes(), name
    scored = [[line["step"] for line in read_series(one) if "perplexity" in line] for one in (folder, fitted[0])]
    assert scored[0] == scored[1]
    assert len(list(folder.glob("kept-*.npz"))) == 1


def test_a_full_disk_gives_an_error_that_says_what_survives(fitted, corpus, tmp_path):
    """A file size limit, as a full disk would, first stops the file of the sums."""
    (whole,), folder = fitted[0].glob("kept-*.npz"), tmp_path / "run"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (whole.stat().st_size - 1, hard))
    try:
        with pytest.raises(OSError, match="File too large; the run is kept up to step 0, and the same call") as caught:
            fitting.fit(folder, corpus, progress=False, **SMALL)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.filename == str(folder)
    assert not list(folder.glob("*.npz")) + list(folder.glob(".kept*"))  # nothing half written


def test_damage_and_other_settings_are_refused(fitted, corpus, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(fitted[0], folder)
    with pytest.raises(InputError, match="another run"):
        fitting.fit(folder, corpus, progress=False, **SMALL | {"beta": 0.5})
    (kept,) = folder.glob("kept-*.npz")
    whole, arrays = kept.read_bytes(), dict(np.load(kept))
    arrays["topics"][5] = TOPICS  # the last is TOPICS - 1
    np.savez(kept, **arrays)
    with pytest.raises(InputError, match=r"damaged \(other shapes or topics\)"):
        fitting.fit(folder, corpus, progress=False, **SMALL)
    kept.write_bytes(whole[:-50])
    with pytest.raises(InputError, match="damaged"):
        fitting.fit(folder, corpus, progress=False, **SMALL)


@pytest.mark.parametrize(
    "wrong",
    [
        {"topics": 0},
        {"passes": 0.0},
        {"passes": float("inf")},
        {"delay": float("inf")},
        {"seed": -1},
        {"batch_size": 0},
        {"samples": 0},
        {"test_documents": 300},
        {"alpha": -1.0},
        {"dynamics": "sgrhmc"},
        {"dynamics": "magic"},
        {"parametrisation": "reduced"},
        {"parametrisation": "expanded-natural"},  # with sgrld
        {"step_size": -1.0},
        {"friction": 5.0},  # which sgrld has not
        {"dynamics": "sgld", "friction": 5.0},
    ],
)
def test_bad_settings_are_refused(wrong, corpus, tmp_path):
    with pytest.raises(InputError):
        fitting.fit(tmp_path / "run", corpus, progress=False, **SMALL | wrong)
    assert not (tmp_path / "run" / "chain.npz").exists()


def test_default_settings_follow_from_the_corpus(corpus):
    whole = open_corpus(corpus)
    first, second = step_sizes(whole)
    assert 0 < first <= second <= 0.01
    chosen = completed({**fitting.DEFAULTS, "dynamics": "sghmc"}, whole)
    assert chosen["step_size"] / chosen["friction"] == pytest.approx(first)  # what corresponds to SGLD's step
    assert chosen["parametrisation"] == "expanded-natural"
    assert completed({**fitting.DEFAULTS, "dynamics": "sgld"}, whole)["step_size"] == first
    plain = completed(dict(fitting.DEFAULTS), whole)
    assert (plain["step_size"], plain["parametrisation"], plain["batch_size"]) == (1.0, "expanded-mean", 30)
    assert plain["passes"] * whole.documents / plain["batch_size"] == 800
    assert plain["test_documents"] == 30
    large = Corpus(whole.shards, whole.words, whole.mark, repeat=100)
    assert completed(dict(fitting.DEFAULTS), large)["test_documents"] == 1000
