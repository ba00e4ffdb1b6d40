"""Draw the figures of the documentation as SVG, from plain shapes and from stored results.

    python docs/_site/figures.py

They stand on a white ground of their own and differ in shade, dashes and hatching, so that they are legible in grey
and on a dark page. A test compares the files with what this script draws.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ROOT / "docs" / "assets"
RESULTS = ROOT / "benchmarks" / "results"
MEASUREMENTS = ROOT / "docs" / "reports" / "measurements.md"

INK, GREY, PALE, BLUE = "#1b1f24", "#6a737d", "#e8ecf1", "#2f5fa7"
FONT = "font-family='system-ui, Segoe UI, Helvetica, Arial, sans-serif'"


class Drawing:
    """Shapes on a white ground."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size, self._title, self._shapes = (width, height), title, [""]

    def box(self, x: float, y: float, width: float, height: float, text: str, *, fill: str = PALE) -> None:
        """A box with lines of text in its middle; the first is bold."""
        self._shapes.append(
            f"<rect x='{x}' y='{y}' width='{width}' height='{height}' rx='5' fill='{fill}' stroke='{INK}'/>"
        )
        lines = text.split("\n")
        for number, line in enumerate(lines):
            middle = y + height / 2 + 5 + (number - (len(lines) - 1) / 2) * 17
            self.text(x + width / 2, middle, line, anchor="middle", bold=number == 0, ink=_ink(fill))

    def text(
        self, x: float, y: float, text: str, *, anchor: str = "start", bold: bool = False, ink: str = INK
    ) -> None:
        weight = " font-weight='600'" if bold else ""
        self._shapes.append(
            f"<text x='{x:g}' y='{y:g}' font-size='13' text-anchor='{anchor}' fill='{ink}'{weight} {FONT}>"
            f"{escape(text)}</text>"
        )

    def arrow(self, *points: tuple[float, float], dashes: str = "") -> None:
        way = " ".join(f"{x:g},{y:g}" for x, y in points)
        dashed = f" stroke-dasharray='{dashes}'" if dashes else ""
        self._shapes.append(
            f"<polyline points='{way}' fill='none' stroke='{INK}' stroke-width='1.5' marker-end='url(#tip)'{dashed}/>"
        )

    def line(
        self, points: Sequence[tuple[float, float]], *, ink: str = INK, dashes: str = "", wide: float = 1
    ) -> None:
        way = " ".join(f"{x:g},{y:g}" for x, y in points)
        dashed = f" stroke-dasharray='{dashes}'" if dashes else ""
        self._shapes.append(
            f"<polyline points='{way}' fill='none' stroke='{ink}' stroke-width='{wide}'{dashed}/>"
        )

    def dot(self, x: float, y: float, ink: str) -> None:
        self._shapes.append(f"<circle cx='{x:g}' cy='{y:g}' r='3.5' fill='{ink}'/>")

    def bar(self, x: float, y: float, width: float, height: float, *, own: bool) -> None:
        fill = BLUE if own else "url(#hatch)"
        self._shapes.append(
            f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{height:g}' fill='{fill}' stroke='{INK}'/>"
        )

    def svg(self) -> str:
        width, height = self._size
        shapes = "\n".join(self._shapes)
        return (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' "
            f"role='img' aria-label='{escape(self._title)}'>\n<title>{escape(self._title)}</title>\n<defs>"
            "<marker id='tip' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' markerHeight='7' orient='auto'>"
            f"<path d='M0,0 L8,4 L0,8 z' fill='{INK}'/></marker>"
            "<pattern id='hatch' width='6' height='6' patternUnits='userSpaceOnUse' patternTransform='rotate(45)'>"
            f"<rect width='6' height='6' fill='#fff'/><rect width='2' height='6' fill='{GREY}'/></pattern></defs>\n"
            f"<rect width='{width}' height='{height}' rx='6' fill='#fff'/>{shapes}\n</svg>\n"
        )


def _ink(fill: str) -> str:
    return "#ffffff" if fill == BLUE else INK


def sockets() -> str:
    """The four sockets of a stack, and which way the vectors take."""
    drawing = Drawing(780, 330, "A stack of layers and its four sockets")
    drawing.box(14, 250, 142, 50, "embedding\nwords and positions")
    for number, y in enumerate((190, 120)):
        drawing.box(210, y, 300, 56, "", fill="#f6f8fa")
        drawing.text(222, y + 18, f"layer {number + 1}", bold=True)
        drawing.box(276, y + 10, 84, 36, "mixer", fill=BLUE)
        drawing.box(386, y + 10, 112, 36, "feed-forward")
        drawing.arrow((360, y + 28), (385, y + 28))
        drawing.line([(240, y), (240, y - 7), (180, y - 7)])  # its output, for the layers above
    drawing.text(360, 106, "...", anchor="middle", bold=True)
    drawing.box(210, 50, 300, 40, "layer L", fill="#f6f8fa")
    drawing.arrow((156, 275), (180, 275), (180, 218), (209, 218))
    drawing.arrow((180, 218), (180, 148), (209, 148))
    drawing.arrow((180, 148), (180, 70), (209, 70))
    drawing.box(14, 120, 142, 56, "aggregation\nwhat a layer reads", fill=BLUE)
    drawing.line([(156, 148), (180, 148)], dashes="4 3")
    drawing.box(560, 150, 206, 76, "connection\nhow outputs of sub-layers\njoin the stream", fill=BLUE)
    drawing.line([(511, 218), (535, 218), (535, 188), (559, 188)], dashes="4 3")
    drawing.line([(511, 148), (535, 148), (535, 188)], dashes="4 3")
    drawing.box(560, 40, 206, 60, "fusion\nwhich layers leave", fill=BLUE)
    for y in (70, 134):
        drawing.arrow((511, y), (559, 70))
    drawing.arrow((650, 40), (650, 14))
    drawing.text(640, 26, "result of the stack", anchor="end")
    drawing.text(210, 278, "The encoder and the decoder each have such a stack.", ink=GREY)
    drawing.text(210, 296, "Blue: chosen in the run file, independently of each other.", ink=GREY)
    return drawing.svg()


