"""Text in, text out: translation of lines with one model or several."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Generic

import torch

from deepwire.data.vocabulary import Vocabularies
from deepwire.decoding.batching import batches_by_length, padded
from deepwire.decoding.config import DecodingConfig
from deepwire.decoding.contract import StateT
from deepwire.decoding.ensemble import Ensemble, Member
from deepwire.decoding.hypotheses import Hypothesis
from deepwire.decoding.loading import load_models
from deepwire.decoding.scoring import PairScore, Scorer
from deepwire.decoding.search import search
from deepwire.decoding.source import SourceEncoder, Warn
from deepwire.decoding.translation import Candidate, Request, Translation
from deepwire.errors import UsageError
from deepwire.model.state import DecoderState

_EMPTY = (Candidate("", (), 0.0, 0.0),)


class Translator(Generic[StateT]):
    """Translates and scores raw text.

    Lines are read in windows, sorted by length, translated in batches and given back in their order, one for
    one; an empty line stays empty and never reaches the model.

    Args:
        models: Models in evaluation mode on one device, with the same vocabularies; several are an ensemble.
        vocabularies: Source and target vocabulary.
        config: How to search.
        device: Where the models are.
        source_bos: Whether the models were trained with BOS in front of the source.
        weights: Weights of the models in the ensemble.
        warn: Receives warnings, one line each; default: the log of `deepwire`.

    Raises:
        UsageError: The weights do not fit the models, or the models do not have the groups to predict with.
    """

    def __init__(
        self,
        models: Sequence[Member[StateT]],
        vocabularies: Vocabularies,
        config: DecodingConfig,
        *,
        device: torch.device | str = "cpu",
        source_bos: bool = False,
        weights: Sequence[float] | None = None,
        warn: Warn | None = None,
    ) -> None:
        self.model = Ensemble(_with_groups(models, config), weights)
        self.vocabularies, self.config = vocabularies, config
        self.device = torch.device(device)
        self._warn = logging.getLogger("deepwire").warning if warn is None else warn
        self._source = SourceEncoder(vocabularies.source, config.max_source_length, source_bos, self._warn)

    def translate(self, lines: Iterable[str], prefixes: Iterable[str] | None = None) -> list[str]:
        """The best translation of each line; as many as there are lines, in their order.

        Args:
            lines: Raw text.
            prefixes: Text that each translation must begin with, one for each line; empty = free.

        Raises:
            ValueError: There are more lines than prefixes or the other way round.
        """
        requests: Iterable[str | Request] = lines
        if prefixes is not None:
            requests = (Request(line, prefix) for line, prefix in zip(lines, prefixes, strict=True))
        return [translation.text for translation in self.translations(requests)]

    def translations(
        self, requests: Iterable[str | Request], *, window: int | None = None, first: int = 1
    ) -> Iterator[Translation]:
        """Translate line by line in constant memory: results come window by window, in order.

        Args:
            requests: Lines, read as the results are taken.
            window: Lines read ahead; default: that of the configuration. 1 answers each line at once.
            first: The number of the first line in its text; it seeds random draws.
        """
        numbered = enumerate(requests, first)
        size = self.config.window if window is None else window
        while read := list(islice(numbered, size)):
            lines = [line for line, _ in read]
            yield from self._translate_window(
                lines, [Request(each) if isinstance(each, str) else each for _, each in read]
            )

    def score(self, pairs: Iterable[tuple[str, str]], *, window: int | None = None) -> Iterator[PairScore]:
        """The log-probability of each given translation, in order; see `deepwire.decoding.scoring`."""
        scorer = Scorer(self.model, self.vocabularies.target, self._source, self.config, self.device)
        return scorer.score(pairs, self.config.window if window is None else window)

    def _translate_window(self, lines: Sequence[int], requests: Sequence[Request]) -> list[Translation]:
        target = self.vocabularies.target
        sources = self._source.encode_lines([request.text for request in requests], lines)
        prefixes = [target.encode(request.prefix) if request.prefix else [] for request in requests]
        full = [row for row, ids in enumerate(sources) if ids]
        candidates: list[tuple[Candidate, ...]] = [_EMPTY] * len(requests)
        tokens = max(1, self.config.batch_tokens // self.config.width)
        for batch in batches_by_length([len(sources[row]) for row in full], tokens):
            rows = [full[index] for index in batch]
            found = search(
                self.model,
                padded([sources[row] for row in rows], self.device),
                [self.config.output_limit(len(sources[row]) - 1) for row in rows],
                self.config,
                [lines[row] for row in rows],
                [prefixes[row] for row in rows],
            )
            for row, hypotheses in zip(rows, found, strict=True):
                candidates[row] = tuple(self._candidate(hypothesis) for hypothesis in hypotheses)
        return [Translation(*answer) for answer in zip(lines, requests, candidates, strict=True)]

    def _candidate(self, hypothesis: Hypothesis) -> Candidate:
        target = self.vocabularies.target
        # A line must stay one line, even if the vocabulary can spell a line break byte by byte.
        text = target.decode(hypothesis.ids).replace("\n", " ")
        tokens = tuple(target.pieces(hypothesis.ids))
        return Candidate(text, tokens, hypothesis.log_probability, hypothesis.score)


def _with_groups(models: Sequence[Member[StateT]], config: DecodingConfig) -> Sequence[Member[StateT]]:
    """The models with the groups that the configuration chooses."""
    if config.group_range is None:
        return models
    chosen = []
    for number, model in enumerate(models, 1):
        try:
            chosen.append(model.restrict(*config.group_range))
        except ValueError as error:
            which = f", model {number}" if len(models) > 1 else ""
            raise UsageError(f"groups {config.groups}{which}: {error}") from None
    return chosen


def load(
    models: str | Path | Sequence[str | Path],
    device: str | None = "auto",
    precision: str = "auto",
    *,
    settings: Mapping[str, object] | None = None,
    weights: Sequence[float] | None = None,
    warn: Warn | None = None,
) -> Translator[DecoderState]:
    """Load one model, or several as an ensemble, for translation.

    Args:
        models: A MODEL name (run directory, `RUN@avg5`, model directory) or several.
        device: `cpu`, `cuda`, `cuda:1`; `auto` = a GPU if there is one.
        precision: `fp32`, `bf16`, or `auto` = the fast one of the device.
        settings: Decoding settings that replace those stored with the model: `{"beam": 8}`.
        weights: Weights of the models in an ensemble; equal when left out.
        warn: Receives warnings, one line each; default: the log of `deepwire`.

    Raises:
        ModelError: A model is missing or damaged, or the vocabularies differ.
        UsageError: A setting is impossible.
        ResourceError: The device does not exist.
    """
    names = [models] if isinstance(models, str | Path) else list(models)
    loaded = load_models(names, device, precision, settings or {})
    return Translator(
        [part.model for part in loaded.parts],
        loaded.parts[0].vocabularies,
        loaded.config,
        device=loaded.device,
        source_bos=loaded.source_bos,
        weights=weights,
        warn=warn,
    )
