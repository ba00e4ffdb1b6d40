from __future__ import annotations

import importlib.util
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest

from deepwire.errors import UsageError
from deepwire.lab import report
from deepwire.lab.finding import (
    Axis,
    BarChart,
    Column,
    Figure,
    Finding,
    HeatMap,
    LineChart,
    Series,
    Table,
)
from deepwire.lab.report import as_html, save_plots

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed"
)


class Page(HTMLParser):
    """Elements and what they point to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
                self.links.append(value or "")


def texts(figure: Figure) -> list[str]:
    """What is written in the drawing of a figure."""
    element = ElementTree.fromstring(report.render(figure, "svg"))
    return ["".join(part.itertext()) for part in element.iter() if part.tag.endswith("}text")]


def test_an_svg_says_what_it_shows(finding: Finding) -> None:
    for figure in finding.figures:
        text = " ".join(texts(figure))
        assert figure.title in text
        axes = [figure.row_axis, figure.column_axis] if isinstance(figure, HeatMap) else [figure.x, figure.y]
        for axis in axes:
            assert axis.text in text


def test_a_figure_is_drawn_the_same_every_time(finding: Finding) -> None:
    assert report.render(finding.figures[0], "svg") == report.render(finding.figures[0], "svg")


def test_numbers_of_a_heat_map_are_in_its_fields(finding: Finding) -> None:
    drawn = texts(finding.figures[2])
    assert {"1.00", "−0.75", "0.06"} <= set(drawn)


def _axis(label: str, log: bool = False) -> Axis:
    return Axis(label=label, log=log)


def _map(name: str, values: list[list[float | None]], log: bool = False) -> HeatMap:
    return HeatMap(
        name=name,
        title=name,
        row_axis=_axis("r"),
        column_axis=_axis("c"),
        value=_axis("v", log),
        rows=tuple(f"x{row}" for row in range(len(values))),
        columns=tuple(f"y{column}" for column in range(len(values[0]))),
        values=tuple(map(tuple, values)),
    )


def _lines(name: str, values: list[tuple[float | None, ...]], log: bool = False) -> LineChart:
    series = (
        Series(name=f"layer {number}", x=tuple(map(float, range(len(y)))), y=y)
        for number, y in enumerate(values)
    )
    return LineChart(
        name=name, title=name, x=_axis("x"), y=_axis("y", log), series=tuple(series), ordered=len(values) > 8
    )


@pytest.mark.parametrize(
    "figure",
    [
        _lines("sixty", [(number + 1, None, 1e-9) for number in range(60)], log=True),
        _lines("nothing", [(None,)]),
        _lines("zeros", [(0.0, 0.0)] * 9, log=True),
        BarChart(
            name="one",
            title="one",
            x=_axis("x"),
            y=_axis("y"),
            categories=("a",),
            series=(Series(name="s", y=(-1,)),),
        ),
        _map("blank", [[None]]),
        _map("flat", [[0.0, 0.0]], log=True),
        _map("large", [[(n - m) / 31 if m <= n else None for m in range(31)] for n in range(31)]),
    ],
    ids=lambda figure: figure.name,
)
@pytest.mark.filterwarnings("error")
def test_odd_figures_are_drawn(figure: Figure) -> None:
    assert report.render(figure, "png").startswith(b"\x89PNG")
    ElementTree.fromstring(report.render(figure, "svg"))


def test_plots_are_written_as_png_svg_and_pdf(finding: Finding, tmp_path: Path) -> None:
    written = save_plots([finding], tmp_path / "new" / "plots")
    assert sorted(path.name for path in written) == sorted(
        f"example-{name}.{form}" for name in ("curves", "bars", "matrix") for form in ("svg", "png", "pdf")
    )
    assert all(path.stat().st_size > 1000 for path in written)
    short = finding.model_copy(update={"figures": finding.figures[1:2]})
    names = {path.name for path in save_plots([short, short], tmp_path / "two")}
    assert {"example-1-bars.png", "example-2-bars.png"} <= names
    plain = (tmp_path / "two" / "example-1-bars.pdf").read_bytes()
    assert plain.startswith(b"%PDF")
    assert plain == report.render(short.figures[0].model_copy(update={"title": "another"}), "pdf")
    dotted = finding.model_copy(update={"analysis": "comparison-dlcl-1.5"})
    written = save_plots([dotted], tmp_path / "dotted")
    assert len(set(written)) == 3 * len(finding.figures)
    assert tmp_path / "dotted" / "comparison-dlcl-1.5-bars.png" in written
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file"):
        save_plots([finding], tmp_path / "file")


def test_a_page_needs_nothing_else(finding: Finding) -> None:
    page = Page(as_html([finding, finding], "Two"))
    assert "script" not in page.tags
    assert "link" not in page.tags
    inside = {link[1:] for link in page.links if link.startswith("#")}
    assert all(link.startswith(("#", "data:image/svg+xml;base64,")) for link in page.links)
    assert inside <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert page.tags.count("img") == page.tags.count("figure") == 6
    # A table for each figure, besides those of the finding and its origin.
    assert page.tags.count("table") == 2 * (1 + 3 + 1)
    text = as_html([finding], "One")
    assert "<details open" not in text
    assert (text.count("<h2 "), as_html([finding], finding.title).count("<h2 ")) == (1, 0)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert not re.search(r"@import|url\(\s*['\"]?http", text)


def test_markup_in_any_text_is_shown_and_not_obeyed(finding: Finding) -> None:
    mark, shown = "<b onclick='x'>&\"", "&lt;b onclick=&#39;x&#39;&gt;&amp;&#34;"
    bars = finding.figures[1].model_copy(update={"title": mark, "caption": mark})
    table = Table(title=mark, columns=(Column(name=mark, unit=mark),), rows=((mark,),))
    texts = {"title": mark, "measured": mark, "notes": (mark,), "tables": (table,), "figures": (bars,)}
    page = as_html([finding.model_copy(update=texts)], f"{mark}!", mark)
    assert "<b " not in page
    # Twice as the title of the page, once as all else; the figure's table and the drawing have more of them.
    assert page.count(shown) >= 2 + 1 + 3 + 1 + 4 + 1


def test_without_matplotlib_there_is_one_clear_error(
    finding: Finding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "find_spec", lambda name: None)
    with pytest.raises(UsageError) as caught:
        report.render(finding.figures[0], "png")
    assert "pip install 'deepwire[analysis]'" in caught.value.hint
    with pytest.raises(UsageError):
        as_html([finding], "t")
