"""Topics that lie in a file: those of a fit with their posterior uncertainty, or any matrix of probabilities."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from strang.lda.coherence import coherence, top_words
from strang.lda.corpus import Corpus, open_corpus
from strang.storage.manifest import read_spec
from strang.util.errors import InputError, first_line

LOOKED_AT = 20_000  # documents that coherence is measured on


class Found(NamedTuple):
    """Topics as they were found. A fit's are words by topics and all there; of others only `mean` is sure to be."""

    mean: np.ndarray
    sd: np.ndarray | None = None
    last: np.ndarray | None = None
    words: list[str] | None = None
    share: np.ndarray | None = None
    samples: int | None = None
    options: dict[str, Any] | None = None  # of the fit
    corpus: str | None = None  # that it learnt from


def load(path: str | Path) -> Found:
    """The topics of a fit's folder, or in a .npz (array `topics`, or those of topics.npz) or .npy file."""
    folder = Path(path)
    if not folder.is_dir():
        return from_arrays(folder, read_arrays(folder))
    about = read_spec(folder)["about"]
    if about.get("command") != "lda fit" or not isinstance(about.get("options"), dict):
        raise InputError(f"{folder} is no fit of topics; give the folder that strang lda fit had as --store.")
    if not (folder / "topics.npz").exists():
        raise InputError(f"{folder} has no topics.npz yet; go on with strang resume {folder}.")
    found = from_arrays(folder / "topics.npz", read_arrays(folder / "topics.npz"))
    return found._replace(options=about["options"], corpus=about.get("corpus"))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as handle:
            file = np.load(handle, allow_pickle=False)
            return {"topics": file} if isinstance(file, np.ndarray) else {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise InputError(f"there is no {path}.") from None
    except Exception as error:  # a damaged archive raises almost anything
        raise InputError(f"{path} is not a whole .npz or .npy file of topics ({first_line(error)}).") from None


def from_arrays(path: Path, arrays: dict[str, np.ndarray]) -> Found:
    """What the arrays say, as far as it fits together."""
    name = next((name for name in ("topics", "mean", "components") if name in arrays), None)
    if name is None:
        raise InputError(f"{path} has no array 'topics'; it has {', '.join(sorted(arrays)) or 'none'}.")
    mean = arrays[name]
    if mean.ndim != 2 or mean.dtype.kind not in "fiu" or not mean.size or not np.isfinite(mean).all() or mean.min() < 0:
        raise InputError(f"{name} in {path} is no matrix of probabilities: shape {mean.shape}, dtype {mean.dtype}.")
    sd, last, words, share, samples = (arrays.get(each) for each in ("sd", "last", "words", "share", "samples"))
    wrong = [
        each
        for each, array in (("sd", sd), ("last", last))
        if array is not None and (array.shape != mean.shape or array.dtype.kind != "f")
    ]
    wrong += ["words"] if words is not None and (words.ndim != 1 or len(words) not in mean.shape) else []
    wrong += ["share"] if share is not None and share.shape != mean.shape[1:] else []
    wrong += ["samples"] if samples is not None and (samples.shape != () or samples.dtype.kind not in "iu") else []
    if wrong:
        raise InputError(f"{path} is damaged: its {wrong[0]} does not belong to topics of shape {mean.shape}.")
    count = None if samples is None else int(samples)
    return Found(mean, sd, last, None if words is None else words.tolist(), share, count)


def over_words(found: Found, words: list[str]) -> np.ndarray:
    """φ (V, K) over these words, whichever way round it was given, its columns made to add up to 1."""
    if found.words is not None and found.words != words:
        raise InputError(told_apart(found.words, words))
    phi = np.asarray(found.mean, float)
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


def told_apart(one: list[str], other: list[str]) -> str:
    if len(one) != len(other):
        return f"the topics are over {len(one):,} words, the corpus has {len(other):,}; give the corpus they are of."
    first = next(number for number, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1])
    return f"word {first} of the topics is {one[first]!r}, that of the corpus {other[first]!r}; give the right corpus."


def sample_of(corpus: Corpus, documents: int) -> Corpus:
    """The first so many documents, or all."""
    end = min(corpus.begin + documents, corpus.end)
    return Corpus(corpus.shards, corpus.words, corpus.mark, corpus.begin, end)


def listing(found: Found, count: int, corpus: Corpus | None, documents: int = LOOKED_AT) -> list[dict[str, Any]]:
    """The topics of a fit, the largest first: share of the tokens, coherence, and the first words with the posterior
    mean and standard deviation of their probabilities."""
    words = found.words or [str(number) for number in range(len(found.mean))]
    top = top_words(found.mean, count)
    values = None if corpus is None else coherence(top, sample_of(corpus, documents))
    share = np.full(len(top), np.nan) if found.share is None else found.share
    sd = np.full(found.mean.shape, np.nan) if found.sd is None else found.sd

    def row(k: int) -> dict[str, Any]:
        entries = [
            {"word": words[w], "probability": float(found.mean[w, k]), "sd": float(sd[w, k])} for w in top[k].tolist()
        ]
        value = None if values is None else float(values[k])
        return {"topic": int(k), "share": float(share[k]), "coherence": value, "words": entries}

    return [row(k) for k in np.argsort(-share, kind="stable")]


def corpus_of(found: Found, given: str | Path | None) -> tuple[Corpus | None, str | None]:
    """The corpus that a fit learnt from, or why there is none."""
    if given is None and found.corpus is None:
        return None, "the fit was begun from Python with a corpus in memory"
    try:
        corpus = open_corpus(given or found.corpus or "", verify=True)
        if found.words is not None and found.words != corpus.words:
            raise InputError(told_apart(found.words, corpus.words))
    except InputError as error:
        if given is not None:
            raise
        return None, str(error)
    return corpus, None
