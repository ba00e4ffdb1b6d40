"""The decoder-only translation model: one causal stack reads the source, then the target behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

import torch
from torch import Tensor

from deepwire.model.config import ModelConfig
from deepwire.model.context import Side
from deepwire.model.decoder_state import DecoderState
from deepwire.model.embedding import Embedding
from deepwire.model.head import OutputHead
from deepwire.model.kv_cache import CacheIndex, KeyValueCache
from deepwire.model.languages import one_if_equal
from deepwire.model.mixers.mixer import State
from deepwire.model.perturbation import Input
from deepwire.model.stack import Stack
from deepwire.model.translation_model import TranslationModel


class DecoderOnly(TranslationModel):
    """Source, separator and target are one sequence; the model predicts each token from those before it.

    A source ends with its end symbol, which separates it from the target, and a target begins with its begin
    symbol. Positions go on from source to target. No token of a row is apart from the next one by padding:
    whole sequences are joined without it, and in decoding a row has no position at which it reads padding. So
    every mixer of a decoder works here, recurrent ones too (Gao et al. 2022, Is Encoder-Decoder Redundant for
    Neural Machine Translation?; here the source is read causally).
    """

    def __init__(
        self,
        config: ModelConfig,
        source: Embedding,
        target: Embedding,
        decoder: Stack,
        head: OutputHead,
        languages: int = 0,
    ) -> None:
        super().__init__(config, languages)
        self.source_embedding, self.target_embedding = source, target
        self.decoder, self.head = decoder, head
        self.transform = None

    def stacks(self) -> Mapping[Side, Stack]:
        """The decoder."""
        return {"decoder": self.decoder}

    def reads(self, source: Tensor, target_input: Tensor) -> Mapping[Side, Tensor]:
        """The two joined, `[B, S + T]`."""
        return {"decoder": self._joined(source, source, target_input)}

    def _decode(
        self, source: Tensor, languages: Tensor | None, read: Input, target: Input
    ) -> tuple[Tensor, ...]:
        """See the base class."""
        whole, targets = self._whole(source, languages, read, target)
        return tuple(_gathered(result, targets) for result in whole)

    def _predict(
        self, source: Tensor, languages: Tensor | None, read: Input, target: Input, output: Tensor
    ) -> list[tuple[tuple[Tensor, ...], Tensor]]:
        """See the base class; in training with `source_loss` also the words of the source but the first."""
        whole, targets = self._whole(source, languages, read, target)
        predicted = [(tuple(_gathered(result, targets) for result in whole), output)]
        if self.training and self.config.source_loss:
            source = source[: output.size(0)]  # a second pass predicts the same
            # Behind the end of the source stands the begin symbol, which is given.
            following = torch.nn.functional.pad(source[:, 1:], (0, 1), value=self.pad_id)
            nothing = torch.full_like(output, self.pad_id)
            predicted.append((whole, self._joined(source, following, nothing)))
        return predicted

    def _joined(self, source: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Tokens `[B, S]` at the places of the source and `[B, T]` at those of the target, `[B, S + T]`."""
        joined, _ = _places(self._lengths(source), source.size(1), second.size(1))
        return torch.cat((first, second), 1).gather(1, joined)

    def _whole(
        self, source: Tensor, languages: Tensor | None, read: Input, target: Input
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """Results `[B, S + T, d]` of source and target joined, and where the T of the target are in it."""
        size = source.size(1), target.tokens.size(1)
        joined, targets = _places(self._lengths(source), *size)
        vectors = self.target_embedding.vectors(0, sum(size))
        x = torch.cat(
            (
                self.source_embedding.placed(
                    read.tokens, None if vectors is None else vectors[: size[0]], languages, read.cut
                ),
                self.target_embedding.placed(
                    target.tokens, None if vectors is None else vectors[targets], languages, target.cut
                ),
            ),
            1,
        )
        results: tuple[Tensor, ...]
        results, _, _ = self.decoder(_gathered(x, joined), languages=languages)
        return results, targets

    def _lengths(self, source: Tensor) -> Tensor:
        """Tokens of each source, `[B]`."""
        return (source != self.pad_id).sum(1)

    def start(self, source: Tensor, max_length: int, *, languages: Tensor | None = None) -> DecoderState:
        """Read sources `[N, S]`, so that all end at the same position; see the base class.

        A row passes by the positions before its source begins: its states stay as they were, and the slots of
        the key/value cache are never seen.
        """
        languages = self._checked(languages, source)
        if languages is not None:
            languages = one_if_equal(languages)
        sentences, lengths = source.size(0), self._lengths(source)
        # Where there are no values (`deepwire.model.cost`) all sources are equally long.
        each = [source.size(1)] * sentences if source.is_meta else lengths.tolist()
        longest, passing = max(each, default=0), max(each, default=0) - min(each, default=0)
        skipped = longest - lengths
        positions = torch.arange(longest, device=source.device) - skipped.unsqueeze(1)
        # A position before the first one takes a token from the end of the row, where the padding is.
        aligned = source.gather(1, positions % max(source.size(1), 1))
        like = self.target_embedding.table.weight.new_empty(sentences, 1, self.config.size("decoder")[0])
        begin = self.decoder.init_states(sentences, like)
        index = CacheIndex(sentences, skipped=skipped if passing else None)
        state = DecoderState((), self.decoder.init_states(sentences, like), index, sentences, languages)
        state = state.with_room(longest + 1)
        for position in range(longest):
            vectors = self.vectors_of(state)
            _, state = self._advance(self.source_embedding, vectors, aligned[:, position], state)
            if position < passing:
                begun = positions[:, position] >= 0
                state = replace(
                    state,
                    states=tuple(_chosen(begun, *pair) for pair in zip(state.states, begin, strict=True)),
                    cache_index=state.cache_index.hidden(~begun),
                )
        return state

    def vectors_of(self, state: DecoderState) -> Tensor | None:
        """See the base class; each row has a position of its own."""
        index = state.cache_index
        if index.skipped is None:
            return super().vectors_of(state)
        positions = (state.position - index.skipped).clamp(min=0)
        vectors = self.target_embedding.vectors(0, state.position + 1)
        if vectors is None:
            return None
        return vectors[positions.repeat_interleave(index.width)].unsqueeze(1)

    def _with(self, stacks: Mapping[Side, Stack], head: OutputHead) -> Self:
        model = type(self)(
            self.config,
            self.source_embedding,
            self.target_embedding,
            stacks["decoder"],
            head,
            self.languages,
        )
        return model.train(self.training)


def _places(lengths: Tensor, source: int, target: int) -> tuple[Tensor, Tensor]:
    """How rows `[S | T]` of padded sources and targets are joined without the padding of the sources.

    Args:
        lengths: Tokens of each source, `[B]`.
        source, target: The widths S and T.

    Returns:
        `[B, S + T]`, where each place takes its token from: source, target, then the padding of the source.
        `[B, T]`, the places of the target.
    """
    lengths = lengths.unsqueeze(1)
    places = torch.arange(source + target, device=lengths.device)
    behind = torch.where(places < lengths + target, places - lengths + source, places - target)
    return torch.where(places < lengths, places, behind), lengths + places[:target]


def _gathered(x: Tensor, places: Tensor) -> Tensor:
    """`[B, n, d]` at places `[B, m]`."""
    return x.gather(1, places.unsqueeze(-1).expand(-1, -1, x.size(-1)))


def _chosen(begun: Tensor, new: State, begin: State) -> State:
    """The new state of rows that have begun, `[rows]` bool, else that in which they begin.

    In a cache the slots of rows that have not begun are hidden instead.
    """
    if isinstance(new, KeyValueCache):
        return new

    def choose(after: Tensor, before: Tensor) -> Tensor:
        rows = begun.view(-1, *(1,) * (after.dim() - 1))
        return torch.where(rows, after, before.to(after.dtype))

    return tuple(map(choose, new, begin))
