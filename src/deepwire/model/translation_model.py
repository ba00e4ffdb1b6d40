"""The base of every translation model: loss, scores and decoding step by step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import copy
from functools import partial
from typing import Self

import torch
from torch import Tensor, nn

from deepwire.errors import ModelError, UsageError
from deepwire.model.config import ModelConfig
from deepwire.model.cross_attention import CrossAttentionRecorder, Layers
from deepwire.model.decoder_state import DecoderState
from deepwire.model.embedding import Embedding
from deepwire.model.head import LossSums, OutputHead
from deepwire.model.languages import LanguageTransform
from deepwire.model.perturbation import Input, Perturbation
from deepwire.model.stack import Stack, StackOutput
from deepwire.model.stack_spec import Side
from deepwire.ops.cross_entropy import SmoothingForm
from deepwire.ops.pair_loss import linear_r_drop, linear_sim_cut

__all__ = ["LossSums", "TranslationModel"]


class TranslationModel(nn.Module, ABC):
    """Maps source tokens to a distribution over target tokens.

    Sequences are int64 ids, padded on the right with `pad_id`.
    In a model of several languages `languages` are the target languages of the rows, `[B]` int64 from 0, or
    `[1]` for all rows. Only a model with parameters of each language wants them; others, which see the target
    language in their input, take them and do nothing with them.

    Attributes:
        config: What it was built from.
        source_vocabulary, target_vocabulary: Sizes V_s and V.
        pad_id: Id of padding.
        languages: How many target languages have parameters of their own; 0 where all share all.
        transform: What each target language does to the encoder's output; None as a rule.
    """

    source_embedding: Embedding
    target_embedding: Embedding
    decoder: Stack
    head: OutputHead
    transform: LanguageTransform | None

    def __init__(self, config: ModelConfig, languages: int = 0) -> None:
        super().__init__()
        self.config, self.languages = config, languages
        self.transform = None

    @abstractmethod
    def stacks(self) -> Mapping[Side, Stack]:
        """The stacks by their side, in order; every model has a decoder."""

    @abstractmethod
    def start(
        self, source: Tensor, *, languages: Tensor | None = None, prompt: Tensor | None = None
    ) -> DecoderState:
        """Read sources `[N, S]` once; the state has one row for each sentence.

        Args:
            source: The sentences.
            languages: See the class.
            prompt: Target tokens `[N, P]` that are read too, perhaps none in some rows.
        """

    @abstractmethod
    def _decode(
        self, source: Tensor, languages: Tensor | None, read: Input, target: Input
    ) -> tuple[Tensor, ...]:
        """Results `[B, T, d]` of sources `[B, S]`, where `read` and `target` are what the embeddings see."""

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

    @abstractmethod
    def reads(self, source: Tensor, target_input: Tensor) -> Mapping[Side, Tensor]:
        """The tokens that each stack reads of sources `[B, S]` and target prefixes `[B, T]`."""

    def stack(self, side: Side) -> Stack:
        """The stack of one side.

        Raises:
            ModelError: The model has none.
        """
        stacks = self.stacks()
        if side not in stacks:
            raise ModelError(f"the model has no {side}: its architecture is {self.config.architecture}")
        return stacks[side]

    def _checked(self, languages: Tensor | None, rows: Tensor) -> Tensor | None:
        """The target languages of so many rows; None where nothing depends on them."""
        if not self.languages and not self.head.selects_by_language:
            return None
        if languages is None:
            raise UsageError(
                "the model has parameters of each target language, and was not told the target languages",
                "give languages=, the number of the target language of each row",
            )
        if languages.shape not in (rows.shape[:1], (1,)):
            raise UsageError(
                f"target languages of shape {list(languages.shape)} for {rows.size(0)} rows",
                "give one number for each row",
            )
        return languages

    def decode(
        self, source: Tensor, target_input: Tensor, *, languages: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Decoder results, each `[B, T, d]`, of target prefixes `[B, T]` given sources `[B, S]`."""
        return self._decode(source, self._checked(languages, source), Input(source), Input(target_input))

    def _predict(
        self, source: Tensor, languages: Tensor | None, read: Input, target: Input, output: Tensor
    ) -> list[tuple[tuple[Tensor, ...], Tensor]]:
        """Results, and the tokens that each is to predict: of the target, then what else is to be learned."""
        return [(self._decode(source, languages, read, target), output)]

    def loss(
        self,
        source: Tensor,
        target_input: Tensor,
        target_output: Tensor,
        label_smoothing: float = 0.0,
        form: SmoothingForm = "uniform_wrong",
        r_drop: float = 0.0,
        *,
        languages: Tensor | None = None,
        perturbation: Perturbation | None = None,
    ) -> LossSums:
        """Sum the loss over the real target tokens.

        Args:
            source: `[B, S]`.
            target_input: `[B, T]`, begins with the start symbol.
            target_output: `[B, T]`, ends with the end symbol.
            label_smoothing: Mass epsilon taken from the true token.
            form: Who receives it, see `deepwire.ops.cross_entropy.linear_cross_entropy`.
            r_drop: Above 0, two passes with different dropout are made, and the distance between them counts
                with this weight, see `deepwire.ops.pair_loss`.
            languages: Target language of each row, `[B]`.
            perturbation: Disturbs the input, and with SimCut makes two passes, see `deepwire.ops.pair_loss`.

        Raises:
            ValueError: R-Drop and SimCut are asked for together.
        """
        sim_cut = perturbation.sim_cut if perturbation is not None else None
        if r_drop and sim_cut is not None:
            raise ValueError("R-Drop and SimCut exclude each other: both say what a second pass is for")
        pair = partial(linear_r_drop, alpha=r_drop) if r_drop else None
        if sim_cut is not None:
            pair = partial(linear_sim_cut, alpha=sim_cut.alpha)
        if pair is not None:
            source, target_input = source.repeat(2, 1), target_input.repeat(2, 1)
            if languages is not None and languages.size(0) > 1:
                languages = languages.repeat(2)
        read, target = Input(source), Input(target_input)
        if perturbation is not None:
            read, target = perturbation.draw(source, target_input)
        languages = self._checked(languages, source)
        first, *others = (
            self.head.loss(results, output, label_smoothing, form, languages)
            if pair is None
            else self.head.pair_loss(results, output, label_smoothing, form, pair, languages)
            for results, output in self._predict(source, languages, read, target, target_output)
        )
        smoothed = sum((other.smoothed for other in others), first.smoothed)
        # Not `_replace`: torch.compile of torch 2.11 fails on it.
        return LossSums(smoothed, first.nll, first.tokens, first.divergence)

    # Wrappers that call the model itself, such as those for several processes, reach the loss.
    forward = loss

    @property
    def needs_profile(self) -> bool:
        """Whether training begins with `profile`."""
        return any(stack.connection.needs_profile for stack in self.stacks().values())

    @torch.no_grad()
    def profile(self, source: Tensor, target_input: Tensor, *, languages: Tensor | None = None) -> None:
        """Let connections that need it set parameters by what one pass over a batch shows, as in training.

        Arguments as in `loss`. Nothing else changes but the state of random numbers.
        """
        stacks = self.stacks().values()
        connections = [stack.connection for stack in stacks if stack.connection.needs_profile]
        mode = self.training
        self.train()
        for connection in connections:
            connection.profiling = True
        try:
            self.decode(source, target_input, languages=languages)
        finally:
            for connection in connections:
                connection.profiling = False
            self.train(mode)

    def begin_update(self, number: int) -> None:
        """Tell the connections that update `number` is next, from 1."""
        for stack in self.stacks().values():
            stack.connection.begin_update(number)

    def log_probs(self, source: Tensor, target_input: Tensor, *, languages: Tensor | None = None) -> Tensor:
        """Log-probabilities `[B, T, V]`, float32, after each prefix of `target_input` `[B, T]`."""
        return self.head.log_probs(self.decode(source, target_input, languages=languages), languages)

    def score(
        self, source: Tensor, target_input: Tensor, target_output: Tensor, *, languages: Tensor | None = None
    ) -> Tensor:
        """Log-probability of each target token, `[B, T]` float32, 0 at padding."""
        results = self.decode(source, target_input, languages=languages)
        return self.head.target_log_probs(results, target_output, languages)

    def source_weights(
        self, source: Tensor, target_input: Tensor, layers: Layers = None, *, languages: Tensor | None = None
    ) -> Mapping[int, Tensor]:
        """How prefixes `[B, T]` look at sources `[B, S]`: `[B, H, T, S]` by layer; ModelError: none does."""
        self.stack("encoder")
        recorder = CrossAttentionRecorder(layers)
        recorded = self.with_stacks(decoder=self.decoder.with_recorder(recorder))
        recorded.decode(source, target_input, languages=languages)
        return recorder.found()

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Read one token per row, `[rows]`: log-probabilities `[rows, V]` of the next, and the next state.

        Consumes `state`: only the returned one may be used afterwards.
        """
        return self.step_at(self.vectors_of(state), tokens, state.ensure_capacity())

    def vectors_of(self, state: DecoderState, steps: int = 1) -> Tensor | None:
        """Vectors of the embedding from the position of a state on, `[steps, d]` or `[rows, 1, d]`, or None.

        After prompts of different lengths each row has a position of its own.
        """
        index = state.index
        if index.skipped is None:
            return self.target_embedding.vectors(state.position, steps)
        vectors = self.target_embedding.vectors(0, state.position + 1)
        if vectors is None:
            return None
        return vectors[(state.position - index.skipped).repeat_interleave(index.width)].unsqueeze(1)

    def step_at(
        self, vectors: Tensor | None, tokens: Tensor, state: DecoderState
    ) -> tuple[Tensor, DecoderState]:
        """`step` without what depends on numbers of the state; with a `GraphStep`, a CUDA graph may hold it.

        Args:
            vectors: Of the position, see `vectors_of`.
            tokens: `[rows]`.
            state: With room for another step.
        """
        x = self.target_embedding.placed(tokens.unsqueeze(1), vectors, state.context.languages)
        return self.read_at(x, state)

    def read_at(self, x: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """`step_at` of embedded positions `[rows, T, d]`: log-probabilities `[rows, V]` behind the last."""
        results, state = self._read(x, state.allocate_slots())
        return self.head.log_probs([result[:, -1] for result in results], state.context.languages), state

    def _with_prompt(self, state: DecoderState, prompt: Tensor | None) -> DecoderState:
        """Read target tokens `[N, P]`, perhaps none in some rows, into a state that has read nothing."""
        if prompt is None:
            return state
        x = self.target_embedding(prompt, state.context.languages)
        return self._prefilled(x, (prompt != self.pad_id).sum(1), state)

    def _prefilled(self, x: Tensor, lengths: Tensor, state: DecoderState) -> DecoderState:
        """Read prompts into a state that has read nothing: all of their positions at once.

        Args:
            x: Embedded, `[N, T, d]`, and padded on the right.
            lengths: Tokens of each, `[N]`.
            state: Of one row for each.
        """
        # On the meta device, where there are no values, all prompts are equally long.
        each = [x.size(1)] if x.is_meta else lengths.tolist()
        shortest, longest = min(each, default=0), max(each, default=0)
        if longest == 0:
            return state
        if shortest < x.size(1):
            x = ending_together(x, lengths, longest)
        state = state.ensure_capacity(longest + 1)
        state = state.at(state.index.start_prefill(lengths, shortest, longest)).allocate_slots()
        return self._read(x, state)[1]

    def _read(self, x: Tensor, state: DecoderState) -> tuple[tuple[Tensor, ...], DecoderState]:
        """The decoder's results of the next positions, embedded `[rows, T, d]`, and the state behind them."""
        output: StackOutput = self.decoder(x, state.context, state.states)
        return output.results, state.advance(output.states)

    def restrict(self, first: int, last: int) -> Self:
        """The model that predicts with groups `first` to `last` of its decoder alone, counted from 1.

        It shares all parameters with this one, and evaluates no decoder layer above the last group
        (Yang et al. 2022, Table VI). A decoder without so many groups raises ValueError.
        """
        return self.with_stacks(decoder=self.decoder.restrict(first, last))

    def with_rounds(self, rounds: int) -> Self:
        """The model whose encoder runs its middle layers so often; it shares all parameters with this one.

        Without an encoder it raises ModelError; without recurrent depth (`recurrent_depth`) ValueError.
        """
        return self.with_stacks(encoder=self.stack("encoder").with_rounds(rounds))

    def select(self, tokens: Tensor, allowed: Tensor | None = None) -> Self:
        """The model that steps to `tokens` `[k]` alone; their probabilities `[rows, k]` sum to one.

        With `allowed` `[L, k]` each row has those of its target language alone, and `start` wants the
        languages. It shares all else with this one; loss and `score` stay those of all tokens.
        """
        return self._with({"head": self.head.select(tokens, allowed)})

    def with_stacks(self, *, encoder: Stack | None = None, decoder: Stack | None = None) -> Self:
        """The model with another encoder or decoder; everything else, with its parameters, is shared.

        Raises:
            ModelError: An encoder for a model that has none.
        """
        parts: dict[str, nn.Module] = {}
        if encoder is not None:
            self.stack("encoder")
            parts["encoder"] = encoder
        if decoder is not None:
            parts |= {"decoder": decoder, "head": self.head.with_fusion(decoder.fusion)}
        return self._with(parts)

    def _with(self, parts: Mapping[str, nn.Module]) -> Self:
        other = copy(self)
        other._modules = {**self._modules, **parts}  # otherwise both would have one dictionary of parts
        return other

    def parameter_groups(self) -> dict[str, int]:
        """Number of parameters of each part; what several parts share counts in the first."""
        parts: dict[str, nn.Module] = {
            "source embedding": self.source_embedding,
            "target embedding": self.target_embedding,
            "output projection": self.head,
        }
        for side, stack in self.stacks().items():
            parts |= {f"{side} {name}": part for name, part in stack.parts().items()}
        if self.transform is not None:
            parts["language transform"] = self.transform
        seen, counts = set[int](), dict[str, int]()
        for name, part in parts.items():
            new = {id(parameter): parameter.numel() for parameter in part.parameters()}
            counts[name] = sum(size for key, size in new.items() if key not in seen)
            seen |= set(new)
        return {name: count for name, count in counts.items() if count}


def at_places(x: Tensor, places: Tensor) -> Tensor:
    """`[B, n, d]` at places `[B, m]`."""
    return x.gather(1, places.unsqueeze(-1).expand(-1, -1, x.size(-1)))


def joined_places(lengths: Tensor, source: int, target: int) -> tuple[Tensor, Tensor]:
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


def ending_together(x: Tensor, lengths: Tensor, longest: int) -> Tensor:
    """Rows `[B, T, d]`, padded on the right, moved so that all end together: `[B, longest, d]`.

    In front of a row comes something of its end, which nobody may see.

    Args:
        x: The rows.
        lengths: Tokens of each, `[B]`.
        longest: The largest of `lengths`.
    """
    places = (torch.arange(longest, device=x.device) - (longest - lengths).unsqueeze(1)) % x.size(1)
    return at_places(x, places)
