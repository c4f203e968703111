"""The page of the reproduction: self-contained, escaped, the same bytes every time, and complete in a browser."""

import hashlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import browser
from strang.paper import page
from strang.paper.figure import NOT_REPRODUCED, REPRODUCED, UNDER_READING, Figure, Verdict
from strang.report import figures as draw
from strang.report.panels import Panel, Series, Table
from strang.util.errors import InputError

NASTY = """<script>alert(1)</script> & "quotes" 'single' </svg></style> $x_1$ {{ 7 * 7 }} ]]> <img src=x onerror=x()>"""
VOID = {"meta", "link", "br"}


def point(x, value=None, se=None, exact=None, **more):
    return {"x": x, "value": value, "se": se, "exact": exact, **more}


def panels() -> list[Panel]:
    plain = Series("splitting", [point(h, 2 * h, 0.1 * h, 2.1 * h) for h in (0.001, 0.01, 0.1)], emphasis=True)
    negative = Series(
        "Euler", [point(0.001, -0.003, 0.001, -0.002), point(0.01, 0.0, 0.1, 0.004), point(0.1, -1e-5, 9, 1)]
    )
    lost = Series("lost", [point(0.001, 0.01, 0.5), point(0.01, diverged=50), point(0.1, float("nan"), diverged=0)])
    only = Series("exact only", [point(h, exact=h * h) for h in (0.001, 0.003, 0.01, 0.03, 0.1)])
    bare = Series(NASTY, [point(h, h, 0.01) for h in (0.002, 0.02)])
    marks = [0.05, 0.2, float("inf")]
    steps = Series("α = 1/3", [point(10**k, (-1) ** k * 0.5, 0.1, 0.4 - 0.1 * k) for k in range(4)])
    return [
        Panel("Bias", "step size h", "bias of θ²", [plain, negative, lost, only], marks),
        Panel(NASTY, NASTY, NASTY, [bare], [0.01]),
        Panel("Linear", "steps", "slope", [steps, Series("nothing", [])], log_y=False),
        Panel("Empty", "x", "y", []),
    ]


def figures() -> list[Figure]:
    numbers = {"ratio": 1.23456, "none": None, "many": [1.0, 2.5e-7], "yes": True, NASTY: NASTY}
    first = [
        Verdict("Euler explodes", "Section 5", REPRODUCED, "all of them", numbers, "because " * 40),
        Verdict(NASTY, NASTY, UNDER_READING, NASTY, {}, NASTY),
    ]
    second = [Verdict("A claim", "Figure 2", NOT_REPRODUCED, "as printed", {"z": -1.5}, "It does not.")]
    wide = Table("Wide " + NASTY, ["scheme", *(f"h = {k}" for k in range(14))], [[NASTY, *[None, 0.123456] * 7]] * 2)
    return [
        Figure(
            "fig1",
            "Figure 1: " + NASTY,
            NASTY,
            "Look.",
            {"L": 10**5, NASTY: [NASTY]},
            panels(),
            [wide],
            first,
        ),
        Figure("fig 2", "Figure 2", "Says.", "Look.", {}, panels()[:1], [], second),
        Figure("text", "Only words", "Says.", "Look.", {}),
    ]


def verdicts() -> list[Verdict]:
    return [verdict for figure in figures() for verdict in figure.verdicts]


def about(seconds: float = 1.25) -> dict:
    return {
        "title": "Reproduced " + NASTY,
        "effort": "quick " + NASTY,
        "versions": {"jax": "1.2.3", NASTY: NASTY},
        "seconds": {"fig1": seconds, "fig 2": 2 * seconds},
        "total_seconds": 3 * seconds,
        "points": {"count": 12, "within": 11, "largest": 4.567},
        "left_out": ["fig9", NASTY],
        "command": "strang reproduce " + NASTY,
    }


@pytest.fixture(scope="module")
def text() -> str:
    return page.render(figures(), about())


