from __future__ import annotations

import page
import pytest

PAGE = """# Benchmarks

<!-- results: training_small-32k -->
old
<!-- end of results -->

<!-- results: never -->
as it was
<!-- end of results -->
"""


def test_the_newest_table_takes_the_place_of_the_old_one(tmp_path):
    (tmp_path / "training_small-32k_2026-01-09.md").write_text("# January\n\nslow\n")
    (tmp_path / "training_small-32k_2026-02-01.md").write_text("# February\n\nfast\n")
    (tmp_path / "training_small-32k_extra_2026-03-01.md").write_text("# Other\n")
    result = page.filled(PAGE, tmp_path)
    assert "<!-- results: training_small-32k -->\n#### February\n\nfast\n<!-- end of results -->" in result
    assert "old" not in result
    assert "slow" not in result
    assert "as it was" in result


def test_filling_twice_changes_nothing(tmp_path):
    (tmp_path / "training_small-32k_2026-02-01.md").write_text("# February\n\nfast \\1 and \\g<0>\n")
    once = page.filled(PAGE, tmp_path)
    assert page.filled(once, tmp_path) == once


@pytest.mark.parametrize("path", page.PAGES, ids=lambda path: path.stem)
def test_the_pages_of_this_repository_are_up_to_date(path):
    text = path.read_text(encoding="utf-8")
    assert "<!-- results: " in text
    assert page.filled(text, page.RESULTS) == text
