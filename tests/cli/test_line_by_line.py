from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deepwire.cli.line_by_line import CountedLines, write_answers
from deepwire.io.progress_line import ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def texts(self) -> list[str]:
        """What was written between control sequences, without repetitions."""
        parts = re.split(r"\x1b\[[?0-9;]*[A-Za-z]|[\r\n]", self.getvalue())
        return list(dict.fromkeys(part for part in parts if part.strip()))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Terminal]:
    """Makes standard error a terminal, in the test itself: pytest sets its own between fixture and test."""

    def make() -> Terminal:
        made = Terminal()
        monkeypatch.setattr(sys, "stderr", made)
        return made

    monkeypatch.setenv("TERM", "xterm")
    return make


def test_a_terminal_sees_how_far_it_is(terminal: Callable[[], Terminal]) -> None:
    screen = terminal()
    with ProgressLine(every=0) as line:
        line.count("reading files", 0)
        line.count("segmenting", 4096, 10_000, "pairs")
        line.count("downloaded", 1000, None, "bytes")
    assert screen.texts() == [
        "reading files",
        "segmenting 4,096 of 10,000 pairs (41%)",
        "downloaded 1,000 bytes",
    ]


def test_answers_are_untouched_and_the_summary_stays(
    terminal: Callable[[], Terminal], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = terminal()
    lines = CountedLines(["a", "b"])
    write_answers(lines, lines, str.upper, tmp_path / "out", flush=False, quiet=False)
    assert (tmp_path / "out").read_text() == "A\nB\n"
    assert re.fullmatch(r"2 lines in [\d.]+ s \([\d.]+ lines/s\)", screen.texts()[-1])
    assert capsys.readouterr().out == ""
