"""Alignments of finished translations, read off the attention to the source in one pass over whole sentences.

Nothing is kept while a translation is searched for, so every search can be aligned. Which attention aligns
best is found without alignments that anybody made: where words that belong together are linked, a subword of
the target says much about the subword that it is linked to, in all sentences alike. So the attention is taken
whose links have the largest mutual information.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Event
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepwire.data.batches.token_store import TokenStore
from deepwire.data.languages import Languages
from deepwire.data.subwords.text_tokens import TextTokens
from deepwire.data.text.pairs import plain
from deepwire.data.vocabulary import BOS, EOS, Vocabularies
from deepwire.decoding.decoding_config import AlignmentConfig
from deepwire.decoding.line_steps import Item
from deepwire.decoding.model_inputs import (
    LanguageSelector,
    TargetLanguage,
    batches_by_length,
    map_batches,
    pad_batch,
    target_language_ids,
)
from deepwire.decoding.models import EnsembleMember
from deepwire.decoding.text_alignment import Link, TextAlignment
from deepwire.errors import ModelError, UsageError

Step = Literal["writes", "reads"]
STEPS: tuple[Step, Step] = ("reads", "writes")
_BATCH_TOKENS = 1024
_MAX_PAIRS = 500
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
        """A pair of the subwords of two texts; `bos`: the model reads BOS in front of a source."""
        head = [BOS] * bos
        head += [] if into is None or into.source_tag is None else [into.source_tag]
        return cls([*head, *source, EOS], len(head), target, into)

    @property
    def read(self) -> list[int]:
        """The input of the decoder, to the last subword."""
        return [BOS if self.language is None else self.language.first_token, *self.context, *self.target]


@dataclass(frozen=True)
class AttentionAligner:
    """Aligns by one attention of a model, or by the mean of the heads of one layer.

    Raises:
        CannotAlignError: The model has no layer that looks at the source.
        UsageError: It has no such layer or head.
    """

    model: EnsembleMember
    config: AlignmentConfig
    batch_tokens: int
    device: torch.device

    def __post_init__(self) -> None:
        layers = list(self._heads)
        if self.layer not in layers:
            raise UsageError(
                f"alignment layer {self.layer + 1}: of the decoder, those that look at the source are "
                f"{', '.join(str(layer + 1) for layer in layers)}",
                "choose one of these with alignment.layer=N",
            )
        heads = self._heads[self.layer]
        if (self.config.head or 1) > heads:
            raise UsageError(
                f"alignment head {self.config.head}: layer {self.layer + 1} has heads 1 to {heads}",
                "choose one of these with alignment.head=N",
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

    def align(self, items: list[Item], vocabularies: Vocabularies) -> list[Item]:
        """Align the candidates of lines with these."""
        seen = [item for item in items if item.hypotheses]
        pairs = [
            AlignedPair(item.source, _first(item), hypothesis.ids, item.language, item.prompt)
            for item in seen
            for hypothesis in item.hypotheses
        ]
        links = iter(self.links(pairs))
        for item in items:
            text = plain(item.text)
            if not item.hypotheses:
                item.candidates = tuple(
                    replace(candidate, alignment=_of_words(text, candidate.text))
                    for candidate in item.candidates
                )
                continue
            first = _first(item)
            source = TextTokens.of(vocabularies.source, item.source[first:-1], text)
            aligned = []
            for hypothesis, candidate in zip(item.hypotheses, item.candidates, strict=True):
                target = TextTokens.of(vocabularies.target, hypothesis.ids, candidate.text)
                alignment = TextAlignment(source, target, tuple(sorted(next(links))))
                aligned.append(replace(candidate, alignment=alignment))
            item.candidates = tuple(aligned)
        return items

    def links(self, pairs: Sequence[AlignedPair]) -> list[list[Link]]:
        """For each subword of each translation, in order, the subword of the text that it comes from."""

        def align(rows: Sequence[int], _stop: Event) -> list[list[Link]]:
            batch = [pairs[row] for row in rows]
            weights = attention_to_source(self.model, batch, [self.layer], self.device)[self.layer]
            chosen = weights.mean(1) if self.config.head is None else weights[:, self.config.head - 1]
            return best_links(chosen, batch, self.config.step == "reads")

        lengths = [max(len(pair.source), len(pair.read)) for pair in pairs]
        batches = batches_by_length(lengths, max(1, self.batch_tokens // _SHARE))
        return map_batches(align, batches, self.device)


def _first(item: Item) -> int:
    """The place in its source where the text begins."""
    tagged = item.language is not None and item.language.source_tag is not None
    return (item.source[0] == BOS) + tagged + item.front


def _of_words(source: str, translation: str) -> TextAlignment:
    """The alignment of a text that no model saw: it is its own translation, or words of it stand in that."""
    copied = TextAlignment.copied(source)
    if source == translation:
        return copied
    return replace(copied, target=TextTokens(translation, (), ()), subword_links=())


@torch.inference_mode()
def attention_to_source(
    model: EnsembleMember,
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


class Attention(NamedTuple):
    """An attention that alignments can be read off.

    Attributes:
        layer: From 1.
        head: From 1; None: the mean of all.
        step: Of the decoder.
    """

    layer: int
    head: int | None
    step: Step

    @property
    def options(self) -> str:
        """The options of ``deepwire translate`` that choose it."""
        head = "" if self.head is None else f" alignment.head={self.head}"
        return f"--alignment alignment.layer={self.layer}{head} alignment.step={self.step}"


def stored_pairs(
    store: TokenStore, vocabularies: Vocabularies, languages: Languages | None, *, bos: bool
) -> list[AlignedPair]:
    """At most 500 pairs of a prepared text, from all parts of it; without context."""
    select = LanguageSelector(languages, vocabularies, lambda _: None).select
    pairs = []
    for line in range(0, len(store), -(-len(store) // _MAX_PAIRS) or 1):
        into = None
        if languages is not None and store.directions is not None:
            into = select(languages.directions[int(store.directions[line])].target)
        source, target = store.source_side.sentence(line).tolist(), store.target_side.sentence(line).tolist()
        if source and target:
            pairs.append(AlignedPair.of(source, target, into, bos=bos))
    return pairs


def best_attention(
    model: EnsembleMember, pairs: Sequence[AlignedPair], device: torch.device
) -> Attention | None:
    """The one whose links have the largest `mutual_information`; None without attention to the source."""
    try:
        linked, written = _linked_subwords(model, pairs, device)
    except ModelError:
        return None
    scores = {attention: mutual_information(sources, written) for attention, sources in linked.items()}
    return max(scores, key=lambda attention: (scores[attention], attention.head is None), default=None)


def mutual_information(sources: Tensor, targets: Tensor) -> float:
    """Information of the target subword of a link about its source subword, in nats.

    Of n links the mean of log p(s | t) / p(s), where p(s) = n(s) / n, and p(s | t) is counted in the other
    links, mixed with one more that is drawn from p(s): a pair that stands there once proves nothing.
    """
    keys = sources.numpy() * (int(targets.max()) + 1) + targets.numpy()
    both, of_source, of_target = map(_occurrences, (keys, sources.numpy(), targets.numpy()))
    share = of_source / len(keys)
    return float(np.log(((both - 1) / share + 1) / of_target).mean())


def _occurrences(values: NDArray[np.int64]) -> NDArray[np.float64]:
    """How often each of them `[n]` is among them."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return counts[places].astype(np.float64)


