"""Topics stored in a file, those of a fit or any matrix of probabilities: loading, listing and scoring them."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from strang.lda.completion import SWEEPS, score_topics, split
from strang.lda.corpus import Corpus, open_corpus
from strang.storage.manifest import read_spec
from strang.util.errors import InputError
from strang.util.files import read_npz
from strang.util.progress import track

COHERENCE_DOCUMENTS = 20_000  # on which coherence is measured
CHUNK_DOCUMENTS = 2000  # documents read at a time
KINDS = {"sd": "f", "last": "f", "samples": "iu"}  # of stored arrays' dtypes


class StoredTopics(NamedTuple):
    """Topics as stored. A fit's are words by topics, with all fields; others have `mean` and perhaps some fields."""

    mean: np.ndarray
    sd: np.ndarray | None = None
    last: np.ndarray | None = None
    words: list[str] | None = None
    share: np.ndarray | None = None  # each topic's fraction of the tokens
    samples: int | None = None
    options: dict[str, Any] | None = None  # of the fit
    corpus: str | None = None  # of the fit


def load(path: str | Path) -> StoredTopics:
    """Load the topics of a fit's folder, of a .npz (array `topics`, or those of topics.npz) or a .npy file."""
    folder = Path(path)
    if not folder.is_dir():
        return read_topics(folder)
    about = read_spec(folder)["about"]
    if about.get("command") != "lda fit" or not isinstance(about.get("options"), dict):
        raise InputError(f"{folder} is no fit of topics; give the folder that strang lda fit had as --store.")
    if not (folder / "topics.npz").exists():
        raise InputError(f"{folder} has no topics.npz yet; go on with strang resume {folder}.")
    return read_topics(folder / "topics.npz")._replace(options=about["options"], corpus=about.get("corpus"))


def read_topics(path: Path) -> StoredTopics:
    """Read the arrays of a file and check that they belong together."""
    arrays = read_npz(path, "give a whole .npz or .npy file of topics.", single="topics")
    main = next((name for name in ("topics", "mean", "components") if name in arrays), None)
    if main is None:
        raise InputError(f"{path} has no array 'topics'; it has {', '.join(sorted(arrays)) or 'none'}.")
    mean = arrays[main]
    if mean.ndim != 2 or mean.dtype.kind not in "fiu" or not mean.size or not np.isfinite(mean).all() or mean.min() < 0:
        raise InputError(f"{main} in {path} is no matrix of probabilities: shape {mean.shape}, dtype {mean.dtype}.")
    shapes = {"sd": [mean.shape], "last": [mean.shape], "share": [mean.shape[1:]], "samples": [()]}
    shapes["words"] = [(size,) for size in mean.shape]
    others: dict[str, Any] = {name: arrays[name] for name in shapes if name in arrays}
    for name, array in others.items():
        if array.shape not in shapes[name] or array.dtype.kind not in KINDS.get(name, array.dtype.kind):
            raise InputError(f"{path} is damaged: its {name} does not belong to topics of shape {mean.shape}.")
    others |= {name: others[name].tolist() for name in ("words", "samples") if name in others}
    return StoredTopics(mean, **others)


def over_words(stored: StoredTopics, words: list[str]) -> np.ndarray:
    """φ (V, K) over these words, whichever way round it is stored, its columns scaled to add up to 1."""
    check_words(stored, words)
    phi = np.asarray(stored.mean, float)
    square = phi.shape[0] == phi.shape[1]
    if len(words) not in phi.shape:
        raise InputError(f"topics of shape {phi.shape} do not go with a vocabulary of {len(words):,} words.")
    if square and np.allclose(phi.sum(0), 1, atol=1e-3) == np.allclose(phi.sum(1), 1, atol=1e-3):
        raise InputError("as many topics as words: make the columns (topics), not the rows, add up to 1.")
    if phi.shape[0] != len(words) or (square and not np.allclose(phi.sum(0), 1, atol=1e-3)):
        phi = phi.T
    if not phi.sum(0).all():
        raise InputError(f"topic {int(np.argmin(phi.sum(0)))} has no word with a probability.")
    return phi / phi.sum(0)


def check_words(stored: StoredTopics, words: list[str]) -> None:
    """Raise an error if the stored topics are over other words."""
    own = stored.words
    if own is None or own == words:
        return
    if len(own) != len(words):
        raise InputError(f"the topics are over {len(own):,} words, the corpus has {len(words):,}; give their corpus.")
    first, mine, other = next((i, a, b) for i, (a, b) in enumerate(zip(own, words, strict=True)) if a != b)
    raise InputError(f"word {first} of the topics is {mine!r}, of the corpus {other!r}; give their corpus.")


def top_words(phi: Any, count: int = 10) -> np.ndarray:
    """Numbers of the `count` most probable words of every topic, (K, count), from φ (V, K)."""
    phi = np.asarray(phi)
    if not 2 <= count <= phi.shape[0]:
        raise InputError(f"count is {count}; write a number of words from 2 to {phi.shape[0]}.")
    return np.argsort(-phi, axis=0, kind="stable")[:count].T


