"""Makes screenshots of three pages: run_page.png, topics_page.png, reproduction_page.png.

    python docs/pictures/screenshots.py            the first two, and the third if report/index.html is there
    python docs/pictures/screenshots.py OTHER      with the reproduction in the folder OTHER

`make reproduce` makes report/. The topics are those of the docstrings of the Python packages that are installed with
Strang. Needs Chromium.
"""

import ast
import json
import subprocess
import sys
import sysconfig
import tempfile
from io import BytesIO
from pathlib import Path

from look import FOLDER, MAX_BYTES
from PIL import Image

ROOT = FOLDER.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from browser import chromium  # noqa: E402

PACKAGES = ("numpy", "scipy", "sklearn", "jax", "matplotlib", "optax", "distributed", "xarray")
MIN_WORDS = 20  # of a docstring that is a document
WIDTH = 1000

REGRESSION = """
import jax, jax.numpy as jnp, numpy as np, strang

rng = np.random.default_rng(0)
x = rng.normal(size=(500, 3)) * [1.0, 10.0, 0.1]
y = rng.random(500) < 1 / (1 + np.exp(-x @ [1.0, -0.1, 5.0]))
data = (x, y)
model = strang.Model(
    log_prior=lambda q: -jnp.sum(q["w"] ** 2) / 200,
    log_likelihood=lambda q, row: jax.nn.log_sigmoid(jnp.where(row[1], 1, -1) * (row[0] @ q["w"])),
    init={"w": jnp.zeros(3)},
)
"""


def strang(*arguments: str) -> None:
    subprocess.run([Path(sys.executable).parent / "strang", *arguments], check=True, stdout=subprocess.DEVNULL)


def run_page(folder: Path) -> Path:
    (folder / "regression.py").write_text(REGRESSION)
    model = f"{folder / 'regression.py'}:"
    strang("sample", f"{model}model", f"{model}data", "--html", str(folder / "run.html"))
    return folder / "run.html"


def topics_page(folder: Path) -> Path:
    lines = [json.dumps({"text": text}) for text in docstrings()]
    print(f"{len(lines):,} docstrings")
    (folder / "texts.jsonl").write_text("\n".join(lines))
    corpus, fit = str(folder / "corpus"), str(folder / "fit")
    strang("lda", "prepare", str(folder / "texts.jsonl"), corpus)
    strang("lda", "fit", corpus, "--store", fit, "--topics", "20", "--passes", "40", "--seed", "0")
    return folder / "fit" / "index.html"


def docstrings() -> list[str]:
    """Of all functions and classes of the packages that are long enough."""
    texts = []
    for package in PACKAGES:
        for path in sorted((Path(sysconfig.get_path("purelib")) / package).rglob("*.py")):
            if "test" in str(path.relative_to(sysconfig.get_path("purelib"))):
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    texts.append(ast.get_docstring(node) or "")
    return list(dict.fromkeys(text for text in texts if len(text.split()) >= MIN_WORDS))


def shoot(browser, page: Path, name: str, height: int, heading: str = "h1") -> None:
    """A page from a heading on, as a PNG of few colours, which is small and looks the same."""
    tab = browser.new_page(viewport={"width": WIDTH, "height": height}, color_scheme="light", device_scale_factor=1.6)
    tab.goto(page.resolve().as_uri(), wait_until="load")
    tab.add_style_tag(content=f"body {{ padding-bottom: {height}px }}")  # so that the heading can be at the top
    tab.evaluate("top => scrollTo(0, top - 30)", tab.locator(heading).first.bounding_box()["y"])
    picture = Image.open(BytesIO(tab.screenshot())).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    tab.close()
    picture.save(FOLDER / name, optimize=True)
    size = (FOLDER / name).stat().st_size
    print(f"{name}: {size:,} bytes")
    if size > MAX_BYTES:
        raise SystemExit(f"{name} has more than {MAX_BYTES:,} bytes.")


def main() -> None:
    report = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "report") / "index.html"
    with tempfile.TemporaryDirectory() as scratch, chromium() as browser:
        shoot(browser, run_page(Path(scratch)), "run_page.png", 1020)
        shoot(browser, topics_page(Path(scratch)), "topics_page.png", 660, "h2:text-is('Topics')")
        if report.exists():
            shoot(browser, report, "reproduction_page.png", 1560, ".kicker")


if __name__ == "__main__":
    main()
