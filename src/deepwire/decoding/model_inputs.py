"""From lines to what a model reads: subwords and language tags, in batches that shrink as sentences end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import repeat
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from deepwire.data.languages import Direction, Languages, closest_label
from deepwire.data.text.language_guess import guess_language, is_known_language, script_shares
from deepwire.data.text.pairs import is_blank, plain
from deepwire.data.text.sentences import CHARACTERS_PER_SUBWORD
from deepwire.data.vocabulary import BOS, EOS, PAD, Vocabularies, Vocabulary
from deepwire.errors import LogFn, UsageError

_ENOUGH_LETTERS = 100_000
"""Text whose language is told: less is translated before the 0.7 s that py3langid takes to load pay."""
_LEARNED_SCRIPT = 0.01
"""Least share of a script in the letters of the vocabulary."""


class SourceCheck:
    """Warns once where text is clearly not what a model reads: by its script, and if long its language."""

    def __init__(self, vocabulary: Vocabulary, direction: tuple[str, str] | None, warn: LogFn) -> None:
        self._vocabulary, self._direction, self._warn = vocabulary, direction, warn
        self._lines: list[str] = []
        self._letters, self._open = 0, True

    @cached_property
    def _scripts(self) -> set[str]:
        shares = script_shares(self._vocabulary.pieces(range(self._vocabulary.size)))
        return {script for script, share in shares.items() if share >= _LEARNED_SCRIPT}

    def look(self, lines: Sequence[str]) -> None:
        """Take some more lines into account."""
        if not self._open:
            return
        script = next(iter(script_shares(lines)), "LATIN")
        self._letters += sum(map(len, lines))
        self._lines += lines
        # Names in Latin letters stand in text of all languages.
        if script != "LATIN" and script not in self._scripts:
            self._warn(f"the text has {script.lower()} letters, which the model has hardly learned")
        elif self._letters < _ENOUGH_LETTERS:
            return
        elif self._direction is not None and is_known_language(self._direction[0]):
            source, language = self._direction[0], guess_language(self._lines, self._direction)
            if language not in (None, source):
                self._warn(f"the text looks like {language!r}, but the model translates from {source!r}")
        self._open = False
        self._lines.clear()


@dataclass(frozen=True)
class SourceTokenizer:
    """Turns a line into what the model reads: `(BOS) (tag) w1 .. wk EOS`.

    Args:
        longest: More subwords than this are cut off, with a warning that names the line.
        bos: Whether the model was trained with BOS in front of the source.
    """

    vocabulary: Vocabulary
    longest: int
    bos: bool
    warn: LogFn

    def encode_lines(
        self,
        texts: Sequence[str],
        lines: Sequence[int],
        tags: Sequence[int | None] | None = None,
        cut: set[int] | None = None,
    ) -> list[list[int]]:
        """The ids of each text; empty where there is nothing to translate.

        Args:
            texts: Raw text.
            lines: Their numbers.
            tags: What stands in front of each, if anything.
            cut: Takes the places of those that are cut off.
        """
        # A line of a million characters must not cost its full length.
        most = self.longest * CHARACTERS_PER_SUBWORD
        enough = [plain(text[:most]) for text in texts]
        full = [row for row, text in enumerate(enough) if not is_blank(text)]
        encoded: list[list[int]] = [[] for _ in texts]
        for row, ids in zip(full, self.vocabulary.encode_lines([enough[row] for row in full]), strict=True):
            if len(ids) > self.longest or len(texts[row]) > most:
                self.warn(f"line {lines[row]}: longer than {self.longest} subwords, the rest is left out")
                if cut is not None:
                    cut.add(row)
            if ids:
                head = [BOS] if self.bos else []
                tag = None if tags is None else tags[row]
                head += [] if tag is None else [tag]
                encoded[row] = [*head, *ids[: self.longest], EOS]
        return encoded


class TargetLanguage(NamedTuple):
    """The tokens and the number that make a model translate into a language."""

    language_id: int
    """Its index among the languages of the model."""
    source_tag: int | None
    """The tag in front of the source; None for none."""
    first_token: int
    """The first symbol that the decoder reads: BOS or a tag."""


class LanguageSelector:
    """The languages that a model translates into, by their names."""

    def __init__(
        self,
        languages: Languages | None,
        vocabularies: Vocabularies,
        warn: LogFn,
        direction: tuple[str, str] | None = None,
    ) -> None:
        self.languages, self.direction = languages, direction
        self._sizes = vocabularies.source.size, vocabularies.target.size
        self._warn = warn
        self._noted: set[Direction] = set()

    def check(self, to: str, from_: str) -> None:
        """Require that the model knows these languages, those that are not empty."""
        if self.languages is None or to:
            self.select(to, from_)
        elif from_:
            self.languages.require_source(from_)

    def select(self, to: str = "", from_: str = "") -> TargetLanguage | None:
        """The target language of that name; None with a model of one direction.

        Raises:
            UsageError: The model does not know a language, or cannot be told one, or must be told one.
        """
        languages = self.languages
        if languages is None:
            self._require_direction(to, from_)
            return None
        if not to and len(languages.targets) > 1:
            raise UsageError(
                "say which language to translate into, with --to or for each line",
                f"the model translates into {', '.join(languages.targets)}",
            )
        index = languages.target(to or languages.targets[0])
        if from_:
            languages.require_source(from_)
            self._note(Direction(closest_label(from_, languages.names), languages.names[index]))
        tags = [size + index for size in self._sizes]
        return TargetLanguage(
            index, tags[0] if languages.tags_source else None, tags[1] if languages.tags_target else BOS
        )

    def _require_direction(self, to: str, from_: str) -> None:
        source, target = self.direction or ("", "")
        to, from_ = closest_label(to, (target,)), closest_label(from_, (source,))
        if to in ("", target) and from_ in ("", source):
            return
        if self.direction is None:
            raise UsageError(
                f"the model has one direction only and cannot be told {to or from_!r}",
                "leave out the language",
            )
        other = f"to {to!r}" if to not in ("", target) else f"from {from_!r}"
        raise UsageError(
            f"the model translates from {source!r} to {target!r}, not {other}",
            "leave out the language, or name another model",
        )

    def _note(self, direction: Direction) -> None:
        if self.languages is not None and direction not in {*self.languages.directions, *self._noted}:
            self._noted.add(direction)
            self._warn(f"the model was not trained from {direction.source} to {direction.target} (zero-shot)")


def target_language_ids(targets: Sequence[TargetLanguage], device: torch.device) -> Tensor:
    """The indices of the target languages of a batch, `[N]` int64."""
    return torch.tensor([target.language_id for target in targets], dtype=torch.int64, device=device)


Result = TypeVar("Result")

MAX_PARALLEL_BATCHES = 8
"""More are not decoded at a time: each has logits and states in memory, and all share one interpreter."""
# Finished sentences leave a batch as soon as they are this part of it.
_COMPACTION_SHARE = 8


class Cancelled(Exception):  # noqa: N818 - not an error: nobody waits for the result
    """The work was called off."""


def batches_by_length(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """Groups of indices into `lengths`, longest first, of at most `tokens` padded subwords each.

    A sentence longer than `tokens` is a batch of its own. Every index occurs exactly once.
    """
    batches: list[list[int]] = []
    batch: list[int] = []
    widest = 0
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if batch and (len(batch) + 1) * widest > tokens:
            batches.append(batch)
            batch = []
        widest = lengths[index] if not batch else widest
        batch.append(index)
    return [*batches, batch] if batch else batches


def pad_batch(sequences: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Id sequences as one tensor `[N, longest]` (int64), padded on the right with PAD."""
    width = max(len(ids) for ids in sequences)
    rows = [[*ids, *[PAD] * (width - len(ids))] for ids in sequences]
    return torch.tensor(rows, dtype=torch.int64).to(device)