def coherence(top: Any, corpus: Corpus, *, progress: bool | None = False) -> np.ndarray:
    """The coherence of every topic, from the numbers of its top words, over all documents of a corpus: do they occur in
    the same ones? It is the mean over pairs of words of their NPMI, log(p_ij / (p_i p_j)) / −log p_ij, with p the
    fractions of documents that hold them: 1 if they always occur together, 0 if independently, −1 if never."""
    together = joint_counts(np.asarray(top), corpus, progress) / corpus.documents
    single = np.diagonal(together, axis1=1, axis2=2)
    with np.errstate(divide="ignore", invalid="ignore"):  # log 0 and 0/0 at the two ends of the scale
        npmi = np.log(together / (single[:, :, None] * single[:, None, :])) / -np.log(together)
    npmi = np.where(together == 0, -1.0, np.where(together == 1, 1.0, npmi))
    first, second = np.triu_indices(together.shape[1], 1)
    return npmi[:, first, second].mean(1)


def joint_counts(top: np.ndarray, corpus: Corpus, progress: bool | None) -> np.ndarray:
    """The number of documents in which words i and j of topic k both occur, (K, n, n)."""
    needed, columns = np.unique(top, return_inverse=True)
    columns, column_of = columns.reshape(top.shape), np.full(len(corpus.words), -1)
    column_of[needed] = np.arange(len(needed))
    total = np.zeros((*top.shape, top.shape[1]))
    for start in track(range(0, corpus.documents, CHUNK_DOCUMENTS), "coherence", progress):
        numbers = np.arange(start, min(start + CHUNK_DOCUMENTS, corpus.documents), dtype=np.uint32)
        indptr, indices, counts = corpus.gather(numbers)
        document, column = np.repeat(np.arange(len(numbers)), np.diff(indptr)), column_of[indices]
        used = (column >= 0) & (counts > 0)
        present = np.zeros((len(numbers), len(needed)), np.float32)
        present[document[used], column[used]] = 1
        by_topic = present.T[columns]  # topic, word, document
        total += by_topic @ by_topic.transpose(0, 2, 1)
    return total


def topic_rows(stored: StoredTopics, count: int, corpus: Corpus | None, documents: int = COHERENCE_DOCUMENTS) -> list:
    """The topics of a fit as records, largest first: fraction of the tokens, coherence, and the `count` most probable
    words with the posterior mean and standard deviation of their probabilities."""
    words = stored.words or [str(number) for number in range(len(stored.mean))]
    top = top_words(stored.mean, count)
    values = None if corpus is None else coherence(top, corpus.first(documents))
    sizes = np.full(len(top), np.nan) if stored.share is None else stored.share
    sd = np.full(stored.mean.shape, np.nan) if stored.sd is None else stored.sd
    rows = []
    for k in np.argsort(-sizes, kind="stable").tolist():
        npmi = None if values is None else float(values[k])
        listed = [{"word": words[w], "probability": float(stored.mean[w, k]), "sd": float(sd[w, k])} for w in top[k]]
        rows.append({"topic": k, "share": float(sizes[k]), "coherence": npmi, "words": listed})
    return rows


def corpus_of(stored: StoredTopics, path: str | Path | None) -> tuple[Corpus | None, str | None]:
    """The corpus at `path`, or by default that of the fit; or None, and why there is none."""
    if path is None and stored.corpus is None:
        return None, "the fit was begun from Python with a corpus in memory"
    try:
        corpus = open_corpus(path or stored.corpus or "", verify=True)
        check_words(stored, corpus.words)
    except InputError as error:
        if path is not None:
            raise
        return None, str(error)
    return corpus, None


def score_file(
    path: str | Path,
    corpus: str | Path,
    *,
    documents: int | None = None,
    seen: float = 0.5,
    every: int | None = None,
    alpha: float | None = None,
    sweeps: int = SWEEPS,
    words: int = 10,
    seed: int = 0,
) -> dict[str, Any]:
    """Document-completion perplexity of topics on a corpus's last `documents`, and their mean NPMI coherence. A
    fraction `seen` of each document's tokens, chosen by `seed`, determines its topic weights and the others are scored;
    or with `every` = m every m-th token is."""
    stored, whole = load(path), open_corpus(corpus, verify=True)
    count = min(1000, whole.documents) if documents is None else documents
    if not 1 <= count <= whole.documents:
        raise InputError(f"test-documents is {count}; the corpus has {whole.documents:,}.")
    if not 0 < seen < 1:
        raise InputError(f"seen is {seen}; write the fraction of each document's tokens to see, between 0 and 1.")
    held_out = whole.gather(np.arange(whole.documents - count, whole.documents))
    test = split(held_out, fraction=1 - seen, every=every, seed=seed)
    phi = over_words(stored, whole.words)
    last = None if stored.last is None else over_words(stored._replace(mean=stored.last), whole.words)
    options = stored.options or {}
    prior = options.get("alpha", 0.1) if alpha is None else alpha
    settings: dict[str, Any] = {"alpha": prior, "key": seed, "sweeps": sweeps}
    sample = whole.first(COHERENCE_DOCUMENTS)
    own = options and stored.corpus and Path(stored.corpus).resolve() == Path(corpus).resolve()
    return {
        "perplexity": score_topics(test, phi, **settings),
        "perplexity_last": None if last is None else score_topics(test, last, **settings),
        "coherence": float(coherence(top_words(phi, words), sample).mean()),
        "coherence_documents": sample.documents,
        "coherence_words": words,
        "topics": phi.shape[1],
        "vocabulary": phi.shape[0],
        "documents": count,
        "documents_trained_on": max(0, count - int(options["test_documents"])) if own else None,  # or unknown
        "held_out": test.how,
        "alpha": prior,
        "sweeps": sweeps,
        "seed": seed,
    }