def data_way() -> str:
    """From text to translations: files, commands, folders."""
    drawing = Drawing(900, 190, "From text to a translation")
    steps = [
        ("text\ntwo files,\nline by line", PALE),
        ("prepare\nfilter, cut into\nsubwords, number", BLUE),
        ("prepared/\nnumbers on disk\nwith checksums", PALE),
        ("train\nbatches of\nsimilar length", BLUE),
        ("runs/NAME\ncheckpoints\nlog, scores", PALE),
        ("translate, serve\nevaluate, analyze\nexport", BLUE),
    ]
    for number, (text, fill) in enumerate(steps):
        drawing.box(14 + number * 148, 50, 132, 76, "", fill=fill)
        for row, line in enumerate(text.split("\n")):
            drawing.text(
                80 + number * 148, 73 + row * 18, line, anchor="middle", bold=row == 0, ink=_ink(fill)
            )
        if number:
            drawing.arrow((number * 148 - 2, 88), (13 + number * 148, 88))
    drawing.text(14, 30, "run.yaml says all of it; every step continues where it was stopped", ink=GREY)
    drawing.text(14, 160, "Blue: commands. Grey: what lies on the disk.", ink=GREY)
    return drawing.svg()


def learning_curves() -> str:
    """Validation loss by update, from the table of measurements."""
    wanted = {
        "direct path": ("depth-wise LSTM 3+3, direct path", "Muon", BLUE, ""),
        "no direct path": ("depth-wise LSTM 3+3", "Muon", GREY, "2 3"),
        "post-norm, Muon": ("post-norm 3+3", "Muon", INK, "7 4"),
    }
    updates = (400, 800, 1200, 1600)
    curves = {name: _losses(system, begins) for name, (system, begins, _, _) in wanted.items()}
    drawing = Drawing(
        620, 320, "Learning curves of the demo over 1,600 updates, without its direct path, and of post-norm"
    )

    def place(update: float, loss: float) -> tuple[float, float]:
        return 70 + (update - 300) / 1400 * 400, 270 - (loss - 1.6) / 2.2 * 230

    for loss in (2.0, 2.5, 3.0, 3.5):
        drawing.line([place(300, loss), place(1700, loss)], ink="#d0d7de")
        drawing.text(60, place(300, loss)[1] + 4, f"{loss:g}", anchor="end")
    for update in updates:
        drawing.text(place(update, 0)[0], 288, f"{update:,}", anchor="middle")
    drawing.text(270, 308, "updates", anchor="middle")
    drawing.text(14, 22, "validation loss, nats per target token")
    for name, (_, _, ink, dashes) in wanted.items():
        points = [place(update, loss) for update, loss in zip(updates, curves[name], strict=True)]
        drawing.line(points, ink=ink, dashes=dashes, wide=2.2)
        for point in points:
            drawing.dot(*point, ink)
    for (name, (_, _, ink, dashes)), y in zip(wanted.items(), (60, 84, 108), strict=True):
        drawing.line([(390, y - 4), (428, y - 4)], ink=ink, dashes=dashes, wide=2.2)
        drawing.text(436, y, name)
    return drawing.svg()


def _losses(name: str, begins: str) -> list[float]:
    """The row of the table whose first two cells begin so."""
    for line in MEASUREMENTS.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and cells[0].startswith(name) and cells[1].startswith(begins):
            return [float(cell) for cell in cells[2:]]
    raise SystemExit(f"{MEASUREMENTS}: no row {name}, {begins}")


def speed() -> str:
    """Tokens and sentences a second beside other toolkits, from the stored results."""
    training = _rates("training_speed_base_bf16", "tokens/s")
    decoding = _rates("decoding_toolkits_base_bf16", "sentences/s")
    drawing = Drawing(700, 40 + 24 * (len(training) + len(decoding)) + 110, "Speed beside other toolkits")
    y = 26
    for title, rates in (
        ("Training, 6+6 layers, width 512: target tokens a second", training),
        ("Translating, 6+6 layers, width 512, beam 4: sentences a second", decoding),
    ):
        drawing.text(14, y, title, bold=True)
        top = max(rates.values())
        for name, rate in sorted(rates.items(), key=lambda entry: -entry[1]):
            y += 24
            drawing.text(160, y + 4, name, anchor="end")
            drawing.bar(170, y - 10, rate / top * 420, 17, own=name.startswith("deepwire"))
            drawing.text(178 + rate / top * 420, y + 4, f"{rate:,.0f}")
        y += 44
    drawing.text(
        14,
        y - 6,
        "Two cores of an AMD EPYC with bfloat16 units, November 2026; medians of three rounds.",
        ink=GREY,
    )
    return drawing.svg()


def _rates(name: str, column: str) -> dict[str, float]:
    """Speed by toolkit of the newest result."""
    text = sorted(RESULTS.glob(f"{name}_20*.md"))[-1].read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    place = rows[0].index(column)
    return {row[0]: float(row[place]) for row in rows[2:] if re.fullmatch(r"[\d.]+", row[place])}


FIGURES = {"sockets": sockets, "data-way": data_way, "learning-curves": learning_curves, "speed": speed}

if __name__ == "__main__":
    for name, draw in FIGURES.items():
        (ASSETS / f"{name}.svg").write_text(draw(), encoding="utf-8")
