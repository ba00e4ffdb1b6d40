"""Scoring: the probability that a model gives to given translations, and how it is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import torch

from deepwire.data.text.pairs import plain
from deepwire.data.text.sentences import CHARACTERS_PER_SUBWORD
from deepwire.data.vocabulary import BOS, EOS, PAD, Vocabulary
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.document_context import ContextEncoder, contexts_of
from deepwire.decoding.model_inputs import (
    SourceTokenizer,
    TargetLanguage,
    batches_by_length,
    pad_batch,
    target_language_ids,
)
from deepwire.decoding.models import DecodingModel
from deepwire.decoding.translation_io import ContextLine
from deepwire.io.json_lines import json_line

Flag = Literal["empty_source", "empty_target", "long_target", "long_source"]

_TARGET_PER_SOURCE = 4


@dataclass(frozen=True)
class PairScore:
    """The score of one pair of lines."""

    line: int
    """Counted from 1."""
    log_probability: float
    """Natural logarithm, summed over the subwords and EOS; 0 with a flag but for `long_source`."""
    tokens: tuple[str, ...]
    """The subwords of the target; the last value of `token_log_probabilities` is that of EOS."""
    token_log_probabilities: tuple[float, ...]
    flag: Flag | None = None
    """Why the pair has no probability; with `long_source` it has that of the beginning of its source."""

    @property
    def mean(self) -> float:
        """Log-probability per subword, EOS counted."""
        return self.log_probability / max(1, len(self.token_log_probabilities))


@dataclass(frozen=True)
class TranslationScorer:
    """Scores pairs of lines in batches, in their order, none left out."""

    model: DecodingModel
    context: ContextEncoder
    """Has the target vocabulary, and encodes what stands in front of lines."""
    source: SourceTokenizer
    config: DecodingConfig
    device: torch.device
    into: TargetLanguage | None = None
    """The target language of all pairs, in a model of several."""

    def score(
        self, pairs: Iterable[tuple[str, str]], window: int, *, documents: bool = True
    ) -> Iterator[PairScore]:
        """Score (source, target) lines; `window` of them are read ahead and sorted by length.

        A text of several lines is read as one.

        With document context the pairs in front of a pair are its context, unless `documents` is False.

        A pair with an empty side gets log-probability 0 and a flag. Of a source longer than
        `max_source_length` the beginning is read, and the pair gets a flag, too. A target is never cut: one
        of more than four times that many subwords gets 0 and a flag, as memory grows with the square of its
        length.
        """
        numbered, before = enumerate(pairs, 1), list[ContextLine]()
        while read := list(islice(numbered, window)):
            most = self.context.context.most if documents else 0
            contexts = list(contexts_of((pair for _, pair in read), before, most))
            yield from self._score_window(read, contexts)

    @property
    def target(self) -> Vocabulary:
        """The target vocabulary."""
        return self.context.vocabularies.target

    @torch.inference_mode()
    def _score_window(
        self, read: Sequence[tuple[int, tuple[str, str]]], contexts: Sequence[Sequence[ContextLine]]
    ) -> list[PairScore]:
        lines = [line for line, _ in read]
        first, tags = BOS, [None if self.into is None else self.into.source_tag] * len(read)
        if self.into is not None:
            first = self.into.first_token
        cut = set[int]()
        sources = self.source.encode_lines([source for _, (source, _) in read], lines, tags, cut)
        targets = self.target.encode_lines(
            [plain(target[: self._longest * CHARACTERS_PER_SUBWORD]) for _, (_, target) in read]
        )
        results: list[PairScore | None] = [
            self._flagged(line, source, target)
            for (line, _), source, target in zip(read, sources, targets, strict=True)
        ]
        full = [row for row, result in enumerate(results) if result is None]
        head = int(self.source.bos) + (tags[0] is not None if tags else 0)
        sources, _ = self.context.with_contexts(sources, [head] * len(sources), contexts)
        prompts = self.context.targets(contexts, [*map(len, targets)])
        lengths = [max(len(sources[row]), len(prompts[row]) + len(targets[row]) + 1) for row in full]
        for batch in batches_by_length(lengths, self.config.batch_tokens):
            rows = [full[index] for index in batch]
            values = self.model.score(
                pad_batch([sources[row] for row in rows], self.device),
                pad_batch([[first, *prompts[row], *targets[row]] for row in rows], self.device),
                pad_batch([[*[PAD] * len(prompts[row]), *targets[row], EOS] for row in rows], self.device),
                languages=None
                if self.into is None
                else target_language_ids([self.into] * len(rows), self.device),
            ).tolist()
            for row, tokens in zip(rows, values, strict=True):
                begin = len(prompts[row])
                of_row = tuple(tokens[begin : begin + len(targets[row]) + 1])
                pieces = tuple(self.target.pieces(targets[row]))
                flag: Flag | None = "long_source" if row in cut else None
                results[row] = PairScore(read[row][0], sum(of_row), pieces, of_row, flag)
        return [result for result in results if result is not None]

    @property
    def _longest(self) -> int:
        return _TARGET_PER_SOURCE * self.config.max_source_length

    def _flagged(self, line: int, source: Sequence[int], target: Sequence[int]) -> PairScore | None:
        """The score of a pair with an empty side or too long a target; None if it can be scored."""
        if source and target and len(target) <= self._longest:
            return None
        side: Flag = "long_target" if source and target else "empty_target" if source else "empty_source"
        ends_document = self.context.context.used and not source and not target
        if not ends_document:
            self.source.warn(f"line {line}: {side.replace('_', ' ')}, the score is 0")
        return PairScore(line, 0.0, (), (), side)


def format_pair_score(score: PairScore, *, normalize: bool, per_token: bool) -> str:
    """The log-probability (per subword with `normalize`), then, with `per_token`, a tab and those of all."""
    total = score.mean if normalize else score.log_probability
    if not per_token:
        return f"{total:.6f}"
    return f"{total:.6f}\t{' '.join(f'{value:.6f}' for value in score.token_log_probabilities)}"


def format_pair_score_json(score: PairScore, *, normalize: bool, per_token: bool) -> str:
    """The same as a JSON object; `flag` says why a pair has none, or one of a cut source."""
    record: dict[str, object] = {
        "line": score.line,
        "score": score.mean if normalize else score.log_probability,
        "tokens": len(score.token_log_probabilities),
        "flag": score.flag,
    }
    if per_token:
        record["subwords"] = [*score.tokens, "</s>"] if score.tokens else []
        record["log_probabilities"] = score.token_log_probabilities
    return json_line(record)
