"""Speed of translating a text: models and other programs, in turn, on the same sentences.

A program has to start and to load its model before it translates. So everything is timed twice: with the
whole text and with its first sentence alone. The difference is the time of all sentences but one, whatever
happens once; models that are loaded already are counted by the same rule.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deepwire.errors import LogFn, UsageError
from deepwire.lab.report.finding import BarChart, Series, Table
from deepwire.lab.source_length import LengthUnit, text_lengths, unit_of
from deepwire.lab.subject.scorer import WARM_UP, Scorer

_SHOWN = 200
# A whole text that takes less than this many times as long as one sentence says little about speed.
_ENOUGH = 2.0
# What libraries of linear algebra and of threads read when a program starts.
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

Translate = Callable[[Sequence[str]], list[str]]


@dataclass(frozen=True)
class Program:
    """A command that translates.

    Attributes:
        name: As in tables.
        command: Program and arguments; no shell reads them.
        threads: For how many CPU threads its environment asks; None leaves the environment as it is.
    """

    name: str
    command: tuple[str, ...]
    threads: int | None = None

    @classmethod
    def parse(cls, text: str, threads: int | None = None) -> Program:
        """Read ``NAME=COMMAND``; words of the command are quoted as in a shell.

        Raises:
            UsageError: A part is missing, or a quotation mark.
        """
        name, _, command = text.partition("=")
        hint = "write --beside 'NAME=program --option', and NAME='sh -c \"...\"' for pipes"
        try:
            words = tuple(shlex.split(command))
        except ValueError as error:
            raise UsageError(f"--beside: {text!r}: {error}", hint) from None
        if not name.strip() or not words:
            raise UsageError(f"--beside: {text!r} is not NAME=COMMAND", hint)
        return cls(name.strip(), words, threads)

    def translate(self, lines: Sequence[str]) -> list[str]:
        """Start the program, give it the lines and read as many.

        Raises:
            UsageError: It does not start, fails, or gives another number of lines.
        """
        asked = {} if self.threads is None else dict.fromkeys(_THREADS, str(self.threads))
        text = "".join(f"{line}\n" for line in lines).encode()
        environment = os.environ | asked
        try:
            done = subprocess.run(self.command, input=text, capture_output=True, env=environment, check=False)
        except OSError as error:
            raise UsageError(
                f"--beside {self.name}: {self.command[0]}: {error.strerror or error}",
                "give the path of a program that can be run",
            ) from error
        if code := done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            status = f"exit status {code}" if code > 0 else f"signal {-code}"
            raise UsageError(
                f"--beside {self.name}: the command failed ({status}): {said[-1][:_SHOWN]}",
                f"try it alone: {shlex.join(self.command)}",
            )
        lines_out = done.stdout.decode(errors="replace").split("\n")
        lines_out = lines_out[:-1] if lines_out[-1] == "" else lines_out
        if len(lines_out) != len(lines):
            raise UsageError(
                f"--beside {self.name}: the command gave {len(lines_out)} lines for {len(lines)}",
                "it must write one line to stdout for each line on stdin, and nothing else",
            )
        return lines_out


@dataclass(frozen=True)
class TextSpeed:
    """The times of one subject; each time is the shortest of the rounds.

    Attributes:
        name: As in tables and plots.
        sentences, length: Of the source without its first sentence.
        whole, first: Seconds for the whole text, and for its first sentence alone.
        length_out: Length of the whole translation.
        bleu: BLEU of the whole translation.
        unit, unit_out: What the lengths of both sides are counted in.
    """

    name: str
    sentences: int
    length: int
    whole: float
    first: float
    length_out: int
    bleu: float
    unit: LengthUnit
    unit_out: LengthUnit

    @property
    def clear(self) -> bool:
        """Whether the text is long enough to tell the translation from the start."""
        return self.whole >= _ENOUGH * self.first

    @property
    def sentences_per_second(self) -> float | None:
        """Without the start; None where the whole text took no longer than its first sentence."""
        return self.sentences / (self.whole - self.first) if self.whole > self.first else None

    @property
    def length_per_second(self) -> float | None:
        """Source words (or characters) a second, without the start."""
        return self.length / (self.whole - self.first) if self.whole > self.first else None


def measure_text(
    models: Sequence[Scorer], programs: Sequence[Program], *, rounds: int, tell: LogFn
) -> list[TextSpeed]:
    """Translate the text of the models with every subject in turn.

    Args:
        models: With one text; what they do when they translate for the first time does not count.
        programs: Each is tried with the first sentence before anything is measured.
        rounds: The shortest time counts.
        tell: Receives progress messages, one line each.

    Raises:
        UsageError: The text has one sentence, two subjects have one name, or a program fails.
    """
    pairs = models[0].pairs
    lines = pairs.source.lines
    if len(lines) < 2:
        raise UsageError(f"{pairs.description}: too short to take the speed of", "give many sentences")
    names = [*(model.name for model in models), *(program.name for program in programs)]
    if len(set(names)) < len(names):
        raise UsageError(f"two have one name: {', '.join(names)}", "give each --beside a name of its own")
    for program in programs:
        program.translate(lines[:1])
    for model in models:
        model.translate(model.model, lines[:WARM_UP])
    works: list[Translate] = [_translation(model) for model in models]
    works += [program.translate for program in programs]
    times: list[tuple[float, float]] = [(float("inf"), float("inf"))] * len(works)
    translations: list[list[str]] = [[] for _ in works]
    for done in range(1, rounds + 1):
        for place, translate in enumerate(works):
            first, _ = _timed(translate, lines[:1])
            whole, translations[place] = _timed(translate, lines)
            times[place] = min(times[place][0], first), min(times[place][1], whole)
            tell(f"{names[place]}: round {done} of {rounds}: {whole:.1f} s, {first:.2f} s for one sentence")
    unit, unit_out = unit_of(lines), unit_of(pairs.reference.lines)
    length = sum(text_lengths(lines[1:], unit))
    shown = [*names[: len(models)], *(f"{program.name} (command)" for program in programs)]
    return [
        TextSpeed(
            name=name,
            sentences=len(lines) - 1,
            length=length,
            whole=whole,
            first=first,
            length_out=sum(text_lengths(translation, unit_out)),
            bleu=models[0].score(translation),
            unit=unit,
            unit_out=unit_out,
        )
        for name, (first, whole), translation in zip(shown, times, translations, strict=True)
    ]


def _translation(model: Scorer) -> Translate:
    return lambda lines: model.translate(model.model, lines).lines


def _timed(translate: Translate, lines: Sequence[str]) -> tuple[float, list[str]]:
    begun = time.perf_counter()
    translation = translate(lines)
    return time.perf_counter() - begun, translation


def text_table(speeds: Sequence[TextSpeed]) -> Table:
    """One row for each subject."""
    source, out = speeds[0].unit, speeds[0].unit_out
    columns = ["subject", "speed [sentences/s] .2", f"source [{source}/s] .1", "whole text [s] .2"]
    return Table(
        title="Translation of a text",
        columns=[*columns, "one sentence [s] .2", f"{out} out", "BLEU .2"],
        rows=[
            (
                speed.name,
                speed.sentences_per_second,
                speed.length_per_second,
                speed.whole,
                speed.first,
                speed.length_out,
                speed.bleu,
            )
            for speed in speeds
        ],
    )


def text_figure(speeds: Sequence[TextSpeed]) -> BarChart:
    """Sentences a second of every subject."""
    return BarChart(
        name="text",
        title="Speed of translating a text, start-up subtracted",
        caption="Time of the whole text less that of its first sentence alone, in which commands start and "
        "load their model; the shortest of each.",
        x="model, or command of another program",
        y="speed [sentences/s]",
        categories=[speed.name for speed in speeds],
        series=[Series(name="speed", y=[speed.sentences_per_second for speed in speeds])],
    )


def text_notes(speeds: Sequence[TextSpeed], programs: Sequence[Program]) -> list[str]:
    """Notes on how to read these numbers."""
    unclear = [speed.name for speed in speeds if not speed.clear]
    notes = [f"Command beside: {program.name}={shlex.join(program.command)}" for program in programs]
    if programs:
        notes.append(
            "Commands choose their own search, precision, batches and, unless they follow OMP_NUM_THREADS, "
            "threads: compare lengths and BLEU, and set them alike in the command."
        )
    if unclear:
        notes.append(
            f"The text is too short for {', '.join(unclear)}: the whole takes less than {_ENOUGH:g} times as "
            "long as one sentence, so the difference is mostly noise. Give more sentences."
        )
    return notes
