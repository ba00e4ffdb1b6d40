"""Reading Markdown pages: their prose, links, headings and blocks of code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REPORTS = DOCS / "reports"

_FENCE = re.compile(r"^( *)(```+)(\w*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]*)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block of code."""

    language: str
    text: str


def manual_pages() -> list[Path]:
    """The pages that a reader is meant to read: all but the reports and the list of cited works."""
    return [
        page
        for page in sorted(DOCS.rglob("*.md"))
        if REPORTS not in page.parents and page.name != "bibliography.md"
    ]


def all_pages() -> list[Path]:
    """Every Markdown page of the repository that readers see."""
    return [
        *sorted(ROOT.glob("*.md")),
        *sorted(DOCS.rglob("*.md")),
        *sorted((ROOT / "examples").rglob("*.md")),
    ]


def blocks(page: Path) -> list[Block]:
    """The blocks of code, in order, without their indentation."""
    found = _FENCE.finditer(page.read_text(encoding="utf-8"))
    return [Block(f[3], re.sub(rf"^{f[1]}", "", f[4], flags=re.MULTILINE)) for f in found]


def without_code(text: str) -> str:
    """The text without blocks of code and without comments."""
    return re.sub(r"<!--.*?-->", "", _FENCE.sub("", text), flags=re.DOTALL)


def words(page: Path) -> int:
    """Words of prose, tables and headings; code does not count."""
    return len(without_code(page.read_text(encoding="utf-8")).split())


def links(page: Path) -> list[str]:
    """Targets of the page's links that lead to files or headings."""
    found = _LINK.findall(without_code(page.read_text(encoding="utf-8")))
    return [link for link in found if "://" not in link and not link.startswith("mailto:")]


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as links have them behind `#`."""
    taken: dict[str, int] = {}
    made: set[str] = set()
    for heading in re.findall(r"^#{1,6} (.+)$", without_code(page.read_text(encoding="utf-8")), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        slug = re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", plain))
        count = taken.get(slug, 0)
        taken[slug] = count + 1
        made.add(f"{slug}_{count}" if count else slug)
    return made
