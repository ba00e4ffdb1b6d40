"""The built site in a browser: no page is wider than a phone, pictures load, light and dark as asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

import pytest
from driven_browser import Browser
from markdown_pages import DOCS, ROOT

SITE = ROOT / "build" / "site"
PHONE, DESKTOP = 390, 1280
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(11, 12, 15)"
GROUND = "getComputedStyle(document.body).backgroundColor"
WIDTH = "document.documentElement.scrollWidth"
# What has to be scrolled sideways: tables, and code other than output of programs.
CUT = """[...document.querySelectorAll(".md-typeset__scrollwrap, article pre > code")]
    .filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.innerText.slice(0, 60))"""
CONTENTS = "document.querySelector('.md-sidebar--secondary .md-nav__list')?.offsetHeight ?? 0"
HEIGHT = 844
MISSING = "[...document.images].filter((one) => one.complete && !one.naturalWidth).map((one) => one.src)"
# The first result of the search, which is drawn in a tree of its own.
FOUND = """[...document.querySelectorAll("*")].filter((one) => one.shadowRoot)
    .flatMap((one) => [...one.shadowRoot.querySelectorAll("a[href]")]).map((one) => one.href)[0] ?? ''"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def browser(
    browser_command: Sequence[str] | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Browser]:
    built = SITE / "index.html"
    if not built.exists() or built.stat().st_mtime < max(one.stat().st_mtime for one in DOCS.rglob("*.*")):
        pytest.skip("the site is not built from these pages: make docs")
    if browser_command is None:
        pytest.skip("no chromium on the PATH and CHROME is not set")
    with Browser([*browser_command, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"]) as found:
        yield found


@pytest.mark.slow
def test_no_page_is_wider_than_a_phone(browser: Browser) -> None:
    pages = sorted(page for page in SITE.rglob("*.html") if page.name != "404.html")
    assert len(pages) >= len(list(DOCS.rglob("*.md")))
    browser.look(dark=False, width=PHONE, height=HEIGHT)
    wrong = {}
    for page in pages:
        browser.open(page.as_uri())
        width, missing = browser.value(WIDTH), browser.value(MISSING)
        if cast("int", width) > PHONE or missing:
            wrong[page.relative_to(SITE).as_posix()] = (width, missing)
    assert wrong == {}


@pytest.mark.slow
def test_tables_code_and_contents_of_the_manual_fit_a_desktop(browser: Browser) -> None:
    browser.look(dark=False, width=DESKTOP, height=HEIGHT)
    wrong = {}
    for page in sorted(DOCS.rglob("*.md")):
        address = page.relative_to(DOCS).with_suffix(".html")
        browser.open((SITE / address).as_uri())
        cut = [] if "reports" in address.parts else browser.value(CUT)
        long = "reference" not in address.parts and cast("int", browser.value(CONTENTS)) > HEIGHT
        if cut or long:
            wrong[address.as_posix()] = cut
    assert wrong == {}


def test_pages_are_light_or_dark_as_the_system_is(browser: Browser) -> None:
    for dark in (False, True, False):
        browser.look(dark=dark, width=DESKTOP, height=HEIGHT)
        browser.open((SITE / "index.html").as_uri())
        ground = DARK if dark else LIGHT
        browser.wait(f"{GROUND} === '{ground}'")
        assert browser.value(GROUND) == ground


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    ["batch size", "gradient accumulation", "mixed precision", "beam size", "checkpoint averaging"],
)
def test_words_of_other_toolkits_lead_to_the_setting(browser: Browser, words: str) -> None:
    browser.look(dark=False, width=DESKTOP, height=HEIGHT)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser.open(f"http://127.0.0.1:{server.server_port}/index.html")
        browser.value("document.querySelector('.md-search__button').click()")
        browser.wait("document.activeElement !== document.body")
        browser.type(words)
        browser.wait(f"({FOUND}).includes('reference/words.html')")
        server.shutdown()
