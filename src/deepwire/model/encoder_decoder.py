"""The encoder-decoder translation model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from torch import Tensor

from deepwire.model.config import ModelConfig
from deepwire.model.decoder_state import DecoderState
from deepwire.model.embedding import Embedding
from deepwire.model.head import OutputHead
from deepwire.model.kv_cache import CacheIndex
from deepwire.model.languages import LanguageTransform, one_if_equal
from deepwire.model.mixers.companion import Carried
from deepwire.model.perturbation import Input
from deepwire.model.stack import Stack
from deepwire.model.stack_spec import Side
from deepwire.model.translation_model import TranslationModel


class EncoderDecoder(TranslationModel):
    """An encoder reads the source, and a decoder with cross-attention predicts the target.

    Vaswani et al. 2017 with the stacks' four sockets filled as the configuration says.
    """

    def __init__(
        self,
        config: ModelConfig,
        source: Embedding,
        encoder: Stack,
        target: Embedding,
        decoder: Stack,
        head: OutputHead,
        languages: int = 0,
        transform: LanguageTransform | None = None,
    ) -> None:
        super().__init__(config, languages)
        self.source_embedding, self.target_embedding = source, target
        self.encoder, self.decoder, self.head = encoder, decoder, head
        self.transform = transform

    def stacks(self) -> Mapping[Side, Stack]:
        """Encoder and decoder."""
        return {"encoder": self.encoder, "decoder": self.decoder}

    def reads(self, source: Tensor, target_input: Tensor) -> Mapping[Side, Tensor]:
        """The source and the target."""
        return {"encoder": source, "decoder": target_input}

    def encode(self, source: Tensor, *, languages: Tensor | None = None) -> tuple[tuple[Tensor, ...], Tensor]:
        """Encode `[N, S]` to the encoder's results, each `[N, S, d]`, and the padding bias `[N, 1, 1, S]`."""
        results, bias, _ = self._encode(source, self._checked(languages, source))
        return results, bias

    def _encode(
        self, source: Tensor, languages: Tensor | None, read: Input | None = None
    ) -> tuple[tuple[Tensor, ...], Tensor, Carried]:
        tokens, cut = read or Input(source)
        return self.encode_embedded(self.source_embedding(tokens, languages, cut), source, languages)

    def encode_embedded(
        self, embedded: Tensor, source: Tensor, languages: Tensor | None
    ) -> tuple[tuple[Tensor, ...], Tensor, Carried]:
        """Encode the embedding `[N, S, d]` of `source` `[N, S]`.

        Returns:
            The encoder's results, the padding bias (see `encode`), and what its companion carried to the end.
        """
        padding = (source == self.pad_id)[:, None, None]
        bias = embedded.new_zeros(padding.shape).masked_fill_(padding, float("-inf"))
        results, _, carried = self.encoder(embedded, padding=bias, languages=languages)
        if self.transform is not None:
            results = self.transform(results, languages)
        return results, bias, carried

    def _decode(
        self, source: Tensor, languages: Tensor | None, read: Input, target: Input
    ) -> tuple[Tensor, ...]:
        """See the base class."""
        encoded, bias, carried = self._encode(source, languages, read)
        memory = self.decoder.project_memory(encoded, bias, languages, carried)
        embedded = self.target_embedding(target.tokens, languages, target.cut)
        results: tuple[Tensor, ...]
        results, _, _ = self.decoder(embedded, memory=memory, languages=languages)
        return results

    def start(
        self,
        source: Tensor,
        *,
        languages: Tensor | None = None,
        prompt: Tensor | None = None,
    ) -> DecoderState:
        """Encode `[N, S]` once, and read the prompts in one pass; see the base class."""
        languages = self._checked(languages, source)
        if languages is not None:
            languages = one_if_equal(languages)
        return self._with_prompt(self.start_from(*self._encode(source, languages), languages), prompt)

    def start_from(
        self, results: tuple[Tensor, ...], bias: Tensor, carried: Carried, languages: Tensor | None
    ) -> DecoderState:
        """`start` from what `encode_embedded` returned, with the target languages of the sentences."""
        memory = self.decoder.project_memory(results, bias, languages, carried)
        sentences = bias.size(0)
        # The encoder's results may have another width than the decoder's stream, of which mixers keep states.
        like = results[0].new_empty(sentences, 1, self.config.size("decoder")[0])
        states = self.decoder.init_states(sentences, like)
        return DecoderState(memory, states, CacheIndex(sentences), sentences, languages)

    def _with(self, stacks: Mapping[Side, Stack], head: OutputHead) -> Self:
        model = type(self)(
            self.config,
            self.source_embedding,
            stacks["encoder"],
            self.target_embedding,
            stacks["decoder"],
            head,
            self.languages,
            self.transform,
        )
        return model.train(self.training)
