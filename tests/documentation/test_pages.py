"""House rules of the documentation: links lead somewhere, every page is in the site, the manual is short."""

from __future__ import annotations

from pathlib import Path

import pytest
from markdown_pages import DOCS, ROOT, all_pages, anchors, links, manual_pages, words

MOST_WORDS, MOST_LINES_OF_README = 33_300, 110
# Pages that are made when the site is built.
GENERATED = (
    "reference/commands/",
    "reference/run-file/",
    "reports/changelog.md",
    "understand/contributing.md",
)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", all_pages(), ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        generated = target.is_relative_to(DOCS) and target.relative_to(DOCS).as_posix().startswith(GENERATED)
        if generated:
            continue
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_page_is_in_the_site() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = (page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
    assert [page for page in pages if page not in menu] == []


def test_the_manual_and_readme_are_short() -> None:
    counted = {name_of(page): words(page) for page in manual_pages()}
    assert sum(counted.values()) <= MOST_WORDS, counted
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= MOST_LINES_OF_README
