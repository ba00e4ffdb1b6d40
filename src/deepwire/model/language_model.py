"""The language model: one causal stack that predicts each token of a text from those before it."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.decoder_state import DecoderState
from deepwire.model.embedding import Embedding
from deepwire.model.head import OutputHead
from deepwire.model.kv_cache import CacheIndex
from deepwire.model.perturbation import Input
from deepwire.model.stack import Stack, StackOutput
from deepwire.model.stack_spec import Side
from deepwire.model.translation_model import TranslationModel


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
