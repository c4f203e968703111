"""Tries a built wheel as a new user would:  python tests/wheel.py dist   (`make dist` does it)

The wheel is installed in an empty environment, with the core dependencies only. There the README's first example has to
run and to be trusted, `strang --help` has to list the commands, and whatever needs more has to say in one sentence what
to install. A failure ends with status 1.
"""

import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = {"strang/py.typed", "strang/paper/page.html", "strang/report/plain.html"}  # what is no Python file
OPTIONAL = ("matplotlib", "jinja2", "numba", "pyarrow", "sklearn", "arviz_base", "distributed", "numpyro", "flax",
            "equinox", "formulaic", "pandas")  # fmt: skip
# What needs an extra, and which.
COMMANDS = {
    ("sample", "gaussian", "--html", "page.html"): "report",
    ("reproduce", "fig1"): "report",
    ("lda", "prepare", "texts.jsonl", "corpus"): "lda",
    ("lda", "fit", "corpus", "--store", "run"): "lda",
    ("lda", "topics", "run"): "lda",
    ("lda", "score", "topics.npz", "corpus"): "lda",
    ("glm", "table.csv", "y ~ x"): "glm",
    ("sample", "gaussian", "--data", "rows.parquet", "--step-size", "1e-3"): "tables",
    ("sample", "gaussian", "--scheduler", "tcp://127.0.0.1:1", "--step-size", "1e-3"): "dask",
}
NAMES = {
    "strang.LDA": "sklearn",
    "strang.BNNClassifier": "sklearn",
    "strang.BNNRegressor": "sklearn",
    "strang.lda.TopicModel": "lda",
    "strang.glm('y ~ x', {'x': [0.0, 1.0], 'y': [0.0, 1.0]})": "glm",
    "strang.models.from_numpyro(lambda x: None)": "numpyro",
    "strang.models.from_nnx(None, None)": "flax",
    "strang.models.from_equinox(None, None)": "equinox",
}


class Failure(Exception):
    """What a new user would stumble over."""


def check(holds: object, sentence: str) -> None:
    if not holds:
        raise Failure(sentence)


def wheel_in(folder: Path) -> Path:
    wheels = sorted(folder.glob("strang-*.whl"))
    check(len(wheels) == 1, f"{folder} has {len(wheels)} wheels; run make dist.")
    return wheels[0]


def check_files(wheel: Path) -> None:
    """The package and nothing else is in it."""
    files = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    source = {f"strang/{path.relative_to(ROOT / 'src/strang')}" for path in (ROOT / "src/strang").rglob("*.py")}
    check(files == source | DATA, f"in the wheel or in src only: {sorted(files ^ (source | DATA))}")


def check_example(python: Path, folder: Path) -> None:
    """The README's first block prints a table and a verdict, without a warning."""
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    check(block, "README.md has no example.")
    (folder / "example.py").write_text(block[1], "utf-8")  # type: ignore[index]
    done = run([python, "-W", "error", "example.py"], folder)
    check(done.returncode == 0 and "\ntrusted: " in done.stdout, f"the example fails:\n{done.stdout}{done.stderr}")
    print(done.stdout)


def check_commands(strang: Path, folder: Path) -> None:
    done = run([strang, "--help"], folder)
    listed = all(name in done.stdout for name in ("sample", "tune", "report", "lda", "sbn", "glm", "reproduce"))
    check(done.returncode == 0 and listed, f"strang --help ends with {done.returncode}:\n{done.stdout}{done.stderr}")
    check(run([strang, "order", "chen:ABOBA"], folder).returncode == 0, "strang order chen:ABOBA fails.")
    for command, extra in COMMANDS.items():
        done = run([strang, *command], folder)
        is_told = done.returncode == 2 and done.stderr.count("\n") == 1 and f"'strang[{extra}]'" in done.stderr
        check(is_told, f"strang {' '.join(command)} ends with {done.returncode}:\n{done.stderr}")


def check_names(python: Path, folder: Path) -> None:
    script = "import sys, strang\nfor code in sys.argv[1:]:\n try: eval(code)\n except strang.InputError as e: print(e)"
    done = run([python, "-c", script, *NAMES], folder)
    told = done.stdout.splitlines()
    check(len(told) == len(NAMES), f"of {list(NAMES)} some do not say what to install:\n{done.stdout}{done.stderr}")
    for (code, extra), sentence in zip(NAMES.items(), told, strict=True):
        check(f"'strang[{extra}]'" in sentence, f"{code} says: {sentence}")


def run(command: list, folder: Path) -> subprocess.CompletedProcess:
    """Far from the checkout, with nothing of it on the path."""
    settings = {"PATH": "", "HOME": str(folder)}
    return subprocess.run([str(part) for part in command], cwd=folder, env=settings, capture_output=True, text=True)


def main() -> None:
    wheel = wheel_in(Path(sys.argv[1]))
    check_files(wheel)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        venv.create(folder / "empty", with_pip=True)
        programs = folder / "empty" / "bin"
        install = [programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "-c", ROOT / "constraints.txt", wheel.resolve()], check=True)
        found = [name for name in OPTIONAL if not run([programs / "python", "-c", f"import {name}"], folder).returncode]
        check(not found, f"a plain install brings {', '.join(found)} along.")
        check_example(programs / "python", folder)
        check_commands(programs / "strang", folder)
        check_names(programs / "python", folder)
    print(f"{wheel.name}: installs with the core dependencies only, and does what README says")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"tests/wheel.py: {failure}")
