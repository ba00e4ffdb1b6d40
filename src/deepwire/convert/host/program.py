"""Text in, text out."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from .errors import DataError, HostError, ModelError, UsageError, reason
from .search import BOS, Hypothesis
from .translator import Context, SubwordTranslator, check_search, read_manifest

# SentencePiece's space, where the text itself has one.
SPACE, ESCAPE = "\u2581", "\U000f2581"
Best = list[tuple[str, float]]
"""Texts with their scores, the best first."""


class Vocabulary:
    """SentencePiece with the model of a side."""

    def __init__(self, path: Path) -> None:
        if path.suffix != ".model":
            raise UsageError(
                f"{path} is of no SentencePiece model", "cut the text up into subwords yourself, see --ids"
            )
        try:
            import sentencepiece

            self.processor: Any = sentencepiece.SentencePieceProcessor(model_file=str(path))
        except ImportError as error:
            raise UsageError(
                f"text needs sentencepiece: {reason(error)}", "pip install sentencepiece"
            ) from error
        except (OSError, RuntimeError) as error:
            raise ModelError(
                f"{path}: cannot be read: {reason(error)}", "copy or export the folder anew"
            ) from error

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Subwords of each line."""
        escaped = [line.replace(ESCAPE, f"{ESCAPE}0").replace(SPACE, f"{ESCAPE}1") for line in lines]
        ids: list[list[int]] = self.processor.encode(escaped)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of subwords."""
        decoded: str = self.processor.decode(list(ids))
        return decoded.replace(f"{ESCAPE}1", SPACE).replace(f"{ESCAPE}0", ESCAPE)


class Translator(SubwordTranslator):
    """A model with its vocabularies and settings; see the base class."""

    @cached_property
    def source(self) -> Vocabulary:
        """The vocabulary of sources."""
        return Vocabulary(self.folder / self.manifest["vocabulary"]["source"][0])

    @cached_property
    def target(self) -> Vocabulary:
        """The vocabulary of translations."""
        return Vocabulary(self.folder / self.manifest["vocabulary"]["target"][0])

    def translate(self, lines: Sequence[str], to: str = "") -> list[Best]:
        """The best translations of each line of text, with their scores; an empty one of an empty line.

        With a model that reads documents an empty line ends one; it reads those in front of a line, too.
        """
        if self.writes:
            raise UsageError("it is a language model", "it goes on with text: see generate")
        sources = self.source.encode(lines)
        if not self.manifest.get("context"):
            return [self.texts(each) for each in self.translate_ids(sources, to)]
        translations: list[Best] = [[("", 0.0)] for _ in lines]
        targets: dict[int, list[int]] = {}
        for wave in self.waves(lines):
            contexts = [self.context(row, before, sources, targets) for row, before in wave.items()]
            results = self.translate_ids([sources[row] for row in wave], to, contexts)
            for row, hypotheses in zip(wave, results, strict=True):
                translations[row] = self.texts(hypotheses)
                (targets[row],) = self.target.encode([translations[row][0][0]])
        return translations

    def waves(self, lines: Sequence[str]) -> Iterator[dict[int, list[int]]]:
        """Lines that are translated together, each with those before it in its document."""
        before: dict[int, list[int]] = {}
        document: list[int] = []
        for row, line in enumerate(lines):
            if not line or line.isspace():
                document = []
            else:
                before[row] = document
                document = [*document, row]
        if not self.manifest["context"]["target"]:
            yield before
            return
        for place in range(max(map(len, before.values()), default=-1) + 1):
            yield {row: rows for row, rows in before.items() if len(rows) == place}

    def context(
        self, row: int, before: Sequence[int], sources: Sequence[list[int]], targets: dict[int, list[int]]
    ) -> Context:
        """The lines in front of a line."""
        known = self.manifest["context"]
        length = min(len(sources[row]), self.settings["max_source_length"])

        def front(side: int, ids: Sequence[list[int]] | dict[int, list[int]]) -> list[int]:
            lines = [ids[each] for each in last(before, known[("source", "target")[side]])]
            return in_front(lines, length, known["max_length"], known["separators"][side])

        return front(0, sources), front(1, targets)

    def texts(self, hypotheses: Sequence[Hypothesis]) -> Best:
        """The texts of hypotheses."""
        return [(self.target.decode(each.ids), each.score) for each in hypotheses] or [("", 0.0)]

    def generate(self, prompts: Sequence[str], most: int | None = None) -> list[Best]:
        """How a language model ends each text, by at most so many subwords, with scores of what is added."""
        if not self.writes:
            raise UsageError("it is no language model", "it translates: see translate")
        most = self.settings["max_length_extra"] if most is None else most
        encoded = [self.target.encode(prompt.split("\n")) for prompt in prompts]
        ids = [[token for line in lines for token in (BOS, *line)][1:] for lines in encoded]
        continuations = self.continue_ids(ids, most)
        return [
            [(self.ended(prompt, prompt_ids, hypothesis.ids), hypothesis.score) for hypothesis in each]
            for prompt, prompt_ids, each in zip(prompts, ids, continuations, strict=True)
        ]

    def ended(self, prompt: str, ids: Sequence[int], more: Sequence[int]) -> str:
        """The prompt and what follows it."""
        head, whole = self.lines(ids), self.lines([*ids, *more])
        return prompt + whole[len(head) :] if whole.startswith(head) else whole

    def lines(self, ids: Sequence[int]) -> str:
        """The text of subwords with line breaks: BOS in prompts, and a number of their own behind."""
        breaks, lines = (BOS, self.manifest["target_pieces"]), list[list[int]]([[]])
        for token in ids:
            if token in breaks:
                lines.append([])
            else:
                lines[-1].append(token)
        texts = [self.target.decode(line) for line in lines]
        return "\n".join(" ".join(re.split("\r\n|[\n\r\0]", text)) for text in texts)


def in_front(previous: Sequence[list[int]], length: int, most: int, separator: int) -> list[int]:
    """Previous sentences, each with the separator behind it; of these the latest that fit."""
    taken = 0
    for sentence in reversed(previous):
        length += len(sentence) + 1
        if length > most:
            break
        taken += 1
    return [token for sentence in last(previous, taken) for token in (*sentence, separator)]


def last(items: Sequence[Any], count: int) -> Sequence[Any]:
    """So many of the last."""
    return items[max(0, len(items) - count) :]


def main(folder: Path) -> None:
    """Translate standard input with the model of a folder; an error is one line and an exit code."""
    parser = argparse.ArgumentParser(description="Translate, or go on with texts, with an exported model.")
    parser.add_argument("folder", nargs="?", default=folder, help="default: that of this file")
    parser.add_argument("--ids", action="store_true", help="lines are numbers of subwords, not text")
    parser.add_argument("--to", default="", help="target language, of a model of several")
    parser.add_argument("--beam", type=int, help="1: greedy search")
    parser.add_argument("--n-best", type=int, help="translations of each line, with their scores")
    parser.add_argument("--length-penalty", type=float)
    parser.add_argument("--threads", type=int, default=0)
    given = parser.parse_args()
    try:
        results = translated(given)
    except HostError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    for each in results:
        for text, score in each or [("", 0.0)]:
            print(f"{score:.6f}\t{text}" if given.n_best else text)


def translated(given: argparse.Namespace) -> list[Best]:
    """The translations of standard input that a command line asks for.

    Raises:
        HostError: An option, a line or the model is wrong.
    """
    if given.threads < 0:
        raise UsageError(f"--threads {given.threads}: must be at least 0", "0: as many as there are cores")
    chosen = {name: getattr(given, name) for name in ("beam", "n_best", "length_penalty")}
    settings = {name: value for name, value in chosen.items() if value is not None}
    stored = read_manifest(Path(given.folder))["decoding"]
    check_search(settings, given.beam or stored["beam"], "--")
    translator = Translator(given.folder, settings, given.threads)
    translator.language(given.to)
    sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape", newline="\n")  # type: ignore[union-attr]
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    lines = [decoded(line, number) for number, line in enumerate(sys.stdin, 1)]
    if not given.ids:
        return translator.generate(lines) if translator.writes else translator.translate(lines, given.to)
    pieces = translator.manifest["target_pieces" if translator.writes else "source_pieces"]
    ids = [numbers(line, number, pieces) for number, line in enumerate(lines, 1)]
    if translator.writes:
        results = translator.continue_ids(ids, translator.settings["max_length_extra"])
    else:
        results = translator.translate_ids(ids, given.to)
    return [[(" ".join(map(str, one.ids)), one.score) for one in each] for each in results]


def decoded(line: str, number: int) -> str:
    """A line of text without its end, as deepwire reads it.

    Raises:
        DataError: It is not UTF-8.
    """
    line = line.removesuffix("\n").removesuffix("\r").replace("\0", " ")
    line = line.removeprefix("\ufeff") if number == 1 else line
    try:
        line.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"standard input, line {number}: is not UTF-8 at character {error.start + 1}",
            "convert the text, for instance with iconv",
        ) from error
    return line


def numbers(line: str, number: int, pieces: int) -> list[int]:
    """The subwords of a line of numbers.

    Raises:
        DataError: A word is no number, or none of a subword.
    """
    for word in line.split():
        if not (word.isascii() and word.isdecimal() and int(word) < pieces):
            raise DataError(
                f"standard input, line {number}: {word} is no number of a subword",
                f"they are 0 to {pieces - 1}; without --ids lines are text",
            )
    return [int(word) for word in line.split()]
