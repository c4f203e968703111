"""What MkDocs builds beside the written pages: commands, names and sections of other files, and notebooks.

A page asks for them by comments of its own line: `<!-- commands -->`, `<!-- names schedule -->`, `<!-- section FILE:
Heading -->`.
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
ROOT = Path(__file__).resolve().parents[2]

import notebooks  # noqa: E402
import public  # noqa: E402


def on_files(files: Files, config: Any) -> Files:
    """The notebooks, executed where STRANG_NOTEBOOKS asks for it."""
    for page in notebooks.PAGES:
        text = notebooks.make(ROOT / "docs" / page, os.environ.get("STRANG_NOTEBOOKS") == "run")
        files.append(File.generated(config, notebooks.name(page), content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    path = page.file.src_uri
    if path in notebooks.PAGES:
        depth = "../" * path.count("/")
        link = f"[This page as a notebook]({depth}{notebooks.name(path)}){{ download }}\n"
        markdown = markdown.replace("\n\n", f"\n\n{link}\n", 1)
    markdown = re.sub(r"<!-- commands -->", lambda _: "\n".join(commands()), markdown)
    markdown = re.sub(r"<!-- names (\S+) -->", lambda found: "\n".join(names(found[1])), markdown)
    return re.sub(r"<!-- section (\S+): (.*?) -->", lambda found: section(ROOT / found[1], found[2]), markdown)


def on_post_build(config: Any) -> None:
    """The page for servers is not needed on disk, where its links would lead nowhere."""
    Path(config.site_dir, "404.html").unlink(missing_ok=True)


def names(of: str) -> Iterator[str]:
    """A reference of every public name of a module."""
    for name in public.names(public.module(of)):
        yield f"\n::: strang.{of}.{name}\n    options:\n      heading_level: 3\n"


def section(path: Path, heading: str) -> str:
    """The text below a heading of a file, up to the next one that is as high."""
    text = path.read_text()
    found = re.search(rf"(?m)^(#+) {re.escape(heading)}\n", text)
    if not found:
        raise ValueError(f"{path.name} has no heading {heading!r}")
    rest = text[found.end() :]
    end = re.search(rf"(?m)^#{{1,{len(found[1])}}} ", re.sub(r"(?s)```.*?```", lambda x: "`" * len(x[0]), rest))
    return rest[: end.start() if end else None].strip() + "\n"


def commands() -> Iterator[str]:
    """Every command by its own help."""
    import typer

    from strang.cli.app import app

    yield from command(typer.main.get_command(app), "strang")


def command(one: Any, name: str) -> Iterator[str]:
    inner = getattr(one, "commands", {})
    context = typer_context(one, name)
    yield f"## `{name}` {{ #{name.replace(' ', '-')} }}\n"
    yield f"```text\n{one.get_usage(context).removeprefix('Usage: ')}\n```\n"
    yield as_text(one.help or "") + "\n"
    records = [each.get_help_record(context) for each in one.get_params(context) if each.name != "help"]
    if any(records):
        yield "| argument or option | what it does |\n|---|---|"
        yield from (f"| `{left}` | {as_text(right)} |" for left, right in filter(None, records))
    yield ""
    for each, of in sorted(inner.items()):
        yield from command(of, f"{name} {each}")


def typer_context(one: Any, name: str) -> Any:
    import typer

    return typer.Context(one, info_name=name)


def as_text(text: str) -> str:
    """Help text as Markdown: what Rich would read as its own marks, and what Markdown would."""
    plain = text.replace("\\[", "[").replace("\b\n", "")
    marked = re.sub(r"([*_<>|\[\]])", r"\\\1", plain)
    return " ".join(marked.split()) if "\n\n" not in marked else marked
