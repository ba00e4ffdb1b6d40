"""The three forms of a table: text, JSON and a page that loads nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from deepwire.evaluation.comparison import PairedTest
from deepwire.evaluation.multilingual import page, record, text
from deepwire.evaluation.multilingual.direction_table import (
    DirectionsReport,
    DirectionTable,
    DirectionTableSettings,
)
from deepwire.evaluation.multilingual.language_groups import parse_group
from deepwire.evaluation.tokenizers import LanguageMetrics

HOSTILE = "</title><script src='https://example.org/x.js'>runs/<b>"


class Tags(HTMLParser):
    """The tags of a page, checked to be closed in order."""

    VOID = ("meta", "br")

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture
def report(translated) -> DirectionsReport:
    table = DirectionTable(
        DirectionTableSettings(
            LanguageMetrics().of, "en", [parse_group("de,zh")], PairedTest("bootstrap", samples=20)
        )
    )
    sizes = {"en-de": 900, "en-fr": 100, "de-en": 900, "en-zh": None, "de-fr": None}
    for place, (name, pairs) in enumerate(sizes.items()):
        zero = name == "de-fr"
        share = 0.25 if zero else None
        table.add(
            *translated(
                name, 2 + place, 4, zero_shot=zero, training_pairs=pairs, right_language=share,
                baseline_right_language=share, reference_right_language=share and 1.0,
            )
        )  # fmt: skip
    return table.report("runs/six", HOSTILE, "multi30k", ["a note & more"])


def test_text_has_every_number_of_the_papers_table(report):
    lines = text.as_text(report).splitlines()
    assert lines[0] == f"runs/six against {HOSTILE} on multi30k"
    out = lines.index("Out of en")
    assert lines[out + 1].split() == (
        [
            "average",
            "directions",
            "BLEU",
            "chrF2",
            "baseline",
            "BLEU",
            "baseline",
            "chrF2",
            "difference",
            "win",
            "ratio",
            "%",
        ]
    )
    everything = lines[out + 2].split()
    assert everything[:2] == ["all", "3"]
    assert everything[-1] == "33.33"
    assert lines[out + 3].startswith("de, zh")
    rows = [line.split() for line in lines if line.startswith("en-")]
    assert [row[0] for row in rows] == ["en-de", "en-fr", "en-zh"]
    assert rows[0][1:3] == ["40", "900"]
    zero = next(line.split() for line in lines if line.startswith("de-fr"))
    assert zero[-3:] == ["25.0", "25.0", "100.0"]
    assert any(line.startswith("Out of en: better in 1 and worse in 2 of 3; with p < 0.05") for line in lines)
    assert any(
        line.startswith("BLEU|") and "tok:13a" in line and line.endswith("(de, en, fr)") for line in lines
    )
    assert lines[-1] == "note: a note & more"


def test_without_a_baseline_there_is_nothing_to_win(translated):
    table = DirectionTable(DirectionTableSettings(LanguageMetrics().of))
    table.add(*translated("en-de"))
    written = text.as_text(table.report("runs/six", None, "multi30k"))
    assert "win ratio" not in written
    assert "baseline" not in written
    assert "hatch" not in page.as_html(table.report("runs/six", None, "multi30k")).split("</defs>")[1]


def test_json_holds_the_numbers_unrounded(report):
    found = json.loads(json.dumps(record.as_json(report)))
    out = found["blocks"][1]
    assert out["averages"][0]["win_ratio"] == pytest.approx(100 / 3)
    assert out["averages"][0]["directions"] == ["en-de", "en-fr", "en-zh"]
    first = out["directions"][0]
    assert first["scores"][0]["score"] == report.blocks[1].rows[0].scores[0].value
    assert first["comparisons"][0]["p_value"] == pytest.approx(report.blocks[1].rows[0].p_value)
    assert found["blocks"][3]["directions"][0]["right_language"] == 0.25


def test_the_page_is_well_formed_and_asks_for_nothing(report):
    html = page.as_html(report)
    tags = Tags()
    tags.feed(html)
    assert tags.open == []
    assert not {"script", "link", "img", "iframe", "b"} & set(tags.seen)
    assert set(re.findall(r"https?://[^\"' <]+", re.sub("&[a-z#0-9]+;", " ", html))) <= {
        "http://www.w3.org/2000/svg",
        "https://example.org/x.js",  # the name of the baseline, as text
    }
    assert "<script" not in html
    assert "default-src 'none'" in html
    assert tags.seen.count("svg") == 3


def test_a_browser_opens_the_page(
    report: DirectionsReport, tmp_path: Path, open_in_browser: Callable[[Path], str]
) -> None:
    (tmp_path / "page.html").write_text(page.as_html(report), encoding="utf-8")
    shown = open_in_browser(tmp_path / "page.html")
    assert shown.count("<figure>") == 3
    assert "en-fr" in shown


def test_bars_are_as_long_as_the_scores(report):
    pictures = re.findall(r"<svg.*?</svg>", page.as_html(report), flags=re.DOTALL)
    picture = ElementTree.fromstring(pictures[0])
    name = "{http://www.w3.org/2000/svg}"
    solid = [rect for rect in picture.iter(f"{name}rect") if rect.get("fill") == "#333"]
    widths = [float(rect.get("width") or 0) for rect in solid][:3]
    values = [row.scores[0].value for row in report.blocks[1].rows]
    assert [width / widths[0] for width in widths] == pytest.approx(
        [value / values[0] for value in values], abs=0.001
    )
    words = [element.text for element in picture.iter(f"{name}text")]
    assert "BLEU [%]" in words
    assert "en-fr" in words
    assert words.count("0") == 1
