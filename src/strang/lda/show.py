"""The topics of a stored fit: as a record, a page, a picture."""

from pathlib import Path
from typing import Any

from ..charts import bars as pictures
from ..errors import InputError
from ..files import replace_file
from ..store import latest, read_series
from .page import bars, page
from .topics import LOOKED_AT, corpus_of, listing, load

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
        facts = {**(found.options or {}), **last, "steps": last["step"], "samples": found.samples}
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
