"""Alignments of finished translations, read off the attention to the source in one pass over whole sentences.

Nothing is kept while a translation is searched for, so every search can be aligned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Event
from typing import Any, NamedTuple

import torch
from torch import Tensor

from deepwire.data.vocabulary import BOS, EOS
from deepwire.decoding.decoding_config import AlignmentConfig
from deepwire.decoding.model_inputs import (
    Cancelled,
    TargetLanguage,
    batches_by_length,
    ordered_map,
    pad_batch,
    target_language_ids,
)
from deepwire.decoding.step_models import EnsembleMember
from deepwire.decoding.text_alignment import Link
from deepwire.errors import ModelError, UsageError

_SHARE = 4
"""Weights take more memory than a search: so much smaller are batches."""


class CannotAlignError(UsageError):
    """No layer of the model looks at the source, whatever the settings are."""


class AlignedPair(NamedTuple):
    """A source and its translation, to be aligned.

    Attributes:
        source: As the model reads it, EOS at its end.
        first: Places at its beginning that are not the text: BOS, a tag, context.
        target: Subwords of the translation, without EOS.
        language: That of the translation; None with one direction.
        context: Subwords that the decoder reads in front of the translation.
    """

    source: Sequence[int]
    first: int
    target: Sequence[int]
    language: TargetLanguage | None = None
    context: Sequence[int] = ()

    @classmethod
    def of(
        cls, source: Sequence[int], target: Sequence[int], into: TargetLanguage | None, *, bos: bool
    ) -> AlignedPair:
        """Of the subwords of two texts; `bos`: the model reads BOS in front of a source."""
        head = [BOS] * bos
        head += [] if into is None or into.source_tag is None else [into.source_tag]
        return cls([*head, *source, EOS], len(head), target, into)

    @property
    def read(self) -> list[int]:
        """What the decoder reads, to the last subword."""
        return [BOS if self.language is None else self.language.first_token, *self.context, *self.target]


@dataclass(frozen=True)
class AttentionAligner:
    """Aligns by one attention of a model, or by the mean of the heads of one layer.

    Args:
        model: The model; of an ensemble the first one.
        config: Which attention.
        batch_tokens: Subwords of a batch of the search.
        device: Where the model is.

    Raises:
        CannotAlignError: The model has no layer that looks at the source.
        UsageError: It has no such layer or head.
    """

    model: EnsembleMember[Any]
    config: AlignmentConfig
    batch_tokens: int
    device: torch.device

    def __post_init__(self) -> None:
        layers = list(self._heads)
        if self.layer not in layers:
            raise UsageError(
                f"alignment layer {self.layer + 1}: the decoder looks at the source in "
                f"{_counted([layer + 1 for layer in layers])}",
                "choose one of these with --alignment-layer or decoding.alignment.layer",
            )
        heads = self._heads[self.layer]
        if (self.config.head or 1) > heads:
            raise UsageError(
                f"alignment head {self.config.head}: layer {self.layer + 1} has heads 1 to {heads}",
                "choose one of these with --alignment-head or decoding.alignment.head",
            )

    @cached_property
    def layer(self) -> int:
        """The layer, from 0."""
        return next(iter(self._heads)) if self.config.layer is None else self.config.layer - 1

    @cached_property
    def _heads(self) -> Mapping[int, int]:
        """How many heads each layer has that looks at the source."""
        nothing = AlignedPair([EOS], 0, [], TargetLanguage(0, None, BOS))
        try:
            weights = attention_to_source(self.model, [nothing], None, self.device)
        except ModelError as error:
            message = f"alignments come from attention to the source, and {error.message}"
            raise CannotAlignError(message) from None
        return {layer: layer_weights.size(1) for layer, layer_weights in sorted(weights.items())}

    def links(self, pairs: Sequence[AlignedPair]) -> list[list[Link]]:
        """For each subword of each translation, in order, the subword of the text that it comes from."""

        def align(rows: Sequence[int], stop: Event) -> list[list[Link]]:
            if stop.is_set():
                raise Cancelled
            batch = [pairs[row] for row in rows]
            weights = attention_to_source(self.model, batch, [self.layer], self.device)[self.layer]
            chosen = weights.mean(1) if self.config.head is None else weights[:, self.config.head - 1]
            return best_links(chosen, batch, self.config.step == "reads")

        lengths = [max(len(pair.source), len(pair.read)) for pair in pairs]
        batches = batches_by_length(lengths, max(1, self.batch_tokens // _SHARE))
        links_of: list[list[Link]] = [[] for _ in pairs]
        for rows, batch_links in zip(batches, ordered_map(align, batches, self.device), strict=True):
            for row, pair_links in zip(rows, batch_links, strict=True):
                links_of[row] = pair_links
        return links_of


@torch.inference_mode()
def attention_to_source(
    model: EnsembleMember[Any],
    pairs: Sequence[AlignedPair],
    layers: Sequence[int] | None,
    device: torch.device,
) -> dict[int, Tensor]:
    """Weights `[N, H, T, S]` of the source positions by layer, from 0; row t reads subword t - 1.

    `layers` None: of all that look at the source; a model without any raises ModelError.
    """
    languages = [pair.language for pair in pairs if pair.language is not None]
    weights = model.source_weights(
        pad_batch([pair.source for pair in pairs], device),
        pad_batch([pair.read for pair in pairs], device),
        layers,
        languages=target_language_ids(languages, device) if languages else None,
    )
    return {layer: layer_weights.float() for layer, layer_weights in weights.items()}


def best_links(weights: Tensor, pairs: Sequence[AlignedPair], reads: bool) -> list[list[Link]]:
    """The largest of weights `[N, T, S]` for each subword of each translation, EOS and what is no text aside.

    With `reads` the weights of a subword are those of the step that reads it, else of that which writes it.
    """
    best = text_weights(weights, pairs).argmax(2).tolist()
    return [
        [(row[place + len(pair.context) + reads] - pair.first, place) for place in range(len(pair.target))]
        for row, pair in zip(best, pairs, strict=True)
    ]


def text_weights(weights: Tensor, pairs: Sequence[AlignedPair]) -> Tensor:
    """Weights `[N, ..., T, S]` with -1 in the place of those of source positions that are no text."""
    lengths = torch.tensor([[pair.first, len(pair.source) - 1] for pair in pairs], device=weights.device)
    places = torch.arange(weights.size(-1), device=weights.device)
    no_text = (places < lengths[:, :1]) | (places >= lengths[:, 1:])
    return weights.masked_fill(no_text.view(len(pairs), *[1] * (weights.dim() - 2), -1), -1.0)


def _counted(layers: Sequence[int]) -> str:
    """`layers 1 to 6`, or `layer 1`, or each of them."""
    if len(layers) == 1:
        return f"layer {layers[0]} only"
    if list(layers) == list(range(layers[0], layers[-1] + 1)):
        return f"layers {layers[0]} to {layers[-1]}"
    return f"layers {', '.join(map(str, layers))}"
