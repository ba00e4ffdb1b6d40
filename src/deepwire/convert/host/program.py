"""Translation of text with an exported model, and its command line."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from .errors import DataError, HostError, ModelError, UsageError, reason
from .search import BOS, Hypothesis
from .translator import Context, SubwordTranslator, check_search, read_manifest

# SentencePiece writes a space as U+2581; one in the text itself is escaped.
SPACE, ESCAPE = "\u2581", "\U000f2581"
Candidates = list[tuple[str, float]]
"""Texts with their scores, best first."""


class Vocabulary:
    """The SentencePiece model of one side."""

    def __init__(self, path: Path) -> None:
        if path.suffix != ".model":
            raise UsageError(
                f"{path} is not a SentencePiece model", "segment the text into subwords yourself, see --ids"
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
        """Subword ids of each line."""
        escaped = [line.replace(ESCAPE, f"{ESCAPE}0").replace(SPACE, f"{ESCAPE}1") for line in lines]
        ids: list[list[int]] = self.processor.encode(escaped)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of subword ids."""
        decoded: str = self.processor.decode(list(ids))
        return decoded.replace(f"{ESCAPE}1", SPACE).replace(f"{ESCAPE}0", ESCAPE)


class Translator(SubwordTranslator):
    """Translates text; for arguments see the base class."""

    @cached_property
    def source(self) -> Vocabulary:
        """The vocabulary of sources."""
        return Vocabulary(self.folder / self.manifest["vocabulary"]["source"][0])

    @cached_property
    def target(self) -> Vocabulary:
        """The vocabulary of translations."""
        return Vocabulary(self.folder / self.manifest["vocabulary"]["target"][0])

    def translate(self, lines: Sequence[str], to: str = "") -> list[Candidates]:
        """Translates lines of text; an empty line has an empty translation.

        A document-level model also reads the lines before each; an empty line ends a document.
        """
        if self.writes:
            raise UsageError("it is a language model", "it continues text: see generate")
        sources = self.source.encode(lines)
        if not self.manifest.get("context"):
            return [self.texts(each) for each in self.translate_ids(sources, to)]
        translations: list[Candidates] = [[("", 0.0)] for _ in lines]
        targets: dict[int, list[int]] = {}
        for wave in self.waves(lines):
            contexts = [self.context(row, before, sources, targets) for row, before in wave.items()]
            results = self.translate_ids([sources[row] for row in wave], to, contexts)
            for row, hypotheses in zip(wave, results, strict=True):
                translations[row] = self.texts(hypotheses)
                (targets[row],) = self.target.encode([translations[row][0][0]])
        return translations

    def waves(self, lines: Sequence[str]) -> Iterator[dict[int, list[int]]]:
        """Batches of line numbers, each with the earlier lines of its document.

        A batch needs translations of earlier batches only.
        """
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
        self, row: int, before: Sequence[int], sources: Sequence[list[int]], targets: Mapping[int, list[int]]
    ) -> Context:
        """The tokens of the lines before a line, on both sides."""
        limits = self.manifest["context"]
        length = min(len(sources[row]), self.settings["max_source_length"])
        source_lines = [sources[each] for each in before[max(0, len(before) - limits["source"]) :]]
        target_lines = [targets[each] for each in before[max(0, len(before) - limits["target"]) :]]
        source_separator, target_separator = limits["separators"]
        return (
            context_tokens(source_lines, length, limits["max_length"], source_separator),
            context_tokens(target_lines, length, limits["max_length"], target_separator),
        )

    def texts(self, hypotheses: Sequence[Hypothesis]) -> Candidates:
        """The texts and scores of hypotheses."""
        return [(self.target.decode(each.ids), each.score) for each in hypotheses] or [("", 0.0)]

    def generate(self, prompts: Sequence[str], most: int | None = None) -> list[Candidates]:
        """Continues texts with a language model by at most `most` subwords, which alone are scored."""
        if not self.writes:
            raise UsageError("it is no language model", "it translates: see translate")
        most = self.settings["max_length_extra"] if most is None else most
        encoded = [self.target.encode(prompt.split("\n")) for prompt in prompts]
        ids = [[token for line in lines for token in (BOS, *line)][1:] for lines in encoded]
        continuations = self.continue_ids(ids, most)
        return [
            [
                (self.with_continuation(prompt, prompt_ids, hypothesis.ids), hypothesis.score)
                for hypothesis in each
            ]
            for prompt, prompt_ids, each in zip(prompts, ids, continuations, strict=True)
        ]

    def with_continuation(self, prompt: str, ids: Sequence[int], more: Sequence[int]) -> str:
        """The prompt with its continuation, `more`."""
        beginning, whole = self.decode_lines(ids), self.decode_lines([*ids, *more])
        return prompt + whole[len(beginning) :] if whole.startswith(beginning) else whole

    def decode_lines(self, ids: Sequence[int]) -> str:
        """The text of ids; line breaks are BOS in prompts, the id after the vocabulary in continuations."""
        breaks, lines = (BOS, self.manifest["target_pieces"]), list[list[int]]([[]])
        for token in ids:
            if token in breaks:
                lines.append([])
            else:
                lines[-1].append(token)
        texts = [self.target.decode(line) for line in lines]
        return "\n".join(" ".join(re.split("\r\n|[\n\r\0]", text)) for text in texts)


