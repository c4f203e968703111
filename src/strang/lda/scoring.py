"""How well topics, whoever made them, foretell the documents of a prepared corpus."""

from pathlib import Path
from typing import Any

import numpy as np

from strang.lda.coherence import coherence, top_words
from strang.lda.completion import score_topics, split
from strang.lda.corpus import Corpus, open_corpus
from strang.lda.topics import LOOKED_AT, Found, load, over_words, sample_of
from strang.util.errors import InputError


def judge(
    path: str | Path,
    corpus: str | Path,
    *,
    documents: int | None = None,
    seen: float = 0.5,
    every: int | None = None,
    alpha: float | None = None,
    sweeps: int = 20,
    words: int = 10,
    seed: int = 0,
) -> dict[str, Any]:
    """Document-completion perplexity of topics on a corpus's last `documents`, and their mean NPMI coherence.

    A share `seen` of each document's tokens, chosen by `seed`, gives its shares of the topics and the others are
    scored; or with `every` = m every m-th token is scored.
    """
    found, whole = load(path), open_corpus(corpus, verify=True)
    count = min(1000, whole.documents) if documents is None else documents
    if not 1 <= count <= whole.documents:
        raise InputError(f"test-documents is {count}; the corpus has {whole.documents:,}.")
    held_out = Corpus(whole.shards, whole.words, whole.mark, whole.end - count, whole.end)
    if not 0 < seen < 1:
        raise InputError(f"seen is {seen}; write the part of each document's tokens that is seen, between 0 and 1.")
    test = split(held_out.gather(np.arange(count)), share=1 - seen, every=every, seed=seed)
    phi = over_words(found, whole.words)
    prior = (found.options or {}).get("alpha", 0.1) if alpha is None else alpha
    how: dict[str, Any] = {"alpha": prior, "key": seed, "sweeps": sweeps}
    last = None if found.last is None else over_words(found._replace(mean=found.last), whole.words)
    looked_at = sample_of(whole, LOOKED_AT)
    values = coherence(top_words(phi, words), looked_at)
    return {
        "perplexity": score_topics(test, phi, **how),
        "perplexity_last": None if last is None else score_topics(test, last, **how),
        "coherence": float(values.mean()),
        "coherence_documents": looked_at.documents,
        "coherence_words": words,
        "topics": phi.shape[1],
        "vocabulary": phi.shape[0],
        "documents": count,
        "documents_trained_on": trained_on(found, corpus, count),
        "held_out": test.how,
        "alpha": prior,
        "sweeps": sweeps,
        "seed": seed,
    }


def trained_on(found: Found, corpus: str | Path, documents: int) -> int | None:
    """How many of the scored documents the fit has learnt from, where that is known."""
    if found.corpus is None or found.options is None or Path(found.corpus).resolve() != Path(corpus).resolve():
        return None
    return max(0, documents - int(found.options["test_documents"]))
