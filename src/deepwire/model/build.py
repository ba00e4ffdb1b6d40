"""A model from its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from torch import nn

from deepwire.errors import ModelError, UsageError
from deepwire.model.aggregations.aggregation import Aggregation
from deepwire.model.config import ModelConfig, StackConfig
from deepwire.model.connections.connection import Call, Connection
from deepwire.model.decoder_only import DecoderOnly, LanguageModel
from deepwire.model.embedding import Embedding, SideEmbedding, TokenEmbedding
from deepwire.model.encoder_decoder import EncoderDecoder
from deepwire.model.fusions.fusion import Fusion
from deepwire.model.head import OutputHead
from deepwire.model.initialization import initialize
from deepwire.model.languages import LanguageEmbedding, LanguageTransform
from deepwire.model.mixers.luna import LunaConfig
from deepwire.model.mixers.mixer import Mixer
from deepwire.model.recurrent_depth import RecurrentStack
from deepwire.model.side_stack import LunaStack, MUDDStack, SideStack
from deepwire.model.stack import Stack, StackParts
from deepwire.model.stack_spec import SIDES, Side, SocketSection, StackSpec, Sublayer
from deepwire.model.translation_model import TranslationModel

PartT = TypeVar("PartT", bound=nn.Module)

# Ids of every vocabulary (deepwire.data).
PAD_ID, BOS_ID, EOS_ID = 0, 1, 2


def build_model(
    config: ModelConfig,
    source_vocabulary: int,
    target_vocabulary: int,
    languages: int = 0,
    *,
    pad_id: int = PAD_ID,
) -> TranslationModel:
    """Build and initialise a model.

    Args:
        config: The model section of a run file.
        source_vocabulary, target_vocabulary: Entries of each side's vocabulary; a model without a source
            vocabulary (0) is a language model, and its architecture is `decoder_only`.
        languages: Number of target languages; those of one language pair need no number.
        pad_id: Id of padding.

    Raises:
        UsageError: Source and target are to share one matrix but differ in size; or parameters of each
            target language are asked for without a number of languages; or encoder and decoder are to share
            layers that do not have the same parameters.
    """
    if config.languages.used and languages < 1:
        raise UsageError(
            "model.languages asks for parameters of each target language, but no languages are named",
            "list them in data.directions, or leave model.languages out",
        )
    targets = languages if config.languages.used else 0
    tie, has_source = config.embeddings.tie, source_vocabulary > 0
    if tie in ("all", "inputs") and has_source and source_vocabulary != target_vocabulary:
        raise UsageError(
            f"embeddings.tie: {tie} needs one vocabulary for both sides, not {source_vocabulary} and "
            f"{target_vocabulary} entries",
            "set data.vocabulary.joint=true, or model.embeddings.tie=output",
        )
    specs = config.specs(targets)
    stacks = build_stacks(config, specs)
    first, decoder = specs[config.sides[0]], stacks["decoder"]
    source_table = TokenEmbedding(source_vocabulary, first.dim, pad_id)
    shared = tie in ("all", "inputs") and has_source
    dim = specs["decoder"].dim
    target_table = source_table if shared else TokenEmbedding(target_vocabulary, dim, pad_id)
    language = _language_embeddings(config, targets)
    source = _embedding(config, source_table, first, language["encoder"])
    target = _embedding(config, target_table, specs["decoder"], language["decoder"])
    # Whose vector a target begins with.
    target.read_as = (BOS_ID, EOS_ID) if config.embeddings.start == "eos" else None
    head = _head(config, target_table, specs["decoder"], decoder, targets)
    model: TranslationModel
    target.zero_id = BOS_ID if config.embeddings.start == "zero" else None
    if not has_source:
        model = LanguageModel(config, target, decoder, head)
    elif config.is_decoder_only:
        target.positions = source.positions  # one sequence has one table
        model = DecoderOnly(config, source, target, decoder, head, targets)
    else:
        initial, transform = config.languages.transform, None
        if targets and initial != "none":
            transform = LanguageTransform(targets, specs["decoder"].memory_width, initial)
        model = EncoderDecoder(config, source, stacks["encoder"], target, decoder, head, targets, transform)
    initialize(model, config.initialization, config.base_width if config.parametrization else None)
    return model


def _head(
    config: ModelConfig, target_table: TokenEmbedding, spec: StackSpec, decoder: Stack, targets: int
) -> OutputHead:
    """The output projection, with the embedding's matrix where they are tied."""
    table = target_table
    if config.embeddings.tie not in ("all", "output"):
        width = config.decoder.connection.result_width(spec)
        table = TokenEmbedding(target_table.weight.size(0), width, target_table.pad_id)
    return OutputHead(
        table,
        bias=config.bias.output,
        fusion=decoder.fusion,
        languages=targets if config.languages.output_bias else 0,
        scale=spec.scaling.output,
    )


