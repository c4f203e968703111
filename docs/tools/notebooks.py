"""Three pages as notebooks, made of their Markdown by jupytext; with `run`, executed and with their outputs."""

import re
from pathlib import Path

import jupytext
import nbformat

PAGES = ("start/first.md", "guides/constraints.md", "guides/predictions.md")
SECONDS = 600  # that a cell may take


def name(page: str) -> str:
    return f"notebooks/{Path(page).stem}.ipynb"


def make(path: Path, run: bool) -> str:
    """The notebook of a page. Outputs that the page shows are left out: the notebook has its own."""
    text = re.sub(r"(?ms)^```text\n.*?^```\n", "", path.read_text())
    notebook = jupytext.reads(text, fmt="md")
    for cell in notebook.cells:
        if cell.cell_type == "markdown":  # the other pages are not beside it
            cell.source = re.sub(r"\[([^\]]*)\]\((?!http)[^)]*\)", r"\1", cell.source)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    if run:
        execute(notebook)
    return nbformat.writes(notebook)


def execute(notebook: nbformat.NotebookNode) -> None:
    import tempfile

    from nbclient import NotebookClient

    with tempfile.TemporaryDirectory() as here:
        NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": here}}).execute()
