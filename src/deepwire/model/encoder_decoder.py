"""The encoder-decoder translation model."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.decoder_state import DecoderState
from deepwire.model.embedding import Embedding
from deepwire.model.head import OutputHead
from deepwire.model.kv_cache import CacheIndex
from deepwire.model.languages import LanguageTransform, one_if_equal
from deepwire.model.mixers.mixer import SideState
from deepwire.model.perturbation import Input
from deepwire.model.stack import Stack, StackOutput
from deepwire.model.stack_spec import Side
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.attention import spans


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
        results, _, context = self._encode(source, self._checked(languages, source))
        assert context.padding is not None
        return results, context.padding

    def _encode(
        self, source: Tensor, languages: Tensor | None, read: Input | None = None
    ) -> tuple[tuple[Tensor, ...], SideState, Context]:
        tokens, cut = read or Input(source)
        return self.encode_embedded(self.source_embedding(tokens, languages, cut), source, languages)

    def encode_embedded(
        self, embedded: Tensor, source: Tensor, languages: Tensor | None
    ) -> tuple[tuple[Tensor, ...], SideState, Context]:
        """Encode the embedding `[N, S, d]` of `source` `[N, S]`.

        Returns:
            The encoder's results, what travelled beside its stream to the end, and its context.
        """
        words = source != self.pad_id
        padding = ~words[:, None, None]
        bias = embedded.new_zeros(padding.shape).masked_fill_(padding, float("-inf"))
        context = Context(languages, padding=bias, spans=spans(words, source.size(1)))
        results, _, side = self.encoder(embedded, context)
        if self.transform is not None:
            results = self.transform(results, languages)
        return results, side, context

    def _decode(
        self, source: Tensor, languages: Tensor | None, read: Input, target: Input
    ) -> tuple[Tensor, ...]:
        results, side, context = self._encode(source, languages, read)
        context = context.replace(spans=spans(source != self.pad_id, target.tokens.size(1)))
        memory = self.decoder.project_memory(results, context, side)
        embedded = self.target_embedding(target.tokens, languages, target.cut)
        output: StackOutput = self.decoder(embedded, Context(languages, memory=memory))
        return output.results

    def start(
        self, source: Tensor, *, languages: Tensor | None = None, prompt: Tensor | None = None
    ) -> DecoderState:
        """Encode `[N, S]` once, and read the prompts in one pass; see the base class."""
        languages = one_if_equal(self._checked(languages, source))
        return self._with_prompt(self.start_from(*self._encode(source, languages)), prompt)

    def start_from(self, results: tuple[Tensor, ...], side: SideState, context: Context) -> DecoderState:
        """`start` from what `encode_embedded` returned."""
        memory = self.decoder.project_memory(results, context.replace(spans=None), side)
        sentences = results[0].size(0)
        # The encoder's results may have another width than the decoder's stream, of which mixers keep states.
        like = results[0].new_empty(sentences, 1, self.config.size("decoder")[0])
        context = Context(context.languages, memory=memory, index=CacheIndex(sentences))
        return DecoderState(context, self.decoder.init_states(sentences, like), sentences)
