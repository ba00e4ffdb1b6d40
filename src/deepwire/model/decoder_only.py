"""Models of one causal stack: the decoder-only translation model, which reads the source and then the target
behind it, and the language model, which predicts each token of a text from those before it.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.decoder_state import DecoderState
from deepwire.model.embedding import Embedding
from deepwire.model.head import OutputHead
from deepwire.model.kv_cache import CacheIndex
from deepwire.model.languages import one_if_equal
from deepwire.model.perturbation import Input
from deepwire.model.stack import Stack, StackOutput
from deepwire.model.stack_spec import Side
from deepwire.model.translation_model import TranslationModel, at_places, joined_places


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
        whole, targets = self._whole(source, languages, read, target)
        return tuple(at_places(result, targets) for result in whole)

    def _predict(
        self, source: Tensor, languages: Tensor | None, read: Input, target: Input, output: Tensor
    ) -> list[tuple[tuple[Tensor, ...], Tensor]]:
        """In training with `source_loss` also the words of the source but the first."""
        whole, targets = self._whole(source, languages, read, target)
        predicted = [(tuple(at_places(result, targets) for result in whole), output)]
        if self.training and self.config.source_loss:
            source = source[: output.size(0)]  # a second pass predicts the same
            # Behind the end of the source stands the begin symbol, which is given.
            following = torch.nn.functional.pad(source[:, 1:], (0, 1), value=self.pad_id)
            nothing = torch.full_like(output, self.pad_id)
            predicted.append((whole, self._joined(source, following, nothing)))
        return predicted

    def _joined(self, source: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Tokens `[B, S]` at the places of the source and `[B, T]` at those of the target, `[B, S + T]`."""
        joined, _ = joined_places(self._lengths(source), source.size(1), second.size(1))
        return torch.cat((first, second), 1).gather(1, joined)

    def _whole(
        self, source: Tensor, languages: Tensor | None, read: Input, target: Input
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """Results `[B, S + T, d]` of source and target joined, and where the T of the target are in it."""
        x, targets = self._embedded(source, languages, read, target)
        output: StackOutput = self.decoder(x, Context(languages))
        return output.results, targets

    def _embedded(
        self, source: Tensor, languages: Tensor | None, read: Input, target: Input
    ) -> tuple[Tensor, Tensor]:
        """The embedding `[B, S + T, d]` of both joined, and where the T of the target are in it."""
        size = source.size(1), target.tokens.size(1)
        joined, targets = joined_places(self._lengths(source), *size)
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
        return at_places(x, joined), targets

    def _lengths(self, source: Tensor) -> Tensor:
        """Tokens of each row, `[B]`."""
        return (source != self.pad_id).sum(1)

    def start(
        self, source: Tensor, *, languages: Tensor | None = None, prompt: Tensor | None = None
    ) -> DecoderState:
        """Read sources `[N, S]`, and prompts, in one pass; see the base class."""
        languages = one_if_equal(self._checked(languages, source))
        sentences = source.size(0)
        prompt = source[:, :0] if prompt is None else prompt
        x, _ = self._embedded(source, languages, Input(source), Input(prompt))
        states = self.decoder.init_states(sentences, x[:, :1])
        state = DecoderState(Context(languages, index=CacheIndex(sentences)), states, sentences)
        return self._prefilled(x, self._lengths(source) + self._lengths(prompt), state)


class LanguageModel(TranslationModel):
    """A decoder alone, without a source: everything that takes sources takes empty ones, `[B, 0]`.

    So it has no embedding of a source; `source_embedding` is that of the target.
    """

    def __init__(self, config: ModelConfig, embedding: Embedding, decoder: Stack, head: OutputHead) -> None:
        super().__init__(config)
        self.target_embedding = embedding
        self.source_embedding = embedding
        self.decoder, self.head = decoder, head

    @property
    def source_vocabulary(self) -> int:
        """There is none."""
        return 0

    def stacks(self) -> Mapping[Side, Stack]:
        """The decoder."""
        return {"decoder": self.decoder}

    def reads(self, source: Tensor, target_input: Tensor) -> Mapping[Side, Tensor]:
        """The text."""
        return {"decoder": target_input}

    def _decode(
        self, source: Tensor, languages: Tensor | None, read: Input, target: Input
    ) -> tuple[Tensor, ...]:
        output: StackOutput = self.decoder(
            self.target_embedding(target.tokens, languages, target.cut), Context(languages)
        )
        return output.results

    def start(
        self, source: Tensor, *, languages: Tensor | None = None, prompt: Tensor | None = None
    ) -> DecoderState:
        """A state of as many rows as the empty sources `[N, 0]` have; see the base class."""
        sentences = source.size(0)
        like = self.target_embedding.table.weight.new_empty(sentences, 1, self.config.size("decoder")[0])
        states = self.decoder.init_states(sentences, like)
        state = DecoderState(Context(index=CacheIndex(sentences)), states, sentences)
        return self._with_prompt(state, prompt)

    def parameter_groups(self) -> dict[str, int]:
        """See the base class; there is one embedding."""
        groups = super().parameter_groups()
        return {"embedding" if name == "source embedding" else name: size for name, size in groups.items()}
