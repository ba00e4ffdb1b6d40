"""Faulty text at the command line: refused before anything is trained, or every line keeps its place."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
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


@pytest.fixture
def train_on(trainer: Trainer, tmp_path: Path) -> Callable[..., int]:
    """Train on the corpus with other bytes in place of the source or the target."""

    def train(*settings: str, **sides: bytes) -> int:
        for side in ("src", "trg"):
            content = sides.get(side, (trainer.folder / f"train.{side}").read_bytes())
            (tmp_path / f"train.{side}").write_bytes(content)
        return trainer.train(tmp_path.name, f"data.train={tmp_path / 'train'}", *SHORT, *settings)

    return train


def source(trainer: Trainer) -> bytes:
    return (trainer.folder / "train.src").read_bytes()


def refused(trainer: Trainer, tmp_path: Path, message: str) -> bool:
    """Whether the last command was refused with one line, before a run was begun."""
    text = trainer.text()
    assert message in text
    assert text.count("error: ") == 1
    return "Traceback" not in text and not trainer.run_directory(tmp_path.name).metrics.exists()


def test_sides_of_different_lengths(trainer: Trainer, tmp_path: Path, train_on: Callable[..., int]) -> None:
    assert train_on(src=source(trainer).rpartition(b"\nx")[0] + b"\n") == 3
    assert refused(trainer, tmp_path, "line counts differ: ")
    assert "199" in trainer.text()
    assert "200" in trainer.text()


def test_bytes_that_are_no_utf8(trainer: Trainer, tmp_path: Path, train_on: Callable[..., int]) -> None:
    lines = source(trainer).split(b"\n")
    lines[6] = b"x\xffy"
    broken = b"\n".join(lines)
    assert train_on(src=broken) == 3
    assert refused(trainer, tmp_path, "train.src:7:2: not UTF-8")
    for choice in ("skip", "replace"):
        assert train_on(f"data.on_bad_utf8={choice}", "--fresh", src=broken) == 0, trainer.text()
    assert "199 training pairs" not in trainer.text()  # replaced, not dropped


def test_what_cannot_be_learned_from_is_dropped(trainer: Trainer, train_on: Callable[..., int]) -> None:
    """Empty lines and one of a million characters; the last line needs no end."""
    lines = source(trainer).split(b"\n")[:-1]
    lines[3], lines[4], lines[5] = b"", b"   ", b"a" * 1_000_000
    assert train_on(src=b"\n".join(lines)) == 0, trainer.text()
    assert "197 training pairs" in trainer.text()


PLACES: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty file": (lambda path: path.write_bytes(b""), "is empty"),
    "directory": (lambda path: path.mkdir(), "directory"),
    "missing": (lambda path: None, "no such"),
}


@pytest.mark.parametrize("kind", PLACES)
def test_places_without_text(trainer: Trainer, tmp_path: Path, model: str, kind: str) -> None:
    make, message = PLACES[kind]
    shutil.copy(trainer.folder / "train.trg", tmp_path / "train.trg")
    make(tmp_path / "train.src")
    assert trainer.train(tmp_path.name, f"data.train={tmp_path / 'train'}", *SHORT) in (2, 3)
    assert refused(trainer, tmp_path, message)
    if kind != "empty file":  # which is a text of no lines
        assert trainer.command("translate", model, "--input", str(tmp_path / "train.src")) in (2, 3)
        assert trainer.text().count("error: ") == 1


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
