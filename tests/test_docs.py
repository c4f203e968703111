"""The README's example and the documentation's code run as printed."""

import re
from pathlib import Path

import strang
from strang.theory.certificate import weak_order

ROOT = Path(__file__).resolve().parent.parent


def code_blocks(path: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(), re.DOTALL)


def test_the_readme_example_runs():
    (example,) = code_blocks("README.md")
    small = example.replace("100_000", "2_000").replace("10_000", "200").replace("50_000", "1_000")
    names: dict = {}
    exec(compile(small, "README.md", "exec"), names)
    assert names["longer"].steps == 3_000
    assert names["run"].diverged == 0


def test_the_step_of_one_s_own_is_certified_as_claimed():
    (example,) = code_blocks("docs/extending.md")
    names: dict = {}
    exec(compile(example.split("strang.certificate")[0], "docs/extending.md", "exec"), names)
    assert weak_order(names["step"], strang.SGHMC).order == names["step"].order


def test_the_examples_of_data_on_disk_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for example in code_blocks("docs/scale.md")[:2]:
        exec(compile(example, "docs/scale.md", "exec"), names)
        assert names["run"].steps == 1000
        assert "waiting for data" in str(names["run"])


def test_imports_go_one_way():
    """Each module imports only from those before it."""
    order = [
        "errors",
        "files",
        "calibration",
        "tree",
        "random",
        "distributed",
        "share",
        "progress",
        "charts",
        "kernels",
        "integrator",
        "dynamics",
        "models",
        "sources",
        "data",
        "gradient",
        "noise",
        "schedule",
    ]
    order += [
        "average",
        "chain",
        "prepare",
        "team",
        "samples",
        "spec",
        "store",
        "arviz",
        "summary",
        "run",
        "cluster",
        "theory",
        "certificate",
        "words",
        "images",
        "sbn",
        "lda",
        "experiment",
        "report",
        "reproduce",
        "launch",
        "cli",
    ]
    for path in (ROOT / "src" / "strang").rglob("*.py"):
        parts = path.relative_to(ROOT / "src" / "strang").with_suffix("").parts
        if parts[0] == "__init__":
            continue
        source = path.read_text()
        dots = "." * len(parts)
        taken = re.findall(rf"^\s*from {re.escape(dots)}(\w+)", source, re.MULTILINE)
        taken += re.findall(rf"^\s*from {re.escape(dots)} import ([\w, ]+)", source, re.MULTILINE)
        names = {name.strip() for line in taken for name in line.split(",")} & set(order)
        late = [name for name in names if order.index(name) > order.index(parts[0])]
        assert not late, f"{path.name} imports {late}"
