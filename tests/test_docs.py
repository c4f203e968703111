"""The README's example and the documentation's code run as printed, but for sizes."""

import gzip
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
# What is printed, and what is run instead: the same with smaller numbers, and no cluster but this machine.
SMALLER = {
    "100_000": "2_000",
    "10_000,\n    chains": "200,\n    chains",
    "50_000": "1_000",
    "topics=200": "topics=3",
    "steps=2000": "steps=10",
    "steps=5000": "steps=10",
    "random_state=0).fit(": "random_state=0, hidden_layer_sizes=(2,), starts=1).fit(",
    "batch_size=200": "batch_size=20",
    "hidden=100": "hidden=4",
    "pictures.test[:500]": "pictures.test[:5]",
    '"tcp://10.0.0.1:8786"': "None",
}
SHORT = ("-W", "ignore:chains disagree", "-W", "ignore:the run is not to be trusted")  # as such short runs are
SURROUNDINGS = """
import jax
jax.config.update("jax_num_cpu_devices", 4)
"""


def code_blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def write_surroundings(folder: Path) -> None:
    """What the pages take for granted: a prepared corpus `wiki`, and MNIST in the cache."""
    from strang.lda.text.prepare import prepare

    rng = np.random.default_rng(0)
    words = [a + b for a in "abcdef" for b in "ghijk"]
    texts = [" ".join(rng.choice(words, 8)) for _ in range(300)]
    (folder / "texts.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in texts))
    prepare(folder / "texts.jsonl", folder / "wiki", progress=False)
    (folder / "cache" / "mnist").mkdir(parents=True)
    for part, count in (("train", 60), ("t10k", 10)):
        grey = rng.integers(0, 256, (count, 28, 28), np.uint8)
        header = np.array([2051, count, 28, 28], ">u4").tobytes()
        with gzip.open(folder / "cache" / "mnist" / f"{part}-images-idx3-ubyte.gz", "wb") as file:
            file.write(header + grey.tobytes())


@pytest.mark.parametrize("page", [page for page in PAGES if code_blocks(page)])
def test_code_runs_as_printed(page, tmp_path):
    """All blocks of a page, one after the other, in a process that has four devices."""
    write_surroundings(tmp_path)
    code = SURROUNDINGS + "\n".join(code_blocks(page))
    for printed, run in SMALLER.items():
        code = code.replace(printed, run)
    environment = {"PYTHONPATH": ":".join(sys.path), "STRANG_DATA": str(tmp_path / "cache"), "PATH": ""}
    command = [sys.executable, "-W", "error", *SHORT, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_pages_have_code():
    assert {page for page in PAGES if code_blocks(page)} == {
        "README.md", "docs/glm.md", "docs/lda.md", "docs/models.md", "docs/networks.md", "docs/sbn.md", "docs/scale.md",
        "docs/trust.md",
    }  # fmt: skip
