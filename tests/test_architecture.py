"""The rooms import each other in one direction, which CONTRIBUTING.md writes down."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "strang"
MODULES = {
    ".".join(("strang", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in SOURCE.rglob("*.py")
}


def levels() -> dict[str, int]:
    """The level of each room, read off the line of arrows in CONTRIBUTING.md."""
    (line,) = re.findall(r"^`(util → .*)`$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    return {room.strip(): level for level, rooms in enumerate(line.split("→")) for room in rooms.split(",")}


def imported(source: str) -> set[str]:
    """Every module of the package that the source imports, wherever and however: also lazily, and by a string."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write absolute imports"
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return {name for name in found if name in MODULES and name != "strang"}


def room(module: str) -> str:
    return module.split(".")[1]


def test_the_parser_sees_every_kind_of_import():
    source = (
        "import strang.run.api as here\nfrom strang.run import (driver,\n result as outcome)\n"
        "def late():\n    from strang.lda import fitting\n    need('strang.sbn.fitting', 'numba')\n"
    )
    assert imported(source) == {
        "strang.run", "strang.run.api", "strang.run.driver", "strang.run.result", "strang.lda", "strang.lda.fitting",
        "strang.sbn.fitting",
    }  # fmt: skip


def test_every_room_has_a_level():
    assert {room(module) for module in MODULES if module != "strang"} == set(levels())


@pytest.mark.parametrize("module", sorted(set(MODULES) - {"strang"}))
def test_imports_go_one_way(module):
    level = levels()
    for other in imported(MODULES[module].read_text()):
        assert room(other) == room(module) or level[room(other)] < level[room(module)], f"{module} imports {other}"
