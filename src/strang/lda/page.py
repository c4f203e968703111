"""The topics of a stored fit as a record, as a picture and, with perplexity and temperature, as a page."""

from pathlib import Path
from typing import Any

from strang.lda.corpus import Corpus
from strang.lda.settings import IN_JSON
from strang.lda.topics import COHERENCE_DOCUMENTS, corpus_of, load, topic_rows
from strang.report.figures import bars_png
from strang.report.pages import TEMPERATURE, Section, fit_page, learning_curves, write_index
from strang.report.panels import Bar, Bars
from strang.storage.series import latest, read_series
from strang.util.errors import InputError
from strang.util.files import replace_file
from strang.util.signatures import renamed

MAX_TOPICS_ON_PAGE = 200
MAX_TOPICS_IN_PICTURE = 16
WORDS_PER_TOPIC = 10
PANELS = {  # the curves of each, by their names in the series
    "Perplexity of held-out documents, by completion": {"perplexity": "averaged", "perplexity_last": "last sample"},
    **TEMPERATURE,
}


def list_topics(
    folder: str | Path,
    *,
    words: int = WORDS_PER_TOPIC,
    corpus: str | Path | None = None,
    documents: int = COHERENCE_DOCUMENTS,
    html: Path | None = None,
    png: Path | None = None,
) -> dict[str, Any]:
    """The topics of a fit, largest first; also written to the files `html` and `png`, if any."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder of a fit; for topics in a file: strang lda score {folder} CORPUS.")
    if documents < 1:
        raise InputError(f"documents is {documents}; write at least 1.")
    stored = load(folder)
    source, missing = corpus_of(stored, corpus)
    topics = topic_rows(stored, words, source, documents)
    if html is not None:
        last = {"step": 0, "documents": 0} | latest(read_series(folder))
        facts = {**renamed(stored.options or {}, IN_JSON), **last, "steps": last["step"], "samples": stored.samples}
        replace_file(html, page(folder, facts, topics).encode())
    if png is not None:
        bars_png(bars(topics[:MAX_TOPICS_IN_PICTURE]), png)
    return {
        "topics": topics,
        "vocabulary": len(stored.mean),
        "samples": stored.samples,
        "coherence_documents": None if source is None else min(documents, source.documents),
        "coherence_missing": missing,
        "html": None if html is None else str(html),
        "png": None if png is None else str(png),
    }


def write_page(folder: Path, facts: dict[str, Any], corpus: Corpus) -> str | None:
    """Write index.html into the folder of a fit, if the extra `report` is installed."""
    count, stored = min(WORDS_PER_TOPIC, len(corpus.words)), (folder / "topics.npz").exists()
    return write_index(folder, lambda: page(folder, facts, topic_rows(load(folder), count, corpus) if stored else []))


def page(folder: Path, facts: dict[str, Any], topics: list[dict[str, Any]]) -> str:
    """The page of a fit; `facts` are the rows of its table."""
    sections = []
    if topics:
        text = (
            f"The most probable words of each topic (of the {MAX_TOPICS_ON_PAGE} largest at most): bars are posterior "
            "means, on a scale of its own for every topic, and lines are ± one standard deviation over the posterior "
            "samples. NPMI measures whether the words occur in the same documents: 1 always, 0 independently, −1 never."
        )
        sections.append(Section("Topics", text, bars=bars(topics[:MAX_TOPICS_ON_PAGE])))
    lead = (
        f"Latent Dirichlet allocation by {facts['dynamics'].upper()}, batches of {facts['batch']} documents: "
        f"{facts['documents']:,} documents seen in {facts['steps']:,} steps."
    )
    curves = learning_curves(read_series(folder), "documents", PANELS)
    return fit_page(f"{facts['topics']} topics", lead, curves, sections, facts)


def bars(topics: list[dict[str, Any]]) -> list[Bars]:
    """The topics as bars of their words' probabilities.

    >>> bars([{"topic": 3, "share": 0.0512, "coherence": 0.2, "words": []}])[0].title
    'topic 3 · 5.1 % · NPMI 0.20'
    """
    drawn = []
    for topic in topics:
        size = f" · {100 * topic['share']:.1f} %" if topic["share"] == topic["share"] else ""
        npmi = "" if topic["coherence"] is None else f" · NPMI {topic['coherence']:.2f}"
        drawn.append(Bars(f"topic {topic['topic']}{size}{npmi}", [Bar(*word.values()) for word in topic["words"]]))
    return drawn
