"""An exported folder as transformers reads it, to be compared with ours."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from deepwire.convert.export_format import ExportedModel
from deepwire.convert.huggingface_search import generation_settings
from deepwire.data.languages import Direction
from deepwire.decoding.decoding_config import DecodingConfig, with_settings

if TYPE_CHECKING:
    pass

_BATCH = 32


class ReadModel(ExportedModel):
    """A model of transformers, searched by its own `generate`."""

    def __init__(self, folder: Path) -> None:
        with quiet():
            from transformers import AutoConfig, AutoModelForSeq2SeqLM

            self._model = AutoModelForSeq2SeqLM.from_pretrained(str(folder), local_files_only=True).eval()
            config = AutoConfig.from_pretrained(str(folder), local_files_only=True)
        self._languages = getattr(config, "translation", None)
        self._source = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
        path = folder / "target_vocab.json"
        self._target = json.loads(path.read_text(encoding="utf-8")) if path.exists() else self._source
        self._pieces = {number: piece for piece, number in self._target.items()}

    def translate(
        self, sources: Sequence[Sequence[str]], longest: int, language: str = ""
    ) -> list[list[str]]:
        """See the base class."""
        greedy = {"num_beams": 1, "early_stopping": False, "min_new_tokens": 1, "no_repeat_ngram_size": 0}
        return self._generate(sources, language, lambda _: (longest, greedy))

    def searchable(self, config: DecodingConfig) -> DecodingConfig:
        """Its length penalty has one form."""
        return with_settings(config, {"length_penalty_form": "average", "unknown_penalty": None})

    def search(
        self, sources: Sequence[Sequence[str]], config: DecodingConfig, language: str = ""
    ) -> list[list[str]]:
        """See the base class."""
        symbols = ("pad", "bos", "eos")
        numbers = {name: getattr(self._model.generation_config, f"{name}_token_id") for name in symbols}
        wanted = generation_settings(config, {**numbers, "unk": 3}, 1)
        # Those of the folder, and of each sentence.
        del wanted["suppress_tokens"], wanted["max_length"]
        return self._generate(sources, language, lambda length: (config.output_limit(length), wanted))

    @torch.inference_mode()
    def score(
        self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], language: str = ""
    ) -> list[list[float]]:
        """See the base class."""
        scores: list[list[float]] = []
        end, first = self._model.config.eos_token_id, self._first(language)
        for start in range(0, len(sources), _BATCH):
            source = self._padded([self._read(each, language) for each in sources[start : start + _BATCH]])
            ids = [
                [self._target[piece] for piece in each] + [end] for each in targets[start : start + _BATCH]
            ]
            target = self._padded([[first, *each[:-1]] for each in ids])
            # Ours has no mask of the target: the padding behind it is never read.
            logits = self._model(
                input_ids=source, attention_mask=self._mask(source), decoder_input_ids=target
            ).logits
            for row, each in zip(logits.float().log_softmax(-1), ids, strict=True):
                scores.append(row[torch.arange(len(each)), torch.tensor(each)].tolist())
        return scores

    def _read(self, source: Sequence[str], language: str) -> list[int]:
        tagged = self._tag(language) if self._tags("source") else []
        return [*tagged, *(self._source[piece] for piece in source), self._model.config.eos_token_id]

    def _tags(self, side: str) -> bool:
        return self._languages is not None and self._languages["tag"] in (side, "both")

    def _tag(self, language: str) -> list[int]:
        directions = () if self._languages is None else self._languages["directions"]
        known = {Direction.parse(direction).target for direction in directions}
        return [self._target[f">>{language or known.pop()}<<"]]

    def _first(self, language: str) -> int:
        if self._tags("target"):
            return self._tag(language)[0]
        return int(self._model.generation_config.decoder_start_token_id)

    def _generate(
        self,
        sources: Sequence[Sequence[str]],
        language: str,
        wanted: Callable[[int], tuple[int, Mapping[str, object]]],
    ) -> list[list[str]]:
        """Sentences of one length together, since the limit of a translation depends on it."""
        order = sorted(range(len(sources)), key=lambda number: len(sources[number]))
        translations: list[list[str]] = [[] for _ in sources]
        for length, group in groupby(order, key=lambda number: len(sources[number])):
            numbers = list(group)
            for start in range(0, len(numbers), _BATCH):
                batch = numbers[start : start + _BATCH]
                ids = self._padded([self._read(sources[number], language) for number in batch])
                limit, settings = wanted(length)
                with quiet():
                    given = self._model.generate(
                        ids,
                        attention_mask=self._mask(ids),
                        decoder_start_token_id=self._first(language),
                        max_length=limit + 2,  # and the start and the end
                        logits_processor=[partial(_only_end, self._model.config.eos_token_id, limit)],
                        **settings,
                    )
                for number, row in zip(batch, given.tolist(), strict=True):
                    translations[number] = self._text(row[1:])
        return translations

    def _text(self, ids: Sequence[int]) -> list[str]:
        end = self._model.config.eos_token_id
        return [self._pieces[number] for number in (ids[: ids.index(end)] if end in ids else ids)]

    def _padded(self, rows: Sequence[Sequence[int]]) -> Tensor:
        pad, longest = self._model.config.pad_token_id, max(map(len, rows))
        return torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])

    def _mask(self, ids: Tensor) -> Tensor:
        mask: Tensor = ids != self._model.config.pad_token_id
        return mask.long()


def _only_end(end: int, limit: int, ids: Tensor, scores: Tensor) -> Tensor:
    """Nothing but EOS after so many subwords, as in our search; `generate` would cut the sentence there."""
    if ids.size(1) <= limit:
        return scores
    only = torch.full_like(scores, -torch.inf)
    only[:, end] = scores[:, end]
    return only


def transformers_version() -> str:
    """The library and its version."""
    return f"transformers {version('transformers')}"


@contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' notices on the way, which are none for who exports a model."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