def context_tokens(sentences: Sequence[list[int]], length: int, max_length: int, separator: int) -> list[int]:
    """The last sentences that fit before one of `length`, each followed by the separator."""
    first = len(sentences)
    while first:
        length += len(sentences[first - 1]) + 1
        if length > max_length:
            break
        first -= 1
    return [token for sentence in sentences[first:] for token in (*sentence, separator)]


def main(folder: Path) -> None:
    """Translate standard input with the model of a folder; an error is one line and an exit code."""
    parser = argparse.ArgumentParser(description="Translate or continue text with an exported model.")
    parser.add_argument("folder", nargs="?", default=folder, help="default: that of this file")
    parser.add_argument("--ids", action="store_true", help="lines are subword ids, not text")
    parser.add_argument("--to", default="", help="target language of a multilingual model")
    parser.add_argument("--beam", type=int, help="1: greedy search")
    parser.add_argument("--n-best", type=int, help="translations of each line, with their scores")
    parser.add_argument("--length-penalty", type=float)
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    try:
        results = translate_stdin(arguments)
    except HostError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    for each in results:
        for text, score in each or [("", 0.0)]:
            print(f"{score:.6f}\t{text}" if arguments.n_best else text)


def translate_stdin(arguments: argparse.Namespace) -> list[Candidates]:
    """Translates or continues standard input.

    Raises:
        HostError: An option, a line or the model is wrong.
    """
    if arguments.threads < 0:
        raise UsageError(
            f"--threads {arguments.threads}: must be at least 0", "0: as many as there are cores"
        )
    chosen = {name: getattr(arguments, name) for name in ("beam", "n_best", "length_penalty")}
    settings = {name: value for name, value in chosen.items() if value is not None}
    stored = read_manifest(Path(arguments.folder))["decoding"]
    check_search(settings, arguments.beam or stored["beam"], "--")
    translator = Translator(arguments.folder, settings, arguments.threads)
    translator.language(arguments.to)
    sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape", newline="\n")  # type: ignore[union-attr]
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    lines = [clean_line(line, number) for number, line in enumerate(sys.stdin, 1)]
    if not arguments.ids:
        if translator.writes:
            return translator.generate(lines)
        return translator.translate(lines, arguments.to)
    pieces = translator.manifest["target_pieces" if translator.writes else "source_pieces"]
    ids = [parse_ids(line, number, pieces) for number, line in enumerate(lines, 1)]
    if translator.writes:
        results = translator.continue_ids(ids, translator.settings["max_length_extra"])
    else:
        results = translator.translate_ids(ids, arguments.to)
    return [[(" ".join(map(str, one.ids)), one.score) for one in each] for each in results]


def clean_line(line: str, number: int) -> str:
    """A line of text without its line break, NULs and BOM, as deepwire reads it.

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


def parse_ids(line: str, number: int, pieces: int) -> list[int]:
    """Parses a line of subword ids below `pieces`.

    Raises:
        DataError: A word is not such an id.
    """
    for word in line.split():
        if not (word.isascii() and word.isdecimal() and int(word) < pieces):
            raise DataError(
                f"standard input, line {number}: {word} is not a subword id",
                f"ids are 0 to {pieces - 1}; without --ids lines are text",
            )
    return [int(word) for word in line.split()]
