"""Put the newest result of each measurement into the reports benchmarks and performance.

    python benchmarks/page.py

A page says where each table goes: between `<!-- results: NAME -->` and `<!-- end of results -->`. NAME is
that of the files under benchmarks/results without the date; what has not been measured stays as it is.
"""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGES = [HERE.parent / "docs" / "reports" / name for name in ("benchmarks.md", "performance.md")]
RESULTS = HERE / "results"
PLACE = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- end of results -->)", re.DOTALL)


def main() -> None:
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8"), RESULTS), encoding="utf-8")


def filled(page: str, results: Path) -> str:
    """The page with the newest table of each measurement, below the sections that they stand in."""

    def table(place: re.Match[str]) -> str:
        found = newest(results, place[2])
        return place[0] if found is None else f"{place[1]}{as_section(found)}{place[3]}"

    return PLACE.sub(table, page)


def newest(results: Path, name: str) -> str | None:
    """The text of the last result by date; None without any."""
    dated = re.compile(rf"{re.escape(name)}_\d{{4}}-\d\d-\d\d\.md")
    files = sorted(path for path in results.glob("*.md") if dated.fullmatch(path.name))
    return files[-1].read_text(encoding="utf-8") if files else None


def as_section(text: str) -> str:
    return re.sub(r"^(#+) ", r"###\1 ", text, flags=re.MULTILINE)


if __name__ == "__main__":
    main()
