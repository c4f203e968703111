"""Checks of a page in the system's Chromium; each returns a list of problems, as sentences."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
PHONE, DESKTOP = {"width": 360, "height": 740}, {"width": 1200, "height": 900}
PAPER = {"width": 680, "height": 1000}  # A4 within margins

# Each returns a list of problems.
FIGURES = """() => [...document.querySelectorAll('svg.figure')].flatMap((svg, i) => {
  const box = svg.getBoundingClientRect(), outside = [...svg.querySelectorAll('text')].filter(text => {
    const t = text.getBoundingClientRect();
    return t.left < box.left - 3 || t.right > box.right + 3 || t.top < box.top - 3 || t.bottom > box.bottom + 3;
  });
  return [
    ...(box.width > 50 && box.height > 50 && svg.checkVisibility({visibilityProperty: true, opacityProperty: true})
      ? [] : [`figure ${i} is not visible`]),
    ...outside.map(text => `figure ${i} cuts off its text "${text.textContent}"`),
  ];
})"""
HOVER = """() => [...document.querySelectorAll('svg.figure')].flatMap((svg, i) => {
  const points = [...svg.querySelectorAll('.point')], problems = [];
  const silent = points.filter(point => !point.querySelector('title')?.textContent);
  if (silent.length) problems.push(`figure ${i} has a point without text`);
  for (const point of points.slice(0, 1)) {
    point.scrollIntoView({block: 'center'});
    const box = point.querySelector('circle').getBoundingClientRect();
    const hit = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
    if (!hit?.closest('.point')) problems.push(`figure ${i}: pointing at a point does not reach it`);
  }
  return problems;
})"""
REFERENCES = """() => {
  const ids = [...document.querySelectorAll('[id]')].map(e => e.id), known = new Set(ids);
  const targets = [...document.querySelectorAll('[href^="#"], [clip-path]')].map(
    e => e.getAttribute('href')?.slice(1) ?? e.getAttribute('clip-path').slice(5, -1));
  return [
    ...ids.filter((id, i) => ids.indexOf(id) < i).map(id => `the id ${id} is there twice`),
    ...targets.filter(id => !known.has(id)).map(id => `nothing has the id ${id}`),
  ];
}"""
PRINTED = """() => {
  const parts = 'h1, h2, section, .claims tr, .table, .table td, svg.figure, .short li, dl.pairs dd, .badge';
  const hidden = [...document.querySelectorAll(parts)].filter(e => {
    const box = e.getBoundingClientRect();
    return !e.closest('details.data') && !(box.width && box.height && e.checkVisibility({contentVisibilityAuto: true}));
  });
  const cut = [...document.querySelectorAll('.table')].filter(e => getComputedStyle(e).overflowX !== 'visible');
  return [
    ...hidden.map(e => `not printed: ${e.tagName} ${e.textContent.slice(0, 40)}`),
    ...cut.map(e => `printed in a box that cuts it: ${e.textContent.slice(0, 40)}`),
  ];
}"""


def find() -> str | None:
    return next((path for path in map(shutil.which, NAMES) if path), None)


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser, or a skipped test that says why."""
    path = find()
    if path is None:
        pytest.skip(f"none of {', '.join(NAMES)} is installed")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def problems(browser: Any, path: Path, verdicts: list[str] | None = None) -> list[str]:
    """Checks the page on screens and on paper; `verdicts` are those that its table must have, in order."""
    page = browser.new_page(viewport=DESKTOP, color_scheme="light")
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(f"console {message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.on("requestfailed", lambda request: complaints.append(f"failed request: {request.url}"))
    page.on("request", lambda request: None if local(request.url) else complaints.append(f"request: {request.url}"))
    try:
        page.goto(path.resolve().as_uri(), wait_until="load")
        checks = (screen, colours, lambda page: table(page, verdicts), printed)
        return complaints + [each for check in checks for each in check(page)]
    finally:
        page.close()


def local(url: str) -> bool:
    return url.startswith(("file:", "data:"))


def screen(page: Any) -> list[str]:
    """On a desktop and on a phone: figures are complete and react to pointing, nothing is wider than the window."""
    complaints = page.evaluate(REFERENCES) + page.evaluate(HOVER)
    for name, size in (("desktop", DESKTOP), ("phone", PHONE)):
        page.set_viewport_size(size)
        width = page.evaluate("document.scrollingElement.scrollWidth")
        complaints += [f"{width} px wide on a {name} of {size['width']} px"] if width > size["width"] else []
        complaints += [f"{each} on a {name}" for each in page.evaluate(FIGURES)]
    page.set_viewport_size(DESKTOP)
    return complaints


def background(page: Any, **media: str) -> float:
    """How bright the page is, from 0 to 1."""
    page.emulate_media(**media)
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(float(part) for part in re.findall(r"[\d.]+", colour)[:3]) / 765


def colours(page: Any) -> list[str]:
    dark, light = (background(page, color_scheme=scheme) for scheme in ("dark", "light"))
    return [] if dark < 0.2 and light > 0.9 else [f"brightness {light:.2f} when light, {dark:.2f} when dark"]


def table(page: Any, verdicts: list[str] | None) -> list[str]:
    """The verdict rows are the expected ones, each with its verdict as text too."""
    script = "rows => rows.map(row => [row.dataset.verdict, row.innerText.includes(row.dataset.verdict)])"
    rows = page.eval_on_selector_all("#verdicts [data-verdict]", script)
    complaints = [f"the row of {verdict!r} does not say so" for verdict, text in rows if not text]
    actual = [verdict for verdict, _ in rows]
    return complaints if verdicts is None or actual == verdicts else [*complaints, f"verdicts {actual}, not {verdicts}"]


def printed(page: Any) -> list[str]:
    """On paper, even from a dark screen, everything is printed, on white, and no wider than the paper."""
    page.set_viewport_size(PAPER)
    try:
        bright = background(page, media="print", color_scheme="dark")
        complaints = page.evaluate(PRINTED) + [f"{each} on paper" for each in page.evaluate(FIGURES)]
        width = page.evaluate("document.scrollingElement.scrollWidth")
        complaints += [f"{width} px wide on paper of {PAPER['width']} px"] if width > PAPER["width"] else []
        return complaints + ([f"printed on brightness {bright:.2f}"] if bright < 0.99 else [])
    finally:
        page.emulate_media(media="screen", color_scheme="light")
        page.set_viewport_size(DESKTOP)
