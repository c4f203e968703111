"""Latent Dirichlet allocation on the command line, and its results as lines of text."""

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from strang.lda import paper_settings
from strang.util.command_line import Json, Parts, emit
from strang.util.errors import need
from strang.util.signatures import without

SOURCES = "A MediaWiki dump, Parquet or JSON lines, UCI docword*.txt, .npz, or a folder of text files."
lda_app = typer.Typer(help="Latent Dirichlet allocation: from text to topics.", no_args_is_help=True)


@lda_app.command()
def prepare(
    source: Annotated[Path, typer.Argument(help=SOURCES)],
    out: Annotated[Path, typer.Argument(help="A folder for the corpus.")],
    vocabulary: Annotated[Path | None, typer.Option(help="A file, one word per line; by default one is built.")] = None,
    words: Annotated[int | None, typer.Option(help="Words of a built vocabulary (10000).")] = None,
    min_documents: Annotated[int | None, typer.Option(help="Fewest documents with a word (5).")] = None,
    max_share: Annotated[float | None, typer.Option(help="Largest fraction of documents with a word (0.5).")] = None,
    stop_words: Annotated[Path | None, typer.Option(help="A file, one per line; by default a short list.")] = None,
    token_pattern: Annotated[str | None, typer.Option(help="Regular expression of a word; by default letters.")] = None,
    shard_documents: Annotated[int, typer.Option(help="Documents per shard, about.")] = 100_000,
    seed: Annotated[int, typer.Option(help="Of the order of the documents.")] = 0,
    workers: Annotated[int | None, typer.Option(help="Threads; by default one per core.")] = None,
    keep_good_part: Annotated[bool, typer.Option("--keep-good-part", help="Leave out what is damaged.")] = False,
    json: Json = False,
) -> None:
    """Count the words of a source into a folder of shuffled shards, which fits map into memory.

    A killed run resumes when it is called again. Without a vocabulary all words are counted first, and one is chosen.
    """
    options = without(locals(), "source", "out", "json")
    preparing = need("strang.lda.text.prepare", "lda")
    result = preparing.prepare(source, out, **options)
    emit(result, json, preparing.describe(result))


