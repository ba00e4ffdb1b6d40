"""The encoder-decoder translation model."""

from __future__ import annotations

from torch import Tensor, nn

from deepwire.model.config import ModelConfig
from deepwire.model.embedding import Embedding
from deepwire.model.head import LossSums, OutputHead
from deepwire.model.stack import Stack
from deepwire.model.state import DecoderState
from deepwire.ops.cross_entropy import SmoothingForm

__all__ = ["LossSums", "TranslationModel"]


class TranslationModel(nn.Module):
    """Maps source tokens to a distribution over target tokens.

    Sequences are int64 ids, padded on the right with `pad_id`. Vaswani et al. 2017 with the stacks' four
    sockets filled as the configuration says.

    Attributes:
        config: What it was built from.
        source_vocabulary, target_vocabulary: Sizes V_s and V.
        pad_id: Id of padding.
    """

    def __init__(
        self,
        config: ModelConfig,
        source: Embedding,
        encoder: Stack,
        target: Embedding,
        decoder: Stack,
        head: OutputHead,
    ) -> None:
        super().__init__()
        self.config = config
        self.source_embedding, self.target_embedding = source, target
        self.encoder, self.decoder, self.head = encoder, decoder, head

    @property
    def source_vocabulary(self) -> int:
        """Entries of the source embedding."""
        return self.source_embedding.table.weight.size(0)

    @property
    def target_vocabulary(self) -> int:
        """Entries of the output projection."""
        return self.head.table.weight.size(0)

    @property
    def pad_id(self) -> int:
        """Id of padding, on both sides."""
        return self.source_embedding.table.pad_id

    def encode(self, source: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Encode `[N, S]` to the encoder's results, each `[N, S, d]`, and the padding bias `[N, 1, 1, S]`."""
        embedded = self.source_embedding(source)
        padding = (source == self.pad_id)[:, None, None]
        bias = embedded.new_zeros(padding.shape).masked_fill_(padding, float("-inf"))
        results, _ = self.encoder(embedded, padding=bias)
        return results, bias

    def decode(self, source: Tensor, target_input: Tensor) -> tuple[Tensor, ...]:
        """Decoder results, each `[B, T, d]`, of target prefixes `[B, T]` given sources `[B, S]`."""
        memory = self.decoder.bind(*self.encode(source))
        results: tuple[Tensor, ...]
        results, _ = self.decoder(self.target_embedding(target_input), memory=memory)
        return results

    def loss(
        self,
        source: Tensor,
        target_input: Tensor,
        target_output: Tensor,
        label_smoothing: float = 0.0,
        form: SmoothingForm = "uniform_wrong",
    ) -> LossSums:
        """Sum the loss over the real target tokens.

        Args:
            source: `[B, S]`.
            target_input: `[B, T]`, begins with the start symbol.
            target_output: `[B, T]`, ends with the end symbol.
            label_smoothing: Mass epsilon taken from the true token.
            form: Who receives it, see `deepwire.ops.cross_entropy.linear_cross_entropy`.
        """
        return self.head.loss(self.decode(source, target_input), target_output, label_smoothing, form)

    # Wrappers that call the model itself, such as those for several processes, reach the loss.
    forward = loss

    def log_probs(self, source: Tensor, target_input: Tensor) -> Tensor:
        """Log-probabilities `[B, T, V]`, float32, after each prefix of `target_input` `[B, T]`."""
        return self.head.log_probs(self.decode(source, target_input))

    def score(self, source: Tensor, target_input: Tensor, target_output: Tensor) -> Tensor:
        """Log-probability of each target token, `[B, T]` float32, 0 at padding."""
        return self.head.target_log_probs(self.decode(source, target_input), target_output)

    def start(self, source: Tensor, max_length: int) -> DecoderState:
        """Encode `[N, S]` once; the state has one row for each sentence.

        `max_length` is the number of steps that may follow; states grow as needed, so it is only a promise.
        """
        results, bias = self.encode(source)
        memory = self.decoder.bind(results, bias)
        sentences = source.size(0)
        # The encoder's results may be wider than the decoder's stream, of which mixers keep states.
        states = self.decoder.init_states(sentences, results[0][..., : self.config.d_model])
        return DecoderState(memory, states, position=0, rows=sentences, sentences=sentences)

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Read one token per row, `[rows]`: log-probabilities `[rows, V]` of the next, and the next state.

        Consumes `state`: only the returned one may be used afterwards.
        """
        embedded = self.target_embedding(tokens.unsqueeze(1), first=state.position)
        results, states = self.decoder(
            embedded, memory=state.memory, states=state.states, position=state.position
        )
        log_probs = self.head.log_probs([result[:, 0] for result in results])
        following = DecoderState(
            state.memory, states, position=state.position + 1, rows=state.rows, sentences=state.sentences
        )
        return log_probs, following

    def restrict(self, first: int, last: int) -> TranslationModel:
        """The model that predicts with groups `first` to `last` of its decoder alone, counted from 1.

        It shares all parameters with this one, and evaluates no decoder layer above the last group
        (Yang et al. 2022, Table VI).

        Raises:
            ValueError: The decoder does not predict with a mixture of groups, or has not so many.
        """
        decoder = self.decoder.restrict(first, last)
        head = self.head.with_fusion(decoder.fusion)
        model = TranslationModel(
            self.config, self.source_embedding, self.encoder, self.target_embedding, decoder, head
        )
        return model.train(self.training)

    def parameter_groups(self) -> dict[str, int]:
        """Number of parameters of each part; what several parts share counts in the first."""
        parts: dict[str, nn.Module] = {
            "source embedding": self.source_embedding,
            "target embedding": self.target_embedding,
            "output projection": self.head,
        }
        for side, stack in (("encoder", self.encoder), ("decoder", self.decoder)):
            parts |= {f"{side} {name}": part for name, part in stack.parts().items()}
        seen: set[int] = set()
        counts = {}
        for name, part in parts.items():
            new = {id(parameter): parameter.numel() for parameter in part.parameters()}
            counts[name] = sum(size for key, size in new.items() if key not in seen)
            seen |= set(new)
        return {name: count for name, count in counts.items() if count}
