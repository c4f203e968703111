"""The topics of a stored fit: as a record, a page, a picture."""

from pathlib import Path
from typing import Any

from strang.lda.page import bars, page
from strang.lda.settings import IN_JSON
from strang.lda.topics import LOOKED_AT, corpus_of, listing, load
from strang.report import bars as pictures
from strang.storage.series import latest, read_series
from strang.util.errors import InputError
from strang.util.files import replace_file
from strang.util.signatures import renamed

PICTURED = 16  # topics in a picture


def show(
    folder: str | Path,
    *,
    words: int = 10,
    corpus: str | Path | None = None,
    documents: int = LOOKED_AT,
    html: Path | None = None,
    png: Path | None = None,
) -> dict[str, Any]:
    """The topics of a fit, the largest first; `html` and `png` are files to write them to."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(
            f"{folder} is no folder of a fit; to judge topics in a file: strang lda score {folder} CORPUS."
        )
    if documents < 1:
        raise InputError(f"documents is {documents}; write at least 1.")
    found = load(folder)
    source, missing = corpus_of(found, corpus)
    topics = listing(found, words, source, documents)
    if html is not None:
        last = {"step": 0, "documents": 0} | latest(read_series(folder))
        facts = {**renamed(found.options or {}, IN_JSON), **last, "steps": last["step"], "samples": found.samples}
        replace_file(html, page(folder, facts, topics).encode())
    if png is not None:
        pictures.png(bars(topics[:PICTURED]), png)
    return {
        "topics": topics,
        "vocabulary": len(found.mean),
        "samples": found.samples,
        "coherence_documents": None if source is None else min(documents, source.documents),
        "coherence_missing": missing,
        "html": None if html is None else str(html),
        "png": None if png is None else str(png),
    }
