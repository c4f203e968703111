"""README is short, its links and pictures are there, and its printed table is what its example prints."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "RELEASING.md", "VISION.md")
EXAMPLE, PRINTED = re.search(r"```python\n(.*?)```\n```\n(.*?)```", README, re.DOTALL).groups()  # type: ignore[union-attr]
MAX_WORDS = 700
MAX_BYTES = 200_000  # of a picture


def test_it_is_short():
    """Everything between white space counts, code and link targets too, but for the printed table."""
    assert len(README.replace(PRINTED, "").split()) <= MAX_WORDS


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page):
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (ROOT / page).read_text("utf-8"))
    assert [target for target in targets if ":" not in target and not (ROOT / target).is_file()] == []


def test_pictures_are_small_and_have_a_text():
    pictures = re.findall(r"!\[(.*?)\]\((.*?)\)", README)
    assert len(pictures) >= 1
    assert all(len(text) > 40 for text, _ in pictures)
    assert [path.name for path in (ROOT / "docs/pictures").glob("*.png") if path.stat().st_size > MAX_BYTES] == []


def numbers(text: str) -> dict[str, list[float]]:
    """The rows of a printed table by name."""
    rows = re.findall(r"^(w\[\d\]) +(.*)$", text, re.MULTILINE)
    return {name: [float(each.replace(",", "")) for each in row.split()] for name, row in rows}


def test_the_printed_table_is_what_the_example_prints(capsys):
    """But for the last digits, which differ from machine to machine, and ESS, which ArviZ has its own formula for."""
    exec(EXAMPLE, {})
    told = capsys.readouterr().out
    printed, actual = numbers(PRINTED), numbers(told)
    assert list(printed) == list(actual) == ["w[0]", "w[1]", "w[2]"]
    assert PRINTED.splitlines()[1].split() == told.splitlines()[1].split()
    for name, row in printed.items():
        sd = actual[name][1]
        assert row[:5] == pytest.approx(actual[name][:5], abs=0.05 * sd)  # mean, sd, quantiles
        assert row[5:7] == pytest.approx(actual[name][5:7], rel=1, abs=0.003 * sd)  # the two errors
    assert PRINTED.splitlines()[5].startswith("trusted: ")
    assert told.splitlines()[5].startswith("trusted: ")