def batch_compaction(ended: Sequence[bool]) -> tuple[list[int], list[int]]:
    """The indices of the sentences that leave the batch now, and of those that stay, in order.

    None leave where too few have ended to pay for copying the state of the others. Some that have ended stay
    for a while, so that batches come in few sizes: products are made ready for each that they meet, which
    takes about as long as a small one itself (see `deepwire.data.batches.collator.whole_rows`).
    """
    finished = [index for index, has_ended in enumerate(ended) if has_ended]
    most = len(ended) - _batch_size(len(ended) - len(finished))
    if most <= 0 or most * _COMPACTION_SHARE < len(ended):
        return [], list(range(len(ended)))
    leaving = finished[:most]
    gone = set(leaving)
    return leaving, [index for index in range(len(ended)) if index not in gone]


def _batch_size(sentences: int) -> int:
    """The next size of a batch, of four between a power of two and its double: 8, 10, 12, 14, 16, 20, ..."""
    step = 1 << max(0, sentences.bit_length() - 3)
    return -(-sentences // step) * step


def map_batches(
    work: Callable[[Sequence[int], threading.Event], Sequence[Result]],
    batches: Sequence[Sequence[int]],
    device: torch.device,
) -> list[Result]:
    """The results of all rows in their order, of which `work(rows, stop)` makes those of one batch.

    A core for each batch does more than all cores for one: the threads that share a product wait for each
    other after every operation, and operations too small to share leave all but one of them idle. So on a CPU
    there are as many batches at a time as torch has threads (8 at most), each with its share of them.

    `stop` is set when the results are no longer wanted, as after Ctrl-C or an error in another batch: `work`
    may then raise `Cancelled`.
    """
    stop, threads = threading.Event(), torch.get_num_threads()
    workers = min(threads, len(batches), MAX_PARALLEL_BATCHES) if device.type == "cpu" else 1
    if workers <= 1:
        found = list(map(work, batches, repeat(stop)))
    else:
        set_threads = partial(torch.set_num_threads, threads // workers)
        try:
            with ThreadPoolExecutor(workers, "batch", initializer=set_threads) as pool:
                try:
                    found = list(pool.map(partial(_unless_stopped, work, stop), batches))
                finally:
                    stop.set()
        finally:
            # A thread's number holds for threads that begin later, too.
            torch.set_num_threads(threads)
    results: dict[int, Result] = {}
    for batch, values in zip(batches, found, strict=True):
        results |= zip(batch, values, strict=True)
    return [results[row] for row in sorted(results)]


def _unless_stopped(
    work: Callable[[Sequence[int], threading.Event], Result], stop: threading.Event, rows: Sequence[int]
) -> Result:
    if stop.is_set():
        raise Cancelled
    return work(rows, stop)
