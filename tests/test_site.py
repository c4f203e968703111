"""The documentation as a site: it builds without a warning, has every public name, and works from disk."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import browser
from test_docs import NOTEBOOKS, ROOT, blocks

pytest.importorskip("mkdocs")

import public  # of docs/tools, which test_docs puts on the path

PHONE = {"width": 390, "height": 800}


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, with its notebooks executed; strict, so that a broken link or a page outside of nav fails."""
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "STRANG_NOTEBOOKS": "run", "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", folder]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_spelling_and_style():
    done = subprocess.run([sys.executable, ROOT / "docs/tools/words.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_public_name_is_in_the_reference(site):
    pages = "".join(path.read_text() for path in (site / "reference").glob("*.html"))
    wanted = [f"strang.{name}" for name in (*public.top(), *public.MODULES)]
    wanted += [f"strang.{of}.{name}" for of in public.MODULES for name in public.names(public.module(of))]
    there = set(re.findall(r'id="(strang\.[\w.]+)"', pages))
    written_elsewhere = {"strang.regression", "strang.regression.glm"}  # as strang.glm
    assert {*wanted} - there - written_elsewhere == set()


def test_every_command_is_in_the_reference_with_its_own_help(site):
    page = (site / "reference" / "commands.html").read_text()
    for words in ("strang-glm", "strang-lda-fit", "strang-sample-gaussian", "strang-sbn-score", "strang-data-mnist"):
        assert f'id="{words}"' in page
    assert "Gibbs sweeps over a document per gradient" in page


def test_extension_points_are_those_of_contributing(site):
    assert "src/strang/dynamics/scaled.py" in (site / "reference" / "extend.html").read_text()


@pytest.mark.parametrize("page", NOTEBOOKS)
def test_notebooks_ran_and_printed_what_the_page_shows(site, page):
    notebook = json.loads((site / "notebooks" / f"{Path(page).stem}.ipynb").read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    shown = blocks.blocks_of((ROOT / page).read_text())
    assert len(cells) == len(shown)
    for cell, block in zip(cells, shown, strict=True):
        output = "".join("".join(each.get("text", ())) for each in cell["outputs"] if each["output_type"] == "stream")
        assert cell["execution_count"]
        assert block.shown is None or blocks.same(block.shown, output) == []


def failures(request) -> list[str]:
    """What a request failed of, unless the next page was opened before it was done."""
    return [] if "ERR_ABORTED" in (request.failure or "") else [f"failed: {request.url}: {request.failure}"]


def test_the_site_works_from_disk_on_a_phone_and_in_the_dark(site):
    with browser.chromium() as chromium:
        page = chromium.new_page(viewport=browser.DESKTOP, color_scheme="light")
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on("requestfailed", lambda request: problems.extend(failures(request)))
        page.on("request", lambda request: None if browser.local(request.url) else problems.append(request.url))
        page.goto((site / "index.html").as_uri(), wait_until="load")
        page.get_by_role("link", name="Guides", exact=True).last.click()
        page.locator("article").get_by_role("link", name="Is my answer right?").click()
        assert "Is my answer right?" in page.locator("h1").inner_text()

        page.locator("input.md-search__input").click()
        page.keyboard.type("thermostat")
        page.wait_for_selector(".md-search-result__item a", timeout=60_000)
        assert page.locator(".md-search-result__item").count() > 0

        for scheme, is_right in (("light", lambda bright: bright > 0.9), ("dark", lambda bright: bright < 0.2)):
            other = chromium.new_page(color_scheme=scheme)
            other.goto((site / "index.html").as_uri(), wait_until="load")
            assert is_right(browser.background(other)), scheme
            other.close()

        page.keyboard.press("Escape")
        page.set_viewport_size(PHONE)
        for path in sorted(site.rglob("*.html")):
            page.goto(path.as_uri(), wait_until="load")
            width = page.evaluate("document.scrollingElement.scrollWidth")
            problems += [f"{path.name} is {width} px wide on a phone"] if width > PHONE["width"] else []
        assert problems == []