def build_stacks(config: ModelConfig, specs: Mapping[Side, StackSpec]) -> dict[Side, Stack]:
    """Build the stacks of a model, whose settings were checked."""
    stacks = {side: _stack(config.stack(side), spec) for side, spec in specs.items()}
    if config.share_layers:
        share_layers(stacks["encoder"], stacks["decoder"])
    return stacks


def _made(part: PartT, kind: type, section: SocketSection, side: Side) -> PartT:
    """The module that a socket has built, which may come from another package."""
    what = f"{side}.{section.kind} {section.type}"
    if not isinstance(part, kind):
        raise ModelError(f"{what}: its build gave {type(part).__name__}, and no {kind.__name__}")
    return part


def _stack(config: StackConfig, spec: StackSpec) -> Stack:
    side = spec.side
    connection = _made(config.connection.build(spec), Connection, config.connection, side)
    mixer_calls = {call.layer: call for call in connection.calls if call.kind == "mixer"}

    def layers(kind: Sublayer) -> list[int]:
        return sorted({call.layer for call in connection.calls if call.kind == kind})

    def mixer(layer: int, call: Call) -> Mixer:
        ways = config.aggregation.gives_ways and layer > 0
        told = replace(spec.of_mixer(call.width, call.gives, layer), ways=ways)
        return _made(config.mixer.build(told), Mixer, config.mixer, side)

    parts = StackParts(
        connection,
        _made(config.aggregation.build(spec), Aggregation, config.aggregation, side),
        _made(config.fusion.build(config.fusion_spec(spec)), Fusion, config.fusion, side),
        [mixer(layer, call) for layer, call in sorted(mixer_calls.items())],
        [
            config.mixer.cross_attention(spec) or config.connection.cross_attention(spec)
            for _ in layers("cross")
        ],
        [spec.feed_forward_network() for _ in layers("feed_forward")],
        [spec.feed_forward_network() for _ in layers("inner_feed_forward")],
    )
    if config.recurrence is not None:
        return RecurrentStack(config.recurrence, spec.dim, parts)
    if isinstance(config.mixer, LunaConfig):
        return LunaStack(spec, parts, config.mixer.companion(spec))
    if config.aggregation.gives_ways:
        return MUDDStack(spec.dim, parts)
    return (SideStack if config.mixer.reads_below else Stack)(spec.dim, parts)


def _language_embeddings(config: ModelConfig, languages: int) -> dict[Side, LanguageEmbedding | None]:
    """Language embeddings of either side; one for both where they share their matrix, as in Neutron."""
    wanted = config.languages.embedding
    made = {
        side: LanguageEmbedding(languages, config.size(side)[0])
        if languages and wanted in (side, "both")
        else None
        for side in SIDES
    }
    if wanted == "both" and config.embeddings.tie in ("all", "inputs"):
        made["decoder"] = made["encoder"]
    return made


def _embedding(
    config: ModelConfig,
    table: TokenEmbedding,
    spec: StackSpec,
    language: LanguageEmbedding | None,
) -> Embedding:
    stack = config.stack(spec.side)
    scaled = config.embeddings.scale if stack.scale_embedding is None else stack.scale_embedding
    return Embedding(
        table,
        (stack.positions or config.positions).build(spec.dim, config.max_length),
        scale=(spec.dim / spec.scaling.width) ** 0.5 if scaled else 1.0,
        norm=spec.norm() if config.embeddings.norm else None,
        dropout=config.dropout.embedding,
        language=language,
        side=SideEmbedding(spec.dim) if config.embeddings.side else None,
    )


def share_layers(encoder: Stack, decoder: Stack) -> None:
    """Give the decoder's mixers, feed-forward networks and connection the parameters of the encoder's."""
    for part in ("mixers", "feed_forwards", "connection"):
        for name, parameter in [*encoder.get_submodule(part).named_parameters()]:
            holder, _, leaf = name.rpartition(".")
            module: nn.Module = decoder.get_submodule(part).get_submodule(holder)
            setattr(module, leaf, parameter)
