"""The README's example and the documentation's code run as printed, but for sizes, and print what the pages show."""

import gzip
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs" / "tools"))

import blocks  # noqa: E402

HAS_MKDOCS = importlib.util.find_spec("mkdocs") is not None
NOTEBOOKS = ("docs/start/first.md", "docs/guides/constraints.md", "docs/guides/predictions.md")  # see test_site.py
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if blocks.blocks_of(path.read_text())
)
# Pages that share a process; one that asks for several devices comes first, before anything has used JAX.
TOGETHER = {
    "sizes": ("docs/guides/devices.md", "docs/guides/disk.md", "docs/guides/resume.md", "docs/guides/settings.md"),
    "models": ("docs/guides/models.md", "docs/guides/modules.md", "docs/guides/trust.md", "README.md"),
    "applications": (
        "docs/guides/belief.md", "docs/guides/networks.md", "docs/guides/regression.md", "docs/guides/topics.md",
    ),
    "others": ("docs/guides/others.md", "docs/index.md"),
    "understand": (
        "docs/understand/bias.md", "docs/understand/noise.md", "docs/understand/orders.md", "docs/understand/tests.md",
    ),
    **({} if HAS_MKDOCS else {"notebooks": NOTEBOOKS}),
}  # fmt: skip
# What is printed, and what is run instead: the same with smaller numbers, and no cluster but this machine.
SMALLER = {
    "100_000": "2_000",
    "10_000,\n    chains": "200,\n    chains",
    "topics=200": "topics=3",
    "steps=2000": "steps=10",
    "steps=5000": "steps=10",
    "6_000": "600",
    "1_500": "150",
    "thin=150": "thin=15",
    "random_state=0).fit(": "random_state=0, hidden_layer_sizes=(2,), starts=1).fit(",
    "steps=500, starts=2": "steps=20, starts=1",
    "batch_size=200": "batch_size=20",
    "hidden=100": "hidden=4",
    "pictures.test[:500]": "pictures.test[:5]",
    '"steps": 20_000, "burn_in": 2_000, "chains": 40': '"steps": 600, "burn_in": 60, "chains": 40',
    "sold), error=0.1)": "sold), steps=300)",
    "error=0.1, holdout=0.1)": "error=0.5, holdout=0.1)",
    '"tcp://10.0.0.1:8786"': "None",
}
# The same, where what is printed has the same words all the same, and is compared.
SHORTER = {
    "steps=40_000,\n    burn_in=4_000": "steps=4_000,\n    burn_in=400",
    "np.repeat([1e-3, 5e-4], 50)": "np.repeat([1e-3, 5e-4], 10)",
    "burn_in=1000, chains=100": "burn_in=1000, chains=20",
    "(store, price, sold), error=0.1)": "(store, price, sold), error=0.3)",
}
SHORT = ("-W", "ignore:chains disagree", "-W", "ignore:the run is not to be trusted")  # as such short runs are


def write_surroundings(folder: Path) -> None:
    """What the pages take for granted: a prepared corpus `wiki`, and MNIST in the cache."""
    from strang.lda.text.prepare import prepare

    rng = np.random.default_rng(0)
    words = [a + b for a in "abcdef" for b in "ghijk"]
    texts = [" ".join(rng.choice(words, 8)) for _ in range(300)]
    (folder / "texts.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in texts))
    (folder / "here").mkdir()
    prepare(folder / "texts.jsonl", folder / "here" / "wiki", progress=False)
    (folder / "cache" / "mnist").mkdir(parents=True)
    for part, count in (("train", 60), ("t10k", 10)):
        grey = rng.integers(0, 256, (count, 28, 28), np.uint8)
        header = np.array([2051, count, 28, 28], ">u4").tobytes()
        with gzip.open(folder / "cache" / "mnist" / f"{part}-images-idx3-ubyte.gz", "wb") as file:
            file.write(header + grey.tobytes())


@pytest.mark.parametrize("group", TOGETHER)
def test_code_runs_as_printed(group, tmp_path):
    """All blocks of a page, one after the other; some pages share a process, each with a folder and names of its own.
    What a page shows below a block is what the block prints, but for numbers, unless the block was made smaller."""
    write_surroundings(tmp_path)
    environment = {
        "PYTHONPATH": ":".join(sys.path),
        "STRANG_DATA": str(tmp_path / "cache"),
        **{
            name: os.environ[name]
            for name in ("STRANG_COMPILED", "XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS")
            if name in os.environ
        },
        "STRANG_SMALLER": json.dumps(SMALLER | SHORTER),
        "STRANG_SURROUNDINGS": str(tmp_path / "here"),
        "PATH": "",
    }
    command = [sys.executable, "-W", "error", *SHORT, ROOT / "docs/tools/blocks.py", *TOGETHER[group]]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    for result in results:
        assert "error" not in result, result["error"]
        check_outputs(result["page"], result["printed"])
    assert done.returncode == 0, done.stderr
    assert tuple(result["page"] for result in results) == TOGETHER[group]


def check_outputs(page: str, printed: list[str | None]) -> None:
    """The page shows what its blocks printed."""
    for block, output in zip(blocks.blocks_of((ROOT / page).read_text()), printed, strict=True):
        made_smaller = any(large in block.code for large in SMALLER)
        if block.shown is None or output is None or made_smaller:
            continue
        assert block.shown.strip(), f"{page} shows an empty output; run docs/tools/blocks.py --write {page}"
        assert not (missing := blocks.same(block.shown, output)), f"{page} shows {missing}, and {output!r} was printed"


def test_what_is_run_smaller_is_still_on_a_page():
    pages = "".join((ROOT / page).read_text() for page in PAGES)
    assert [large for large in SMALLER | SHORTER if large not in pages] == []


def test_every_page_with_code_is_run():
    assert sorted(page for group in TOGETHER.values() for page in group) == [
        page for page in PAGES if not (HAS_MKDOCS and page in NOTEBOOKS)
    ]


def test_numbers_are_elided_and_words_are_not():
    shown = "w[0]  0.9669  ± 0.001  –  12,209\ntrusted: at most 3.1e-05"
    assert blocks.same(shown, "w[0]   -1.2 ± 3e-4 7 8\ntrusted: at most 0.2\n") == []
    assert blocks.same(shown, "w[0]   -1.2 ± 3e-4 7 8\nnot trusted: at most 0.2\n") == ["trusted: at most 3.1e-05"]


@pytest.mark.parametrize("guide", sorted((ROOT / "docs" / "guides").glob("[!i]*.md")), ids=lambda path: path.stem)
def test_a_guide_begins_with_code_that_stands_alone(guide):
    """Its first block is Python, and imports what it uses."""
    text = guide.read_text()
    first = re.search(r"(?m)^```(\w*)", text)
    assert first is not None
    assert first[1] == "python"
    assert "import" in blocks.blocks_of(text)[0].code
    assert len(text[: first.start()].split()) < 80, "code first, then words"