@lda_app.command()
def fit(
    corpus: Annotated[Path, typer.Argument(help="A prepared folder.")],
    store: Annotated[Path, typer.Option(help="The folder of the fit; the same command resumes after a kill.")],
    topics: Annotated[int | None, typer.Option(help="Topics K (100).")] = None,
    passes: Annotated[float | None, typer.Option(help="Passes over the corpus (1, or enough for 800 batches).")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Documents per batch (about 60,000 tokens).")] = None,
    batch_order: Annotated[str | None, typer.Option(help="iid, reshuffled (default), symmetric or cyclic.")] = None,
    dynamics: Annotated[str | None, typer.Option(help="sgrld (default), sghmc, sgnht or sgld.")] = None,
    integrator: Annotated[str | None, typer.Option(help="A word or name; by default the dynamics' own.")] = None,
    step_size: Annotated[float | None, typer.Option(help="h; by default from the corpus's size.")] = None,
    decay: Annotated[float | None, typer.Option(help="a of h (1 + l/d)^-a; by default 0, for sgrld 0.6.")] = None,
    delay: Annotated[float | None, typer.Option(help="d of it, in steps; by default 1000, for sgrld 8.")] = None,
    friction: Annotated[float | None, typer.Option(help="D; by default from the corpus's size.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Prior of a document's topic weights (0.1).")] = None,
    beta: Annotated[float | None, typer.Option(help="Prior of a topic's words (0.01).")] = None,
    parametrisation: Annotated[str | None, typer.Option(help="expanded-natural, or for sgrld expanded-mean.")] = None,
    sweeps: Annotated[int | None, typer.Option(help="Gibbs sweeps over a document per gradient (10).")] = None,
    samples: Annotated[int | None, typer.Option(help="Posterior samples to average, of the latter half (20).")] = None,
    test_documents: Annotated[int | None, typer.Option(help="Documents held out (1000, at most a tenth).")] = None,
    seed: Annotated[int | None, typer.Option(help="Of start, batches, noise and split (0).")] = None,
    parts: Parts = None,
    paper: Annotated[bool, typer.Option("--paper", help="The paper's settings; other options win over them.")] = False,
    json: Json = False,
) -> None:
    """Learn topics, streaming from disk, and score held-out documents by completion.

    The folder then has topics.npz, index.html (with strang\\[report]) and the state from which the fit resumes.
    """
    options = without(locals(), "corpus", "store", "paper", "json")
    fitting = need("strang.lda.fitting", "lda")
    options = {name: value for name, value in options.items() if value is not None}
    result = fitting.fit(store, corpus, **(paper_settings.settings(options) if paper else options))
    lines = describe(store, result)
    if paper:
        result["paper"] = paper_settings.comparison(options, result)
        lines += paper_settings.describe(result["paper"])
    emit(result, json, lines)


@lda_app.command()
def topics(
    store: Annotated[Path, typer.Argument(help="The folder of a fit.")],
    words: Annotated[int, typer.Option(help="Most probable words of each topic to list.")] = 10,
    corpus: Annotated[Path | None, typer.Option(help="Where the corpus is now, if it was moved.")] = None,
    documents: Annotated[int, typer.Option(help="Documents that coherence is measured on, at most.")] = 20_000,
    html: Annotated[Path | None, typer.Option(help="A file to write the fit's page to.")] = None,
    png: Annotated[Path | None, typer.Option(help="A file for a picture of the largest topics.")] = None,
    json: Json = False,
) -> None:
    """List the topics of a fit, largest first: fraction of all tokens, NPMI coherence, and the most probable words with
    the posterior mean and standard deviation of their probabilities."""
    options = without(locals(), "store", "json")
    result = need("strang.lda.page", "lda").list_topics(store, **options)
    emit(result, json, describe_topics(result))


@lda_app.command()
def score(
    topics: Annotated[Path, typer.Argument(help="A fit's folder, or a .npz (array topics) or .npy, either way round.")],
    corpus: Annotated[Path, typer.Argument(help="A prepared folder with the same vocabulary.")],
    test_documents: Annotated[int | None, typer.Option(help="How many of its last documents (1000, or all).")] = None,
    seen: Annotated[float, typer.Option(help="Fraction of a document's tokens that is seen, not scored.")] = 0.5,
    every: Annotated[int | None, typer.Option(help="Score every n-th token instead.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Prior of topic weights; by default the fit's, or 0.1.")] = None,
    sweeps: Annotated[int, typer.Option(help="Gibbs sweeps averaged over, after 20 of burn-in.")] = 100,
    words: Annotated[int, typer.Option(help="Most probable words of each topic, for coherence.")] = 10,
    seed: Annotated[int, typer.Option(help="Of the split and the sweeps.")] = 0,
    json: Json = False,
) -> None:
    """Score topics of any origin by document completion on a corpus, and by their coherence."""
    options = without(locals(), "topics", "corpus", "json", "test_documents")
    result = need("strang.lda.topics", "lda").score_file(topics, corpus, documents=test_documents, **options)
    emit(result, json, describe_score(result))


def describe(folder: Path, result: dict[str, Any]) -> list[str]:
    """The result of a fit."""
    friction = "" if result["friction"] is None else f", friction {result['friction']:.4g}"
    first = (
        f"{result['dynamics']} {result['integrator']} on {result['parametrisation']} topics, K = {result['topics']}, "
        f"h {result['step_size']:.3g}{friction}: {result['documents']:,} documents in {result['steps']:,} steps"
    )
    if result["seconds"] is not None:
        speed = result["documents"] / max(result["seconds"], 1e-9)
        first += f", {result['seconds']:.0f} s ({speed:,.0f} documents/s)"
    lines = [first]
    if result["perplexity"] is not None:
        last = f"last sample {result['perplexity_last']:.1f}, from few sweeps: up to 4 % too high, see strang lda score"
        lines.append(
            f"perplexity {result['perplexity']:.1f} over {result['samples']} posterior samples ({last}) of "
            f"{result['held_out']['documents']:,} held-out documents, {result['held_out']['tokens_scored']:,} tokens"
        )
    if result["temperature"] is not None:
        lines.append(f"temperature {result['temperature']:.3g} (should be 1)")
    if result["diverged"]:
        lines.append("the chain diverged; write a smaller --step-size")
    else:
        lines.append(f"the topics are in {folder / 'topics.npz'}; to see them: strang lda topics {folder}")
    return lines if result["page"] is None else [*lines, f"the page is {result['page']}"]


def describe_topics(result: dict[str, Any]) -> list[str]:
    """The topics of a fit, one per line."""
    several = result["samples"] and result["samples"] > 1
    spread = f"± one standard deviation over {result['samples']} posterior samples" if several else "of one sample"
    head = f"{len(result['topics'])} topics over {result['vocabulary']:,} words, largest first"
    lines = [f"{head}; probabilities in percent, {spread}"]
    if result["coherence_missing"]:
        lines.append(f"no coherence: {result['coherence_missing']}")
    lines.append(f"{'topic':>5}{'tokens':>8}{'NPMI':>7}  words")
    for topic in result["topics"]:
        words = ", ".join(f"{word['word']} {percent(word['probability'], word['sd'])}" for word in topic["words"])
        size = f"{100 * topic['share']:.2f} %" if math.isfinite(topic["share"]) else "-"
        npmi = "-" if topic["coherence"] is None else f"{topic['coherence']:.2f}"
        lines.append(f"{topic['topic']:>5}{size:>8}{npmi:>7}  {words}")
    return lines


def percent(value: float, sd: float) -> str:
    """
    >>> percent(0.0312, 0.0041), percent(0.5, float("nan"))
    ('3.1±0.41', '50')
    """
    return f"{100 * value:.2g}" + (f"±{100 * sd:.2g}" if math.isfinite(sd) else "")


def describe_score(result: dict[str, Any]) -> list[str]:
    """The scores of topics on a corpus."""
    how = result["held_out"]
    scored = f"one token in {how['every']}" if "every" in how else f"{100 * how['share']:.0f} % of the tokens"
    seed = "" if "every" in how else f" (seed {how['seed']})"
    last = "" if result["perplexity_last"] is None else f" (last sample {result['perplexity_last']:.1f})"
    lines = [
        f"perplexity {result['perplexity']:.1f}{last}: {result['topics']} topics on {result['documents']:,} documents, "
        f"{scored}{seed} scored, {how['tokens_scored']:,} in all",
        f"coherence (NPMI) {result['coherence']:.3f}, mean over topics, first {result['coherence_words']} words, "
        f"{result['coherence_documents']:,} documents",
    ]
    if (count := result["documents_trained_on"]) is not None and count > 0:
        lines.append(f"{count:,} of the scored documents were in the training data: the perplexity is too optimistic")
    return lines


def register(app: typer.Typer) -> None:
    app.add_typer(lda_app, name="lda")


def resume(folder: Path, spec: dict[str, Any], steps: int | None) -> tuple[dict[str, Any], list[str]]:
    result = need("strang.lda.fitting", "lda").resume(folder, spec, steps)
    return result, describe(folder, result)


STORED = {"lda fit": resume}
