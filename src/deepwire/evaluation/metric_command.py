"""Metrics that another program computes, such as COMET and MetricX, which do not install beside deepwire."""

from __future__ import annotations

import json
import math
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeGuard

import numpy as np

from deepwire.errors import DataError, UsageError
from deepwire.evaluation.metric import Floats, Metric

_FILES = ("source", "hypothesis", "reference", "jsonl", "scores")
_PLACE = re.compile(r"\{(\w*)\}")


class MetricCommand(Metric):
    """The mean of the scores that a command gives to each sentence.

    The command is started once for each system, without a shell. Names in braces stand for files, one
    sentence a line: `{source}`, `{hypothesis}`, `{reference}`; `{jsonl}` for one of JSON objects with these
    three as keys; `{scores}` for the file that the command writes, which is stdout where it is not named; its
    form is told at `read_scores`.

    Args:
        name: As it is written in tables.
        command: The command line.
        higher_is_better: Whether a larger score is better.

    Raises:
        UsageError: The command names no hypothesis, or a file that there is not.
    """

    width, digits = 2, 4

    def __init__(self, name: str, command: str, *, higher_is_better: bool = True) -> None:
        self.name, self.command, self.higher_is_better = name, command, higher_is_better
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise UsageError(f"metric {name}: {command!r}: {error}") from None
        named = set(_PLACE.findall(command))
        if unknown := sorted(named.difference(_FILES)):
            known = ", ".join(f"{{{name}}}" for name in _FILES)
            raise UsageError(f"metric {name}: there is no file {{{unknown[0]}}}", f"there are {known}")
        if not named & {"hypothesis", "jsonl"}:
            raise UsageError(
                f"metric {name}: the command does not name {{hypothesis}}",
                'such as NAME="program -s {source} -t {hypothesis} -r {reference} --output {scores}"',
            )
        self._named = named
        self.needs_source = bool(named & {"source", "jsonl"})

    def values(self, totals: Floats) -> Floats:
        """The mean over sentences."""
        return totals[..., 0] / np.maximum(totals[..., 1], 1)

    def signature(self, references: int) -> str:
        """The command, which says what it computes."""
        return f"nrefs:{references}|command:{self.command}"

    def _count(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Floats:
        return self._count_with_source(hypotheses, references, None)

    def _count_with_source(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], source: Sequence[str] | None
    ) -> Floats:
        if len(references) > 1:
            raise UsageError(
                f"metric {self.name}: a command compares with one reference, not {len(references)}"
            )
        texts = {"hypothesis": hypotheses, "reference": references[0]}
        scores = self._scores(texts if source is None else {"source": source, **texts})
        if wrong := [score for score in scores if not math.isfinite(score)]:
            raise DataError(f"metric {self.name}: a score is {wrong[0]}")
        if len(scores) != len(hypotheses):
            raise DataError(
                f"metric {self.name}: {len(scores)} scores for {len(hypotheses)} sentences",
                "it needs one for each",
            )
        return np.stack([np.array(scores), np.ones(len(scores))], axis=1)

    def _scores(self, texts: dict[str, Sequence[str]]) -> list[float]:
        with TemporaryDirectory(prefix="deepwire-metric-") as folder:
            paths = {name: Path(folder, name) for name in _FILES}
            for name, lines in texts.items():
                paths[name].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            if "jsonl" in self._named:
                rows = (dict(zip(texts, row, strict=True)) for row in zip(*texts.values(), strict=True))
                written = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
                paths["jsonl"].write_text(written, encoding="utf-8")
            said = self._run([_PLACE.sub(lambda match: str(paths[match[1]]), word) for word in self._words])
            try:
                text = paths["scores"].read_text("utf-8") if "scores" in self._named else said.decode()
            except (OSError, UnicodeDecodeError) as error:
                raise DataError(f"metric {self.name}: cannot read its scores: {error}") from None
        return read_scores(text, self.name)

    def _run(self, words: Sequence[str]) -> bytes:
        """The stdout of the command; its progress goes to stderr."""
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
        except OSError as error:
            raise UsageError(
                f"metric {self.name}: cannot start {words[0]!r}: {error.strerror}",
                "see that the program is installed, or name it with its folder",
            ) from None
        if done.returncode:
            raise UsageError(f"metric {self.name}: {words[0]!r} ended with exit code {done.returncode}")
        return done.stdout


def read_scores(text: str, name: str) -> list[float]:
    """The scores that a command wrote, which errors call `name`.

    It writes a number a line; or JSON, one value or one a line: a list, or an object with one number or one
    called `score`. COMET's object, which has the list under the name of the file, is taken too.

    Raises:
        DataError: There is something else.
    """
    try:
        found = json.loads(text)
    except ValueError:  # not one JSON value, but perhaps one in each line
        try:
            found = [json.loads(line) for line in text.splitlines()]
        except ValueError as error:
            raise DataError(f"metric {name}: its scores: {error}", "a number a line, or JSON") from None
    if isinstance(found, dict) and len(found) == 1 and isinstance(only := next(iter(found.values())), list):
        found = only
    return [_score_of(item, name) for item in (found if isinstance(found, list) else [found])]


def _score_of(item: object, name: str) -> float:
    if isinstance(item, dict):
        numbers = {key: number for key, number in item.items() if _is_number(number)}
        only = next(iter(numbers.values())) if len(numbers) == 1 else None
        item = numbers.get("score", only)
    if not _is_number(item):
        raise DataError(f"metric {name}: {json.dumps(item)[:60]} is no score")
    return float(item)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
