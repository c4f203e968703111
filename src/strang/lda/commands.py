"""Latent Dirichlet allocation on the command line."""

from pathlib import Path
from typing import Annotated, Any

import typer

from strang.lda import format, paper_settings
from strang.util.command_line import Json, Parts, emit, options_in
from strang.util.errors import need

lda_app = typer.Typer(help="Latent Dirichlet allocation: from text to topics.", no_args_is_help=True)


@lda_app.command()
def prepare(
    source: Annotated[
        Path,
        typer.Argument(
            help="A MediaWiki dump, Parquet or JSON lines, UCI docword*.txt, .npz, or a folder of text files."
        ),
    ],
    out: Annotated[Path, typer.Argument(help="A folder for the corpus.")],
    vocabulary: Annotated[Path | None, typer.Option(help="A file, one word a line; by default one is built.")] = None,
    words: Annotated[int | None, typer.Option(help="Words of a built vocabulary (10000).")] = None,
    min_documents: Annotated[int | None, typer.Option(help="Fewest documents a word is in (5).")] = None,
    max_share: Annotated[float | None, typer.Option(help="Largest share of documents a word is in (0.5).")] = None,
    stop_words: Annotated[Path | None, typer.Option(help="A file, one a line; by default short English ones.")] = None,
    shard_documents: Annotated[int, typer.Option(help="Documents a shard, about.")] = 100_000,
    seed: Annotated[int, typer.Option(help="Of the order of the documents.")] = 0,
    workers: Annotated[int | None, typer.Option(help="Threads; by default one a core.")] = None,
    keep_good_part: Annotated[bool, typer.Option("--keep-good-part", help="Leave out what is damaged.")] = False,
    json: Json = False,
) -> None:
    """Count the words of a source into a folder of shuffled shards, mapped into memory by whoever reads it.

    A killed run goes on when it is called again. Where no vocabulary is given all words are counted first, and the
    vocabulary is chosen from them.
    """
    options = options_in(locals(), "source", "out", "json")
    preparing = need("strang.lda.text.prepare", "lda")
    found = preparing.prepare(source, out, **options)
    emit(found, json, preparing.describe(found))


@lda_app.command()
def fit(
    corpus: Annotated[Path, typer.Argument(help="A prepared folder.")],
    store: Annotated[Path, typer.Option(help="The folder of the fit; the same command goes on after a kill.")],
    topics: Annotated[int | None, typer.Option(help="Topics K (100).")] = None,
    passes: Annotated[
        float | None, typer.Option(help="Times that the corpus is seen (1, or as often as makes 800 batches).")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Documents per batch (about 60,000 tokens).")] = None,
    batch_order: Annotated[str | None, typer.Option(help="iid, reshuffled (default), symmetric or cyclic.")] = None,
    dynamics: Annotated[str | None, typer.Option(help="sgrld (default), sghmc, sgnht or sgld.")] = None,
    integrator: Annotated[str | None, typer.Option(help="A word or name; by default the dynamics' own.")] = None,
    step_size: Annotated[float | None, typer.Option(help="h; by default from the corpus's size.")] = None,
    decay: Annotated[float | None, typer.Option(help="a of h (1 + l/d)^-a; by default 0, for sgrld 0.6.")] = None,
    delay: Annotated[float | None, typer.Option(help="d of it, in steps; by default 1000, for sgrld 8.")] = None,
    friction: Annotated[float | None, typer.Option(help="D; by default from the corpus's size.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Prior of a document's shares of topics (0.1).")] = None,
    beta: Annotated[float | None, typer.Option(help="Prior of a topic's words (0.01).")] = None,
    parametrisation: Annotated[str | None, typer.Option(help="expanded-natural, or for sgrld expanded-mean.")] = None,
    sweeps: Annotated[int | None, typer.Option(help="Gibbs sweeps over a document for a gradient (10).")] = None,
    samples: Annotated[int | None, typer.Option(help="Posterior samples averaged, over the latter half (20).")] = None,
    test_documents: Annotated[int | None, typer.Option(help="Documents held out (1000, at most a tenth).")] = None,
    seed: Annotated[int | None, typer.Option(help="Of start, batches, noise and split (0).")] = None,
    parts: Parts = None,
    paper: Annotated[bool, typer.Option("--paper", help="The paper's settings; other options win over them.")] = False,
    json: Json = False,
) -> None:
    """Learn topics, streaming from disk, and score held-out documents by completion.

    The folder then has topics.npz, index.html (with strang\\[report]) and what it needs to go on.
    """
    options = options_in(locals(), "corpus", "store", "paper", "json")
    fitting = need("strang.lda.fitting", "lda")
    given = {name: value for name, value in options.items() if value is not None}
    result = fitting.fit(store, corpus, **(paper_settings.settings(given) if paper else given))
    lines = format.describe(store, result)
    if paper:
        result["paper"] = paper_settings.told(given, result)
        lines += paper_settings.describe(result["paper"])
    emit(result, json, lines)


@lda_app.command()
def topics(
    store: Annotated[Path, typer.Argument(help="The folder of a fit.")],
    words: Annotated[int, typer.Option(help="First words of each topic.")] = 10,
    corpus: Annotated[Path | None, typer.Option(help="Where the corpus is now, if it was moved.")] = None,
    documents: Annotated[int, typer.Option(help="Documents that coherence is measured on, at most.")] = 20_000,
    html: Annotated[Path | None, typer.Option(help="A file to write the fit's page to.")] = None,
    png: Annotated[Path | None, typer.Option(help="A file for a picture of the largest topics.")] = None,
    json: Json = False,
) -> None:
    """The topics of a fit, the largest first: share of all tokens, NPMI coherence, and the first words with the
    posterior mean and standard deviation of their probabilities."""
    listing = need("strang.lda.listing", "lda")
    result = listing.show(store, words=words, corpus=corpus, documents=documents, html=html, png=png)
    emit(result, json, format.describe_topics(result))


@lda_app.command()
def score(
    topics: Annotated[
        Path, typer.Argument(help="The folder of a fit, or a .npz (array topics) or .npy, either way round.")
    ],
    corpus: Annotated[Path, typer.Argument(help="A prepared folder with the same vocabulary.")],
    test_documents: Annotated[int | None, typer.Option(help="Its last so many documents (1000, or all).")] = None,
    seen: Annotated[float, typer.Option(help="Share of a document's tokens that is seen, not scored.")] = 0.5,
    every: Annotated[int | None, typer.Option(help="Score every so manieth token instead.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Prior of the shares; by default the fit's, or 0.1.")] = None,
    sweeps: Annotated[int, typer.Option(help="Gibbs sweeps averaged over, after 20 of burn-in.")] = 20,
    words: Annotated[int, typer.Option(help="First words of each topic that coherence is about.")] = 10,
    seed: Annotated[int, typer.Option(help="Of the split and the sweeps.")] = 0,
    json: Json = False,
) -> None:
    """Judge topics, whoever made them, by document completion on a corpus, and by their coherence."""
    scoring = need("strang.lda.scoring", "lda")
    settings = {"documents": test_documents, "seen": seen, "every": every, "alpha": alpha, "sweeps": sweeps}
    result = scoring.judge(topics, corpus, **settings, words=words, seed=seed)
    emit(result, json, format.describe_score(result))


def register(app: typer.Typer) -> None:
    app.add_typer(lda_app, name="lda")


def resume(folder: Path, spec: dict[str, Any], steps: int | None) -> tuple[dict[str, Any], list[str]]:
    result = need("strang.lda.fitting", "lda").resume(folder, spec, steps)
    return result, format.describe(folder, result)


STORED = {"lda fit": resume}
