"""Faulty text at the command line: refused before anything is trained, or every line keeps its place."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from forked import fork
from one_process import Trainer

SHORT = ("training.max_updates=2", "training.validation.every=2", "training.checkpoint.every=2")


@pytest.fixture(scope="module")
def model(trainer: Trainer) -> str:
    """A model that has not learned when to stop, made to stop early."""
    limits = ("decoding.max_length_ratio=0", "decoding.max_length_extra=4")
    assert trainer.train("reader", *SHORT, *limits) == 0, trainer.text()
    return str(trainer.run_directory("reader").path)


def source(trainer: Trainer) -> bytes:
    return (trainer.folder / "train.src").read_bytes()


def refused(trainer: Trainer, tmp_path: Path, message: str) -> bool:
    """Whether the last command was refused with one line, before a run was begun."""
    text = trainer.text()
    assert message in text
    assert text.count("error: ") == 1
    return "Traceback" not in text and not trainer.run_directory(tmp_path.name).metrics.exists()


ODD = {
    "nul": b"ab\0cd",
    "marked": b"\xef\xbb\xbfabc",
    "carriage return": b"abc\r",
    "lone carriage return": b"ab\rcd",
    "line separator": "ab\u2028cd".encode(),
    "next line": "ab\u0085cd".encode(),
    "right to left": "\u202eabc\u202c \u05d0\u05d1".encode(),
    "joined emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467".encode(),
    "no utf8": b"ab\xff\xfecd",
    "empty": b"",
    "spaces": b"   ",
    "special words": b"</s> <pad> <s> <unk>",
    "word boundaries": "▁ab@@ cd▁".encode(),
    "language tag": b"<2de> abc __en__",
    "long": b"abcd " * 20_000,
}


def test_every_line_in_is_a_line_out(trainer: Trainer, model: str, tmp_path: Path) -> None:
    text, output = tmp_path / "text", tmp_path / "output"
    text.write_bytes(b"".join(line + b"\nabc\n" for line in ODD.values()))
    options = ("--input", str(text), "--output", str(output), "--beam", "2")
    assert trainer.command("translate", model, *options) == 0, trainer.text()
    lines = output.read_bytes().split(b"\n")
    assert len(lines) - 1 == 2 * len(ODD) == text.read_bytes().count(b"\n")
    # What stands beside an odd line is translated as ever.
    assert len(set(lines[1:-1:2])) == 1
    assert lines[2 * list(ODD).index("empty")] == lines[2 * list(ODD).index("spaces")] == b""
    sides = ("--source", str(text), "--target", str(text), "--output", str(tmp_path / "scores"))
    assert trainer.command("score", model, *sides) == 0, trainer.text()
    scores = (tmp_path / "scores").read_text().split("\n")
    assert len(scores) - 1 == 2 * len(ODD)


def test_a_pipe_is_read_once(trainer: Trainer, model: str, tmp_path: Path) -> None:
    pipe, output = tmp_path / "pipe", tmp_path / "output"
    os.mkfifo(pipe)
    writer = fork(lambda: 0 * pipe.write_text("abc\nhgf\n"))
    code = trainer.command("translate", model, "--input", str(pipe), "--output", str(output))
    os.kill(writer, signal.SIGKILL)  # where nobody has opened the pipe, it still waits
    os.waitpid(writer, 0)
    assert code == 0, trainer.text()
    assert output.read_text().count("\n") == 2