def _linked_subwords(
    model: EnsembleMember, pairs: Sequence[AlignedPair], device: torch.device
) -> tuple[dict[Attention, Tensor], Tensor]:
    """The source subword of each target subword by each attention, `[n]`, and the target subwords `[n]`."""
    subwords_of: dict[Attention, list[Tensor]] = {}
    written: list[Tensor] = []
    lengths = [max(len(pair.source), len(pair.read)) for pair in pairs]
    for rows in batches_by_length(lengths, _BATCH_TOKENS):
        batch = [pairs[row] for row in rows]
        written += [torch.tensor(pair.target) for pair in batch]
        for layer, weights in attention_to_source(model, batch, None, device).items():
            heads = torch.cat([weights.mean(1, keepdim=True), weights], dim=1)
            best = text_weights(heads, batch).argmax(3).cpu()
            for head, step in ((head, step) for head in range(best.size(1)) for step in STEPS):
                subwords = subwords_of.setdefault(Attention(layer + 1, head or None, step), [])
                for row, pair in enumerate(batch):
                    first = len(pair.context) + (step == "reads")
                    places = best[row, head, first : first + len(pair.target)]
                    subwords.append(torch.tensor(pair.source)[places])
    return {attention: torch.cat(subwords) for attention, subwords in subwords_of.items()}, torch.cat(written)
