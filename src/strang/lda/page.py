"""A fit as a page: perplexity against documents, temperature, and the topics with their uncertainty."""

from pathlib import Path
from typing import Any

from strang.lda.corpus import Corpus
from strang.lda.topics import listing, load
from strang.report.pages import Section, available, plain_page
from strang.report.panels import Bar, Bars, Panel, Series, Table
from strang.storage.series import read_series
from strang.util.files import replace_file

MOST = 200  # topics that a page shows
WORDS = 10  # of each


def write_page(folder: Path, facts: dict[str, Any], corpus: Corpus) -> str | None:
    """index.html in the folder, where what makes pages is installed."""
    if not available():
        return None
    topics = listing(load(folder), min(WORDS, len(corpus.words)), corpus) if (folder / "topics.npz").exists() else []
    replace_file(folder / "index.html", page(folder, facts, topics).encode())
    return str(folder / "index.html")


def page(folder: Path, facts: dict[str, Any], topics: list[dict[str, Any]]) -> str:
    """The page of a fit, with what is to stand in its table."""
    series = read_series(folder)
    sections = [Section("How it went", panels=panels(series))]
    if topics:
        shown = f" Shown are the largest {MOST} of {len(topics)}." if len(topics) > MOST else ""
        text = (
            "The first words of each topic: bars are the posterior means of their probabilities, on a scale of its own "
            "for every topic, and lines are ± one standard deviation over the posterior samples. NPMI tells whether "
            f"the words occur in the same documents: 1 always, 0 independently, −1 never.{shown}"
        )
        sections.append(Section("Topics", text, bars=bars(topics[:MOST])))
    rows = [[name, value if isinstance(value, int | float | None) else str(value)] for name, value in facts.items()]
    sections.append(Section("Settings and results", tables=[Table("As in the JSON", ["name", "value"], rows)]))
    lead = (
        f"Latent Dirichlet allocation by {facts['dynamics'].upper()}, batches of {facts['batch']} documents: "
        f"{facts['documents']:,} documents seen in {facts['steps']:,} steps."
    )
    return plain_page(f"{facts['topics']} topics", lead, sections)


def panels(series: list[dict[str, Any]]) -> list[Panel]:
    perplexities = [("perplexity", "mean over samples", True), ("perplexity_last", "last sample", False)]
    shown = [
        ("Perplexity of held-out documents, by completion", "perplexity", perplexities),
        ("Mean p²: 1 where the law is right, above where gradients are noisy", "mean p²", [("temperature", "", False)]),
    ]
    found = []
    for title, label, lines in shown:
        drawn = [Series(name or label, points(series, key), emphasis) for key, name, emphasis in lines]
        drawn = [line for line in drawn if line.points]
        if drawn:
            values = [point["exact"] for line in drawn for point in line.points]
            wide = min(values) > 0 and max(values) > 10 * min(values)
            found.append(Panel(title, "documents", label, drawn, log_x=False, log_y=wide))
    return found


def points(series: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return [
        {"x": line["documents"], "value": None, "se": None, "exact": line[key]}
        for line in series
        if isinstance(line.get(key), int | float) and "documents" in line
    ]


def bars(topics: list[dict[str, Any]]) -> list[Bars]:
    """The topics as bars of their words' probabilities."""
    return [
        Bars(title(topic), [Bar(word["word"], word["probability"], word["sd"]) for word in topic["words"]])
        for topic in topics
    ]


def title(topic: dict[str, Any]) -> str:
    """
    >>> title({"topic": 3, "share": 0.0512, "coherence": 0.2})
    'topic 3 · 5.1 % · NPMI 0.20'
    """
    share = f" · {100 * topic['share']:.1f} %" if topic["share"] == topic["share"] else ""
    return f"topic {topic['topic']}{share}" + (
        "" if topic["coherence"] is None else f" · NPMI {topic['coherence']:.2f}"
    )