class Elements(HTMLParser):
    """Every element with its attributes, all text outside styles, and whether tags match."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.open += [tag] if tag not in VOID else []

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.texts.append(data)


def test_elements_match_and_no_text_becomes_markup(text):
    elements = Elements(text)
    assert elements.open == []
    tags = {tag for tag, _ in elements.elements}
    assert not tags & {"script", "img", "iframe", "object", "embed", "foreignobject", "form", "base"}
    assert not [key for _, attributes in elements.elements for key in attributes if key.startswith("on")]
    joined = "".join(elements.texts)
    assert joined.count(NASTY) >= 20  # titles, claims, tables, settings, hover texts: unchanged
    assert "49" not in re.findall(r"\{\{.*?\}\}|\b49\b", joined)
    # a negative control: the same search finds what is not escaped
    assert "script" in {tag for tag, _ in Elements(NASTY.replace("</svg></style>", "")).elements}


def test_nothing_is_loaded_from_elsewhere(text):
    loads = [
        value for _, attributes in Elements(text).elements for key, value in attributes.items()
        if key in ("href", "src", "srcset", "data", "action", "xlink:href", "poster")
    ]  # fmt: skip
    assert loads
    assert all(value.startswith(("#", "data:,")) for value in loads)
    assert "http" not in text.replace('xmlns="http://www.w3.org/2000/svg"', "").replace("http-equiv", "")
    assert "@import" not in text
    assert re.findall(r"url\((?!#)", text) == []


def test_ids_are_unique_and_references_resolve(text):
    attributes = [each for _, each in Elements(text).elements]
    ids = [each["id"] for each in attributes if "id" in each]
    assert len(ids) == len(set(ids))
    assert {"verdicts", "fig-fig1", "fig-fig-2", "fig-text"} <= set(ids)
    used = {each["href"][1:] for each in attributes if each.get("href", "").startswith("#")}
    used |= {each["clip-path"][5:-1] for each in attributes if "clip-path" in each}
    assert len(used) > 10
    assert used <= set(ids)


def test_run_times_are_only_in_their_elements(text):
    slower = page.render(figures(), about(seconds=77.0))
    assert slower != text
    assert without_runtime(slower) == without_runtime(text)


def without_runtime(text: str) -> str:
    return re.sub(r'<(\w+) class="(?:[\w-]+ )*runtime(?: [\w-]+)*">.*?</\1>', "", text, flags=re.DOTALL)


def test_same_bytes_again_and_in_another_process(text):
    assert page.render(figures(), about()) == text
    script = (
        "import hashlib, test_browser_pages as t; from strang.paper import page;"
        "print(hashlib.sha256(page.render(t.figures(), t.about()).encode()).hexdigest())"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == hashlib.sha256(text.encode()).hexdigest()


def test_verdicts_and_summary(text):
    rows = [each for tag, each in Elements(text).elements if tag == "tr" and "data-verdict" in each]
    assert [row["data-verdict"] for row in rows] == [REPRODUCED, UNDER_READING, NOT_REPRODUCED]
    shown = " ".join("".join(Elements(text).texts).split())
    assert "Of 12 simulated points with a known exact value, 11 agree with it; the farthest is 4.57" in shown
    assert "1.235" in shown
    assert "3 of the verdicts rest on exact values alone" in shown
    assert shown.count("rests on exact values") == 3
    assert "2.5×10⁻⁷" in shown
    assert text.count('href="#verdict-3"') == 2  # in its figure's section, and from the count at the top


def test_figures_come_before_the_table_of_verdicts(text):
    """What is at the top says how many verdicts there are of each kind, and leads to the table below the figures."""
    header = text[: text.index("</header>")]
    summary = "1 reproduced, 1 reproduced under this reading, 1 not reproduced"  # none that cannot be told
    assert f'<a class="summary" href="#verdicts">{summary}</a>' in header
    ids = [each["id"] for tag, each in Elements(text).elements if tag == "section"]
    assert ids == ["fig-fig1", "fig-fig-2", "fig-text", "verdicts", "about"]
    links = [each["href"][1:] for tag, each in Elements(header).elements if tag == "a"]
    assert [link for link in links if link in ids] == ["verdicts", *ids]  # the summary, then the contents
    assert {"verdict-1", "verdict-2", "verdict-3"} <= set(links)


def drawn(panel: Panel) -> ET.Element:
    return ET.fromstring(draw.svg(panel, "p").replace('xmlns="http://www.w3.org/2000/svg"', ""))


def test_every_point_can_be_hovered_over():
    titles = [title.text for title in drawn(panels()[0]).iter("title")]
    assert "splitting: x = 0.01, 0.02 ± 0.001 (exact 0.021, −1.0 se)" in titles
    assert "Euler: x = 0.001, −0.003 ± 0.001 (exact −0.002, −1.0 se)" in titles
    assert "lost: x = 0.01, 50 diverged" in titles
    assert "exact only: x = 0.03, exact 0.0009" in titles
    # a value of 0 has no place on a log axis, its exact one has
    assert len(titles) == 3 + (2 + 1) + (1 + 1) + 5


def test_error_bars_leave_the_axes_alone():
    def ticks(se, log_y=True, whole_bars=False):
        series = Series("a", [point(h, h, se, h) for h in (0.001, 0.1)])
        panel = Panel("t", "x", "y", [series], log_y=log_y, whole_bars=whole_bars)
        return [text.text for text in drawn(panel).iter("text")]

    assert ticks(1e9) == ticks(1e-9)
    assert ticks(1e9, log_y=False) == ticks(None, log_y=False)
    assert ticks(1e9, whole_bars=True) == ticks(1e-9)  # which a log axis cannot hold
    assert ticks(0.3, log_y=False, whole_bars=True) != ticks(None, log_y=False)


def test_pictures_take_the_colours_around_them():
    text = draw.svg(panels()[0], "p")
    assert "currentColor" in text
    assert not re.search(r"#000|black|#fff|white|style=|<style|<metadata|<\?xml|<!DOCTYPE|font-family", text)
    root = drawn(panels()[1])
    assert root.get("role") == "img"
    assert NASTY in root.get("aria-label", "")
    assert root.get("height") is None


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("colour", draw.COLOURS)
def test_series_stand_out_from_white_and_from_black(colour):
    dark = luminance("#191c21")
    assert 1.05 / (luminance(colour) + 0.05) >= 3
    assert (luminance(colour) + 0.05) / (dark + 0.05) >= 3


def test_png_is_the_same_twice(tmp_path):
    for name in ("a.png", "b.png"):
        draw.png(panels()[:2], tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("module", ["jinja2", "matplotlib"])
def test_missing_extra_says_what_to_install(module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"{module}, which is not installed; write pip install 'strang\[report\]'"):
        page.render(figures(), about())


def test_an_empty_report():
    empty = {"points": {"count": 0, "within": 0, "largest": 0.0}, "left_out": [], "seconds": {}}
    assert Elements(page.render([], about() | empty)).open == []


@pytest.fixture(scope="module")
def chromium():
    with browser.chromium() as opened:
        yield opened


def test_the_page_in_a_browser(chromium, text, tmp_path):
    path = tmp_path / "index.html"
    path.write_text(text, encoding="utf-8")
    assert browser.problems(chromium, path, [verdict.verdict for verdict in verdicts()]) == []


LOOSE = ("<meta http-equiv=", "<meta name=")  # the policy is off, so that what it forbids is seen to happen


@pytest.mark.parametrize(
    ("replacements", "complaint"),
    [
        ([("<h2>Verdicts", "<div style='width: 500px'>wide</div><h2>Verdicts")], "px wide on a phone of 360"),
        ([("<h2>Verdicts", "<div style='width: 1300px'>wide</div><h2>Verdicts")], "px wide on a desktop of 1200"),
        ([LOOSE, ("</body>", "<script>console.warn('hm')</script></body>")], "console warning: hm"),
        ([LOOSE, ("</body>", "<script>nonsense()</script></body>")], "error: "),
        ([("</body>", "<script>harmless = 1</script></body>")], "console error: "),  # the policy at work
        ([LOOSE, ("</body>", "<img src='missing.png'></body>")], "failed request: file:"),
        ([LOOSE, ("</body>", "<img src='http://127.0.0.1:9/x.png'></body>")], "request: http:"),
        ([("</style>", "svg.figure { visibility: hidden }</style>")], "figure 0 is not visible on a desktop"),
        ([("</style>", "svg.figure text { font-size: 40px }</style>")], "cuts off its text"),
        ([("</style>", "svg.figure * { pointer-events: none }</style>")], "not reach it"),
        ([("<title>splitting", "<desc>splitting"), ("se)</title>", "se)</desc>")], "has a point without text"),
        ([("prefers-color-scheme: dark", "prefers-color-scheme: no")], "when dark"),
        ([("@media print", "@media tv")], "printed on brightness"),
        ([("details::details-content", "details.none")], "not printed: DD"),
        ([("</style>", "@media print { svg.figure { display: none } }</style>")], "not printed: svg"),
        ([('data-verdict="not reproduced"', 'data-verdict="reproduced"')], "verdicts ["),
        ([('id="verdict-2"', 'id="verdict-1"')], "the id verdict-1 is there twice"),
    ],
)  # fmt: skip
def test_the_browser_checks_can_fail(chromium, text, tmp_path, replacements, complaint):
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "index.html"
    path.write_text(text, encoding="utf-8")
    problems = browser.problems(chromium, path, [verdict.verdict for verdict in verdicts()])
    assert any(complaint in problem for problem in problems), problems
